from __future__ import annotations

import json

import factories
import pytest
from distrl.device import reset as resetting
from distrl.device.adb_protocol import Finished
from distrl.device.errors import DeviceGarbage, DeviceRefused
from distrl.device.session import AdbSession
from distrl.types import Point, Task
from simphone.machine import fresh
from simphone.serve import SimulatedPhone


def task(setup: str = "{}", seed: int = 7) -> Task:
    return factories.task(phone_seed=seed, setup=setup)


def test_a_reset_makes_the_phone_what_the_task_says(session: AdbSession) -> None:
    session.tap(Point(0.2, 0.2))
    resetting.reset(session, task())
    assert resetting.truth(session) == json.loads(json.dumps(fresh(7, {}, 0.0).to_json()))


def test_the_truth_is_the_machines_whole_state(session: AdbSession, phone: SimulatedPhone) -> None:
    session.tap(Point(0.2, 0.2))
    assert resetting.truth(session) == json.loads(json.dumps(phone.machine.state()))


@pytest.mark.parametrize("setup", ['{"no such app": {}}', "[]", "'; reboot", "", "{", "[" * 5000])
def test_an_impossible_setup_is_refused_and_changes_nothing(session: AdbSession, setup: str) -> None:
    before = resetting.truth(session)
    with pytest.raises(DeviceRefused, match="cannot be set up"):
        resetting.reset(session, task(setup, seed=99))
    assert resetting.truth(session) == before


def test_a_setup_that_is_too_long_for_adb_is_the_tasks_fault(session: AdbSession) -> None:
    """It counted as the phone's: one such task put every phone that it was given to into quarantine."""
    setup = json.dumps({"packages": ["com.example.shop"] * 5_000})
    with pytest.raises(DeviceRefused, match="adb takes 65535"):
        resetting.reset(session, task(setup))


class RealPhone(AdbSession):
    """A phone without `simctl`; commands are noted."""

    def __init__(self, session: AdbSession) -> None:
        super().__init__(session.server, session.serial, session._devices)
        self.ran: list[object] = []

    def run(self, command: object, timeout_s: float | None = None) -> Finished:
        if isinstance(command, list) and command[0] == "simctl":
            return Finished(b"", b"sh: simctl: not found", 127)
        self.ran.append(command)
        return Finished(b"", b"", 0)


def test_a_real_phone_goes_home_with_its_packages_cleared(session: AdbSession) -> None:
    real = RealPhone(session)
    resetting.reset(real, task('{"packages": ["com.example.shop"]}'))
    assert real.ran == [
        "input keyevent 224",
        ["wm", "dismiss-keyguard"],
        ["am", "force-stop", "com.example.shop"],
        ["pm", "clear", "com.example.shop"],
        "input keyevent 3",
    ]
    assert resetting.truth(real) is None


@pytest.mark.parametrize("setup", ['{"packages": ["x; reboot"]}', '{"packages": "com.a"}', "[]", "{"])
def test_a_real_phone_gets_no_package_that_is_none(session: AdbSession, setup: str) -> None:
    real = RealPhone(session)
    with pytest.raises(DeviceRefused):
        resetting.reset(real, task(setup))
    assert real.ran == []


def test_a_real_phone_clears_no_package_that_is_not_allowed(session: AdbSession) -> None:
    real = RealPhone(session)
    real._devices = session._devices.model_copy(update={"allowed_packages": ("com.example.*",)})
    with pytest.raises(DeviceRefused, match=r"clears com\.mail, which is not allowed"):
        resetting.reset(real, task('{"packages": ["com.example.shop", "com.mail"]}'))
    assert real.ran == []
    resetting.reset(real, task('{"packages": ["com.example.shop"]}'))
    assert ["pm", "clear", "com.example.shop"] in real.ran


def test_a_phone_that_refuses_everything_is_not_well_and_the_task_may_be(
    session: AdbSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "run", lambda command: Finished(b"", b"no", 1))
    with pytest.raises(DeviceGarbage):
        resetting.reset(session, task())


def test_a_real_phone_that_cannot_be_woken_is_not_well(session: AdbSession, monkeypatch: pytest.MonkeyPatch) -> None:
    real = RealPhone(session)

    def refusing(name: str) -> None:
        raise DeviceRefused(real.serial, "input: Permission denied")

    monkeypatch.setattr(real, "key", refusing)
    with pytest.raises(DeviceGarbage, match="Permission denied"):
        resetting.reset(real, task('{"packages": []}'))


def test_a_state_that_is_no_json_is_garbage(session: AdbSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "run", lambda command: Finished(b'{"half', b"", 0))
    with pytest.raises(DeviceGarbage, match="not JSON"):
        resetting.truth(session)
