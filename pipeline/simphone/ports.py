"""The ports of one simulated phone: those that `adb reverse` opens, each of which leads to a service of the host.

A client on the phone that connects to such a port (`nc`, or another host's `adb forward`) gets a stream over the
connection of the adb server that opened it. A port is closed with that connection, as on a device.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from simphone.transport import Stream, Transport

MOST_PORTS: Final = 256
MOST_COUNTED: Final = 0xFFFF
"""Bytes that four hexadecimal digits can count."""
HIGHEST_PORT: Final = 65_535
FIRST_FREE: Final = 32_768
"""The range in which a port for tcp:0 is chosen."""
SERIAL: Final = "host-1"
"""The name of the adb server in a device's list."""
_SPEC: Final = re.compile(r"tcp:[0-9]{1,5}|(local|localabstract|localreserved|localfilesystem):[^\s;]{1,100}")


class PortError(Exception):
    """A failed listen or connect, with adbd's message."""


@dataclass(frozen=True, slots=True)
class _Way:
    to: str
    over: Transport


class Ports:
    """Owned by the event loop that serves the phone."""

    def __init__(self) -> None:
        self._ways: dict[str, _Way] = {}

    def listens(self, spec: str) -> bool:
        """Whether something listens at tcp:PORT or localabstract:NAME."""
        return spec in self._ways

    def asked(self, request: str, transport: Transport) -> bytes:
        """The answer to what follows `reverse:` in a host's request. Raises PortError."""
        word, _, rest = request.partition(":")
        match word:
            case "list-forward":
                return counted("".join(f"{SERIAL} {spec} {way.to}\n" for spec, way in self._ways.items()))
            case "killforward-all":
                self._ways.clear()
                return b"OKAY"
            case "killforward":
                if self._ways.pop(rest, None) is None:
                    raise PortError(f"listener '{rest}' not found")
                return b"OKAY"
            case "forward":
                return self._forward(rest.removeprefix("norebind:"), rest.startswith("norebind:"), transport)
        raise PortError(f"unknown reverse request {word!r}")

    def _forward(self, ends: str, norebind: bool, transport: Transport) -> bytes:
        spec, _, to = ends.partition(";")
        if not _SPEC.fullmatch(spec) or not _SPEC.fullmatch(to):
            raise PortError(f"cannot bind listener: {ends!r} is no pair of ports")
        answer = b"OKAY"
        if spec == "tcp:0":
            port = next(port for port in range(FIRST_FREE, HIGHEST_PORT) if f"tcp:{port}" not in self._ways)
            spec, answer = f"tcp:{port}", answer + counted(str(port))
        elif spec.startswith("tcp:") and int(spec[4:]) > HIGHEST_PORT:
            raise PortError(f"cannot bind listener: bad port number {spec[4:]!r}")
        if norebind and spec in self._ways:
            raise PortError("cannot rebind existing socket")
        if len(self._ways) >= MOST_PORTS and spec not in self._ways:
            raise PortError("cannot bind listener: Too many open files")
        self._ways[spec] = _Way(to, transport)
        return answer

    async def dial(self, spec: str) -> Stream:
        """A connection to a port of the phone. Raises PortError if nothing listens, or the host refuses."""
        if (way := self._ways.get(spec)) is None:
            raise PortError("Connection refused")
        try:
            return await way.over.dial(way.to)
        except ConnectionError as error:
            raise PortError("Connection reset by peer") from error

    def forget(self, transport: Transport) -> None:
        """An adb server has disconnected: close its ports."""
        self._ways = {spec: way for spec, way in self._ways.items() if way.over is not transport}


def counted(text: str) -> bytes:
    """Four hexadecimal digits, the number of bytes, and the text, cut at MOST_COUNTED bytes."""
    data = text.encode()[:MOST_COUNTED]
    return f"{len(data):04x}".encode() + data
