"""Two hosts and one phone: a host is a directory of locks of its own, on the same real adb server."""

from __future__ import annotations

import shutil
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from distrl import birth, config
from distrl.config.phones import OPERATIONS_PER_LEASE
from distrl.device import phone_lease, sightings
from distrl.device.about import look
from distrl.device.adb_protocol import Deadline, Finished
from distrl.device.errors import DeviceGone, DeviceHeld, DeviceTimeout
from distrl.device.leases import Leases, key_of
from distrl.device.phone_lease import (
    AGAIN,
    DIRECTORY,
    LONGEST_HOLDER,
    RENEWALS,
    USABLE,
    LeaseName,
    LeaseRenewer,
    PhoneLease,
    _renew_until,
    entries,
    holder_name,
    leased_on_phone,
    parsed,
    place_of,
)
from distrl.device.pool import DevicePool
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.device.sightings import unchanged_s
from distrl.errors import DeviceError
from distrl.retry import StoppedError
from distrl.types import Point
from simphone.faults import Fault
from simphone.files import MOST_ENTRIES
from simphone.serve import SimulatedPhone
from waiting import until

from .conftest import StartPhones, hasty

TTL_S = 1.0
LONG_TTL_S = 60.0
"""For a lease that has to be renewed, or used, in time: on a busy machine a second is over before that."""
WAIT_S = 20.0


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def devices(tmp_path: Path, adb: AdbServer, phone: SimulatedPhone) -> Callable[[str], config.DeviceSettings]:
    """The settings of a host by its name."""
    adb.connect(phone.address)
    return lambda host: config.DeviceSettings(
        addresses=(phone.address,), directory=tmp_path / host, lease_ttl_s=TTL_S, operation_timeout_s=WAIT_S
    )


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A phone that answers is given the time to release its lease."""
    monkeypatch.setattr(phone_lease, "RELEASE_S", WAIT_S)


@pytest.fixture
def often_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases of LONG_TTL_S are renewed every quarter of a second."""
    monkeypatch.setattr(phone_lease, "RENEWALS", 4 * LONG_TTL_S)


def lasting(devices: config.DeviceSettings) -> config.DeviceSettings:
    return devices.model_copy(update={"lease_ttl_s": LONG_TTL_S})


MakeLease = Callable[..., PhoneLease]


@pytest.fixture
def lease(adb: AdbServer, phone: SimulatedPhone, devices: Callable[[str], config.DeviceSettings]) -> MakeLease:
    """A lease of the phone that nobody renews, as of a host that was killed."""

    def make(host: str, clock: Callable[[], float] = time.monotonic, run: str = "", ttl_s: float = TTL_S) -> PhoneLease:
        place = place_of(Leases(devices(host).directory, adb.adb), phone.address)
        session = AdbSession(adb, phone.address, devices(host))
        return PhoneLease(session, f"host {host}{run}", place, ttl_s, clock)

    return make


def on_phone(session: AdbSession) -> list[str]:
    return [parsed(name, TTL_S).holder for name in entries(session) or []]


@contextmanager
def pool_of(adb: AdbServer, devices: config.DeviceSettings) -> Iterator[tuple[DevicePool, Clock]]:
    clock = Clock()
    pool = DevicePool(adb, devices, clock, run="lab")
    try:
        yield pool, clock
    finally:
        pool.close()


def test_a_second_host_leaves_the_phone_alone_says_who_has_it_and_takes_it_when_it_is_free(
    adb: AdbServer,
    phone: SimulatedPhone,
    devices: Callable[[str], config.DeviceSettings],
    session: AdbSession,
    often_renewed: None,
) -> None:
    with pool_of(adb, lasting(devices("b"))) as (second, clock):
        with pool_of(adb, lasting(devices("a"))) as (first, _):
            assert first.discover() == [phone.address]
            for _ in range(2):  # also when it is looked at again, since it is renewed
                assert second.discover() == []
                assert second.lease() is None
                (health,) = second.health()
                assert (health.state, set(health.counters.values())) == ("held", {0})
                clock.now += LONG_TTL_S
                before = entries(session)
                until(lambda before=before: entries(session) != before)
            (about,) = [each for each in look(adb, devices("b")) if each.serial == phone.address]
            assert about.holder == f"{holder_name()} (run lab)"
        assert entries(session) is None, "a clean end removes it"
        clock.now += LONG_TTL_S
        assert second.discover() == [phone.address]
        assert second.health()[0].state == "idle"


def test_a_look_says_of_a_lease_that_nobody_renews_that_it_has_run_out(
    adb: AdbServer, phone: SimulatedPhone, devices: Callable[[str], config.DeviceSettings], lease: MakeLease
) -> None:
    clock, gone = Clock(), lease("a", Clock())
    gone.hold()

    def seen(now: float) -> tuple[str, bool]:
        clock.now = now
        (about,) = [each for each in look(adb, devices("b"), clock) if each.serial == phone.address]
        return about.holder, about.lease_over

    assert [seen(now) for now in (0.0, TTL_S * 0.99, TTL_S)] == [
        ("host a", False),
        ("host a", False),
        ("host a", True),
    ]
    gone.renew()
    assert [seen(now) for now in (TTL_S, TTL_S * 1.99, TTL_S * 2)] == [
        ("host a", False),
        ("host a", False),
        ("host a", True),
    ]
    gone.release()
    assert seen(TTL_S * 3) == ("", False)


def test_what_was_seen_before_a_restart_or_cannot_be_read_is_no_sighting(
    adb: AdbServer,
    phone: SimulatedPhone,
    devices: Callable[[str], config.DeviceSettings],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leases = Leases(devices("b").directory, adb.adb)
    leases.domain()
    assert unchanged_s(leases, phone.address, "a,b", now=0.0) == 0
    assert unchanged_s(leases, phone.address, "a,b", now=5.0) == 5
    monkeypatch.setattr(sightings, "boot_id", lambda: "another")
    assert unchanged_s(leases, phone.address, "a,b", now=5.0) == 0
    leases.file(key_of(phone.address), sightings.SUFFIX).write_bytes(b"\xff\n")
    assert unchanged_s(leases, phone.address, "a,b", now=5.0) == 0
    assert unchanged_s(leases, phone.address, "a,b", now=7.0) == 2


def test_the_lease_of_a_killed_host_ends_by_its_time_to_live(lease: MakeLease) -> None:
    clock = Clock()
    dead, living = lease("a"), lease("b", clock)
    dead.hold()
    for now in (0.0, TTL_S * 0.99):
        clock.now = now
        with pytest.raises(DeviceHeld, match="host a"):
            living.hold()
    clock.now = TTL_S
    living.hold()
    with pytest.raises(DeviceHeld, match="host b"):
        dead.renew()
    with pytest.raises(DeviceHeld, match="host b"):
        dead.check()


def test_a_killed_process_of_the_same_machine_is_followed_at_once(lease: MakeLease, session: AdbSession) -> None:
    lease("a").hold()
    lease("a", run=", next").hold()
    assert on_phone(session) == ["host a, next"]


def test_a_lease_that_is_lost_ends_the_episode_and_is_no_failure_of_the_phone(
    adb: AdbServer,
    phone: SimulatedPhone,
    devices: Callable[[str], config.DeviceSettings],
    session: AdbSession,
    often_renewed: None,
) -> None:
    thief = LeaseName("host b", "b", "1", LONG_TTL_S).name
    with pool_of(adb, lasting(devices("a"))) as (pool, clock):
        leased = pool.lease()
        assert leased is not None
        leased.retries = 3
        session.output(f"rm -r {DIRECTORY}; mkdir {DIRECTORY}; : >{DIRECTORY}/{thief}")

        def lost() -> bool:
            try:
                leased.tap(Point(0.5, 0.5))
            except DeviceHeld as error:
                pool.release(leased, error)
                holders.append(error.holder)
            return bool(holders)

        holders = list[str]()
        until(lost)
        assert holders == ["host b"]
        (health,) = pool.health()
        assert (health.state, health.counters["quarantines"], health.counters["interrupted"]) == ("held", 0, 1)
        assert health.counters["retries"] == 3, "a counter that falls looks to Prometheus like a new process"
        assert on_phone(session) == ["host b"]
        assert pool.lease() is None
        clock.now += LONG_TTL_S
        session.output(f"rm -r {DIRECTORY}")
        again = pool.lease()
        assert again is not None
        pool.release(again)


def test_a_lease_that_could_not_be_renewed_is_not_used_any_more(lease: MakeLease) -> None:
    clock = Clock()
    held = lease("a", clock)
    held.hold()
    clock.now = TTL_S / 2
    held.check()
    clock.now = TTL_S
    with pytest.raises(DeviceGone, match="could not be renewed"):
        held.check()
    held.renew()
    held.check()


def test_a_renewal_whose_answer_was_lost_is_done_again_on_the_phone(
    lease: MakeLease, session: AdbSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its entry is as old as the command that made it: taken for a later renewal, it would be used for too long."""
    held = lease("a", Clock())
    run = held._session.run

    def lost(line: str, within: Deadline | None = None) -> Finished:
        run(line, within)
        raise DeviceTimeout(session.serial, "the answer is lost")

    def loses(call: Callable[[], None]) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(held._session, "run", lost)
            with pytest.raises(DeviceTimeout):
                call()

    loses(held.hold)
    for _ in range(2):
        before = entries(session)
        held.hold()
        assert entries(session) != before
        loses(held.renew)
        assert on_phone(session) == ["host a"]
    held.release()
    assert entries(session) is None


@pytest.mark.parametrize(
    ("brought_back", "left"),
    [
        ([], ["host a"]),
        (["older"], ["host a"]),
        (["same machine"], ["host a"]),
        (["other host"], ["host b"]),
        (["nonsense"], ["another process"]),
    ],
)
def test_a_snapshot_that_brings_an_old_lease_back(
    lease: MakeLease, session: AdbSession, brought_back: list[str], left: list[str]
) -> None:
    held, clock = lease("a"), Clock()
    held.hold()
    (older,) = entries(session) or []
    held.renew()
    same, other = parsed(older, TTL_S), LeaseName("host b", "b", "1", TTL_S)
    names = {
        "older": older,
        "other host": other.name,
        "nonsense": "x,y",
        "same machine": LeaseName("process 1", same.place, "2", TTL_S, 7).name,
    }
    session.output(f"rm -r {DIRECTORY}")
    for kind in brought_back:
        session.output(f"mkdir {DIRECTORY} && : >{DIRECTORY}/{names[kind]}")
    if left == ["host a"]:
        held.renew()
    else:
        with pytest.raises(DeviceHeld):
            held.renew()
        patient = lease("c", clock)
        with pytest.raises(DeviceHeld):
            patient.hold()
        assert on_phone(session) == left
        clock.now = TTL_S
        patient.hold()
        left = ["host c"]
    assert on_phone(session) == left


def test_a_copy_of_another_host_s_folder_of_locks_is_no_lock_of_this_host(
    lease: MakeLease, session: AdbSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a virtual machine that was cloned, or of a shared home that each host locks by itself."""
    lease("a").hold()
    lease("a").hold()  # one that was killed is taken over at once
    other = tmp_path / "boot_id"
    other.write_text("another kernel\n")
    monkeypatch.setattr(birth, "BOOT_ID", other)
    with pytest.raises(DeviceHeld):
        lease("a").hold()
    assert on_phone(session) == ["host a"]


def test_a_copy_of_the_folder_of_locks_on_the_same_host_is_another_folder(
    adb: AdbServer, phone: SimulatedPhone, devices: Callable[[str], config.DeviceSettings], tmp_path: Path
) -> None:
    """As in two containers of an image in whose making `distrl devices` ran: each has its own locks."""
    one = Leases(devices("a").directory, adb.adb)
    place = place_of(one, phone.address)
    copy = shutil.copytree(devices("a").directory, tmp_path / "copy")
    assert place_of(Leases(devices("a").directory, adb.adb), phone.address) == place
    assert place_of(Leases(copy, adb.adb), phone.address) != place


def test_a_lease_is_not_taken_for_valid_after_the_machine_was_suspended(
    adb: AdbServer, session: AdbSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The monotonic clock stands still meanwhile; other hosts' clocks go on."""
    held = PhoneLease(session, "host a", "a", LONG_TTL_S)
    held.hold()
    held.check()
    awake = time.clock_gettime
    monkeypatch.setattr(time, "clock_gettime", lambda clock: awake(clock) + LONG_TTL_S * (clock == time.CLOCK_BOOTTIME))
    with pytest.raises(DeviceGone, match="could not be renewed"):
        held.check()


def test_of_many_hosts_that_race_for_a_phone_one_gets_it(lease: MakeLease, session: AdbSession) -> None:
    """For one that is free, and for one whose holder has died."""
    clock = Clock()
    for round_ in range(2):
        hosts = [lease(f"{round_}-{number}", clock) for number in range(8)]
        had, begin = list[PhoneLease](), threading.Barrier(len(hosts))
        if round_:
            for each in hosts:
                with pytest.raises(DeviceHeld):
                    each.hold()
            clock.now += TTL_S

        def race(each: PhoneLease, had: list[PhoneLease] = had, begin: threading.Barrier = begin) -> None:
            begin.wait()
            try:
                each.hold()
            except DeviceHeld:
                return
            had.append(each)

        threads = [threading.Thread(target=race, args=(each,)) for each in hosts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(had) == 1
        assert len(on_phone(session)) == 1
        had[0].renew()


def test_a_directory_without_an_entry_is_taken_over_as_any_lease(lease: MakeLease, session: AdbSession) -> None:
    """Of a host whose command was cut off between its two halves."""
    session.output(["mkdir", DIRECTORY])
    clock = Clock()
    held = lease("a", clock)
    with pytest.raises(DeviceHeld, match="another process"):
        held.hold()
    clock.now = TTL_S
    held.hold()
    assert on_phone(session) == ["host a"]
    held.release()
    assert entries(session) is None


def test_a_phone_that_keeps_no_lease_is_driven_all_the_same(
    lease: MakeLease, session: AdbSession, caplog: pytest.LogCaptureFixture
) -> None:
    session.output(f"echo a file >{DIRECTORY}")
    held = lease("a")
    for _ in range(2):
        held.hold()
        held.check()
    assert caplog.text.count("has no lease") == 1


def test_a_full_phone_is_driven_all_the_same(
    lease: MakeLease, session: AdbSession, caplog: pytest.LogCaptureFixture
) -> None:
    """It makes a directory, as one may whose last block that takes, and no file in it."""
    names = " ".join(f"/sdcard/{number}" for number in range(MOST_ENTRIES))
    session.output(f"mkdir {DIRECTORY}")
    session.run(f"touch {names}")
    clock = Clock()
    held = lease("a", clock)
    with pytest.raises(DeviceHeld):
        held.hold()
    clock.now = TTL_S
    held.hold()
    held.check()
    assert "has no lease" in caplog.text


def test_a_lease_outlives_a_restart_of_the_phone(
    adb: AdbServer, phone: SimulatedPhone, devices: Callable[[str], config.DeviceSettings], lease: MakeLease
) -> None:
    ttl_s = 3 * TTL_S
    with pool_of(adb, devices("a").model_copy(update={"lease_ttl_s": ttl_s})) as (pool, clock):
        until(lambda: pool.discover() == [phone.address])  # on a busy machine its lease may be over before it is used
        phone.faults.set(Fault.GONE, 1.5 * ttl_s)
        until(lambda: not phone.faults.active(Fault.GONE))

        def back() -> bool:
            clock.now += 60.0
            leased = pool.lease()
            if leased is not None:
                try:
                    leased.tap(Point(0.5, 0.5))
                except DeviceError as error:
                    pool.release(leased, error)
                    return False
                pool.release(leased, well=True)
            return leased is not None

        until(back)
        with pytest.raises(DeviceHeld, match="run lab"):
            lease("b").hold()


def test_steps_cost_no_word_about_the_lease(
    adb: AdbServer, devices: Callable[[str], config.DeviceSettings], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    run = AdbSession.run
    settings = devices("a").model_copy(update={"lease_ttl_s": 3600.0})

    def noted(self: AdbSession, line: Sequence[str] | str, *more: Any) -> Finished:
        if self.serial in settings.addresses:  # leases of other tests' phones may be renewed still
            asked.append(str(line))
        return run(self, line, *more)

    monkeypatch.setattr(AdbSession, "run", noted)
    with pool_of(adb, settings) as (pool, _):
        for _ in range(3):
            leased = pool.lease()
            assert leased is not None
            before = len(asked)
            for _ in range(5):
                leased.tap(Point(0.5, 0.5))
                leased.settle()
            assert not [line for line in asked[before:] if DIRECTORY in line]
            pool.release(leased, well=True)
    taking = [line for line in asked if DIRECTORY in line]
    assert len(taking) <= 4, taking


def test_a_person_waits_out_a_dead_host_and_is_refused_by_a_living_one(
    lease: MakeLease, session: AdbSession, often_renewed: None
) -> None:
    lease("dead").hold()
    never = threading.Event()
    living, other = (lease(host, ttl_s=LONG_TTL_S) for host in ("a", "b"))
    with leased_on_phone(living, LeaseRenewer(), never):
        assert on_phone(session) == ["host a"]
        with pytest.raises(DeviceHeld, match="host a"), leased_on_phone(other, LeaseRenewer(), never):
            pass
    assert entries(session) is None


def test_a_person_who_waits_for_a_dead_host_reads_so_and_can_end_it(
    adb: AdbServer, start_phones: StartPhones, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (phone,) = start_phones(1)
    adb.connect(phone.address)
    session = AdbSession(adb, phone.address, config.DeviceSettings(directory=tmp_path, operation_timeout_s=WAIT_S))
    dead, living = (
        PhoneLease(session, host, place_of(Leases(tmp_path / host, adb.adb), phone.address), 3600.0)
        for host in ("dead", "living")
    )
    dead.hold()
    stop = threading.Event()
    threading.Thread(target=lambda: (until(lambda: "waiting until that expires" in caplog.text), stop.set())).start()
    with pytest.raises(StoppedError), leased_on_phone(living, LeaseRenewer(), stop):
        pass


def test_a_phone_that_does_not_answer_delays_no_other_phones_renewal(
    adb: AdbServer, start_phones: StartPhones, tmp_path: Path
) -> None:
    settings = config.DeviceSettings(directory=tmp_path, lease_ttl_s=TTL_S, operation_timeout_s=10 * WAIT_S)
    hanging, other = start_phones(2)
    sessions, leases = [], []
    for phone in (hanging, other):
        adb.connect(phone.address)
        sessions.append(AdbSession(adb, phone.address, settings))
        leases.append(PhoneLease(AdbSession(adb, phone.address, settings), "host", "", TTL_S))
        leases[-1].hold()

    def renewed() -> int:
        return parsed(min(entries(sessions[1]) or []), TTL_S).count

    renewer = LeaseRenewer()
    hanging.faults.set(Fault.SILENT)
    for each in leases:
        renewer.add(each)
    until(lambda: renewed() >= 3 * RENEWALS)
    with pytest.raises(DeviceGone, match="could not be renewed"):
        leases[0].check()
    hanging.faults.clear()
    for each in leases:
        renewer.remove(each)
        each.release()


def test_a_renewal_that_failed_is_tried_again_while_the_lease_can_be_used(
    phone: SimulatedPhone, lease: MakeLease
) -> None:
    """What the renewing thread waits for before each renewal, and what is so from then on."""
    clock, waits = Clock(), list[float | None]()
    mine = lease("a", clock)
    mine.hold()

    patient = mine._session._devices

    def falls_silent() -> None:
        phone.faults.set(Fault.SILENT)
        mine._session._devices = hasty(patient, 0.5)

    class End(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            waits.append(timeout)
            match len(waits):
                case 1:
                    falls_silent()
                case 2:
                    phone.faults.clear()
                    mine._session._devices = patient
                case 3:
                    falls_silent()
                    clock.now = TTL_S
            return len(waits) == 4

    try:
        _renew_until(End(), weakref.ref(mine), 8.0)
    finally:
        phone.faults.clear()
    assert waits == [8.0, 8.0 * AGAIN, 8.0, 8.0], "one that was lost is asked for as one that is renewed"


def test_the_time_left_after_a_renewal_that_failed_is_enough_for_another() -> None:
    """However long an operation may take."""
    pause, operation = 1 / RENEWALS, 1 / OPERATIONS_PER_LEASE
    assert pause + operation + AGAIN * pause < USABLE


def test_a_release_waits_no_longer_than_that_for_a_renewal_that_waits(
    adb: AdbServer, phone: SimulatedPhone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(phone_lease, "RELEASE_S", 0.5)
    settings = config.DeviceSettings(directory=tmp_path, operation_timeout_s=10 * WAIT_S)
    adb.connect(phone.address)
    lease = PhoneLease(AdbSession(adb, phone.address, settings), "host", "", TTL_S)
    lease.hold()
    phone.faults.set(Fault.SILENT)
    renewing = threading.Thread(target=lambda: suppressed(lease.renew))
    renewing.start()
    until(lease._lock.locked)
    lease.release()
    assert renewing.is_alive(), "it waits for the phone still"
    phone.faults.clear()
    renewing.join()


def suppressed(work: Callable[[], None]) -> None:
    with suppress(DeviceError):
        work()


@pytest.mark.parametrize("holder", ["process 1 on lab-2 (run x)", "a,b ~ c/d é" * 40, "", "../.. $(reboot); x"])
def test_every_holder_makes_a_name_of_one_word(holder: str) -> None:
    entry = LeaseName(holder, "0" * 16, "01234567", 30.0, 10**6)
    assert len(entry.name.encode()) <= 255
    assert not set(entry.name) & set(" /$;~()*'\"\\")
    again = parsed(entry.name, 1.0)
    assert again.holder == holder.encode("ascii", "replace").decode()[:LONGEST_HOLDER]
    assert (again.place, again.nonce, again.ttl_s, again.count) == ("0" * 16, "01234567", 30.0, 10**6)
