"""The adb server of the stack: our own on its own port, unless a server is configured."""

from __future__ import annotations

from pathlib import Path

from distrl.config import AdbSettings, Config
from distrl.device.server import AdbServer
from distrl.errors import StackError
from distrl.stack.part import Part, Site
from distrl.stack.processes import adopt

NAME = "adb"
STOP_S = 5.0


def start_adb(site: Site, adb: AdbSettings) -> Part:
    """Make sure that an adb server runs at adb.port. Raises StackError if none can be started."""
    log = site.directory / f"{NAME}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    server = AdbServer(adb, log=log)
    ours = server.start()
    if not ours:
        return Part(NAME, server.where)
    if server.pid is None:
        raise StackError(NAME, f"the server at {server.where} ended at once", f"read {log}")
    return Part(NAME, server.where, settings(adb), adopt(NAME, server.pid, site.directory, owner=server))


def fill(config: Config, part: Part) -> Config:
    """`config` with the server's address."""
    host, _, port = part.where.rpartition(":")
    return config.model_copy(update={"adb": config.adb.model_copy(update={"host": host, "port": int(port)})})


def settings(adb: AdbSettings) -> dict[str, str]:
    """The settings that a running part is compared by; not the port, which may differ if it was in use."""
    return {"binary": str(adb.binary or "")}


def binary(adb: AdbSettings) -> Path:
    """The adb program in use."""
    import adbutils

    return Path(adb.binary or adbutils.adb_path())
