"""A host that a test plays, frame by frame, and the phone that it talks to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from simphone.adbd import Adbd, properties
from simphone.faults import Faults
from simphone.handset import Handset
from simphone.machine import PhoneMachine
from simphone.transport import CLSE, CNXN, MAX_PAYLOAD, OKAY, OPEN, VERSION, WRTE, Packet, pack, read_frame
from waiting import WITHIN_S

HOST_ID = 77


class Host:
    """An adb server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, phone: Handset) -> None:
        self.reader, self.writer, self.phone, self.faults = reader, writer, phone, phone.faults
        self.unacknowledged = self.closed = False
        self._written = b""

    def send(self, command: int, arg0: int, arg1: int, payload: bytes = b"") -> None:
        self.writer.write(pack(Packet(command, arg0, arg1, payload), checksum=False))

    async def receive(self) -> Packet:
        return await asyncio.wait_for(read_frame(self.reader), WITHIN_S)

    async def greet(self, max_payload: int = MAX_PAYLOAD) -> Packet:
        self.send(CNXN, VERSION, max_payload, b"host::features=shell_v2")
        return await self.receive()

    async def ask(self, service: bytes) -> tuple[list[bytes], Packet]:
        """Open a service and acknowledge its writes; their payloads, and the frame that ends it."""
        self.send(OPEN, HOST_ID, 0, service + b"\0")
        written: list[bytes] = []
        while (frame := await self.receive()).command != CLSE:
            if frame.command == WRTE:
                written.append(frame.payload)
                self.send(OKAY, HOST_ID, frame.arg0)
        return written, frame

    async def open(self, service: bytes) -> int:
        """Open a service; the phone's id of the stream."""
        self.send(OPEN, HOST_ID, 0, service + b"\0")
        opened = await self.receive()
        assert opened.command == OKAY
        self.unacknowledged = self.closed = False
        return opened.arg0

    async def write(self, stream: int, data: bytes) -> None:
        """Send one payload on a stream, once the one before it is acknowledged."""
        while self.unacknowledged:
            await self._next(stream)
        self.send(WRTE, HOST_ID, stream, data)
        self.unacknowledged = True

    async def answer(self, stream: int, size: int) -> bytes:
        """What the phone writes on a stream until there are `size` bytes or the stream ends."""
        while len(self._written) < size and not self.closed:
            await self._next(stream)
        said, self._written = self._written, b""
        return said

    async def ended(self, stream: int) -> None:
        """The phone closes the stream."""
        while not self.closed:
            await self._next(stream)

    async def _next(self, stream: int) -> None:
        frame = await self.receive()
        if frame.command == OKAY:
            self.unacknowledged = False
        elif frame.command == WRTE:
            self._written += frame.payload
            self.send(OKAY, HOST_ID, stream)
        self.closed = frame.command == CLSE


def with_host(play: Callable[[Host], Awaitable[None]]) -> None:
    async def go() -> None:
        faults = Faults(time.monotonic)
        phone = Handset(PhoneMachine(0, 0.0), faults, lambda: 0.0, properties("sim0"))
        adbd = Adbd(phone)
        server = await asyncio.start_server(adbd.connected, "127.0.0.1", 0)
        async with server:
            reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
            await play(Host(reader, writer, phone))
            writer.close()

    asyncio.run(go())
