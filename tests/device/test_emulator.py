"""Emulators from the start of the program to its end: a stand-in program behind the real adb server."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import factories
import pytest
from distrl import config
from distrl.device.about import look
from distrl.device.emulator import Emulator, fleet
from distrl.device.errors import AdbServerGone, DeviceGarbage, DeviceGone, DeviceLocked, DeviceTimeout, DeviceUnready
from distrl.device.launch import command_line
from distrl.device.leases import Leases
from distrl.device.pool import DevicePool
from distrl.device.prepare import ANIMATIONS, prepare
from distrl.device.reset import reset
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.errors import DeviceError
from distrl.rollout.phones import Phones
from distrl.types import Point
from waiting import until

from .conftest import free_ports, hasty
from .standin import AVD, Standin
from .test_pool import Clock, some

HOME, NOTES = "com.sim.launcher/com.sim.launcher.Home", "com.sim.notes"
TASK = factories.task(phone_seed=3)
Made = Callable[[config.DeviceSettings], list[Emulator]]
TRIES = 10
"""In one of them no other work of the machine should come in between."""
WORKER = """
import json, sys, time
from distrl.config import Config, load
from distrl.rollout.phones import Phones
with Phones(load(sets=sys.argv[1:], environ={})) as phones:
    print(json.dumps([each.state for each in phones.health()]), flush=True)
    time.sleep(600)
"""


@pytest.fixture
def made(adb: AdbServer, standin: Standin) -> Iterator[Made]:
    """The emulators of a configuration, ended at the end of the test."""
    with ExitStack() as kept:

        def make(devices: config.DeviceSettings) -> list[Emulator]:
            found = fleet(adb, devices, Leases(devices.directory, adb.adb), threading.Event())
            for each in found:
                kept.callback(each.close)
            return list(found)

        yield make


@pytest.fixture
def snapshot(adb: AdbServer, standin: Standin) -> str:
    """The name of a snapshot of the stand-in's virtual device."""
    prepare(adb, standin.devices(snapshot="clean"), threading.Event())
    return "clean"


def answers(server: AdbServer) -> bool:
    try:
        return server.version() > 0
    except DeviceError:
        return False


def sets(adb: AdbServer, devices: config.DeviceSettings) -> list[str]:
    """A configuration as a command line gives it."""
    emulators = devices.emulators.model_dump(mode="json")
    return [
        f"adb.port={adb.adb.port}",
        f"devices.directory={devices.directory}",
        f"devices.operation_timeout_s={devices.operation_timeout_s}",
        f"devices.settle_timeout_s={devices.settle_timeout_s}",
        f"devices.lease_ttl_s={devices.lease_ttl_s}",
        *(f"devices.emulators.{name}={value}" for name, value in emulators.items() if value not in ("", [])),
    ]


def test_the_command_line_is_the_one_that_android_documents() -> None:
    settings = config.EmulatorSettings(
        avd="Pixel_8", count=2, binary="/sdk/emulator", arguments=("-gpu", "swiftshader")
    )
    both = ["-no-window", "-no-audio", "-no-boot-anim", "-gpu", "swiftshader"]
    assert command_line(settings, 5556) == [
        "/sdk/emulator",
        "-avd",
        "Pixel_8",
        "-port",
        "5556",
        "-read-only",
        "-no-snapshot",
        *both,
    ]
    settings = settings.model_copy(update={"snapshot": "clean"})
    assert command_line(settings, 5556) == [
        "/sdk/emulator",
        "-avd",
        "Pixel_8",
        "-port",
        "5556",
        "-read-only",
        "-snapshot",
        "clean",
        "-no-snapshot-save",
        *both,
    ]
    assert command_line(settings, 5556, writable=True) == [
        "/sdk/emulator",
        "-avd",
        "Pixel_8",
        "-port",
        "5556",
        "-no-snapshot",
        *both,
    ]


def test_the_program_is_found_in_the_sdk_or_on_the_path(standin: Standin, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = config.EmulatorSettings(avd=AVD)
    for name in ("ANDROID_HOME", "ANDROID_SDK_ROOT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "/none")
    with pytest.raises(DeviceUnready, match="ANDROID_HOME"):
        command_line(settings, 5554)
    monkeypatch.setenv("PATH", str(standin.folder))
    assert command_line(settings, 5554)[0] == str(standin.binary)
    (sdk := standin.folder / "sdk" / "emulator").mkdir(parents=True)
    (sdk / "emulator").write_text("")
    monkeypatch.setenv("ANDROID_HOME", str(standin.folder / "sdk"))
    assert command_line(settings, 5554)[0] == str(sdk / "emulator")


def test_two_emulators_of_one_virtual_device_boot_and_are_two_phones(
    adb: AdbServer, standin: Standin, made: Made
) -> None:
    standin.faults(boot_s=0.5)
    devices = standin.devices(2)
    emulators = made(devices)
    for each in emulators:
        each.bring()
    assert {each.serial: adb.devices()[each.serial] for each in emulators} == dict.fromkeys(
        devices.emulators.serials, "device"
    )
    first, second = (AdbSession(adb, each.serial, devices) for each in emulators)
    first.start_app(NOTES)
    assert first.focus().startswith(NOTES)
    assert second.focus() == HOME
    for each in emulators:
        each.close()
    assert standin.running() == []
    until(lambda: not set(devices.emulators.serials) & set(adb.devices()))  # adb lists it as offline for a moment


def test_one_that_answers_is_not_started_again(standin: Standin, made: Made) -> None:
    (emulator,) = made(standin.devices())
    emulator.bring()
    emulator.bring()
    assert (emulator.starts, len(standin.started())) == (1, 1)


def test_a_connection_that_adb_has_lost_is_made_anew_without_a_start(
    adb: AdbServer, standin: Standin, made: Made
) -> None:
    (emulator,) = made(standin.devices())
    emulator.bring()
    adb.disconnect(emulator.serial)
    emulator.bring()
    assert adb.devices()[emulator.serial] == "device"
    assert emulator.starts == 1


def test_one_that_boots_too_slowly_is_ended_and_the_setting_is_named(standin: Standin, made: Made) -> None:
    standin.faults(boot_s=60)
    (emulator,) = made(standin.devices(boot_timeout_s=3))
    with pytest.raises(DeviceTimeout, match=r"after 3 s: adb reports it as \w+, its console") as caught:
        emulator.bring()
    assert "devices.emulators.boot_timeout_s" in caught.value.hint
    assert standin.running() == []


def test_one_that_ends_while_booting_is_reported_with_its_last_words(standin: Standin, made: Made) -> None:
    (emulator,) = made(standin.devices(avd="other"))
    with pytest.raises(DeviceGone, match=r"(?s)ended with status 1; its log ends with: .*Unknown AVD name \[other\]"):
        emulator.bring()


def test_a_program_that_cannot_be_run_is_reported_with_its_setting(standin: Standin, made: Made) -> None:
    (emulator,) = made(standin.devices(binary=standin.folder / "none"))
    with pytest.raises(DeviceUnready, match="cannot be run") as caught:
        emulator.bring()
    assert caught.value.where == "devices.emulators.binary"


def test_an_emulator_that_cannot_be_noted_does_not_stay(adb: AdbServer, standin: Standin, made: Made) -> None:
    (emulator,) = made(standin.devices())
    Leases(standin.state, adb.adb).file(emulator.serial, ".pid").mkdir(parents=True)
    with pytest.raises(DeviceUnready, match="cannot be written") as caught:
        emulator.bring()
    assert caught.value.where == "devices.directory"
    assert standin.running() == []


@pytest.mark.parametrize("beside", [0, 1])
def test_a_port_that_is_taken_is_reported_and_its_owner_left_alone(standin: Standin, made: Made, beside: int) -> None:
    devices = standin.devices()
    port = devices.emulators.first_port + beside
    (emulator,) = made(devices)
    with socket.create_server(("127.0.0.1", port)) as owner:
        with pytest.raises(DeviceUnready, match=f"port {port} of 127.0.0.1 is in use") as caught:
            emulator.bring()
        assert caught.value.where == "devices.emulators.first_port"
        assert standin.started() == []
        socket.create_connection(owner.getsockname()).close()


def test_an_emulator_of_somebody_else_is_neither_driven_nor_ended(standin: Standin, made: Made) -> None:
    standin.faults(name="another")
    (emulator,) = made(standin.devices())
    with pytest.raises(DeviceUnready, match="runs 'another', not 'distrl'"):
        emulator.bring()
    assert "kill" not in standin.asked(standin.started()[0][4])


def test_a_wrong_token_is_reported_at_the_start(standin: Standin, made: Made) -> None:
    standin.token.write_text("right")
    (wrong := standin.folder / "wrong").write_text("wrong")
    (emulator,) = made(standin.devices(token_file=wrong))
    with pytest.raises(DeviceUnready, match="token does not match") as caught:
        emulator.bring()
    assert "token_file" in caught.value.hint
    assert standin.running() == []


def test_an_emulator_is_not_started_for_an_adb_server_of_another_machine(standin: Standin) -> None:
    devices = standin.devices()
    with pytest.raises(DeviceError, match=r"the adb server is on 10\.0\.0\.1"):
        fleet(
            AdbServer(config.AdbSettings(host="10.0.0.1")),
            devices,
            Leases(standin.state, config.AdbSettings()),
            threading.Event(),
        )


def test_preparing_boots_cold_turns_animations_off_and_saves(adb: AdbServer, standin: Standin, snapshot: str) -> None:
    assert (standin.folder / "avd" / AVD / snapshot).exists()
    settings = (standin.folder / "settings").read_text().split()
    assert settings == [f"{name}=0" for name in ANIMATIONS]
    ((_, *line),) = standin.started()
    assert "-no-snapshot" in line
    assert "-read-only" not in line
    assert standin.running() == []
    assert list(standin.state.glob("*.lock")) == list(standin.state.glob("*.pid")) == []


def test_preparing_leaves_an_emulator_of_a_worker_alone(adb: AdbServer, standin: Standin) -> None:
    devices = standin.devices(snapshot="clean")
    hold = Leases(standin.state, adb.adb).take(devices.emulators.serials[0])
    with pytest.raises(DeviceError, match=f"is held by process {os.getpid()}"):
        prepare(adb, devices, threading.Event())
    assert standin.started() == []
    del hold


def test_a_snapshot_that_is_not_there_is_reported_at_the_start_with_those_that_are(
    standin: Standin, made: Made, snapshot: str
) -> None:
    (emulator,) = made(standin.devices(snapshot="clear"))
    with pytest.raises(DeviceUnready, match=rf"no snapshot clear; its snapshots: [^;]*{snapshot}") as caught:
        emulator.bring()
    assert "distrl emulators prepare" in caught.value.hint
    assert standin.running() == []


def test_a_reset_puts_the_phone_back_to_the_snapshot(adb: AdbServer, standin: Standin, snapshot: str) -> None:
    devices = standin.devices(snapshot=snapshot)
    pool = DevicePool(adb, devices)
    try:
        session = some(pool.lease())
        before = session.settle()
        session.start_app(NOTES)
        assert session.focus().startswith(NOTES)
        reset(session, TASK, pool.snapshot_of(session))
        assert session.focus() == HOME
        assert session.settle() == before
        assert standin.asked(devices.emulators.first_port).count(f"avd snapshot load {snapshot}") == 2
    finally:
        pool.close()


def test_without_a_snapshot_a_reset_is_that_of_a_real_phone(adb: AdbServer, standin: Standin) -> None:
    devices = standin.devices()
    pool = DevicePool(adb, devices)
    try:
        session = some(pool.lease())
        session.start_app(NOTES)
        assert pool.snapshot_of(session) is None
        reset(session, TASK, pool.snapshot_of(session))
        assert session.focus() == HOME
        assert "avd snapshot" not in " ".join(standin.asked(devices.emulators.first_port))
    finally:
        pool.close()


def test_a_worker_resets_by_its_snapshot_and_ends_what_it_has_started(
    adb: AdbServer, standin: Standin, snapshot: str
) -> None:
    settings = config.load(sets=sets(adb, standin.devices(2, snapshot=snapshot)), environ={})
    stop = threading.Event()
    with Phones(settings, stop) as phones, phones.lease(5.0) as phone:
        assert phone is not None
        stop.set()  # episodes that have begun may end
        before = phone.settle()
        AdbSession(adb, phone.serial, settings.devices).start_app(NOTES)
        assert phone.settle() != before
        phone.reset(TASK)
        assert phone.settle() == before
        assert phone.truth() is None
        assert len(standin.running()) == 2
    assert standin.running() == []


def test_a_killed_emulator_interrupts_its_episode_and_is_started_again(adb: AdbServer, standin: Standin) -> None:
    devices = standin.devices()
    pool = DevicePool(adb, devices)

    def episode() -> None:
        with pool.leased() as session:
            os.kill(standin.running()[0], signal.SIGKILL)
            for _ in range(1000):
                some(session).tap(Point(0.5, 0.5))

    try:
        with pytest.raises(DeviceGone):
            episode()
        with pool.leased() as session:
            assert some(session).focus() == HOME
        (health,) = pool.health()
        assert {name: count for name, count in health.counters.items() if count} == {
            "leases": 2,
            "interrupted": 1,
            "restarts": 1,
        }
        assert len(standin.started()) == 2
    finally:
        pool.close()
    assert standin.running() == []


def test_a_killed_adb_server_costs_an_emulator_no_restart(standin: Standin) -> None:
    with AdbServer(config.AdbSettings(port=free_ports(1))) as own:
        pool = DevicePool(own, standin.devices())
        session = some(pool.lease())
        assert own.pid is not None
        os.kill(own.pid, signal.SIGKILL)
        until(lambda: not answers(own))
        with pytest.raises(DeviceError) as caught:
            session.focus()
        pool.release(session, caught.value)
        assert some(pool.lease()).focus() == HOME
        assert len(standin.started()) == 1
        pool.close()


def test_one_that_fails_twice_in_a_row_is_started_again_though_it_answers(
    adb: AdbServer, standin: Standin, snapshot: str
) -> None:
    clock = Clock()
    pool = DevicePool(adb, standin.devices(snapshot=snapshot), clock)
    starts = len(standin.started())
    try:
        restarts = []
        for _ in range(3):
            with pytest.raises(DeviceUnready, match="not now"), pool.leased() as session:  # noqa: PT012
                standin.faults(refuse={"avd snapshot load": "not now"})
                reset(some(session), TASK, pool.snapshot_of(some(session)))
            standin.faults()
            restarts.append(len(standin.started()) - starts - 1)
            clock.now += 60
        assert restarts == [0, 0, 1]
        pool.release(some(pool.lease()))
        assert pool.health()[0].counters["restarts"] == 2
    finally:
        pool.close()


@pytest.mark.parametrize("unlocked_by", ["a start", "a person"])
def test_one_that_an_episode_has_locked_is_started_again_unless_a_person_unlocks_it(
    adb: AdbServer, standin: Standin, snapshot: str, monkeypatch: pytest.MonkeyPatch, unlocked_by: str
) -> None:
    clock, by_person = Clock(), threading.Event()
    pool = DevicePool(adb, standin.devices(snapshot=snapshot), clock)
    try:
        with pytest.raises(DeviceGarbage), pool.leased() as session:  # noqa: PT012
            starts = len(standin.started())

            def locked(self: AdbSession) -> None:
                if len(standin.started()) == starts and not by_person.is_set():
                    raise DeviceLocked(self.serial)

            monkeypatch.setattr(AdbSession, "require_unlocked", locked)
            raise DeviceGarbage(some(session).serial, "its screen is of no use")
        assert pool.lease() is None
        assert pool.health()[0].counters["restarts"] == 0
        if unlocked_by == "a person":
            by_person.set()
        clock.now += 60
        pool.release(some(pool.lease()))
        assert pool.health()[0].counters["restarts"] == (unlocked_by == "a start")
    finally:
        pool.close()


def test_a_start_that_fails_for_all_is_raised_and_for_some_is_tried_again(adb: AdbServer, standin: Standin) -> None:
    standin.faults(exit=3)
    pool = DevicePool(adb, standin.devices(2))
    with pytest.raises(DeviceGone, match="ended with status 3"):
        pool.discover()
    standin.faults()
    assert len(pool.discover()) == 2
    pool.close()


def test_a_stop_ends_the_wait_for_a_boot(adb: AdbServer, standin: Standin) -> None:
    standin.faults(boot_s=60)
    stop = threading.Event()
    pool = DevicePool(adb, standin.devices(), stop=stop)
    found: list[str] = []
    waiting = threading.Thread(target=lambda: found.extend(pool.discover()))
    waiting.start()
    until(lambda: bool(standin.running()))
    stop.set()
    waiting.join(30)
    assert not waiting.is_alive()
    assert found == []
    pool.close()
    assert standin.running() == []


def test_a_close_ends_the_emulator_that_another_thread_waits_for(standin: Standin, made: Made) -> None:
    standin.faults(boot_s=60)
    (emulator,) = made(standin.devices())
    raised: list[DeviceError] = []

    def bring() -> None:
        try:
            emulator.bring()
        except DeviceError as error:
            raised.append(error)

    waiting = threading.Thread(target=bring)
    waiting.start()
    until(lambda: bool(standin.running()))
    emulator.close()
    waiting.join(30)
    assert [type(error) for error in raised] == [DeviceGone]
    with pytest.raises(DeviceGone):
        emulator.bring()
    assert len(standin.started()) == 1


def test_one_that_does_not_end_is_killed(standin: Standin, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distrl.device.launch.STOP_S", 0.5)
    standin.faults(stubborn=True)
    (emulator,) = made(standin.devices())
    emulator.bring()
    standin.faults(refuse={"kill": "no"})
    emulator.close()
    assert standin.running() == []


def test_emulators_are_listed_before_they_are_started_and_with_their_worker_after(
    adb: AdbServer, standin: Standin
) -> None:
    devices = standin.devices()
    (serial,) = devices.emulators.serials

    def about() -> tuple[str, str]:
        (found,) = [each for each in look(adb, devices) if each.serial == serial]
        return found.state, found.holder

    assert about() == ("not connected", "")
    pool = DevicePool(adb, devices)
    pool.discover()
    assert about() == ("device", f"process {os.getpid()}")
    pool.close()
    # adb lists a phone that it was asked to forget as offline until its own thread for it has ended
    until(lambda: about() == ("not connected", ""))


def test_what_a_killed_worker_leaves_running_is_ended_by_the_next(adb: AdbServer, standin: Standin) -> None:
    devices = standin.devices()
    line = [sys.executable, "-c", WORKER, *sets(adb, devices)]
    worker = subprocess.Popen(line, stdout=subprocess.PIPE, text=True)
    try:
        assert worker.stdout is not None
        assert worker.stdout.readline() == '["idle"]\n'
        (orphan,) = standin.running()
        pool = DevicePool(adb, devices)
        assert pool.lease() is None
        assert standin.running() == [orphan]
    finally:
        worker.kill()
        worker.communicate()
    assert standin.running() == [orphan]
    until(lambda: pool.lease() is not None)
    assert len(standin.running()) == 1
    assert orphan not in standin.running()
    pool.close()


@contextmanager
def frozen(server: AdbServer) -> Iterator[None]:
    """An adb server that holds its port and answers nobody."""
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.fixture
def own_adb() -> Iterator[AdbServer]:
    """An adb server that a test may freeze and kill."""
    with AdbServer(config.AdbSettings(port=free_ports(1))) as own:
        yield own


@contextmanager
def short_deadlines(*those: Emulator | DevicePool | AdbSession) -> Iterator[None]:
    """Of what asks an adb server that does not answer."""
    patient = [each._devices for each in those]
    for each in those:
        each._devices = hasty(each._devices, 1.0)
    try:
        yield
    finally:
        for each, devices in zip(those, patient, strict=True):
            each._devices = devices


def refused_after(one: Emulator) -> float:
    """Seconds until an emulator is told that its adb server does not answer."""
    began = time.monotonic()
    with pytest.raises(AdbServerGone, match="the state of emulator-"):
        one.bring()
    return time.monotonic() - began


def test_a_silent_adb_server_costs_one_deadline_and_no_emulator(own_adb: AdbServer, standin: Standin) -> None:
    devices = standin.devices()
    (one,) = fleet(own_adb, devices, Leases(devices.directory, own_adb.adb), threading.Event())
    try:
        one.bring()
        pid = one.pid
        with frozen(own_adb), short_deadlines(one):
            assert any(refused_after(one) < 1.5 for _ in range(TRIES)), "less than two deadlines"
            assert (one.pid, one.starts) == (pid, 1)
        one.bring()
        assert (one.pid, one.starts) == (pid, 1)
    finally:
        one.close()


def test_an_adb_server_that_hiccups_while_an_emulator_boots_is_waited_out(
    own_adb: AdbServer, standin: Standin, monkeypatch: pytest.MonkeyPatch
) -> None:
    standin.faults(boot_s=1.5)
    devices = standin.devices()
    (one,) = fleet(own_adb, devices, Leases(devices.directory, own_adb.adb), threading.Event())
    start = one._program.start

    def losing_adb(line: Sequence[str], more: Mapping[str, str]) -> None:
        """Whoever waits for the boot has not asked yet."""
        start(line, more)
        assert own_adb.pid is not None
        os.kill(own_adb.pid, signal.SIGKILL)
        until(lambda: not answers(own_adb))

    monkeypatch.setattr(one._program, "start", losing_adb)
    brought = threading.Thread(target=one.bring)
    try:
        brought.start()
        until(lambda: one.starts == 1)
        own_adb.start()
        brought.join(60)
        assert not brought.is_alive()
        assert one.starts == 1
        assert AdbSession(own_adb, one.serial, devices).output("getprop sys.boot_completed").strip() == b"1"
    finally:
        one.close()
        brought.join(60)


def test_a_pool_restarts_no_emulator_for_a_silent_adb_server(own_adb: AdbServer, standin: Standin) -> None:
    devices, clock = standin.devices(), Clock()
    pool = DevicePool(own_adb, devices, clock)
    try:
        (serial,) = pool.discover()
        session = some(pool.lease(5.0))
        emulator = pool._phones[serial].emulator
        assert emulator is not None
        with frozen(own_adb), short_deadlines(pool, session, emulator):
            with pytest.raises(DeviceTimeout) as silent:
                session.output("echo")
            pool.release(session, silent.value)
            clock.now += 100.0
            assert pool.lease() is None, "its second failure in a row, and not its own"
        clock.now += 100.0
        again = some(pool.lease(20.0))
        assert again.serial == serial
        (health,) = pool.health()
        assert health.counters["restarts"] == 0
        pool.release(again)
    finally:
        pool.close()
