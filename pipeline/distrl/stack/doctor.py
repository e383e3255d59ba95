"""`distrl doctor`: checks everything that a run needs on this machine. It connects, and changes nothing.

What only the servers of a local stack need, such as Java, is looked at where the stack would start them: not where the
settings name a Kafka and an object store, as in a pod.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from distrl.broker import connect as broker
from distrl.broker.retention import forgets, offsets_kept_minutes
from distrl.config import Config, EmulatorSettings
from distrl.device.about import ONLINE
from distrl.device.launch import program
from distrl.device.server import AdbServer
from distrl.errors import DeviceError, DistrlError
from distrl.stack import adb, jars, kafka, minio, phones, ports, s3
from distrl.stack.java import find_java
from distrl.stack.local import NAMES, LocalStack, PartStatus, connect
from distrl.stack.minio import Kind
from distrl.store.objects import open_store

OLDEST_PYTHON = (3, 11)
DISK_BYTES = 6 * 1024**3
"""torch with its CUDA libraries takes 5 GB on Linux; the rest is jars, MinIO and a run."""
ASK_S = 10.0
LATER = "not running; `distrl up` starts it"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check."""

    what: str
    ok: bool
    detail: str
    hint: str = ""
    """How to fix it if it is not ok."""


def examine(config: Config) -> list[Finding]:
    """Run all checks. Never raises: a failed check is a finding."""
    connected = config
    own, findings = frozenset(NAMES), []
    try:
        connected = connect(config)
        stack = LocalStack(config)
        own, rows = stack.own(), {row.name: row for row in stack.status()}
    except (DistrlError, OSError) as error:
        rows = {}
        findings.append(_failed("stack", error))
    looks: list[tuple[str, Callable[[], Finding]]] = [
        ("python", _python),
        *([("disk", lambda: _disk(config)), ("java", _java)] if own & {kafka.NAME, s3.NAME} else []),
        *([("Kafka's jars", lambda: _jars(config))] if kafka.NAME in own else []),
        *([("object store", lambda: _object_store(config))] if s3.NAME in own else []),
        ("adb", lambda: _adb_binary(config)),
        *((f"port of {name}", look) for name, look in _port_looks(config, rows).items()),
        ("broker", lambda: _broker(connected, rows)),
        ("objects", lambda: _objects(connected, rows)),
        ("adb server", lambda: _adb_server(connected, rows)),
        ("phones", lambda: _phones(connected, rows)),
        *([("emulators", lambda: _emulators(config.devices.emulators))] if config.devices.emulators.avd else []),
    ]
    return [*findings, *(_look(what, look) for what, look in looks)]


def _look(what: str, look: Callable[[], Finding]) -> Finding:
    try:
        return look()
    except (DistrlError, OSError, subprocess.SubprocessError, ValueError) as error:
        return _failed(what, error)


def _failed(what: str, error: Exception) -> Finding:
    if isinstance(error, DistrlError):
        return Finding(what, False, f"{error.where}: {error.what}", error.hint)
    return Finding(what, False, f"{type(error).__name__}: {error}", "see `distrl config show` for the settings in use")


def _python() -> Finding:
    version = ".".join(map(str, sys.version_info[:3]))
    return Finding("python", sys.version_info >= OLDEST_PYTHON, version, "install Python 3.11 or newer")


def _disk(config: Config) -> Finding:
    folders = {_nearest(config.stack.directory), _nearest(config.stack.cache)}
    free = {folder: shutil.disk_usage(folder).free for folder in folders}
    least = min(free, key=lambda folder: free[folder])
    hint = "free disk space, or set stack.directory and stack.cache to a larger disk"
    return Finding("disk", free[least] >= DISK_BYTES, f"{free[least] / 1024**3:.0f} GB free at {least}", hint)


def _nearest(folder: Path) -> Path:
    """The folder, or the nearest one above it that exists."""
    folder = folder.expanduser().absolute()
    return next(place for place in (folder, *folder.parents) if place.exists())


def _java() -> Finding:
    path, origin = find_java()
    return Finding("java", True, f"{path} (from {origin})")


def _jars(config: Config) -> Finding:
    return Finding("Kafka's jars", True, _fetched(jars.KAFKA, config))


def _fetched(server: jars.Jars, config: Config) -> str:
    there = server.present(config.stack.cache.expanduser())
    when = "fetched" if there else f"fetched at the first `distrl up` ({server.megabytes} MB)"
    return f"{server.name} {server.version}, {when}"


def _object_store(config: Config) -> Finding:
    way = minio.way(config.stack.cache.expanduser())
    wanted = s3.wanted_kind(config.stack.directory.expanduser() / s3.NAME, config.stack.object_store)
    if wanted == "directory":
        return Finding("object store", True, "a directory, as this stack began, or as stack.object_store says")
    if wanted == "s3proxy" or (wanted == "auto" and not way.runs):
        return Finding("object store", True, _fetched(jars.S3PROXY, config))
    return Finding("object store", way.kind is not Kind.NONE, f"MinIO: {way.why}", minio.HINT)


def _adb_binary(config: Config) -> Finding:
    program = adb.binary(config.adb)
    done = subprocess.run([program, "version"], capture_output=True, text=True, timeout=ASK_S, check=False)
    first = (done.stdout or done.stderr).strip().partition("\n")[0]
    hint = "leave adb.binary unset for the one that ships with adbutils"
    return Finding("adb", done.returncode == 0, f"{first} ({program})", hint)


def _port_looks(config: Config, rows: dict[str, PartStatus]) -> dict[str, Callable[[], Finding]]:
    """One check for each part that `distrl up` would start now."""
    wanted = {
        kafka.NAME: (config.stack.kafka_port, 1, "stack.kafka_port", "kafka_port" in config.stack.model_fields_set),
        s3.NAME: (config.stack.s3_port, 1, "stack.s3_port", "s3_port" in config.stack.model_fields_set),
        adb.NAME: (config.adb.port, 1, "adb.port", "port" in config.adb.model_fields_set),
        phones.NAME: (
            config.phones.base_port,
            phones.total(config.phones),
            "phones.base_port",
            "base_port" in config.phones.model_fields_set,
        ),
    }
    down = {name: asked for name, asked in wanted.items() if name in rows and not rows[name].where and asked[1]}
    return {name: _port_look(f"port of {name}", *asked) for name, asked in down.items()}


def _port_look(what: str, port: int, count: int, setting: str, explicit: bool) -> Callable[[], Finding]:
    def look() -> Finding:
        found = ports.choose(port, explicit, setting, count=count)
        if found == port:
            return Finding(what, True, f"{port} is free")
        return Finding(what, True, f"{port} is in use{ports.holder(port)}; `distrl up` takes another")

    return look


def _broker(config: Config, rows: dict[str, PartStatus]) -> Finding:
    if not _expected(rows, kafka.NAME):
        return Finding("broker", True, LATER)
    found = broker.check(config)
    named = [address.strip() for address in config.kafka.bootstrap.split(",")]
    away = [address for address in named if not ports.listens_at(address)]
    detail = f"{config.kafka.bootstrap}: cluster {found.cluster_id}, {found.brokers} broker(s)"
    notes = [f"nothing listens at {', '.join(away)}" if away else "", forgets(offsets_kept_minutes(config))]
    return Finding("broker", True, "; ".join([detail, *filter(None, notes)]))


def _objects(config: Config, rows: dict[str, PartStatus]) -> Finding:
    if not _expected(rows, s3.NAME):
        return Finding("objects", True, LATER)
    open_store(config.store).check()
    return Finding("objects", True, f"{config.store.url} can be written and read")


def _adb_server(config: Config, rows: dict[str, PartStatus]) -> Finding:
    if not _expected(rows, adb.NAME):
        return Finding("adb server", True, LATER)
    server = AdbServer(config.adb)
    return Finding("adb server", True, f"{server.where}: protocol version {server.version()}")


def _phones(config: Config, rows: dict[str, PartStatus]) -> Finding:
    serials = config.devices.serials if _expected(rows, adb.NAME) else ()  # only an adb server knows those
    silent = [address for address in config.devices.addresses if not ports.listens_at(address)]
    silent += [serial for serial in serials if not _online(config, serial)]
    known = len(config.devices.addresses) + len(serials)
    if not known:
        started = config.devices.emulators.count
        return Finding("phones", True, f"{started} emulators, which workers start" if started else LATER)
    detail = f"{known - len(silent)} of {known} answer" + (f"; no answer: {', '.join(silent[:5])}" if silent else "")
    hint = (
        "check the phone's network, or adb.usb for one on USB; for those of `distrl up` run `distrl down` and it again"
    )
    return Finding("phones", not silent, detail, hint)


def _online(config: Config, serial: str) -> bool:
    try:
        return AdbServer(config.adb).state(serial) == ONLINE
    except DeviceError:
        return False


def _emulators(emulators: EmulatorSettings) -> Finding:
    binary = program(emulators)
    listed = subprocess.run([binary, "-list-avds"], capture_output=True, text=True, timeout=ASK_S, check=True)
    if emulators.avd not in listed.stdout.split():
        there = ", ".join(listed.stdout.split()) or "none"
        return Finding(
            "emulators",
            False,
            f"{binary} has no virtual device {emulators.avd}; it has {there}",
            "make it with avdmanager (docs/emulators.md), or set devices.emulators.avd",
        )
    return Finding("emulators", True, f"{binary} has the virtual device {emulators.avd}")


def _expected(rows: dict[str, PartStatus], name: str) -> bool:
    """Whether a part is up or configured, so it must answer."""
    return name in rows and bool(rows[name].where)
