"""The local stack as a whole: up, down, status, and how other commands find it.

`up` starts, in parallel, each part that has no endpoint configured. The servers outlive the command; `down` stops them
and leaves their data. A lock allows one `up` or `down` at a time in a folder. Processes left by a killed `up` have pid
files, so the next `up` or `down` finds them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from distrl.config import AdbSettings, Config, PhoneSettings
from distrl.device.names import is_address
from distrl.errors import StackError
from distrl.stack import adb, kafka, phones, ports, running_stacks, s3
from distrl.stack.locks import held
from distrl.stack.part import Part, Site
from distrl.stack.part_ports import PartPorts
from distrl.stack.part_ports import wanted as wanted_ports
from distrl.stack.processes import Child, find_all, kill_all, stop_all
from distrl.stack.serving import started_where_free
from distrl.stack.stack_record import Record

log = logging.getLogger(__name__)

STOP_S = max(kafka.STOP_S, s3.STOP_S, phones.STOP_S, adb.STOP_S)
NAMES = (kafka.NAME, s3.NAME, adb.NAME, phones.NAME)


class TakenDownError(StackError):
    """A part was stopped by another command: on purpose."""


@dataclass(frozen=True, slots=True)
class PartStatus:
    """One part, as `distrl status` shows it."""

    name: str
    running: bool | None
    """None where only an adb server could tell: for phones without an address."""
    where: str
    pid: int | None
    """None if it is not a process of ours."""
    configured: bool = False
    """Whether the settings name it, so that it is not ours to start."""


class LocalStack:
    """The stack in `config.stack.directory`. Driven by one thread.

    report: receives short progress messages; default: the log. owner: the command that the parts belong to, if
    not the user: it reuses what is up, and ends with `down_own`.
    """

    def __init__(self, config: Config, report: Callable[[str], None] = log.info, owner: str = "") -> None:
        self._config = config
        self._owner = owner
        self._report = report
        self._directory = config.stack.directory.expanduser().absolute()
        self._cache = config.stack.cache.expanduser().absolute()
        self._record = Record(self._directory)
        self._parts: Mapping[str, Part] = {}
        self._started: Mapping[str, Part] = {}
        """The parts that the last `up` has started."""

    def up(self, reuse: bool = False) -> Config:
        """Start what is neither configured nor up. Returns the configuration with every endpoint filled in.

        reuse: use a stack that is up already, which is an error without it. A part that has died, or that runs with
        other settings than wanted, is restarted in any case. With an owner, parts with other settings that somebody
        else has started are refused.

        Raises StackError (a port in use; a server that does not start, with the end of its log; another `up` running);
        then, and at Ctrl-C, what this call has started is stopped again.
        """
        with self._held("distrl up"):
            parts = self._record.parts()
            wanted = _wanted(self._config, parts)
            good = {name: parts[name] for name in wanted if name in parts and parts[name].settings == wanted[name]}
            if good.keys() == wanted.keys() and any(part.child for part in good.values()) and not reuse:
                raise StackError(
                    str(self._directory),
                    "the stack is up already",
                    "`distrl status` shows it, `distrl topics ensure` makes missing topics, `distrl down` stops it; or "
                    "set stack.directory for a second one",
                )
            if self._owner:
                self._refuse_others(parts, wanted)
            missing = {name: wanted[name] for name in NAMES if name in wanted and name not in good}
            stop_all([child for child in find_all(self._directory) if child.name in missing], STOP_S)
            running_stacks.remember(self._cache, self._directory)
            self._started = self._start(missing, self._config, self._owner)
            self._parts = {**good, **self._started}
            return _filled(self._config, self._parts, self._directory)

    def stop_started(self) -> None:
        """Stop what the last `up` has started; what it found stays."""
        with self._held("distrl up, stopping"):
            self._stop_started(list(self._started.values()))

    def ended(self) -> list[Part]:
        """The parts that have ended since `up` or `start_again`: killed, or stopped by another command."""
        return [part for part in self._parts.values() if not part.lives()]

    def start_again(self, part: Part) -> None:
        """Start one that has ended, where everybody looks for it. Raises TakenDownError where another command has
        stopped it, else as `up`: its port may be in use."""
        with self._held(f"starting {part.name} again"):
            if not self._record.has(part.name):
                raise TakenDownError(
                    part.name,
                    f"at {part.where} was stopped by another command",
                    "run the same command again: it starts the part, and continues",
                )
            found = self._record.parts().get(part.name) or self._adopted(part)
            if found is None or found.where != part.where:
                config = _with_ports_of(part, self._config)
                found = self._start({part.name: part.settings}, config, part.started_by)[part.name]
            self._parts = {**self._parts, part.name: found}

    def down(self) -> list[str]:
        """Stop every process of the stack; data and logs stay. Returns the names of those that ran."""
        if not self._directory.exists():
            return []
        with self._held("distrl down"):
            children = find_all(self._directory)
            killed = stop_all(children, STOP_S)
            if killed:
                log.warning("had to be killed: %s", ", ".join(killed))
            self._record.remove(*NAMES)
            return [child.name for child in children]

    def down_own(self) -> list[str]:
        """Stop the parts that `owner` has started, also in a killed command. Returns their names.

        Ctrl-C meanwhile kills them.
        """
        with self._held(f"{self._owner}, stopping"):
            own = [name for name, part in self._record.parts().items() if part.started_by == self._owner]
            self._stop([child for child in find_all(self._directory) if child.name in own])
            self._record.remove(*own)
            return own

    def status(self) -> list[PartStatus]:
        """Every part, of this stack or as configured."""
        parts = self._record.parts()
        outside = _configured(self._config, parts)
        rows = []
        for name in NAMES:
            part = parts.get(name)
            if name in outside:
                asked = name != phones.NAME or any(map(is_address, self._config.devices.named))
                rows.append(PartStatus(name, _reachable(outside[name]) if asked else None, outside[name], None, True))
            elif part is not None:
                rows.append(PartStatus(name, True, part.where, part.child.pid if part.child else None))
            else:
                rows.append(PartStatus(name, False, "", None))
        return rows

    def own(self) -> frozenset[str]:
        """The parts that `up` starts here: those without a configured endpoint."""
        return frozenset(NAMES) - _configured(self._config, self._record.parts()).keys()

    def _refuse_others(self, parts: Mapping[str, Part], wanted: Mapping[str, Mapping[str, Any]]) -> None:
        for name, part in parts.items():
            if part.child is None or part.started_by == self._owner or part.settings == wanted.get(name, part.settings):
                continue
            differ = [
                f"{key} {part.settings.get(key)!r} and not {value!r}"
                for key, value in wanted[name].items()
                if part.settings.get(key) != value
            ]
            raise StackError(
                name,
                f"runs at {part.where} with other settings than wanted: {', '.join(differ)}",
                "stop it with `distrl down` and run the same command again; or set stack.directory to another folder "
                "for a second stack",
            )

    def _held(self, doing: str) -> Any:
        return held(self._directory / "stack.lock", doing)

    def _adopted(self, part: Part) -> Part | None:
        """The adb server that another process has started in place of one that ended; from now on it is a part of the
        stack. None where there is none, and for other parts."""
        if part.name != adb.NAME:
            return None
        found = adb.adopted(self._site(), adb.fill(self._config, part).adb)
        return None if found is None else self._recorded(found, part.started_by)

    def _site(self) -> Site:
        return Site(self._directory, self._cache, threading.Event(), self._report)

    def _start(self, wanted: Mapping[str, Mapping[str, Any]], config: Config, owner: str) -> dict[str, Part]:
        """Start the named parts together. All or none."""
        site = self._site()
        starters = _starters(config, site, wanted)
        started: list[Part] = []  # shared with the threads, so that Ctrl-C stops parts whose start ends later too
        pool = ThreadPoolExecutor(max_workers=max(1, len(starters)), thread_name_prefix="up")
        futures: dict[str, Future[Part]] = {}
        try:
            for name, start in starters.items():
                futures[name] = pool.submit(self._start_one, start, started, owner)
            for first in wait(futures.values(), return_when=FIRST_EXCEPTION).done:
                first.result()
            return {name: future.result() for name, future in futures.items()}
        except BaseException:
            site.cancelled.set()
            self._settle(pool, futures.values())
            self._stop_started(started)
            raise
        finally:
            pool.shutdown(wait=False)

    def _settle(self, pool: ThreadPoolExecutor, futures: Collection[Future[Part]]) -> None:
        """Wait until no part is being started, also on a second Ctrl-C: a part that starts later would be left.

        Waits for the futures, and only then joins the threads: a `join` that Ctrl-C interrupts takes a running thread
        for ended.
        """
        while True:
            try:
                pool.shutdown(wait=False, cancel_futures=True)
                wait(futures)
                pool.shutdown()
                return
            except KeyboardInterrupt:
                self._report("stopping; a download in progress has to end first")

    def _start_one(self, start: Callable[[], Part], started: list[Part], owner: str) -> Part:
        part = start()
        started.append(part)
        return self._recorded(part, owner)

    def _recorded(self, part: Part, owner: str) -> Part:
        owned = replace(part, started_by=owner)
        self._record.put(owned)
        return owned

    def _stop_started(self, started: Sequence[Part]) -> None:
        self._stop([part.child for part in started if part.child is not None])
        self._record.remove(*(part.name for part in started))

    def _stop(self, children: Sequence[Child]) -> None:
        """Stop them, or at Ctrl-C kill them: nothing is left, and what a server has acknowledged is not lost."""
        try:
            stop_all(children, STOP_S)
        except KeyboardInterrupt:
            kill_all(children)
            raise


def connect(config: Config, share: phones.Share = "all") -> Config:
    """`config` with the endpoints of its running local stack, where none is configured.

    share: which of the stack's phones; configured phones are all used.
    """
    directory = config.stack.directory.expanduser().absolute()
    parts = Record(directory).parts()
    outside = _configured(config, parts)
    if kafka.NAME not in {**parts, **outside}:
        config = kafka.down(config)
    return _filled(config, {name: part for name, part in parts.items() if name not in outside}, directory, share)


def _configured(config: Config, parts: Mapping[str, Part]) -> dict[str, str]:
    """Part -> its configured endpoint. The stack does not start those.

    With a configured adb address, our adb server is started there, unless something listens there already.
    """
    outside: dict[str, str] = {}
    if "bootstrap" in config.kafka.model_fields_set:
        outside[kafka.NAME] = config.kafka.bootstrap
    if "url" in config.store.model_fields_set:
        outside[s3.NAME] = config.store.url
    server = f"{config.adb.host}:{config.adb.port}"
    ours = adb.NAME in parts and parts[adb.NAME].where == server
    if config.adb.model_fields_set & {"host", "port"} and not ours and _reachable(server):
        outside[adb.NAME] = server
    if config.devices.named:
        outside[phones.NAME] = ", ".join(config.devices.named)
    return outside


def _wanted(config: Config, parts: Mapping[str, Part]) -> dict[str, Mapping[str, Any]]:
    """The parts to start, each with its settings."""
    settings: dict[str, Mapping[str, Any]] = {
        kafka.NAME: {"heap_mb": config.stack.kafka_heap_mb},
        s3.NAME: {"object_store": config.stack.object_store},
        adb.NAME: adb.settings(config.adb),
    }
    if phones.total(config.phones):
        settings[phones.NAME] = phones.settings(config.phones)
    outside = _configured(config, parts)
    return {name: value for name, value in settings.items() if name not in outside}


def _starters(config: Config, site: Site, wanted: Mapping[str, Mapping[str, Any]]) -> dict[str, Callable[[], Part]]:
    """A function per part that starts it, with distinct ports. The functions may run in parallel."""
    own = PartPorts(config)

    def adb_server() -> AdbSettings:
        return config.adb.model_copy(update={"port": own.of(adb.NAME)})

    def fleet() -> PhoneSettings:
        return config.phones.model_copy(update={"base_port": own.of(phones.NAME)})

    starters = dict[str, Callable[[], Part]]()
    if kafka.NAME in wanted:
        start_kafka = lambda found: kafka.start_kafka(site, wanted[kafka.NAME], *found)  # noqa: E731
        starters[kafka.NAME] = started_where_free(site, own.of_broker_and_controller, start_kafka)
    if s3.NAME in wanted:
        start_s3 = lambda found: s3.start_s3(site, wanted[s3.NAME], found)  # noqa: E731
        starters[s3.NAME] = started_where_free(site, lambda: own.of(s3.NAME), start_s3)
    if adb.NAME in wanted:
        starters[adb.NAME] = started_where_free(site, adb_server, lambda found: adb.start_adb(site, found))
    if phones.NAME in wanted:
        starters[phones.NAME] = started_where_free(site, fleet, lambda found: phones.start_phones(site, found))
    return starters


def _with_ports_of(part: Part, config: Config) -> Config:
    """`config` with the ports of `part` as if a person had set them: it takes no others."""
    section, setting = wanted_ports(config)[part.name].setting.split(".")
    first = int(part.where.rpartition(":")[2].partition("/")[0].partition("-")[0])
    changed = getattr(config, section).model_copy(update={setting: first})
    return config.model_copy(update={section: changed})


def _filled(config: Config, parts: Mapping[str, Part], directory: Path, share: phones.Share = "all") -> Config:
    """`config` with the endpoints of `parts`."""
    if kafka.NAME in parts:
        config = kafka.fill(config, parts[kafka.NAME])
    if s3.NAME in parts:
        config = s3.fill(config, parts[s3.NAME], directory)
    if adb.NAME in parts:
        config = adb.fill(config, parts[adb.NAME])
    if phones.NAME in parts:
        config = phones.fill(config, parts[phones.NAME], share)
    return config


USUAL_PORTS = {"s3": 80, "s3s": 443}
"""By the scheme of store.url, where it names none."""


def _reachable(where: str) -> bool:
    """Whether something listens at any host:port of an endpoint, which may be a comma-separated list of brokers.
    A directory is always reachable.
    """
    scheme, _, rest = where.rpartition("://")
    if scheme == "file":
        return True
    usual = USUAL_PORTS.get(scheme)
    return any(ports.listens_at(each.strip().partition("/")[0], usual) for each in rest.split(","))
