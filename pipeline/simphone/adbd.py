"""The device's end of ADB for one simulated phone: its banner and its services.

shell (both protocols) and exec run commands, sync transfers files, framebuffer is the screen as pixels, reverse opens
ports of the phone that lead to the host. Services that need root are refused as an unrooted phone does.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from simphone.commands import COMMANDS
from simphone.commands.base import STDOUT, Command, Pieces
from simphone.faults import SLOW_S, Fault
from simphone.handset import Handset
from simphone.ports import PortError, counted
from simphone.shell import Shell
from simphone.sync import Sync
from simphone.terminal import Terminal
from simphone.transport import MAX_PAYLOAD, FrameError, Service, Stream, Transport

FEATURES = "shell_v2,cmd,fixed_push_mkdir"
STDIN, EXIT, CLOSE_STDIN = 0, 3, 4
PACKET: Final = struct.Struct("<BI")
"""Head of a packet of shell protocol 2: one of these ids, STDOUT or STDERR (5 is the window's size), and the length of
what follows."""
Form = Callable[[Pieces, int | None], bytes]
"""The packets of some output, and of the exit code if there is one."""
BANNER: Final = ("ro.product.name", "ro.product.model", "ro.product.device")
FRAMEBUFFER: Final = struct.Struct("<13I")
"""Version, bits per pixel, size, width, height, then offset and length in bits of red, blue, green and alpha."""
NOT_OFFERED: Final = {
    "root": b"adbd cannot run as root in production builds\n",
    "unroot": b"adbd not running as root\n",
    "remount": b'Not running as root. Try "adb root" first.\n',
}


def properties(serial: str, address: str = "10.0.2.16") -> dict[str, str]:
    """The properties that `getprop` prints. address: on its wlan0."""
    return {
        "dhcp.wlan0.ipaddress": address,
        "ro.product.name": "simphone",
        "ro.product.model": "Simulated_Phone",
        "ro.product.device": "sim",
        "ro.product.brand": "simphone",
        "ro.product.manufacturer": "simphone",
        "ro.product.cpu.abi": "x86_64",
        "ro.build.type": "user",
        "ro.build.characteristics": "default",
        "ro.build.version.release": "14",
        "ro.build.version.sdk": "34",
        "ro.debuggable": "0",
        "ro.serialno": serial,
        "ro.sf.lcd_density": "160",
        "persist.sys.locale": "en-US",
        "persist.sys.timezone": "UTC",
        "sys.boot_completed": "1",
        "dev.bootcomplete": "1",
        "init.svc.bootanim": "stopped",
    }


class Adbd:
    """Serves every connection of one phone. programs: its shell's commands by name."""

    def __init__(self, phone: Handset, programs: Mapping[str, Command] = COMMANDS) -> None:
        self._phone = phone
        self._shell = Shell(phone, programs)
        named = "".join(f"{name}={phone.properties[name]};" for name in BANNER)
        self._banner = f"device::{named}features={FEATURES}".encode()
        self._transports: set[Transport] = set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""
        transport = Transport(reader, writer, self._banner, self._find, self._answers)
        if self._phone.faults.active(Fault.GONE):  # accepted while the port was being closed
            transport.close()
            return
        self._transports.add(transport)
        try:
            await transport.run()
        finally:
            self._transports.discard(transport)
            self._phone.ports.forget(transport)

    def drop_connections(self) -> None:
        for transport in self._transports:
            transport.close()

    async def _answers(self) -> None:
        await self._phone.faults.until(Fault.SILENT, active=False)

    def _find(self, transport: Transport, name: str) -> Service | None:
        kind, _, rest = name.partition(":")
        word, *options = kind.split(",")
        match word:
            case "shell" if not rest:
                return Service(partial(self._terminal, frozenset(options)), reads=True)
            case "shell" | "exec":
                return Service(partial(self._run, rest, _packets if "v2" in options else _merged))
            case "sync":
                return Service(self._sync, reads=True)
            case "framebuffer":
                return Service(self._framebuffer)
            case "reverse":
                return Service(partial(self._reverse, transport, rest))
            case _ if self._phone.ports.listens(name):
                return Service(partial(self._joined, name), reads=True)
            case _ if word in NOT_OFFERED:
                return Service(partial(_say, NOT_OFFERED[word]))
        return None

    async def _run(self, line: str, form: Form, stream: Stream) -> None:
        result = await self._shell.run(line)
        try:
            if result.follow is not None:
                await stream.write(form(result.printed, None))
                async for piece in result.follow:
                    await stream.write(form(((STDOUT, piece),), None))
            else:
                await stream.write(form(result.printed, result.code))
        finally:  # a host that closes the stream at once, as it has read enough, cancels this
            for call in result.afterwards:
                call()

    async def _terminal(self, options: frozenset[str], stream: Stream) -> None:
        """Protocol 1 always has a pty; in protocol 2 the request names it."""
        v2 = "v2" in options
        form, read = (_packets, _Typed(stream).read) if v2 else (_merged, stream.read_some)

        async def write(pieces: Pieces) -> None:
            await stream.write(form(pieces, None))

        code = await Terminal(self._shell, read, write, pty=not v2 or "pty" in options).serve()
        await stream.write(form((), code))

    async def _reverse(self, transport: Transport, request: str, stream: Stream) -> None:
        try:
            answer = self._phone.ports.asked(request, transport)
        except PortError as error:
            answer = b"FAIL" + counted(str(error))
        await stream.write(answer)

    async def _joined(self, name: str, stream: Stream) -> None:
        """A host's connection to a port of the phone: both ends are read until one of them closes."""
        with suppress(PortError):
            host = await self._phone.ports.dial(name)
            ways = {asyncio.create_task(_pumped(stream, host)), asyncio.create_task(_pumped(host, stream))}
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
                await host.close()

    async def _sync(self, stream: Stream) -> None:
        await self._slow()
        await Sync(self._phone.files, stream).serve()

    async def _framebuffer(self, stream: Stream) -> None:
        await self._slow()
        width, height = self._phone.machine.size
        pixels = self._phone.picture().convert("RGBA").tobytes()
        head = FRAMEBUFFER.pack(1, 32, len(pixels), width, height, 0, 8, 16, 8, 8, 8, 24, 8)
        image = head + pixels
        await stream.write(image[: len(image) // 2] if self._phone.faults.active(Fault.TRUNCATED) else image)

    async def _slow(self) -> None:
        if self._phone.faults.active(Fault.SLOW):
            await asyncio.sleep(SLOW_S)


class _Typed:
    """The host's input, unpacked from shell protocol 2. A read may be cancelled without loss."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._packets = bytearray()
        self._closed = False

    async def read(self) -> bytes:
        """Raises FrameError for a packet larger than any payload."""
        while not self._closed:
            if len(self._packets) >= PACKET.size:
                packet, size = PACKET.unpack_from(self._packets)
                if size > MAX_PAYLOAD:
                    raise FrameError(f"a shell packet of {size} bytes")
                if len(self._packets) >= PACKET.size + size:
                    data = bytes(self._packets[PACKET.size : PACKET.size + size])
                    del self._packets[: PACKET.size + size]
                    self._closed = packet == CLOSE_STDIN
                    if packet == STDIN and data:
                        return data
                    continue
            came = await self._stream.read_some()
            if not came:  # the stream has ended: a second look would not wait, and the loop never end
                break
            self._packets += came
        return b""


def _packets(pieces: Pieces, code: int | None) -> bytes:
    """Sends all packets in one write, as each write costs a round trip."""
    named = (*pieces, (EXIT, b"" if code is None else bytes([code])))
    return b"".join(PACKET.pack(packet, len(data)) + data for packet, data in named if data)


def _merged(pieces: Pieces, code: int | None) -> bytes:
    return b"".join(data for _, data in pieces)


async def _say(data: bytes, stream: Stream) -> None:
    await stream.write(data)


async def _pumped(source: Stream, to: Stream) -> None:
    with suppress(ConnectionError):
        while data := await source.read_some():
            await to.write(data)
