"""The ADB host protocol: one connection to the adb server per operation, under one total deadline.

The deadline covers connecting, sending and every receive together, so a phone that answers a byte at a time cannot
extend it. A request is four hexadecimal digits of length and a text; the answer starts with OKAY or FAIL.
"""

from __future__ import annotations

import math
import socket
import struct
import time
from types import TracebackType
from typing import NamedTuple

from distrl import config
from distrl.device.errors import (
    AdbServerGone,
    DeviceGarbage,
    DeviceGone,
    DeviceRefused,
    DeviceTimeout,
    refusal,
    too_slow,
)
from distrl.device.names import adb_line
from distrl.dial import dial

MAX_REQUEST = 0xFFFF
MAX_ANSWER = 64 * 1024 * 1024
"""Bytes. No screenshot is larger; a phone that goes on sending must not exhaust the worker's memory."""
_CHUNK = 256 * 1024
LEAST_TIMEOUT_S = 1e-3
_PACKET = struct.Struct("<BI")
_STDOUT, _STDERR, _EXIT = 1, 2, 3


class Deadline:
    """The total deadline of an operation. setting: where it comes from, for error messages; empty if from no
    setting."""

    def __init__(self, seconds: float, setting: str = "") -> None:
        self.seconds, self.setting = seconds, setting
        self._at = time.monotonic() + seconds

    def remaining(self) -> float:
        """Seconds left, 0 at least."""
        return max(0.0, self._at - time.monotonic())

    def timeout(self, most: float = math.inf) -> float:
        """Seconds left, at most `most`, for a socket: never 0, which would make it non-blocking."""
        return max(LEAST_TIMEOUT_S, min(self.remaining(), most))


class Finished(NamedTuple):
    """The output and exit status of a command on a phone."""

    stdout: bytes
    stderr: bytes
    code: int


class Connection:
    """A connection to the adb server for one operation. who: the phone, or the server, for error messages."""

    def __init__(self, adb: config.AdbSettings, who: str, deadline: Deadline) -> None:
        self._who = who
        self._adb = adb
        self._deadline = deadline
        self._buffer = bytearray()
        try:
            self._socket = dial(adb.host, adb.port, deadline.timeout())
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except TimeoutError as error:
            raise self._late("connecting to the adb server") from error
        except OSError as error:
            raise AdbServerGone(
                "adb.port",
                f"no adb server answers at {adb.host}:{adb.port} ({error.strerror or error})",
                "`distrl up` starts one; or set adb.host and adb.port to one that runs",
            ) from error

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()

    def request(self, text: str) -> None:
        """Send a request and read its OKAY. On FAIL raises the kind of DeviceGone for the server's text; DeviceRefused
        for a request that is too long for adb, of which nothing is sent."""
        data = text.encode()
        if len(data) > MAX_REQUEST:
            raise DeviceRefused(self._who, f"a request of {len(data)} bytes; adb takes {MAX_REQUEST}")
        try:
            self._socket.settimeout(self._deadline.timeout())
            self._socket.sendall(f"{len(data):04x}".encode() + data)
        except TimeoutError as error:
            raise self._late("sending a request") from error
        except OSError as error:
            raise DeviceGone(self._who, f"the adb server closed the connection ({error})") from error
        status = self._read(4)
        if status == b"FAIL":
            raise refusal(self._who, self.read_text(), adb_line(self._adb.host, self._adb.port))
        if status != b"OKAY":
            raise DeviceGarbage(self._who, f"the adb server answered {status!r}")

    def read_text(self) -> str:
        """A text with four hexadecimal digits of length before it."""
        size = self._read(4)
        try:
            return self._read(int(size, 16)).decode("utf-8", "replace").strip()
        except ValueError as error:
            raise DeviceGarbage(self._who, f"the adb server sent {size!r} for a length") from error

    def read_command(self) -> Finished:
        """The packets of shell protocol 2 up to the exit code. Raises DeviceGone if they end before it."""
        out, err, total = bytearray(), bytearray(), 0
        while True:
            packet, size = _PACKET.unpack(self._read(_PACKET.size))
            total += size
            if packet not in (_STDOUT, _STDERR, _EXIT) or total > MAX_ANSWER:
                raise DeviceGarbage(self._who, f"a packet of kind {packet} and {size} bytes")
            data = self._read(size)
            if packet == _EXIT:
                return Finished(bytes(out), bytes(err), data[0] if data else 0)
            (out if packet == _STDOUT else err).extend(data)

    def _read(self, size: int) -> bytes:
        while len(self._buffer) < size:
            left = self._deadline.remaining()
            if left <= 0:
                raise self._late("waiting for the answer")
            try:
                self._socket.settimeout(left)
                chunk = self._socket.recv(_CHUNK)
            except TimeoutError as error:
                raise self._late("waiting for the answer") from error
            except OSError as error:
                raise DeviceGone(self._who, f"the connection broke ({error})") from error
            if not chunk:
                raise DeviceGone(self._who, "the connection ended before the answer was complete")
            self._buffer += chunk
        data = bytes(memoryview(self._buffer)[:size])
        del self._buffer[:size]
        return data

    def _late(self, doing: str) -> DeviceTimeout:
        late, hint = f"{doing} took longer than {self._deadline.seconds:g} s", too_slow(self._deadline.setting)
        return DeviceTimeout(self._who, late, hint)
