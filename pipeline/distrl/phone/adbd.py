"""The device's end of ADB for one simulated phone: its banner and its services, `shell` (both protocols) and `exec`."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from functools import partial

from distrl.phone.faults import Fault, Faults
from distrl.phone.shell import Result, Shell
from distrl.phone.transport import Service, Stream, Transport

FEATURES = "shell_v2,cmd,fixed_push_mkdir"
STDOUT, STDERR, EXIT = 1, 2, 3
"""Packet ids of shell protocol 2: a byte of id, four of little-endian length, then the data."""


def properties(serial: str) -> dict[str, str]:
    """What `getprop` says of a phone."""
    return {
        "ro.product.name": "simphone",
        "ro.product.model": "Simulated_Phone",
        "ro.product.device": "sim",
        "ro.serialno": serial,
        "ro.build.version.release": "14",
        "ro.build.version.sdk": "34",
        "sys.boot_completed": "1",
    }


class Adbd:
    """Serves every connection of one phone."""

    def __init__(self, shell: Shell, faults: Faults, says: dict[str, str]) -> None:
        self._shell = shell
        self._faults = faults
        named = "".join(f"{name}={says[name]};" for name in says if name.startswith("ro.product."))
        self._banner = f"device::{named}features={FEATURES}".encode()
        self._transports: set[Transport] = set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        transport = Transport(reader, writer, self._banner, self._find, self._answers)
        if self._faults.active(Fault.GONE):  # accepted in the moment in which the port was closed
            transport.close()
            return
        self._transports.add(transport)
        try:
            await transport.run()
        finally:
            self._transports.discard(transport)

    def drop_connections(self) -> None:
        for transport in self._transports:
            transport.close()

    async def _answers(self) -> None:
        await self._faults.until(Fault.SILENT, active=False)

    def _find(self, name: str) -> Service | None:
        kind, _, line = name.partition(":")
        word, *options = kind.split(",")
        if word not in ("shell", "exec"):
            return None
        return partial(self._run, line, _packets if "v2" in options else _merged)

    async def _run(self, line: str, form: Callable[[Result], bytes], stream: Stream) -> None:
        result = await self._shell.run(line)
        await self._answers()
        await stream.write(form(result))
        for call in result.afterwards:
            call()


def _packets(result: Result) -> bytes:
    """All packets in one piece: each write costs a round trip."""
    named = ((STDOUT, result.stdout), (STDERR, result.stderr), (EXIT, bytes([result.code])))
    return b"".join(struct.pack("<BI", packet, len(data)) + data for packet, data in named if data)


def _merged(result: Result) -> bytes:
    return result.stdout + result.stderr
