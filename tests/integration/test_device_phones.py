"""`distrl phones` as a person starts it, behind the session's adb server, driven through the pool."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from urllib.request import urlopen

import factories
import pytest
from distrl import config
from distrl.device import reset as resetting
from distrl.device.pool import DevicePool
from distrl.device.server import AdbServer
from distrl.stack import ports
from distrl.types import Action, ActionKind, Point

pytestmark = pytest.mark.integration
PHONES = 2


def command(port: int) -> list[str]:
    sets = [f"phones.base_port={port}", "phones.latency_median_ms=5", "phones.popup_probability=0"]
    flags = [flag for each in sets for flag in ("--set", each)]
    return [sys.executable, "-m", "distrl.cli.main", "phones", "--count", str(PHONES), *flags]


@pytest.fixture(scope="module")
def base_port() -> Iterator[int]:
    port = ports.draw("the tests", count=PHONES)
    process = subprocess.Popen(command(port), stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(f"ready: {PHONES} simulated phones")
        yield port
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def test_phones_are_leased_reset_driven_and_asked(base_port: int, adb_server: config.AdbSettings) -> None:
    addresses = tuple(f"127.0.0.1:{base_port + number}" for number in range(PHONES))
    pool = DevicePool(AdbServer(adb_server), config.DeviceSettings(addresses=addresses))
    assert tuple(pool.discover()) == addresses
    task = factories.task(phone_seed=3)
    shots, sessions = [], []
    for _ in range(PHONES):
        session = pool.lease()
        assert session is not None
        sessions.append(session)
        resetting.reset(session, task)
        before = session.settle()
        truth = resetting.truth(session)
        session.perform(Action(ActionKind.HOME))
        assert truth != resetting.truth(session)
        session.perform(Action(ActionKind.TAP, touch=Point(0.5, 0.5)))
        shots.append((before, session.settle()))
    assert shots[0] == shots[1]  # two phones with one seed are one phone
    for session in sessions:
        pool.release(session, None)
    pool.close()  # the next test's process wants the phones


def test_a_phone_is_played_in_a_browser_until_sigterm(base_port: int, adb_server: config.AdbSettings) -> None:
    line = [
        sys.executable,
        "-m",
        "distrl.cli.main",
        "phones",
        "play",
        "--serial",
        f"127.0.0.1:{base_port}",
        "--set",
        f"adb.port={adb_server.port}",
    ]
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as playing:
        try:
            assert playing.stdout is not None
            said = playing.stdout.readline()
            assert said.startswith(f"ready: 127.0.0.1:{base_port} at http://127.0.0.1:")
            with urlopen(said.split()[-1] + "screen.png", timeout=60) as answer:
                assert answer.read().startswith(b"\x89PNG")
            second = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False)
            assert second.returncode == 1
            assert f"held by process {playing.pid}" in " ".join((second.stdout + second.stderr).split())
            playing.terminate()
            assert playing.wait(60) == 0
        finally:
            playing.kill()


def test_a_second_one_on_the_same_ports_says_which_port_and_which_setting(base_port: int) -> None:
    second = subprocess.run(command(base_port), capture_output=True, text=True, timeout=60, check=False)
    assert second.returncode == 1
    said = " ".join((second.stdout + second.stderr).split())
    assert f"phones.base_port: port {base_port} of 127.0.0.1" in said
    assert "in use" in said
    assert "Traceback" not in said
