from __future__ import annotations

import json

import factories
import pytest
from distrl.device import reset as resetting
from distrl.device.adb_protocol import Finished
from distrl.device.errors import DeviceGarbage, DeviceLocked, DeviceRefused
from distrl.device.keyboard import NOTE
from distrl.device.session import AdbSession
from distrl.types import Point, Task
from simphone.faults import Fault
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


READ_NOTE = f"cat {NOTE} 2>/dev/null || true"


class RealPhone(AdbSession):
    """A phone without `simctl`; commands are noted. answers: those that are not an empty success."""

    def __init__(self, session: AdbSession) -> None:
        super().__init__(session.server, session.serial, session._devices)
        self.ran: list[object] = []
        self.answers: dict[str, Finished] = {}

    def run(self, command: object, timeout_s: float | None = None) -> Finished:
        if isinstance(command, list) and command[0] == "simctl":
            return Finished(b"", b"sh: simctl: not found", 127)
        if command != READ_NOTE:  # of a reset's beginning, whatever the task
            self.ran.append(command)
        return self.answers.get(str(command), Finished(b"", b"", 0))


def test_a_real_phone_goes_home_with_its_packages_cleared(session: AdbSession) -> None:
    real = RealPhone(session)
    resetting.reset(real, task('{"packages": ["com.example.shop"]}'))
    assert real.ran == [
        "input keyevent 224",
        ["wm", "dismiss-keyguard"],
        "dumpsys trust",
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
    monkeypatch.setattr(session, "run", lambda command, within=None: Finished(b"", b"no", 1))
    with pytest.raises(DeviceGarbage):
        resetting.reset(session, task())


def test_a_real_phone_that_is_locked_is_not_played_and_its_apps_keep_their_data(
    session: AdbSession, phone: SimulatedPhone
) -> None:
    phone.faults.set(Fault.LOCKED)
    real = RealPhone(session)
    real.answers["dumpsys trust"] = session.run("dumpsys trust")
    with pytest.raises(DeviceLocked, match="only a person can unlock it"):
        resetting.reset(real, task('{"packages": ["com.example.shop"]}'))
    assert real.ran[-1] == "dumpsys trust"


def test_a_simulated_phone_that_is_locked_is_not_played_either(session: AdbSession, phone: SimulatedPhone) -> None:
    phone.faults.set(Fault.LOCKED)
    with pytest.raises(DeviceLocked):
        resetting.reset(session, task())


def test_a_package_whose_data_nobody_may_clear_is_the_tasks_fault(session: AdbSession) -> None:
    real = RealPhone(session)
    protected = b"java.lang.SecurityException: Cannot clear data for a protected package: com.example.shop"
    real.answers[CLEAR] = Finished(b"", protected, 255)
    with pytest.raises(DeviceRefused, match="protected package"):
        resetting.reset(real, task('{"packages": ["com.example.shop"]}'))


CLEAR = "['pm', 'clear', 'com.example.shop']"


def test_a_real_phone_that_lets_adb_clear_nothing_is_not_well_and_says_which_of_its_settings_helps(
    session: AdbSession,
) -> None:
    real = RealPhone(session)
    no_right = b"java.lang.SecurityException: PID 1 does not have permission android.permission.CLEAR_APP_USER_DATA"
    real.answers[CLEAR] = Finished(b"", b"Exception occurred while executing 'clear':\n" + no_right, 255)
    with pytest.raises(DeviceGarbage, match="CLEAR_APP_USER_DATA") as refused:
        resetting.reset(real, task('{"packages": ["com.example.shop"]}'))
    assert "developer options" in refused.value.hint


def test_a_package_that_a_real_phone_has_not_is_the_tasks_fault(session: AdbSession) -> None:
    real = RealPhone(session)
    real.answers[CLEAR] = Finished(b"Failed\n", b"", 1)
    with pytest.raises(DeviceRefused, match="Failed"):
        resetting.reset(real, task('{"packages": ["com.example.shop"]}'))


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
