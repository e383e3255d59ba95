"""Episodes on leased phones behind a real adb server, within the apps that are allowed."""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import pytest
from device.conftest import LONG_S, given_time
from distrl.algorithms.aride.credit import is_invalid
from distrl.config import Config, DeviceSettings
from distrl.device.errors import DeviceGarbage, DeviceGone, DeviceRefused
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.rollout.episode import Decision, Episode, Observation
from distrl.rollout.phones import Phones, SessionPhone
from distrl.tasks.outcome import StateCheck
from distrl.types import Action, ActionKind, HeldBack, Outcome, Point, Trajectory
from PIL import Image
from simphone.faults import Fault
from simphone.machine import Key, Open, fresh, widgets
from simphone.serve import SimulatedPhone

from rollout.world import DONE, Shelf, task

CLOCK, SETTINGS = "com.sim.clock", "com.sim.settings"
ENTER = Action(ActionKind.ENTER)


@dataclass
class Deciding:
    """Plays `actions`; before the one with a number in `meanwhile`, something happens on the phone."""

    actions: Sequence[Action]
    meanwhile: dict[int, Callable[[], object]] = field(default_factory=dict)
    seen: list[bytes] = field(default_factory=list)
    earlier_screens: int = 0

    def decide(self, observation: Observation) -> Decision:
        self.seen.append(observation.png)
        self.meanwhile.get(observation.step, lambda: None)()
        action = self.actions[observation.step]
        return Decision(action, action.kind.value, (1,), (2,), -0.5, 0, "sha")


Run = Callable[..., tuple[Trajectory, dict[str, int]]]


@pytest.fixture
def run(adb: AdbServer, phone: SimulatedPhone, timeouts: DeviceSettings) -> Run:
    """Plays one episode with a list of allowed packages; its trajectory, and what was counted of the phone.

    settles_s: how long a screen may take to settle.
    """

    def play(decider: Deciding, allowed: Sequence[str], settles_s: float = LONG_S) -> tuple[Trajectory, dict[str, int]]:
        devices = timeouts.model_copy(
            update={
                "addresses": (phone.address,),
                "allowed_packages": tuple(allowed),
                "settle_timeout_s": settles_s,
            }
        )
        with Phones(Config(adb=adb.adb, devices=devices)) as phones, leased(phones) as one:
            trajectory = Episode("w", Shelf().keep, lambda task, truth: StateCheck((), "")).run(
                task(max_steps=6), "a", one, decider
            )
            (health,) = phones.health()
            return trajectory, dict(health.counters)

    return play


@contextmanager
def leased(phones: Phones) -> Iterator[SessionPhone]:
    with phones.lease(LONG_S) as one:
        assert one is not None
        yield one


def phones_of(adb: AdbServer, phone: SimulatedPhone, timeouts: DeviceSettings) -> Phones:
    return Phones(Config(adb=adb.adb, devices=timeouts.model_copy(update={"addresses": (phone.address,)})))


def opens(phone: SimulatedPhone, app: str) -> Action:
    """The tap on an app's icon, on the home screen that a reset leads to."""
    width, height = phone.machine.size
    icon = next(each for each in widgets(fresh(task().phone_seed, {}, 0.0)) if each.target == app)
    left, top, right, bottom = icon.box
    return Action(ActionKind.TAP, Point((left + right) / 2 / width, (top + bottom) / 2 / height))


def test_an_action_that_leaves_the_allowed_apps_is_undone_and_recorded(run: Run, phone: SimulatedPhone) -> None:
    decider = Deciding([opens(phone, "clock"), opens(phone, "settings"), ENTER, DONE])
    trajectory, counters = run(decider, [SETTINGS])
    home, after_clock, after_settings, _ = decider.seen
    assert after_clock == home, "the clock was left before anybody saw it"
    assert after_settings != home
    assert trajectory.outcome is Outcome.SUCCESS
    assert trajectory.note == "left the allowed apps: com.sim.clock (HOME) at step 1"
    assert held_back(trajectory) == ["undone", "no", "no", "no"]
    assert [step.action for step in trajectory.steps] == decider.actions
    assert counters["foreign_apps"] == 1


def test_where_all_are_allowed_nothing_is_undone_and_nothing_noted(run: Run, phone: SimulatedPhone) -> None:
    decider = Deciding([opens(phone, "clock"), DONE])
    trajectory, counters = run(decider, [])
    assert decider.seen[0] != decider.seen[1]
    assert (trajectory.note, counters["foreign_apps"]) == ("", 0)
    assert held_back(trajectory) == ["no", "no"]


def test_no_gesture_reaches_an_app_that_comes_to_the_front_while_it_is_decided_on(
    run: Run, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[object] = []
    apply = phone.machine.apply

    def opening() -> None:
        apply(Open("clock"))
        phone.machine.apply = lambda event: (
            sent.append((phone.machine.focus().partition("/")[0], event)),
            apply(event),
        )

    decider = Deciding([opens(phone, "settings"), ENTER, DONE], {1: opening})
    trajectory, counters = run(decider, [SETTINGS])
    assert trajectory.note == "left the allowed apps: com.sim.clock (HOME), its action was not sent at step 1"
    assert held_back(trajectory) == ["no", "unsent", "no"]
    assert sent == [(CLOCK, Key("HOME"))]
    assert counters["foreign_apps"] == 1


def test_an_app_left_after_the_last_action_is_recorded_too(run: Run, phone: SimulatedPhone) -> None:
    trajectory, _ = run(Deciding([opens(phone, "clock")] * 6), [SETTINGS])
    assert trajectory.note.count("com.sim.clock (HOME)") == 6
    assert trajectory.note.endswith("at step 6")
    assert held_back(trajectory) == ["undone"] * 6
    assert len(trajectory.steps) == 6


def held_back(trajectory: Trajectory) -> list[str]:
    return [step.held_back.value for step in trajectory.steps]


def in_clock(phone: SimulatedPhone) -> bool:
    return phone.machine.focus().partition("/")[0] == CLOCK


def picture(size: tuple[int, int], grey: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, (grey,) * 3).save(out, "PNG")
    return out.getvalue()


@pytest.mark.parametrize("greys", [itertools.cycle(range(1, 200)), itertools.repeat(0)], ids=["restless", "black"])
def test_a_foreign_app_whose_screen_never_settles_is_left_all_the_same(
    run: Run, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch, greys: Iterator[int]
) -> None:
    png = phone.machine.png
    monkeypatch.setattr(
        phone.machine, "png", lambda: picture(phone.machine.size, next(greys)) if in_clock(phone) else png()
    )

    def is_left(seconds: float) -> None:
        decider = Deciding([opens(phone, "clock"), DONE])
        trajectory, counters = run(decider, [SETTINGS], seconds)
        assert trajectory.outcome is Outcome.SUCCESS
        assert trajectory.note == "left the allowed apps: com.sim.clock (HOME) at step 1"
        assert decider.seen[1] == decider.seen[0]
        assert counters["foreign_apps"] == 1

    given_time(is_left)


def test_a_screen_of_an_allowed_app_that_never_settles_is_shown_as_it_is_and_interrupts_nothing(
    run: Run, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    png, greys = phone.machine.png, itertools.cycle(range(1, 200))
    monkeypatch.setattr(
        phone.machine, "png", lambda: picture(phone.machine.size, next(greys)) if in_clock(phone) else png()
    )

    def is_shown(seconds: float) -> None:
        trajectory, counters = run(Deciding([opens(phone, "clock"), DONE]), [CLOCK], seconds)
        assert (trajectory.outcome, trajectory.note) == (Outcome.SUCCESS, "")
        assert [step.restless for step in trajectory.steps] == [False, True]
        assert trajectory.final_restless
        assert (counters["foreign_apps"], counters["interrupted"]) == (0, 0)

    given_time(is_shown)


@pytest.mark.parametrize("text", ["caf\u00e9", "\x07", "x" * 3000], ids=["no keyboard", "control", "too long"])
def test_text_that_the_phone_cannot_type_is_the_policys_invalid_action_and_nothing_is_sent(
    run: Run, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    sent: list[object] = []
    apply = phone.machine.apply
    monkeypatch.setattr(phone.machine, "apply", lambda event: (sent.append(event), apply(event)))
    typing = Action(ActionKind.TYPE, text=text)
    trajectory, counters = run(Deciding([typing, ENTER, DONE]), [])
    assert (trajectory.outcome, trajectory.note) == (Outcome.SUCCESS, "")
    assert held_back(trajectory) == ["refused", "no", "no"]
    assert trajectory.steps[0].action == typing, "what the policy wrote"
    assert [each for each in sent if each != Key("HOME")] == [Key("ENTER")]
    assert [is_invalid(step) for step in trajectory.steps] == [True, False, False]
    assert (counters["interrupted"], counters["quarantines"]) == (0, 0)


def test_a_keyboard_that_is_set_and_missing_is_not_the_policys_fault(
    adb: AdbServer, phone: SimulatedPhone, timeouts: DeviceSettings
) -> None:
    with phones_of(adb, phone, timeouts.model_copy(update={"keyboard": "service"})) as phones, leased(phones) as one:
        assert one.perform(Action(ActionKind.TYPE, text="caf\u00e9")) is HeldBack.REFUSED
        with pytest.raises(DeviceRefused, match="not an enabled keyboard"):
            one.perform(Action(ActionKind.TYPE, text="plain"))


@pytest.mark.parametrize(("returns", "outcome"), [(1, Outcome.SUCCESS), (9, Outcome.INTERRUPTED)])
def test_an_app_that_comes_back_while_the_screen_settles_is_never_shown(
    run: Run, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch, returns: int, outcome: Outcome
) -> None:
    png, shots = phone.machine.png, list[bool]()
    left = [returns]

    def coming_back() -> bytes:
        shot = png()
        shots.append(in_clock(phone))
        if any(shots) and not shots[-1] and left[0]:
            left[0] -= 1
            phone.machine.apply(Open("clock"))
        return shot

    monkeypatch.setattr(phone.machine, "png", coming_back)
    decider = Deciding([opens(phone, "clock"), DONE])
    trajectory, counters = run(decider, [SETTINGS])
    assert trajectory.outcome is outcome
    assert set(decider.seen) == {decider.seen[0]}
    assert counters["foreign_apps"] == 2
    assert trajectory.note.count("com.sim.clock (HOME) at step 1") == 2
    assert ("DeviceForeignApp: com.sim.clock comes back" in trajectory.note) is (outcome is Outcome.INTERRUPTED)


def test_a_phone_that_restarts_in_an_episode_interrupts_it_and_keeps_the_steps_before(
    run: Run, phone: SimulatedPhone
) -> None:
    def restart() -> None:
        phone.faults.set(Fault.BOOTING)
        phone.faults.set(Fault.GONE)

    trajectory, _ = run(Deciding([ENTER] * 6, {2: restart}), [])
    assert trajectory.outcome is Outcome.INTERRUPTED
    assert trajectory.note.startswith("Device")
    assert len(trajectory.steps) >= 2
    assert trajectory.final_screenshot is None


def test_a_phone_that_falls_asleep_interrupts_it_and_shows_no_black_screen(run: Run, phone: SimulatedPhone) -> None:
    def interrupts(seconds: float) -> None:
        phone.faults.clear()
        decider = Deciding([ENTER] * 6, {1: lambda: phone.faults.set(Fault.ASLEEP)})
        trajectory, _ = run(decider, [], seconds)
        assert trajectory.outcome is Outcome.INTERRUPTED
        assert trajectory.note.startswith("DeviceBlack: ")
        assert len(decider.seen) == 2

    given_time(interrupts)


@pytest.mark.parametrize("lock_screen", ["com.android.systemui/.NotificationShade", ""])
def test_a_phone_that_falls_asleep_with_a_lock_screen_is_said_to_be_asleep(
    run: Run, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch, lock_screen: str
) -> None:
    """No app is to be blamed, and none to be allowed: the lock screen is in front, or no window has the focus."""
    focus = phone.machine.focus
    monkeypatch.setattr(phone.machine, "focus", lambda: lock_screen if phone.faults.active(Fault.ASLEEP) else focus())

    def interrupts(seconds: float) -> None:
        phone.faults.clear()
        trajectory, _ = run(Deciding([ENTER] * 6, {1: lambda: phone.faults.set(Fault.ASLEEP)}), [SETTINGS], seconds)
        assert trajectory.note.startswith("DeviceBlack: its screen is off (Asleep)")

    given_time(interrupts)


def test_failures_count_from_the_last_episode_that_ended_well(
    adb: AdbServer, phone: SimulatedPhone, timeouts: DeviceSettings
) -> None:
    impossible = replace(task(), setup='{"no such app": {}}')
    with phones_of(adb, phone, timeouts) as phones:
        with leased(phones) as one:
            for _ in range(2):
                with pytest.raises(DeviceRefused):
                    one.reset(impossible)
            assert not one.well, "no episode has ended well"
        for _ in range(4):
            with leased(phones) as one:
                one.reset(task())
                assert not one.well, "it is not over yet"
                one.reset(task())
                one.failure = DeviceGone(one.serial, "it is gone")
        (health,) = phones.health()
        assert (health.counters["interrupted"], health.counters["quarantines"]) == (5, 0)


def test_a_refused_screenshot_is_the_phones_failure(
    adb: AdbServer, phone: SimulatedPhone, timeouts: DeviceSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(session: AdbSession) -> None:
        raise DeviceRefused(session.serial, "`screencap -p` exited with 1")

    monkeypatch.setattr(AdbSession, "settle", refuse)
    with phones_of(adb, phone, timeouts) as phones:
        with leased(phones) as one, pytest.raises(DeviceGarbage, match="exited with 1"):
            one.settle()
        assert phones.health()[0].state == "quarantined"


@pytest.mark.parametrize(
    "ask",
    [
        lambda one: one.perform(Action(ActionKind.TYPE, text="plain")),
        lambda one: one.reset(replace(task(), setup="{")),
    ],
)
def test_a_refused_action_or_setup_is_not_the_phones_failure(
    adb: AdbServer, phone: SimulatedPhone, timeouts: DeviceSettings, ask: Callable[[SessionPhone], None]
) -> None:
    with phones_of(adb, phone, timeouts.model_copy(update={"keyboard": "service"})) as phones:
        with leased(phones) as one, pytest.raises(DeviceRefused):
            ask(one)
        assert phones.health()[0].state == "idle"


def test_a_phone_that_was_started_again_unseen_interrupts_the_episode_and_is_no_failure_of_the_agent(
    run: Run, phone: SimulatedPhone
) -> None:
    """While a decision takes long, adb connects again by itself: no operation fails, and the phone is another."""
    trajectory, _ = run(Deciding([ENTER, DONE], {1: lambda: phone.machine.reset(task().phone_seed + 1, {})}), [])
    assert trajectory.outcome is Outcome.INTERRUPTED
    assert "it was started again while" in trajectory.note
    assert len(trajectory.steps) == 2
