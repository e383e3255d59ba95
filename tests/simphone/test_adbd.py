"""The device's end of adb, frame by frame, against a host that a test plays."""

from __future__ import annotations

import asyncio
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simphone.commands import network
from simphone.faults import Fault
from simphone.machine import PhoneMachine
from simphone.transport import CLSE, CNXN, MAX_PAYLOAD, MOST_STREAMS, OKAY, OPEN, VERSION, WRTE
from waiting import WITHIN_S

from .host import HOST_ID, Host, with_host


def test_the_banner_says_version_size_and_features_with_a_checksum() -> None:
    async def play(host: Host) -> None:
        host.send(CNXN, VERSION, MAX_PAYLOAD, b"host::")
        header = await host.reader.readexactly(24)
        command, version, size, length, checksum, _ = struct.unpack("<6I", header)
        banner = await host.reader.readexactly(length)
        assert (command, version, size) == (CNXN, 0x01000001, 1024 * 1024)
        assert checksum == sum(banner)
        assert banner.startswith(b"device::ro.product.name=")
        assert banner.endswith(b"features=shell_v2,cmd,fixed_push_mkdir")

    with_host(play)


def test_both_shell_protocols_and_exec() -> None:
    async def play(host: Host) -> None:
        await host.greet()
        written, end = await host.ask(b"shell,v2,raw:echo hi; nope")
        complaint = b"/system/bin/sh: nope: inaccessible or not found\n"
        packets = ((1, b"hi\n"), (2, complaint), (3, b"\x7f"))
        assert b"".join(written) == b"".join(struct.pack("<BI", kind, len(data)) + data for kind, data in packets)
        assert end.arg1 == HOST_ID
        assert (await host.ask(b"shell:echo hi"))[0] == [b"hi\n"]
        assert (await host.ask(b"exec:echo hi"))[0] == [b"hi\n"]

    with_host(play)


def test_an_unknown_service_is_refused_from_id_0() -> None:
    async def play(host: Host) -> None:
        await host.greet()
        written, end = await host.ask(b"jdwp:1")
        assert written == []
        assert (end.arg0, end.arg1) == (0, HOST_ID)

    with_host(play)


def test_one_write_is_in_flight_and_none_is_larger_than_the_host_takes() -> None:
    async def play(host: Host) -> None:
        await host.greet(max_payload=1000)
        host.send(OPEN, HOST_ID, 0, b"exec:screencap -p\0")
        assert (await host.receive()).command == OKAY
        first = await host.receive()
        assert (first.command, len(first.payload)) == (WRTE, 1000)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(host.reader.read(1), 0.1)
        host.send(OKAY, HOST_ID, first.arg0)
        assert (await host.receive()).command == WRTE

    with_host(play)


def test_a_connection_opens_so_many_streams_and_no_more() -> None:
    async def play(host: Host) -> None:
        await host.greet()
        for number in range(1, MOST_STREAMS + 1):
            host.send(OPEN, number, 0, b"exec:echo hi\0")  # what it writes is not acknowledged: it stays open
            opened = await host.receive()
            assert (opened.command, (await host.receive()).command) == (OKAY, WRTE)
        host.send(OPEN, 9_999, 0, b"exec:echo hi\0")
        refused = await host.receive()
        assert (refused.command, refused.arg0, refused.arg1) == (CLSE, 0, 9_999)
        host.send(CLSE, MOST_STREAMS, opened.arg0)
        assert (await host.receive()).command == CLSE
        assert (await host.ask(b"exec:echo hi"))[0] == [b"hi\n"]

    with_host(play)


def test_a_close_is_answered_by_a_close_and_ends_what_runs() -> None:
    async def play(host: Host) -> None:
        await host.greet()
        host.send(OPEN, HOST_ID, 0, b"exec:screencap -p\0")
        opened = await host.receive()
        await host.receive()
        host.send(CLSE, HOST_ID, opened.arg0)
        assert (await host.receive())[:3] == (CLSE, opened.arg0, HOST_ID)
        host.send(WRTE, HOST_ID, opened.arg0, b"late")
        assert (await host.receive())[:3] == (CLSE, 0, HOST_ID)

    with_host(play)


def test_a_service_that_breaks_ends_its_stream_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(machine: PhoneMachine) -> bytes:
        raise ZeroDivisionError

    async def play(host: Host) -> None:
        await host.greet()
        assert (await host.ask(b"exec:screencap -p"))[0] == []
        assert (await host.ask(b"exec:echo hi"))[0] == [b"hi\n"]

    monkeypatch.setattr(PhoneMachine, "png", broken)
    with_host(play)


def test_a_fault_begins_also_where_the_host_closes_as_soon_as_it_has_the_answer() -> None:
    async def play(host: Host) -> None:
        await host.greet()
        stream = await host.open(b"exec:simctl fault asleep 600")
        assert (await host.receive()).command == WRTE
        host.send(OKAY, HOST_ID, stream)
        host.send(CLSE, HOST_ID, stream)  # both are read before the command goes on
        await asyncio.wait_for(host.faults.until(Fault.ASLEEP, active=True), WITHIN_S)

    with_host(play)


def test_a_count_is_of_bytes_and_what_is_too_long_to_count_is_cut() -> None:
    async def play(host: Host) -> None:
        await host.greet()
        spec = "localabstract:grüße"
        assert (await host.ask(f"reverse:forward:{spec};tcp:1".encode()))[0] == [b"OKAY"]
        listed = f"host-1 {spec} tcp:1\n".encode()
        assert (await host.ask(b"reverse:list-forward"))[0] == [b"%04x" % len(listed) + listed]
        (failed,), _ = await host.ask("reverse:killforward:tcp:ß".encode())
        assert failed == b"FAIL%04x" % len(failed[8:]) + "listener 'tcp:ß' not found".encode()
        (failed,), _ = await host.ask(b"reverse:killforward:" + b"x" * 70_000)
        assert (failed[:8], len(failed)) == (b"FAILffff", 8 + 0xFFFF)

    with_host(play)


def test_what_a_port_sends_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host never closes: without a bound `nc` would wait for more."""
    monkeypatch.setattr(network, "MOST_OUTPUT", 1_000)

    async def play(host: Host) -> None:
        await host.greet()
        assert (await host.ask(b"reverse:forward:tcp:7;tcp:8"))[0] == [b"OKAY"]
        host.send(OPEN, HOST_ID, 0, b"exec:nc 127.0.0.1 7\0")
        written, closed = [], set()
        while len(closed) < 2:
            frame = await host.receive()
            match frame.command:
                case command if command == OPEN:
                    dialled = frame.arg0
                    host.send(OKAY, HOST_ID + 1, dialled)
                    host.send(WRTE, HOST_ID + 1, dialled, b"x" * 600)
                case command if command == OKAY and frame.arg1 == HOST_ID + 1:
                    host.send(WRTE, HOST_ID + 1, dialled, b"x" * 600)
                case command if command == WRTE:
                    written.append(frame.payload)
                    host.send(OKAY, HOST_ID, frame.arg0)
                case command if command == CLSE:
                    closed.add(frame.arg1)
        assert written == [b"nc: more than 1000 bytes to print at once\n"]

    with_host(play)


def test_a_client_that_leaves_before_the_host_has_answered_for_it_leaves_no_stream() -> None:
    """As a health check that only looks whether a reversed port listens: each would cost one of the phone's streams."""

    async def play(host: Host) -> None:
        await host.greet()
        assert (await host.ask(b"reverse:forward:tcp:7;tcp:8"))[0] == [b"OKAY"]
        for number in range(MOST_STREAMS + 1):
            host.send(OPEN, HOST_ID, 0, b"tcp:7\0")
            frames = [await host.receive(), await host.receive()]
            assert [frame.command for frame in frames] == [OKAY, OPEN], f"the {number}th"
            host.send(CLSE, HOST_ID, frames[0].arg0)
            host.send(OKAY, HOST_ID + 1, frames[1].arg0)
            ends = {(frame.arg0, frame.arg1) for frame in (await host.receive(), await host.receive())}
            assert ends == {(frames[0].arg0, HOST_ID), (frames[1].arg0, HOST_ID + 1)}

    with_host(play)


def test_what_the_host_writes_is_acknowledged() -> None:
    async def play(host: Host) -> None:
        await host.greet()
        host.faults.set(Fault.SLOW)
        host.send(OPEN, HOST_ID, 0, b"shell,v2:echo hi\0")
        opened = await host.receive()
        host.send(WRTE, HOST_ID, opened.arg0, b"\x04\0\0\0\0")
        assert (await host.receive())[:3] == (OKAY, opened.arg0, HOST_ID)

    with_host(play)


def test_a_silent_phone_answers_no_open_until_it_is_well_again() -> None:
    async def play(host: Host) -> None:
        await host.greet()
        host.faults.set(Fault.SILENT)
        host.send(OPEN, HOST_ID, 0, b"exec:echo hi\0")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(host.reader.read(1), 0.1)
        host.faults.clear()
        assert (await host.receive()).command == OKAY
        assert (await host.receive()).payload == b"hi\n"

    with_host(play)


@settings(max_examples=30, deadline=None)
@given(st.binary(min_size=24, max_size=60))
def test_what_is_no_frame_ends_the_connection(garbage: bytes) -> None:
    async def play(host: Host) -> None:
        host.writer.write(garbage)
        host.writer.write_eof()
        assert await asyncio.wait_for(host.reader.read(), WITHIN_S) == b""

    with_host(play)
