from __future__ import annotations

import threading
import time
from contextlib import suppress

import factories
import pytest
from distrl import config
from distrl.device import pool as pool_module
from distrl.device.errors import DeviceGarbage, DeviceGone, DeviceLocked, DeviceRefused, DeviceTimeout
from distrl.device.pool import AT_ONCE, DevicePool
from distrl.device.reset import reset
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.errors import DeviceError
from distrl.types import Point
from simphone.faults import Fault
from simphone.serve import SimulatedPhone
from waiting import WITHIN_S

from .conftest import LONG_S, StartPhones, free_ports, given_time, hasty, hurried


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def pool_of(adb: AdbServer, clock: Clock, *addresses: str) -> DevicePool:
    devices = config.DeviceSettings(addresses=addresses, operation_timeout_s=LONG_S, settle_timeout_s=LONG_S)
    return DevicePool(adb, devices, clock)


def some(session: AdbSession | None) -> AdbSession:
    assert session is not None
    return session


def counters(pool: DevicePool) -> dict[str, int]:
    (health,) = pool.health()
    return {name: count for name, count in health.counters.items() if count}


def until_answering(pool: DevicePool, seconds: float = LONG_S) -> AdbSession:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (session := pool.lease()) is not None:
            return session
    raise AssertionError(f"no phone within {seconds} s: {pool.health()}")


def test_a_phone_is_lent_to_one_at_a_time(adb: AdbServer, clock: Clock, start_phones: StartPhones) -> None:
    addresses = [phone.address for phone in start_phones(2)]
    pool = pool_of(adb, clock, *addresses)
    assert list(pool.discover()) == addresses
    first, second = some(pool.lease()), some(pool.lease())
    assert {first.serial, second.serial} == set(addresses)
    assert pool.lease() is None
    assert [health.state for health in pool.health()] == ["leased", "leased"]
    pool.release(first)
    assert some(pool.lease()) is first


def test_a_lease_waits_for_a_release(adb: AdbServer, clock: Clock, phone: SimulatedPhone) -> None:
    pool = pool_of(adb, clock, phone.address)
    held = some(pool.lease())
    releasing = threading.Timer(0.1, pool.release, [held])
    releasing.start()
    assert pool.lease(timeout_s=LONG_S) is held
    releasing.join()


def test_releasing_what_is_not_leased_is_an_error(adb: AdbServer, clock: Clock, phone: SimulatedPhone) -> None:
    pool = pool_of(adb, clock, phone.address)
    held = some(pool.lease())
    pool.release(held)
    with pytest.raises(ValueError, match="not leased"):
        pool.release(held)


def test_a_phone_that_vanishes_ends_the_block_and_is_reconnected(
    adb: AdbServer, clock: Clock, phone: SimulatedPhone
) -> None:
    def episode() -> None:
        with pool.leased() as session:
            some(session).shell("simctl fault gone 600")
            while time.monotonic() < until:
                some(session).tap(Point(0.5, 0.5))

    pool, until = pool_of(adb, clock, phone.address), time.monotonic() + LONG_S
    with pytest.raises(DeviceGone):
        episode()
    assert counters(pool)["interrupted"] == 1
    phone.faults.end(Fault.GONE)
    end = time.monotonic() + LONG_S
    while (session := pool.lease()) is None and time.monotonic() < end:
        clock.now += 60
    assert some(session).shell("echo back") == "back\n"
    assert counters(pool)["reconnects"] >= 1


def test_a_silent_phone_is_quarantined_for_longer_each_time(
    adb: AdbServer, clock: Clock, phone: SimulatedPhone
) -> None:
    pool = pool_of(adb, clock, phone.address)
    session = some(pool.lease())
    phone.faults.set(Fault.SILENT)
    patient, lease = pool._devices, pool._phones[phone.address].lease
    assert lease is not None
    pool._devices = session._devices = lease._session._devices = hasty(patient, 0.5)
    with pytest.raises(DeviceTimeout) as caught:
        session.key("BACK")
    pool.release(session, caught.value)
    waits = []
    for _ in range(3):
        assert pool.lease() is None
        begun = clock.now
        tried = counters(pool)["reconnects"]
        while counters(pool)["reconnects"] == tried:
            clock.now += 0.5
            assert pool.lease() is None
        waits.append(clock.now - begun)
    assert waits == [1.0, 2.0, 4.0]
    assert pool.health()[0].state == "quarantined"
    phone.faults.clear()
    pool._devices = session._devices = lease._session._devices = patient
    clock.now += 60
    pool.release(until_answering(pool))
    assert pool.health()[0].state == "idle"
    assert counters(pool) == {"leases": 2, "interrupted": 1, "reconnects": 5, "quarantines": 4}


def fails_to_settle(session: AdbSession, kind: type[DeviceError]) -> DeviceError:
    found: list[DeviceError] = []

    def fails(seconds: float) -> None:
        with hurried(session, seconds), pytest.raises(kind) as caught:
            session.settle()
        found.append(caught.value)

    given_time(fails)
    return found[0]


def test_an_app_that_is_stuck_is_stopped_and_the_connection_stays(
    adb: AdbServer, clock: Clock, phone: SimulatedPhone
) -> None:
    pool = pool_of(adb, clock, phone.address)
    session = some(pool.lease())
    session.start_app("com.sim.clock")
    phone.faults.set(Fault.STUCK)

    def repaints(seconds: float) -> None:
        with hurried(session, seconds):
            assert session.settle().restless, "for ever, as a video does"

    given_time(repaints)
    with hurried(session, 1.0), pytest.raises(DeviceTimeout) as caught:
        session.key("BACK")
    pool.release(session, caught.value)
    assert some(pool.lease()) is session
    assert session.package_in_front() == "com.sim.launcher"
    session.start_app("com.sim.clock")
    assert session.settle().png == phone.machine.png(), "it was stopped, not only left"
    assert counters(pool) == {"leases": 2, "interrupted": 1, "app_recoveries": 1}


def test_where_stopping_the_app_does_not_help_the_phone_is_connected_anew(
    adb: AdbServer, clock: Clock, phone: SimulatedPhone
) -> None:
    pool = pool_of(adb, clock, phone.address)
    session = some(pool.lease())
    phone.faults.set(Fault.TRUNCATED)
    pool.release(session, fails_to_settle(session, DeviceGarbage))
    session._devices = session._devices.model_copy(update={"settle_timeout_s": 0.5})
    pool.release(some(pool.lease()), fails_to_settle(session, DeviceGarbage))
    session._devices = pool._devices
    found = counters(pool)
    assert (found["app_recoveries"], found["reconnects"]) == (1, 1)
    clock.now += 60
    some(pool.lease())
    found = counters(pool)
    assert (found["app_recoveries"], found["reconnects"]) == (1, 2), "it failed again at once: no app is the cause"


def test_no_app_is_stopped_on_a_phone_that_no_episode_has_had(
    adb: AdbServer, clock: Clock, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker begins with a reset anyway, and who only looks may stop nobody's app."""

    def slow(session: AdbSession) -> None:
        raise DeviceTimeout(session.serial, "took too long")

    adb.connect(phone.address)
    pool = pool_of(adb, clock, phone.address)
    AdbSession(adb, phone.address, pool._devices).start_app("com.sim.clock")
    with monkeypatch.context() as patched:
        patched.setattr(pool_module, "probe", slow)
        assert pool.lease() is None
    session = some(pool.lease())
    assert session.package_in_front() == "com.sim.clock"
    assert "app_recoveries" not in counters(pool)


def test_no_app_is_stopped_where_the_connection_broke_or_a_command_was_refused(
    adb: AdbServer, clock: Clock, phone: SimulatedPhone
) -> None:
    pool = pool_of(adb, clock, phone.address)
    session = some(pool.lease())
    session.start_app("com.sim.clock")
    pool.release(session, DeviceGone(session.serial, "it is gone"))
    pool.release(some(pool.lease()), DeviceRefused(session.serial, "no such thing"))
    some(pool.lease())
    assert session.package_in_front() == "com.sim.clock"
    assert counters(pool) == {"leases": 3, "interrupted": 2, "reconnects": 1}


def test_a_phone_that_restarts_is_not_lent_before_it_has_started(
    adb: AdbServer, clock: Clock, phone: SimulatedPhone
) -> None:
    pool = pool_of(adb, clock, phone.address)
    session = some(pool.lease())
    phone.faults.set(Fault.BOOTING)
    phone.faults.set(Fault.GONE)

    def go_on() -> None:
        end = time.monotonic() + LONG_S
        while time.monotonic() < end:
            with suppress(DeviceRefused):  # its services end before its connection does
                session.settle()

    with pytest.raises(DeviceGone) as caught:
        go_on()
    pool.release(session, caught.value)
    phone.faults.end(Fault.GONE)
    asked_while_booting, end = 0, time.monotonic() + WITHIN_S
    while asked_while_booting == 0 and time.monotonic() < end:
        clock.now += 60
        assert pool.lease() is None
        fault = pool._phones[phone.address].fault
        asked_while_booting += fault is not None and "still starting" in fault.what
    assert asked_while_booting == 1
    phone.faults.end(Fault.BOOTING)
    again = None
    while again is None and time.monotonic() < end:
        clock.now += 60
        again = pool.lease()
    assert some(again).settle().png == phone.machine.png()
    assert counters(pool)["interrupted"] == 1


def test_a_phone_that_is_locked_is_lent_once_it_is_unlocked(
    adb: AdbServer, clock: Clock, phone: SimulatedPhone
) -> None:
    phone.faults.set(Fault.LOCKED)
    pool = pool_of(adb, clock, phone.address)
    assert pool.lease() is None
    (health,) = pool.health()
    assert health.state == "quarantined"
    phone.faults.clear()
    clock.now += 100
    assert until_answering(pool).serial == phone.address


def test_a_phone_that_is_locked_between_two_episodes_is_quarantined(
    adb: AdbServer, clock: Clock, phone: SimulatedPhone
) -> None:
    pool = pool_of(adb, clock, phone.address)
    with pool.leased() as session:
        reset(some(session), factories.task())
    phone.faults.set(Fault.LOCKED)
    with pytest.raises(DeviceLocked), pool.leased() as session:
        reset(some(session), factories.task())
    assert pool.lease() is None
    (health,) = pool.health()
    assert health.state == "quarantined"


def test_a_refused_command_is_not_the_phones_failure(adb: AdbServer, clock: Clock, phone: SimulatedPhone) -> None:
    pool = pool_of(adb, clock, phone.address)
    session = some(pool.lease())
    pool.release(session, DeviceRefused(session.serial, "no such thing"))
    assert pool.health()[0].state == "idle"


def test_failures_before_an_episode_that_ended_well_do_not_count(
    adb: AdbServer, clock: Clock, phone: SimulatedPhone
) -> None:
    pool = pool_of(adb, clock, phone.address)
    for _ in range(4):
        session = some(pool.lease())
        pool.release(session, DeviceGone(session.serial, "it is gone"), well=True)
    assert counters(pool) == {"leases": 4, "interrupted": 4, "reconnects": 3}


def test_a_stop_is_heeded_by_every_phone_that_is_not_connected_yet(
    adb: AdbServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, tried = threading.Event(), list[str]()

    def connect(serial: str, timeout_s: float) -> None:
        tried.append(serial)
        stop.set()
        raise DeviceTimeout(serial, "it is dark")

    monkeypatch.setattr(adb, "connect", connect)
    dark = tuple(f"127.0.0.1:{1000 + number}" for number in range(5 * AT_ONCE))
    pool = DevicePool(adb, config.DeviceSettings(addresses=dark), clock, stop)
    assert list(pool.discover()) == []
    assert 1 <= len(tried) <= AT_ONCE
    tried.clear()
    assert pool.lease() is None
    assert tried == []
    pool.close()


def test_a_stop_while_the_adb_server_is_asked_leaves_the_phone_alone(
    adb: AdbServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    stop, tried = threading.Event(), list[str]()
    monkeypatch.setattr(adb, "start", stop.set)
    monkeypatch.setattr(adb, "connect", lambda serial, timeout_s: tried.append(serial))
    pool = DevicePool(adb, config.DeviceSettings(addresses=("127.0.0.1:1000",)), clock, stop)
    assert pool.lease() is None
    assert (stop.is_set(), tried) == (True, [])
    pool.close()


def test_no_more_phones_than_that_are_recovered_at_once_whoever_leases_them(
    adb: AdbServer, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, now, most, full = threading.Lock(), [0], [0], threading.Event()

    def connect(serial: str, timeout_s: float) -> None:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
            if now[0] >= AT_ONCE:
                full.set()
        full.wait(WITHIN_S)
        beyond.wait(0.2)  # a phone more would come meanwhile
        with lock:
            now[0] -= 1
        raise DeviceTimeout(serial, "it is dark")

    beyond = threading.Event()
    monkeypatch.setattr(adb, "connect", connect)
    dark = tuple(f"127.0.0.1:{1000 + number}" for number in range(2 * AT_ONCE))
    pool = DevicePool(adb, config.DeviceSettings(addresses=dark), clock)
    threads = [threading.Thread(target=pool.lease) for _ in dark]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [AT_ONCE]
    pool.close()


def test_a_dead_phone_does_not_delay_a_live_one(adb: AdbServer, clock: Clock, phone: SimulatedPhone) -> None:
    pool = pool_of(adb, clock, f"127.0.0.1:{free_ports(1)}", phone.address)
    assert list(pool.discover()) == [phone.address]
    session = some(pool.lease())
    assert session.serial == phone.address


def test_a_phone_that_comes_late_is_found(adb: AdbServer, clock: Clock, start_phones: StartPhones) -> None:
    (phone,) = start_phones(1)
    pool = pool_of(adb, clock, phone.address)
    phone.faults.set(Fault.GONE)
    assert list(pool.discover()) == []
    phone.faults.end(Fault.GONE)
    end = time.monotonic() + LONG_S
    while (session := pool.lease()) is None and time.monotonic() < end:
        clock.now += 60
    assert some(session).serial == phone.address


def test_eight_threads_never_share_a_phone(adb: AdbServer, clock: Clock, start_phones: StartPhones) -> None:
    pool = pool_of(adb, clock, *[phone.address for phone in start_phones(3)])
    pool.discover()
    lock, held, problems = threading.Lock(), set[str](), list[str]()

    def work() -> None:
        for _ in range(10):
            with pool.leased(timeout_s=LONG_S) as session:
                serial = some(session).serial
                with lock:
                    problems.extend([serial] if serial in held else [])
                    held.add(serial)
                some(session).key("HOME")
                with lock:
                    held.discard(serial)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    assert sum(health.counters["leases"] for health in pool.health()) == 80


def test_a_phone_is_free_again_where_its_recovery_fails_for_another_reason_than_its_own(
    adb: AdbServer, clock: Clock, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where this machine has no thread or no file left for a moment."""

    def full(self: AdbServer) -> bool:
        raise RuntimeError("can't start new thread")

    pool = pool_of(adb, clock, phone.address)
    for recover in (pool.discover, pool.lease):
        with monkeypatch.context() as patched:
            patched.setattr(AdbServer, "start", full)
            with pytest.raises(RuntimeError, match="new thread"):
                recover()
        assert [each.state for each in pool.health()] != ["leased"]
    clock.now += 3600.0
    pool.release(until_answering(pool))
    pool.close()


def test_no_phone_named_is_said(adb: AdbServer) -> None:
    with pytest.raises(DeviceError, match="no phone is configured"):
        DevicePool(adb, config.DeviceSettings())
