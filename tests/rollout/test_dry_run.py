"""What a dry run shows of a phone that a person holds."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from device.conftest import StartPhones, given_time, hasty
from distrl.config import Config, DeviceSettings
from distrl.device.allow_list import PackageAllowList
from distrl.device.leases import Hold, Leases
from distrl.device.pool import DevicePool
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.errors import DeviceError
from distrl.rollout import dry_run
from distrl.rollout.dry_run import ReadOnlySession, dry_task, first_free, show
from simphone.faults import Fault
from simphone.machine import Event
from simphone.serve import SimulatedPhone

from rollout.world import DONE, TAP, Recorded, task


@dataclass
class Held:
    """Shows `screens` one after the other, the last for ever; `stop` is set once that has been looked at again."""

    screens: list[bytes]
    stop: threading.Event = field(default_factory=threading.Event)
    looks: int = 0

    def screen(self) -> bytes:
        self.looks += 1
        if self.looks > len(self.screens) + 1:
            self.stop.set()
        return self.screens[min(self.looks, len(self.screens)) - 1]

    def front(self) -> str:
        return "com.a"


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dry_run, "LOOK_S", 0.0)


def test_each_new_screen_is_decided_on_once_with_what_was_shown_before() -> None:
    held, decider, said = Held([b"a", b"a", b"b", b"b", b"a"]), Recorded([TAP, TAP, TAP]), list[str]()
    show(task(max_steps=9), held, decider, held.stop, said.append)
    assert said == ["step 0, com.a: tap", "step 1, com.a: tap", "step 2, com.a: tap"]
    assert [seen.png for seen in decider.seen] == [b"a", b"b", b"a"]
    assert [seen.previous for seen in decider.seen] == [(), (TAP,), (TAP, TAP)]
    assert {seen.truth() for seen in decider.seen} == {None}


def test_a_decision_is_given_the_screens_that_were_decided_on_before() -> None:
    held, decider = Held([b"a", b"a", b"b", b"c", b"d"]), Recorded([TAP] * 4, earlier_screens=2)
    show(task(max_steps=9), held, decider, held.stop, lambda said: None)
    assert [seen.earlier for seen in decider.seen] == [(), (b"a",), (b"a", b"b"), (b"b", b"c")]


def test_it_ends_where_the_policy_says_that_it_is_done_and_after_the_tasks_steps() -> None:
    for actions, max_steps in (([TAP, DONE, TAP], 9), ([TAP, TAP, TAP], 2)):
        held, said = Held([b"a", b"b", b"c", b"d"]), list[str]()
        show(task(max_steps=max_steps), held, Recorded(actions), held.stop, said.append)
        assert len(said) == 2
        assert held.looks == 2


def test_looking_sends_nothing_to_the_phone_and_tells_of_apps_that_would_be_left(
    adb: AdbServer, phone: SimulatedPhone, timeouts: DeviceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    adb.connect(phone.address)
    devices = timeouts.model_copy(update={"allowed_packages": ("com.sim.clock",)})
    session = AdbSession(adb, phone.address, devices)
    session.start_app("com.sim.settings")
    sent: list[Event] = []
    monkeypatch.setattr(phone.machine, "apply", sent.append)
    seen = ReadOnlySession(session, PackageAllowList(session, devices))
    assert seen.screen() == phone.machine.png()
    assert seen.front() == "com.sim.settings (not allowed: it would be left)"
    assert (sent, session.foreign_apps) == ([], 0)
    everything = ReadOnlySession(session, PackageAllowList(session, timeouts))
    assert everything.front() == "com.sim.settings"


@pytest.fixture
def three(adb: AdbServer, start_phones: StartPhones, timeouts: DeviceSettings, tmp_path: Path) -> DeviceSettings:
    """Three phones: the first has a worker, the second does not answer."""
    held, silent, well = start_phones(3)
    silent.faults.set(Fault.SILENT)
    addresses = (held.address, silent.address, well.address)
    return timeouts.model_copy(update={"addresses": addresses, "directory": tmp_path})


def test_the_first_phone_that_answers_and_that_no_worker_has_is_taken_and_none_behind_it(
    adb: AdbServer, three: DeviceSettings
) -> None:
    leases = Leases(three.directory, adb.adb)
    worker = leases.take(three.addresses[0])
    assert isinstance(worker, Hold)
    behind = three.model_copy(update={"addresses": (*three.addresses, "127.0.0.1:1")})

    def is_taken(seconds: float) -> None:
        with closing(DevicePool(adb, hasty(behind, seconds))) as pool, first_free(pool, threading.Event()) as session:
            assert session is not None
            assert session.serial == three.addresses[2]
            assert leases.holder("127.0.0.1:1") == ""
        assert leases.holder(three.addresses[2]) == ""

    given_time(is_taken)


def test_where_no_phone_is_to_be_had_it_says_so_and_once_stopped_it_tries_none(
    adb: AdbServer, three: DeviceSettings
) -> None:
    first = three.model_copy(update={"addresses": three.addresses[:2]})
    leases, stop = Leases(three.directory, adb.adb), threading.Event()
    worker = leases.take(three.addresses[0])
    assert isinstance(worker, Hold)
    with (
        closing(DevicePool(adb, hasty(first, 0.5))) as pool,
        pytest.raises(DeviceError, match="no free phone answers"),
        first_free(pool, stop),
    ):
        raise AssertionError
    stop.set()
    with closing(DevicePool(adb, three)) as pool, first_free(pool, stop) as session:
        assert session is None
        assert leases.holder(three.addresses[2]) == ""


def test_where_no_lock_can_be_written_it_says_so_and_names_the_setting(
    adb: AdbServer, three: DeviceSettings, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    nowhere = three.model_copy(update={"directory": tmp_path / "file" / "leases"})
    with (
        closing(DevicePool(adb, nowhere)) as pool,
        pytest.raises(DeviceError, match="cannot be written") as refused,
        first_free(pool, threading.Event()),
    ):
        raise AssertionError
    assert refused.value.where == "devices.directory"


def test_the_task_is_the_first_of_ones_own_list(tmp_path: Path) -> None:
    file = tmp_path / "own.jsonl"
    file.write_text('{"instruction": "call mother", "split": "train"}\n')
    feeder = Config().feeder.model_copy(update={"tasks": (file,)})
    assert dry_task(Config().model_copy(update={"feeder": feeder}), None).instruction == "call mother"


def test_the_task_is_the_suites_first_or_what_a_person_asks() -> None:
    first = dry_task(Config(), None)
    assert first.instruction
    asked = dry_task(Config(), "call mother")
    assert (asked.instruction, asked.max_steps) == ("call mother", first.max_steps)
    assert asked.task_id != first.task_id
