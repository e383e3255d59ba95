"""The ADB transport as a device speaks it: frames, and the streams multiplexed over one connection.

A frame is a 24-byte header (command, two arguments, payload length, payload checksum, command XOR 0xFFFFFFFF; six
little-endian words) and its payload. A stream has an id on each side, lives from OPEN to CLSE, and carries one
unacknowledged WRTE at a time in each direction: the next waits for OKAY. What a host sends is acknowledged when its
service wants more, so a stream holds at most one payload. A connection ends at the first invalid frame, as on a
device.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import NamedTuple

log = logging.getLogger(__name__)

VERSION = 0x01000001
"""From this version on, payloads carry no checksum; adb servers have spoken it since 2017."""
VERSION_CHECKSUM = 0x01000000
MAX_PAYLOAD = 1024 * 1024
MOST_STREAMS = 256
"""Most open streams of a connection: each has a task and may hold a payload. An adb server opens one per command."""
OLDEST_MAX_PAYLOAD = 4096
"""Largest payload to a host before its CNXN states one."""

_HEADER = struct.Struct("<6I")


def _word(name: bytes) -> int:
    return int.from_bytes(name, "little")


CNXN, OPEN, OKAY, WRTE, CLSE = (_word(name) for name in (b"CNXN", b"OPEN", b"OKAY", b"WRTE", b"CLSE"))


class FrameError(Exception):
    """Bytes that are not a frame; the connection cannot be resynchronised and ends."""


class Packet(NamedTuple):
    command: int
    arg0: int
    arg1: int
    payload: bytes


def pack(frame: Packet, checksum: bool) -> bytes:
    """The bytes of a frame. checksum: whether the receiver wants the sum of the payload's bytes."""
    total = sum(frame.payload) & 0xFFFFFFFF if checksum else 0
    header = _HEADER.pack(frame.command, frame.arg0, frame.arg1, len(frame.payload), total, frame.command ^ 0xFFFFFFFF)
    return header + frame.payload


async def read_frame(reader: asyncio.StreamReader) -> Packet:
    """The next frame. Raises FrameError on garbage, IncompleteReadError at the end of the connection."""
    command, arg0, arg1, size, _, magic = _HEADER.unpack(await reader.readexactly(_HEADER.size))
    if magic != command ^ 0xFFFFFFFF or size > MAX_PAYLOAD:
        raise FrameError(f"header {command:#x}, length {size}")
    return Packet(command, arg0, arg1, await reader.readexactly(size) if size else b"")


class Stream:
    """The device's end of one stream."""

    def __init__(self, transport: Transport, local: int, remote: int) -> None:
        self.local = local
        self.remote = remote
        self.reads = False
        self._transport = transport
        self._acknowledged = asyncio.Event()
        self._okay = False
        self._task: asyncio.Task[None] | None = None
        self._received = bytearray()
        self._owes_okay = False
        self._arrived = asyncio.Event()
        self._ended = False

    @property
    def max_write(self) -> int:
        """The most bytes that one WRTE may carry to this host."""
        return self._transport.max_payload

    async def write(self, data: bytes) -> None:
        """Send all of data, each piece when the device answers and the one before it is acknowledged."""
        for start in range(0, len(data), self.max_write):
            await self._transport.answers()
            self._acknowledged.clear()
            self._okay = False
            await self._transport.send(Packet(WRTE, self.local, self.remote, data[start : start + self.max_write]))
            await self.answered()

    async def read(self, size: int) -> bytes:
        """The next `size` bytes from the host; waits until they have arrived or the host closes."""
        while len(self._received) < size:
            await self._more()
        data = bytes(memoryview(self._received)[:size])
        del self._received[:size]
        return data

    async def read_some(self) -> bytes:
        """Unread bytes from the host: at least one, or none once the stream has ended."""
        while not self._received and not self._ended:
            await self._more()
        data = bytes(self._received)
        self._received.clear()
        return data

    async def _more(self) -> None:
        self._arrived.clear()
        if self._owes_okay:
            self._owes_okay = False
            await self._transport.send(Packet(OKAY, self.local, self.remote, b""))
        await self._arrived.wait()

    def receive(self, data: bytes) -> None:
        """Raises FrameError for a payload sent before the last one was acknowledged."""
        if self._owes_okay:
            raise FrameError(f"a WRTE of {len(data)} bytes before the one before it was acknowledged")
        self._received += data
        self._owes_okay = True
        self._arrived.set()

    def acknowledge(self) -> None:
        self._okay = True
        self._acknowledged.set()

    def run(self, work: Coroutine[object, None, None]) -> None:
        self._task = asyncio.create_task(work)

    async def answered(self) -> None:
        """Wait until the host acknowledges the last payload. Raises ConnectionError if the stream ends first."""
        await self._acknowledged.wait()
        if not self._okay:
            raise ConnectionResetError("the host has closed the stream")

    async def close(self) -> None:
        """End a stream that the device opened."""
        await self._transport.hang_up(self)

    def cancel(self) -> None:
        """The stream has ended: end its service too, if there is one."""
        self._ended = True
        self._arrived.set()
        self._acknowledged.set()
        if self._task is not None:
            self._task.cancel()


class Service(NamedTuple):
    """serve: serves one stream, which is closed when it returns. reads: whether it reads the host's input, which is
    otherwise acknowledged and dropped (usually only the end of input)."""

    serve: Callable[[Stream], Awaitable[None]]
    reads: bool = False


class Transport:
    """One connection from an adb server, from CNXN to its end.

    banner: the device's CNXN text. find: the service of that name, or None to refuse it. answers: awaited before each
    OPEN and WRTE; never returns while the device is silent.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        banner: bytes,
        find: Callable[[Transport, str], Service | None],
        answers: Callable[[], Awaitable[None]],
    ) -> None:
        self.max_payload = OLDEST_MAX_PAYLOAD
        self._version = VERSION_CHECKSUM
        self._reader = reader
        self._writer = writer
        self._banner = banner
        self._find = find
        self.answers = answers
        self._streams: dict[int, Stream] = {}
        self._next_id = 1

    async def run(self) -> None:
        """Serve until either side closes. Every service still running is cancelled then."""
        try:
            while True:
                await self._receive(await read_frame(self._reader))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except FrameError as error:
            log.warning("a connection that does not speak adb is closed: %s", error)
        finally:
            for stream in self._streams.values():
                stream.cancel()
            self.close()

    def close(self) -> None:
        """End the connection at once; unsent data is lost."""
        self._writer.transport.abort()

    async def send(self, frame: Packet) -> None:
        self._write(frame)
        await self._writer.drain()

    def _write(self, frame: Packet) -> None:
        self._writer.write(pack(frame, checksum=self._version < VERSION))

    async def _receive(self, frame: Packet) -> None:
        if frame.command == CNXN:
            await self._connect(frame)
        elif frame.command == OPEN:
            await self._open(frame)
        elif frame.command == OKAY:
            if stream := self._streams.get(frame.arg1):
                stream.remote = stream.remote or frame.arg0  # the first one answers our OPEN
                stream.acknowledge()
            elif frame.arg0 and frame.arg1:
                await self.send(Packet(CLSE, frame.arg1, frame.arg0, b""))
        elif frame.command == WRTE:
            await self._written(frame)
        elif frame.command == CLSE and (stream := self._streams.pop(frame.arg1, None)):
            stream.cancel()
            if stream.remote:  # 0 for an OPEN of ours that is refused
                await self.send(Packet(CLSE, stream.local, stream.remote, b""))

    async def dial(self, service: str) -> Stream:
        """A stream to a service of the host, such as tcp:8000. Raises ConnectionError if the host refuses it."""
        if len(self._streams) >= MOST_STREAMS:
            raise ConnectionRefusedError("too many streams")
        stream = self._stream(remote=0)
        stream.reads = True
        try:
            await self.send(Packet(OPEN, stream.local, 0, service.encode() + b"\0"))
            await stream.answered()
        except BaseException:  # who asked is gone; what the host answers from now on, `_receive` answers with a CLSE
            if self._streams.pop(stream.local, None) and stream.remote:
                self._write(Packet(CLSE, stream.local, stream.remote, b""))
            raise
        return stream

    async def hang_up(self, stream: Stream) -> None:
        """Close a stream that `dial` opened."""
        if self._streams.pop(stream.local, None):
            stream.cancel()
            with suppress(ConnectionError):
                await self.send(Packet(CLSE, stream.local, stream.remote, b""))

    def _stream(self, remote: int) -> Stream:
        stream = Stream(self, self._next_id, remote)
        self._next_id = self._next_id % 0xFFFFFFFF + 1
        self._streams[stream.local] = stream
        return stream

    async def _connect(self, frame: Packet) -> None:
        self.max_payload = max(1, min(frame.arg1, MAX_PAYLOAD))
        self._version = VERSION_CHECKSUM  # the banner itself always carries a checksum
        await self.send(Packet(CNXN, VERSION, MAX_PAYLOAD, self._banner))
        self._version = min(frame.arg0, VERSION)

    async def _open(self, frame: Packet) -> None:
        if len(self._streams) >= MOST_STREAMS:
            await self.send(Packet(CLSE, 0, frame.arg0, b""))
            return
        stream = self._stream(frame.arg0)
        stream.run(self._serve(stream, frame.payload.rstrip(b"\0").decode("utf-8", "replace")))

    async def _serve(self, stream: Stream, name: str) -> None:
        with suppress(ConnectionError):
            await self.answers()
            service = self._find(self, name)
            if service is not None:
                stream.reads = service.reads
                await self.send(Packet(OKAY, stream.local, stream.remote, b""))
                await self._watched(service, stream, name)
            if self._streams.pop(stream.local, None):
                local = stream.local if service is not None else 0  # a CLSE from id 0 refuses an OPEN
                await self.send(Packet(CLSE, local, stream.remote, b""))

    async def _watched(self, service: Service, stream: Stream, name: str) -> None:
        """A service that fails ends only its own stream, like a crashed process on a device."""
        try:
            await service.serve(stream)
        except ConnectionError:
            raise
        except FrameError as error:
            log.warning("the service %.200r ends: %s", name, error)
        except Exception:
            log.exception("the service %.200r broke", name)

    async def _written(self, frame: Packet) -> None:
        stream = self._streams.get(frame.arg1)
        if stream is not None and stream.reads:
            stream.receive(frame.payload)
        elif stream is not None:
            await self.send(Packet(OKAY, stream.local, stream.remote, b""))
        else:
            await self.send(Packet(CLSE, 0, frame.arg0, b""))
