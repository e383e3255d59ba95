"""The console protocol, spoken with a stand-in emulator, and with listeners that no emulator would be."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from distrl.device.adb_protocol import Deadline
from distrl.device.console import MAX_ANSWER, Console
from distrl.device.emulator import Emulator
from distrl.device.errors import DeviceGarbage, DeviceGone, DeviceRefused, DeviceTimeout
from distrl.device.leases import Leases
from distrl.device.server import AdbServer
from waiting import until

from .conftest import LONG_S, SLACK_S, given_time
from .standin import AVD, Standin, free_console_port

GREETING = b"Android Console: type 'help' for a list of commands\r\nOK\r\n"
Talk = Callable[[socket.socket], None]


@pytest.fixture
def port(adb: AdbServer, standin: Standin) -> Iterator[int]:
    """The console port of a stand-in that may write to its virtual device."""
    devices = standin.devices()
    port = devices.emulators.first_port
    emulator = Emulator(adb, devices, port, Leases(standin.state, adb.adb), threading.Event(), writable=True)
    emulator.bring()
    yield port
    emulator.close()


@contextmanager
def listening(talk: Talk) -> Iterator[int]:
    """A port where `talk` has the connection that comes; it goes on until the other end has hung up."""
    with ExitStack() as kept:
        server = kept.enter_context(socket.create_server(("127.0.0.1", 0)))

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                try:
                    talk(connection)
                    while connection.recv(1024):
                        pass
                except OSError:
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        kept.callback(thread.join)
        yield int(server.getsockname()[1])


def test_a_session_is_authenticated_and_answered(port: int, standin: Standin) -> None:
    with Console(port, standin.token, Deadline(LONG_S)) as console:
        console.ping()
        assert console.avd_name() == AVD
        console.save("clean")
        console.load("clean")
        assert "clean" in console.snapshots().splitlines()


def test_a_kill_ends_the_emulator(port: int, standin: Standin) -> None:
    with Console(port, standin.token, Deadline(LONG_S)) as console:
        console.kill()
    until(lambda: standin.running() == [], "all to end")


def test_a_wrong_token_is_refused_in_the_consoles_words_and_not_shown(
    port: int, standin: Standin, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("hunter2\n")
    with pytest.raises(DeviceRefused, match="token does not match") as caught, Console(port, wrong, Deadline(LONG_S)):
        pass
    assert "hunter2" not in str(caught.value)


def test_a_token_that_is_none_is_reported_with_its_setting(port: int, standin: Standin, tmp_path: Path) -> None:
    file = tmp_path / "token"
    for content in (None, "", " \n", "two words", "ping\nkill", "ü", "x" * 300):
        if content is not None:
            file.write_text(content)
        with pytest.raises(DeviceRefused) as caught, Console(port, file, Deadline(LONG_S)):
            pass
        assert str(file) in caught.value.what
        assert "devices.emulators.token_file" in caught.value.hint
    assert standin.asked(port) == ["avd name"]  # of the start: nothing of these has gone out as a command


def test_a_console_without_authentication_needs_no_token(port: int, standin: Standin, tmp_path: Path) -> None:
    standin.token.write_text("")
    with Console(port, tmp_path / "none", Deadline(LONG_S)) as console:
        console.ping()


def test_what_the_console_refuses_is_raised_with_its_reason(port: int, standin: Standin) -> None:
    standin.faults(refuse={"avd snapshot save": "the disk is full"})
    with Console(port, standin.token, Deadline(LONG_S)) as console:
        with pytest.raises(DeviceRefused, match="`avd snapshot save clean`: the disk is full"):
            console.save("clean")
        with pytest.raises(DeviceRefused, match="no snapshot other"):
            console.load("other")
        console.ping()


def test_a_name_that_is_more_than_a_name_is_never_sent(port: int, standin: Standin) -> None:
    with Console(port, standin.token, Deadline(LONG_S)) as console:
        for name in ("", "-x", "a b", "a\r\nkill", "a\nkill", ".", "a/../b", "x" * 101):
            for call in (console.save, console.load):
                with pytest.raises(DeviceRefused, match="not a name of a snapshot"):
                    call(name)
    assert standin.asked(port) == ["avd name"]


@pytest.mark.parametrize("how", ["silent", "drip"])
def test_a_console_that_hangs_or_drips_is_left_at_the_deadline(port: int, standin: Standin, how: str) -> None:
    standin.faults(console=how)
    begun = time.monotonic()
    with pytest.raises(DeviceTimeout, match=r"0\.5 s"), Console(port, standin.token, Deadline(0.5)):
        pass
    assert 0.4 < time.monotonic() - begun < 0.5 + SLACK_S


def test_a_session_that_is_answered_slowly_has_one_deadline_for_all_of_it(tmp_path: Path) -> None:
    def talk(connection: socket.socket) -> None:
        connection.sendall(GREETING)
        while connection.recv(1024):
            time.sleep(0.1)
            connection.sendall(b"I am alive!\r\nOK\r\n")

    def has_one(seconds: float) -> None:
        pings = 0
        with listening(talk) as port, Console(port, tmp_path, Deadline(seconds)) as console:
            with pytest.raises(DeviceTimeout):  # noqa: PT012 (how many succeed is the point)
                while True:
                    console.ping()
                    pings += 1
            assert 1 <= pings <= 10 * seconds

    given_time(has_one)


@pytest.mark.parametrize(
    ("sent", "raised"),
    [
        (b"", DeviceTimeout),
        (b"x" * (2 * MAX_ANSWER), DeviceGarbage),
        (b"\r\n" * (2 * MAX_ANSWER), DeviceGarbage),
        (b"KO: go away\r\n", DeviceRefused),
        (b"KO\r\n", DeviceRefused),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", DeviceTimeout),
    ],
)
def test_what_is_no_console_is_told_apart(sent: bytes, raised: type[Exception], tmp_path: Path) -> None:
    with (
        listening(lambda connection: connection.sendall(sent)) as port,
        pytest.raises(raised),
        Console(port, tmp_path, Deadline(1.0 if raised is DeviceTimeout else LONG_S)),
    ):
        pass


def test_a_console_that_hangs_up_is_gone(tmp_path: Path) -> None:
    def hang_up(connection: socket.socket) -> None:
        connection.sendall(b"Android Cons")
        connection.shutdown(socket.SHUT_RDWR)

    with (
        listening(hang_up) as port,
        pytest.raises(DeviceGone, match="closed the connection before"),
        Console(port, tmp_path, Deadline(LONG_S)),
    ):
        pass


def test_nobody_at_the_port_is_gone(tmp_path: Path) -> None:
    port = free_console_port(1)
    with (
        pytest.raises(DeviceGone, match=f"no console answers at 127.0.0.1:{port}"),
        Console(port, tmp_path, Deadline(LONG_S)),
    ):
        pass
