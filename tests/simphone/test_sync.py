"""adb's file service, byte by byte, against a host that a test plays."""

from __future__ import annotations

import asyncio
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simphone import files
from simphone.faults import Fault
from simphone.transport import CLSE, OKAY, WRTE, Packet, pack
from waiting import WITHIN_S

from .host import HOST_ID, Host, with_host


def request(word: bytes, path: bytes) -> bytes:
    return word + struct.pack("<I", len(path)) + path


def data(*pieces: bytes) -> bytes:
    return b"".join(b"DATA" + struct.pack("<I", len(piece)) + piece for piece in pieces)


def done(mtime: int = 5) -> bytes:
    return b"DONE" + struct.pack("<I", mtime)


async def open_sync(host: Host) -> int:
    await host.greet()
    return await host.open(b"sync:")


async def failure(host: Host, stream: int) -> str:
    head = await host.answer(stream, 8)
    assert head[:4] == b"FAIL", head
    (size,) = struct.unpack("<I", head[4:8])
    assert len(head) == 8 + size
    return head[8:].decode()


OKAYED = b"OKAY" + bytes(4)
FILE = b"/sdcard/f,33188"


def test_a_file_is_sent_looked_at_and_received_in_pieces() -> None:
    async def play(host: Host) -> None:
        stream = await open_sync(host)
        content = bytes(range(256)) * 700
        pieces = [content[at : at + 65536] for at in range(0, len(content), 65536)]
        await host.write(stream, request(b"SEND", FILE) + data(*pieces) + done(77))
        assert await host.answer(stream, 8) == OKAYED
        await host.write(stream, request(b"STAT", b"/sdcard/f"))
        assert await host.answer(stream, 16) == b"STAT" + struct.pack("<III", 0o100644, len(content), 77)
        await host.write(stream, request(b"RECV", b"/sdcard/f"))
        assert await host.answer(stream, len(content) + 8 * 4) == data(*pieces) + b"DONE" + bytes(4)

    with_host(play)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(1, 40), max_size=12), st.binary(max_size=60))
def test_where_the_host_cuts_its_bytes_makes_no_difference(cuts: list[int], content: bytes) -> None:
    async def play(host: Host) -> None:
        stream = await open_sync(host)
        rest = request(b"SEND", FILE) + data(content[:7], content[7:]) + done()
        for cut in [*cuts, len(rest)]:
            if rest[:cut]:
                await host.write(stream, rest[:cut])
                rest = rest[cut:]
        assert await host.answer(stream, 8) == OKAYED
        assert host.phone.files.read("/sdcard/f") == content

    with_host(play)


def test_a_directory_is_listed_with_its_own_two_and_what_is_none_is_empty() -> None:
    async def play(host: Host) -> None:
        stream = await open_sync(host)
        host.phone.files.write("/data/local/tmp/a b", b"xyz")
        await host.write(stream, request(b"LIST", b"/data/local/tmp/"))
        told = await host.answer(stream, 20 * 4)
        names = []
        while told[:4] == b"DENT":
            mode, size, _, length = struct.unpack("<4I", told[4:20])
            names.append((told[20 : 20 + length], oct(mode), size))
            told = told[20 + length :]
        assert names == [(b".", "0o40771", 4096), (b"..", "0o40771", 4096), (b"a b", "0o100660", 3)]
        assert told == b"DONE" + bytes(16)
        for nothing in (b"/sdcard/none", b"/data/local/tmp/a b", b""):
            await host.write(stream, request(b"LIST", nothing))
            assert await host.answer(stream, 20) == b"DONE" + bytes(16)

    with_host(play)


@pytest.mark.parametrize("path", [b"/none", b"", b"/sdcard/\0", b"/sdcard/" + b"x" * 300, b"\xff\xfe"])
def test_nothing_there_is_all_zeros(path: bytes) -> None:
    async def play(host: Host) -> None:
        stream = await open_sync(host)
        await host.write(stream, request(b"STAT", path))
        assert await host.answer(stream, 16) == b"STAT" + bytes(12)

    with_host(play)


def test_a_name_that_is_no_text_comes_back_as_it_was_sent() -> None:
    async def play(host: Host) -> None:
        stream = await open_sync(host)
        await host.write(stream, request(b"SEND", b"/sdcard/Music/\xff\xfe,420") + done())
        assert await host.answer(stream, 8) == OKAYED
        await host.write(stream, request(b"LIST", b"/sdcard/Music"))
        assert b"\xff\xfe" in await host.answer(stream, 20 * 4)

    with_host(play)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (request(b"RECV", b"/sdcard/none"), "No such file"),
        (request(b"RECV", b"/sdcard"), "Is a directory"),
        (request(b"SEND", b"/etc/passwd,33188") + data(b"x") + done(), "/etc/passwd: Permission denied"),
        (request(b"SEND", b"/sdcard/../etc/x,33188") + done(), "Permission denied"),
        (request(b"SEND", b"/sdcard/DCIM,33188") + data(b"x" * 70, b"y") + done(), "Is a directory"),
        (request(b"SEND", b"/sdcard/no-mode") + done(), "PATH,MODE"),
        (request(b"SEND", b"/sdcard/f,odd") + done(), "PATH,MODE"),
        (request(b"SEND", b"/sdcard/link,41471") + data(b"/etc") + done(), "only files"),
        (request(b"SEND", b"/sdcard/a\0b,33188") + done(), "No such file"),
    ],
)
def test_what_cannot_be_done_fails_with_a_reason_and_the_next_request_is_answered(said: bytes, why: str) -> None:
    async def play(host: Host) -> None:
        stream = await open_sync(host)
        await host.write(stream, said)
        assert why in await failure(host, stream)
        await host.write(stream, request(b"STAT", b"/sdcard/none"))
        assert await host.answer(stream, 16) == b"STAT" + bytes(12)
        await host.write(stream, b"QUIT" + bytes(4))
        await host.ended(stream)

    with_host(play)


def test_a_full_phone_says_so_while_the_host_still_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 100)

    async def play(host: Host) -> None:
        stream = await open_sync(host)
        await host.write(stream, request(b"SEND", FILE) + data(b"x" * 90, b"y" * 20))
        assert "No space left" in await failure(host, stream)
        await host.write(stream, data(b"z" * 5000) + done())
        await host.write(stream, request(b"SEND", FILE) + data(b"x" * 100) + done())
        assert await host.answer(stream, 8) == OKAYED

    with_host(play)


GARBAGE = {
    "no such request": b"ODD!" + struct.pack("<I", 3) + b"abc",
    "version 2": request(b"STA2", b"/sdcard"),
    "a path without an end": b"STAT" + struct.pack("<I", 0xFFFFFFFF),
    "a piece without a file": data(b"abc"),
    "a piece without an end": request(b"SEND", FILE) + b"DATA" + struct.pack("<I", 0xFFFFFFFF),
    "a request within a file": request(b"SEND", FILE) + request(b"STAT", b"/sdcard"),
    "a request after a failure": request(b"SEND", b"/x,420") + request(b"STAT", b"/sdcard"),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_what_is_no_request_fails_and_ends_the_service_and_nothing_else(name: str) -> None:
    async def play(host: Host) -> None:
        stream = await open_sync(host)
        await host.write(stream, GARBAGE[name])
        said = await host.answer(stream, 1)
        assert said[:4] == b"FAIL"
        await host.ended(stream)
        assert host.phone.files.find("/sdcard/f") is None
        assert (await host.ask(b"exec:echo hi"))[0] == [b"hi\n"]

    with_host(play)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.builds(request, st.sampled_from([b"STAT", b"LIST", b"SEND", b"RECV", b"DATA"]), st.binary(max_size=20)),
            st.builds(request, st.just(b"SEND"), st.just(FILE)),
            st.builds(data, st.binary(max_size=20)),
            st.just(done()),
        ),
        max_size=6,
    ).map(b"".join)
)
def test_whatever_the_host_says_the_phone_lives_on(said: bytes) -> None:
    async def play(host: Host) -> None:
        stream = await open_sync(host)
        await host.write(stream, said or b"x")
        host.send(CLSE, HOST_ID, stream)
        await host.ended(stream)
        await host.answer(stream, 0)
        stream = await host.open(b"sync:")
        await host.write(stream, request(b"STAT", b"/sdcard"))
        assert (await host.answer(stream, 16))[:4] == b"STAT"

    with_host(play)


def test_a_host_that_leaves_in_the_middle_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 100)

    async def play(host: Host) -> None:
        stream = await open_sync(host)
        await host.write(stream, request(b"SEND", FILE) + data(b"x" * 100) + b"DA")
        await host.write(stream, b"T")
        host.send(CLSE, HOST_ID, stream)
        await host.ended(stream)
        assert host.phone.files.find("/sdcard/f") is None
        stream = await host.open(b"sync:")
        await host.write(stream, request(b"SEND", FILE) + data(b"y" * 100) + done())
        assert await host.answer(stream, 8) == OKAYED

    with_host(play)


def test_a_payload_is_acknowledged_when_more_is_wanted_and_a_second_before_that_ends_the_connection() -> None:
    async def play(host: Host) -> None:
        stream = await open_sync(host)
        host.send(WRTE, HOST_ID, stream, request(b"RECV", b"/sdcard/none"))
        frame = await host.receive()
        assert (frame.command, frame.payload[:4]) == (WRTE, b"FAIL")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(host.reader.read(1), 0.1)
        host.send(OKAY, HOST_ID, stream)
        assert (await host.receive()).command == OKAY
        both = (pack(Packet(WRTE, HOST_ID, stream, half), checksum=False) for half in (b"ST", b"AT"))
        host.writer.write(b"".join(both))
        assert await asyncio.wait_for(host.reader.read(), WITHIN_S) == b""

    with_host(play)


def test_a_silent_phone_answers_no_request() -> None:
    async def play(host: Host) -> None:
        stream = await open_sync(host)
        host.faults.set(Fault.SILENT)
        await host.write(stream, request(b"STAT", b"/sdcard"))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(host.reader.read(1), 0.1)
        host.faults.clear()
        assert (await host.answer(stream, 16))[:4] == b"STAT"

    with_host(play)
