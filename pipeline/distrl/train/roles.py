"""The roles of a run as child processes: the same commands that a person would type, with one settings file."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from distrl.clock import SYSTEM_CLOCK, Clock
from distrl.config import ENV_PREFIX, Config
from distrl.errors import DistrlError, StackError
from distrl.interruptions import interruptions_deferred
from distrl.stack.exported_settings import portable
from distrl.stack.locks import held
from distrl.stack.private_file import write_private
from distrl.stack.processes import Child, find_all, kill_all, start, stop_all
from distrl.train.folder import LOCK, trained_on
from distrl.train.restarts import TRIES, Restarts
from distrl.train.servers import Servers

LOG = logging.getLogger("distrl.train")

STOP_TIMEOUT_S = 90.0
"""A worker finishes its episodes and a learner its update; one that needs longer is killed, which loses nothing."""


@dataclass
class Role:
    """One supervised process."""

    line: Sequence[str]
    child: Child
    restarts: Restarts
    """By the clock's ticks."""
    stays: bool = False
    """Whether it works until it is stopped."""


@dataclass
class Roles:
    """Starts, supervises and stops roles. Driven by one thread; `stop` may be called twice.

    `check` starts a role that has ended with an error again, after growing pauses; nothing is lost, as all that it did
    is in the log. It also restarts a role that should stay but ended without an error, because something else asked it
    to, such as a guard of the machine's memory: without it the run would stand still.
    """

    config: Config
    directory: Path
    """Of their logs and pid files."""
    servers: Servers | None = None
    """The servers that were started here for the roles."""
    settings: Path | None = None
    """The file that the roles read; `directory`/settings.yaml if None."""
    tries: int = TRIES
    """As in Restarts."""
    clock: Clock = SYSTEM_CLOCK
    renewed: Callable[[], Config] | None = None
    """Returns the run's current settings, for a role that is started again. May raise DistrlError."""
    _roles: dict[str, Role] = field(default_factory=dict)
    _ports: dict[str, int] = field(default_factory=dict)
    """Role -> its monitoring.port: each gets the next one, in the order of their first starts, and keeps it."""

    def __post_init__(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self._file = self.settings or self.directory / "settings.yaml"
        write_settings(self.config, self._file)

    @property
    def restarted(self) -> Mapping[str, int]:
        """Server or role -> how often it was started again; only those that were."""
        servers = self.servers.restarted if self.servers is not None else {}
        return {**servers} | {name: role.restarts.count for name, role in self._roles.items() if role.restarts.count}

    def start(self, name: str, command: str, *arguments: str, sets: Sequence[str] = (), stays: bool = False) -> None:
        """Start `distrl COMMAND` as process `name`, its log in `<directory>/<name>.log`.

        stays: whether it works until it is stopped here, so that it is restarted even if it ends without an error.
        """
        port = self.monitoring_port(name)
        if port is not None:
            LOG.info("%s: /metrics, /livez and /readyz are at port %d", name, port)
            sets = [*sets, f"monitoring.port={port}"]
        flags = [flag for item in sets for flag in ("--set", item)]
        line = [sys.executable, "-m", "distrl.cli.main", command, "--config", str(self._file), *flags, *arguments]
        with interruptions_deferred():  # a child whose pid is not written yet could not be found again
            self._roles[name] = Role(line, self._started(name, line), Restarts(self.tries, self.clock.ticks()), stays)

    def monitoring_port(self, name: str) -> int | None:
        """The port of the role's monitoring endpoints; None where monitoring.port is unset."""
        first = self.config.monitoring.port
        return None if first is None else self._ports.setdefault(name, first + len(self._ports))

    def stop(self, *names: str) -> None:
        """Ask the named roles (default: all) to finish, and wait until they have."""
        chosen = {name: self._roles[name].child for name in names or tuple(self._roles) if name in self._roles}
        stop_all(chosen.values(), timeout_s=STOP_TIMEOUT_S)
        for name in chosen:  # after waiting: on Ctrl-C the next `stop` still has them
            del self._roles[name]

    def kill(self) -> None:
        """End every role at once."""
        kill_all(role.child for role in self._roles.values())

    def abandon(self, name: str) -> None:
        """Forget a role that somebody else has killed, so that it can be started again."""
        stop_all([self._roles.pop(name).child], timeout_s=STOP_TIMEOUT_S)

    def finished(self, name: str) -> bool:
        """Whether a role that ends by itself has ended well. Raises as `check` does."""
        self.check()
        role = self._roles[name]
        return role.restarts.again_s is None and role.child.returncode() is not None

    def check(self) -> None:
        """Start ended servers and roles again once their pauses are over; of the roles, those that ended with an error
        and those that should stay.

        Raises StackError where one of them cannot be started.
        """
        if self.servers is not None:
            self.servers.check()
        now = self.clock.ticks()
        for name, role in self._roles.items():
            if role.restarts.again_s is None:
                self._look(name, role, now)
            elif now >= role.restarts.again_s:
                self._renew_settings()
                with interruptions_deferred():  # a child whose pid is not written yet could not be found again
                    role.child = self._started(name, role.line)
                role.restarts.started(now)

    def _renew_settings(self) -> None:
        """Write the run's current settings to the file: the old ones would override changes by `distrl runs set`."""
        if self.renewed is None:
            return
        try:
            write_settings(self.renewed(), self._file)
        except DistrlError as error:
            LOG.warning("a role is started again with its previous settings: %s: %s", error.where, error.what)

    def _started(self, name: str, line: Sequence[str]) -> Child:
        """Start the process without DISTRL_ variables: their values are in the file, unless --set overrode them."""
        return start(name, line, self.directory, without=ENV_PREFIX)

    def _look(self, name: str, role: Role, now: float) -> None:
        code = role.child.returncode()
        if code is None or (code == 0 and not role.stays):
            return
        pause_s = role.restarts.ended(now)
        if pause_s is None:
            raise self._failure(name, role.child, code)
        why = role.child.ending()
        LOG.warning("%s ended with exit code %s and is started again in %g s; %s", name, code, pause_s, why)

    def _failure(self, name: str, child: Child, code: int | None) -> StackError:
        return StackError(
            name,
            f"stopped with exit code {code}; {child.ending()}",
            f"read {child.log}, then run again",
        )


def write_settings(config: Config, path: Path) -> None:
    """Write the settings with secrets, readable by this user only (mode 0600).

    The endpoints of a local stack are left out: child processes find the stack themselves, and so do commands that use
    the file after the next `distrl up`.
    """
    write_private(path, yaml.safe_dump(portable(config), sort_keys=False))


@contextmanager
def running(
    config: Config,
    directory: Path,
    servers: Servers | None = None,
    settings: Path | None = None,
    tries: int = TRIES,
    renewed: Callable[[], Config] | None = None,
) -> Iterator[Roles]:
    """The roles of a run; all are stopped when the block is left in any way.

    Roles that a killed parent has left running are stopped first. A Ctrl-C while the roles are being stopped, here or
    within the block after a first Ctrl-C, kills them. Nothing is lost, as all that roles did is in the log.
    """
    stop_all(find_all(directory), timeout_s=STOP_TIMEOUT_S)
    roles = Roles(config, directory, servers, settings, tries, renewed=renewed)
    try:
        yield roles
    except KeyboardInterrupt as interrupt:
        if is_second(interrupt):
            roles.kill()
        raise
    finally:
        try:
            roles.stop()
        except KeyboardInterrupt:
            roles.kill()
            raise


def stop_left(out: Path) -> None:
    """Stop the roles that a killed training of any run has left in `out`: they would hold phones and use the stack that
    is started now."""
    folders = (each for each in sorted(out.glob("*/logs")) if not each.parent.is_symlink())
    if left := [child for each in folders for child in find_all(each)]:
        LOG.warning("stopping what a killed training has left: %s", ", ".join(child.name for child in left))
        stop_all(left, timeout_s=STOP_TIMEOUT_S)


def stop_left_on_stack(config: Config) -> None:
    """`stop_left` for the folder of the last training on the stack, which may be another one.

    If somebody trains in that folder now, on another stack, that training has already stopped what was left there.
    """
    if (out := trained_on(config)) is None:
        return
    with suppress(StackError), held(out / LOCK, "stopping what a killed training has left"):
        stop_left(out)


def is_second(interrupt: KeyboardInterrupt) -> bool:
    """Whether a Ctrl-C came while an earlier one was handled; another error may have been handled in between, such as
    a wait that timed out."""
    earlier = interrupt.__context__
    while not (earlier is None or isinstance(earlier, KeyboardInterrupt)):
        earlier = earlier.__context__
    return earlier is not None
