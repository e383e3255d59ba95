"""`adb shell` without a command: typed into, and piped into."""

from __future__ import annotations

import asyncio
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simphone.faults import Fault
from simphone.transport import CLSE, WRTE, Stream
from waiting import WITHIN_S

from .host import HOST_ID, Host, with_host

PIPED = b"shell,v2,raw:"
TYPED = b"shell,v2,TERM=xterm,pty:"


def packet(kind: int, data: bytes) -> bytes:
    return struct.pack("<BI", kind, len(data)) + data


def parsed(said: bytes) -> list[tuple[int, bytes]]:
    found = []
    while said:
        kind, size = struct.unpack("<BI", said[:5])
        found.append((kind, said[5 : 5 + size]))
        said = said[5 + size :]
    return found


def printed(said: bytes, kind: int = 1) -> bytes:
    return b"".join(data for each, data in parsed(said) if each == kind)


async def everything(host: Host, service: bytes, typed: bytes) -> bytes:
    """All that the phone says to what is typed, until it ends."""
    await host.greet()
    stream = await host.open(service)
    await host.write(stream, typed)
    return await host.answer(stream, 1 << 30)


def test_piped_lines_run_one_after_the_other_and_the_last_one_decides() -> None:
    async def play(host: Host) -> None:
        lines = b"cd /sdcard\npwd\nnope\necho $?\nfalse"
        said = await everything(host, PIPED, packet(0, lines) + packet(4, b""))
        complaint = b"/system/bin/sh: nope: inaccessible or not found\n"
        assert parsed(said) == [(1, b"/sdcard\n"), (2, complaint), (1, b"127\n"), (3, b"\x01")]

    with_host(play)


@pytest.mark.parametrize("last", [b"exit 7", b"exec false"])
def test_exit_and_exec_end_it(last: bytes) -> None:
    async def play(host: Host) -> None:
        said = await everything(host, PIPED, packet(0, b"echo a\n" + last + b"\necho b\n"))
        assert printed(said) == b"a\n"
        assert parsed(said)[-1] == (3, b"\x07" if b"exit" in last else b"\x01")

    with_host(play)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 12), max_size=20))
def test_where_the_host_cuts_its_packets_makes_no_difference(cuts: list[int]) -> None:
    async def play(host: Host) -> None:
        await host.greet()
        stream = await host.open(PIPED)
        rest = packet(0, b"echo one\nec") + packet(5, b"24x80") + packet(0, b"ho two\n") + packet(4, b"")
        for cut in [*cuts, len(rest)]:
            if rest:
                await host.write(stream, rest[:cut])
                rest = rest[cut:]
        assert printed(await host.answer(stream, 1 << 30)) == b"one\ntwo\n"

    with_host(play)


def test_a_terminal_prompts_echoes_and_edits() -> None:
    async def play(host: Host) -> None:
        typed = b"ecko\x7f\x7fho hi\x1b[A\r" + b"zzz\x03" + b"cd sdcard\r" + b"\x7f\x04"
        said = await everything(host, TYPED, packet(0, typed))
        assert printed(said) == (
            b"sim:/ $ ecko\b \b\b \bho hi\r\nhi\r\nsim:/ $ zzz^C\r\nsim:/ $ cd sdcard\r\nsim:/sdcard $ "
        )
        assert parsed(said)[-1] == (3, b"\x00")

    with_host(play)


def test_the_older_protocol_is_a_terminal_too() -> None:
    async def play(host: Host) -> None:
        assert await everything(host, b"shell:", b"echo a\nexit\n") == b"sim:/ $ echo a\r\na\r\nsim:/ $ exit\r\n"

    with_host(play)


@pytest.mark.parametrize("end", [packet(0, b"xyz") + packet(0, b"\x03"), packet(4, b"")])
def test_a_log_that_is_followed_ends_with_ctrl_c(end: bytes) -> None:
    async def play(host: Host) -> None:
        await host.greet()
        stream = await host.open(TYPED)
        await host.write(stream, packet(0, b"logcat -v raw\r"))
        said = b""
        while not said.endswith(b"main\r\n"):
            said += await host.answer(stream, 1)
        host.phone.log.note("a", "noted")
        assert printed(await host.answer(stream, 1)) == b"noted\r\n"
        await host.write(stream, end)
        assert printed(await host.answer(stream, 1)).startswith(b"^C\r\n")
        if end[0] == 0:
            await host.write(stream, packet(0, b"echo alive\rexit\r"))
        assert (b"\r\nalive\r\n" in printed(await host.answer(stream, 1 << 30))) is (end[0] == 0)

    with_host(play)


def test_a_host_that_leaves_ends_what_is_followed() -> None:
    async def play(host: Host) -> None:
        await host.greet()
        stream = await host.open(TYPED)
        await host.write(stream, packet(0, b"logcat\r"))
        said = b""
        while not said.endswith(b"main\r\n"):
            said += await host.answer(stream, 1)
        host.send(CLSE, HOST_ID, stream)
        await host.ended(stream)
        host.phone.log.note("a", "noted")
        assert (await host.ask(b"exec:echo hi"))[0] == [b"hi\n"]

    with_host(play)


@pytest.mark.parametrize("service", [PIPED, TYPED])
def test_a_connection_that_breaks_ends_what_is_followed(service: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """A shell that reads on without waiting would hold up every phone of the process."""
    reads, read_some = 0, Stream.read_some

    async def counted(stream: Stream) -> bytes:
        nonlocal reads
        reads += 1
        assert reads < 100, "it reads on and on"
        return await read_some(stream)

    monkeypatch.setattr(Stream, "read_some", counted)

    async def play(host: Host) -> None:
        await host.greet()
        stream = await host.open(service)
        await host.write(stream, packet(0, b"logcat\n"))
        while b"main" not in await host.answer(stream, 1):
            pass
        host.writer.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait_for(asyncio.gather(*others, return_exceptions=True), WITHIN_S)

    with_host(play)
    assert reads < 100


def test_a_line_too_long_is_cut_and_a_packet_too_large_ends_the_shell() -> None:
    async def play(host: Host) -> None:
        said = await everything(host, PIPED, packet(0, b"echo " + b"x" * 100_000 + b"\n") + packet(4, b""))
        assert len(printed(said)) == 64 * 1024 - len("echo ") + 1
        stream = await host.open(PIPED)
        await host.write(stream, b"\0\xff\xff\xff\xff")
        assert await host.answer(stream, 1 << 30) == b""

    with_host(play)


def test_a_million_empty_lines_do_not_hold_up_another_client() -> None:
    async def play(host: Host) -> None:
        await host.greet()
        stream = await host.open(PIPED)
        host.send(WRTE, HOST_ID, stream, packet(0, b"\n" * 1_000_000 + b"log done\n"))
        written, _ = await host.ask(b"exec:echo hi")
        assert written == [b"hi\n"]
        assert host.phone.log.entries() == []

    with_host(play)


def test_a_silent_phone_prints_nothing() -> None:
    async def play(host: Host) -> None:
        await host.greet()
        stream = await host.open(PIPED)
        host.faults.set(Fault.SILENT)
        host.send(WRTE, HOST_ID, stream, packet(0, b"echo a\n") + packet(4, b""))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(host.reader.read(1), 0.1)
        host.faults.clear()
        assert (await host.receive()).payload == packet(1, b"a\n")

    with_host(play)
