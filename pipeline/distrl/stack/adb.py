"""The adb server of the stack: our own on its own port, unless a server is configured."""

from __future__ import annotations

from pathlib import Path

from distrl.config import AdbSettings, Config
from distrl.device.server import AdbServer
from distrl.errors import DeviceError
from distrl.stack.part import Part, Site
from distrl.stack.ports import HOST, holder, is_free, listener
from distrl.stack.processes import adopt
from distrl.stack.serving import PortTakenError, serve

NAME = "adb"
READY_S = 10.0
STOP_S = 5.0


def start_adb(site: Site, adb: AdbSettings) -> Part:
    """Start an adb server at adb.port. Raises PortTakenError where something has the port, else DeviceError."""
    log = site.directory / f"{NAME}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    server = AdbServer(adb, log=log)
    try:
        server.start()
    except DeviceError:
        if not server.local or is_free(adb.port):
            raise
    if server.pid is None:
        raise PortTakenError(
            NAME,
            f"port {adb.port} of {HOST} was taken{holder(adb.port)} while it started",
            "run the same command again: it uses that adb server, or takes another port",
        )
    child = adopt(NAME, server.pid, site.directory, owner=server)
    serve(child, (adb.port,), lambda: child.listens(adb.port), site, ready_s=READY_S, stop_s=STOP_S, hint=f"read {log}")
    return Part(NAME, server.where, settings(adb), child)


def adopted(site: Site, adb: AdbSettings) -> Part | None:
    """The adb server that already listens at adb.port, as a part: a process that drives phones starts a new one where
    the old one has ended. None where there is none, or it is another user's."""
    server, found = AdbServer(adb), listener(adb.port)
    if found is None:
        return None
    try:
        server.version()
    except DeviceError:  # something else, or an adb server that hangs
        return None
    return Part(NAME, server.where, settings(adb), adopt(NAME, found.pid, site.directory, owner=server))


def fill(config: Config, part: Part) -> Config:
    """`config` with the server's address."""
    host, _, port = part.where.rpartition(":")
    return config.model_copy(update={"adb": config.adb.model_copy(update={"host": host, "port": int(port)})})


def settings(adb: AdbSettings) -> dict[str, str]:
    """The settings that a running part is compared by; not the port, which may differ if it was in use."""
    return {"binary": str(adb.binary or "")} | ({"usb": "true"} if adb.usb else {})


def binary(adb: AdbSettings) -> Path:
    """The adb program in use."""
    import adbutils

    return Path(adb.binary or adbutils.adb_path())
