"""No black and no stale image is ever an observation, as far as it can be known."""

from __future__ import annotations

import io
import itertools
import math
import time
from collections.abc import Callable, Sequence
from itertools import chain, repeat

import pytest
from distrl.device import session as session_module
from distrl.device.adb_protocol import Deadline
from distrl.device.errors import DeviceBlack, DeviceGarbage, DeviceLocked, DeviceOversized, DeviceTimeout
from distrl.device.session import AdbSession
from distrl.images import MAX_PIXELS
from distrl.types import Point
from PIL import Image
from simphone import shell
from simphone.commands import COMMANDS
from simphone.commands.base import CommandResult, Invocation
from simphone.commands.dumpsys import SERVICES
from simphone.faults import Fault
from simphone.handset import Handset
from simphone.machine import Event
from simphone.serve import SimulatedPhone

from .conftest import LONG_S, given_time, hurried

CLOCK = Point(0.2, 0.2)


def picture(size: tuple[int, int], form: str = "PNG", **spot: int) -> bytes:
    """A black picture; spot: the grey of one pixel in its middle, or so many pixels left of it."""
    out = io.BytesIO()
    image = Image.new("RGB", size)
    image.putpixel((size[0] // 2 - spot.get("left", 0), size[1] // 2), (spot.get("grey", 0),) * 3)
    image.save(out, form)
    return out.getvalue()


def with_settings(session: AdbSession, **settings: float) -> AdbSession:
    return AdbSession(session.server, session.serial, session._devices.model_copy(update=settings))


LOOKS: dict[str, Callable[[AdbSession], object]] = {"screenshot": AdbSession.screenshot, "settle": AdbSession.settle}


@pytest.mark.parametrize(
    "dump",
    ["  mWakefulness=Asleep\n  mWakefulnessChanging=false\n", "  getWakefulnessLocked()=Asleep\n"],
    ids=["Android's", "Samsung's"],
)
def test_a_phone_that_sleeps_is_known_by_what_its_vendor_writes(
    session: AdbSession, monkeypatch: pytest.MonkeyPatch, dump: str
) -> None:
    session.require_awake()
    monkeypatch.setitem(SERVICES, "power", lambda phone, args: dump)
    with pytest.raises(DeviceBlack, match=r"its screen is off \(Asleep\)"):
        session.require_awake()
    monkeypatch.setitem(SERVICES, "power", lambda phone, args: dump.replace("Asleep", "Awake"))
    session.require_awake()


@pytest.mark.parametrize("idle_s", [session_module.IDLE_S, math.inf], ids=["after_a_pause", "at_once"])
@pytest.mark.parametrize("name", LOOKS)
def test_a_screen_that_is_off_is_reported_as_such_until_it_is_woken(
    session: AdbSession, phone: SimulatedPhone, name: str, idle_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "IDLE_S", idle_s)

    def is_told(seconds: float) -> None:
        with hurried(session, seconds), pytest.raises(DeviceBlack, match=r"its screen is off \(Asleep\)") as refused:
            LOOKS[name](session)
        assert "keyevent WAKEUP" in refused.value.hint

    phone.faults.set(Fault.ASLEEP)
    given_time(is_told)
    session.key("WAKEUP")
    assert LOOKS[name](session) == session.screenshot()
    assert session.screenshot().png == phone.machine.png()


def test_a_screenshot_that_the_phone_refuses_is_taken_again_and_why_is_said_if_that_does_not_help(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusals = [b"Error: compositor is gone"] * 2
    real = COMMANDS["screencap"]

    async def failing(phone: Handset, call: Invocation) -> CommandResult:
        return CommandResult(stderr=refusals.pop(), code=1) if refusals else await real(phone, call)

    monkeypatch.setitem(COMMANDS, "screencap", failing)
    assert session.settle().png == phone.machine.png()
    assert (refusals, session.retries) == ([], 2)

    def is_told(seconds: float) -> None:
        refusals.extend([b"Error: compositor is gone"] * 10_000)
        with hurried(session, seconds), pytest.raises(DeviceGarbage, match="compositor is gone"):
            session.settle()

    given_time(is_told)


def test_a_screen_of_before_a_refusal_is_no_observation(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The action may have had its effect since."""
    real, taken = COMMANDS["screencap"], list[str]()

    async def failing(phone: Handset, call: Invocation) -> CommandResult:
        taken.append("")
        return await real(phone, call) if len(taken) == 1 else CommandResult(stderr=b"Error: no compositor", code=1)

    def is_told(seconds: float) -> None:
        taken.clear()
        session.key("HOME")
        with hurried(session, seconds), pytest.raises(DeviceGarbage, match="no compositor"):
            session.settle()
        assert len(taken) > 1

    monkeypatch.setitem(COMMANDS, "screencap", failing)
    given_time(is_told)


def test_a_screen_that_has_gone_off_by_itself_is_no_observation_though_it_shows_a_clock(
    session: AdbSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An always-on display."""
    monkeypatch.setattr(session_module, "IDLE_S", 3600.0)
    session.key("HOME")
    session.settle()
    monkeypatch.setitem(SERVICES, "power", lambda phone, args: "  mWakefulness=Dozing\n")
    session.key("HOME")
    session.settle()
    session._acted -= 4000.0
    session.type_text("x" * 500)  # several commands, which do nothing but to wake it, if that
    with pytest.raises(DeviceBlack, match=r"its screen is off \(Dozing\)"):
        session.settle()


def test_a_phone_that_has_locked_itself_and_was_lit_again_is_no_observation(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "IDLE_S", 3600.0)
    session.key("HOME")
    session.settle()
    phone.faults.set(Fault.LOCKED)
    session.key("HOME")
    session.settle()
    session._acted -= 4000.0
    with pytest.raises(DeviceLocked):
        session.settle()


@pytest.mark.parametrize("name", LOOKS)
def test_a_window_that_may_not_be_pictured_is_reported_as_such(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def is_told(seconds: float) -> None:
        with hurried(session, seconds), pytest.raises(DeviceBlack, match="though its screen is on") as refused:
            LOOKS[name](session)
        assert "FLAG_SECURE" in refused.value.hint

    monkeypatch.setattr(phone.machine, "png", lambda: picture(phone.machine.size))
    given_time(is_told)


@pytest.mark.parametrize(
    ("answers", "words"), [(0, "whether its screen is on is unknown"), (1, r"its screen is off \(Asleep\)")]
)
def test_a_phone_that_does_not_say_in_time_why_it_is_black_is_taken_for_neither(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch, answers: int, words: str
) -> None:
    """What it said of an earlier picture counts."""
    real, asked = AdbSession._text, list[str]()

    def slow(self: AdbSession, command: Sequence[str] | str, deadline: Deadline) -> str:
        if command == "dumpsys power":
            asked.append(command)
            if len(asked) > answers:
                raise DeviceTimeout(self.serial, "took too long")
        return real(self, command, deadline)

    def is_told(seconds: float) -> None:
        asked.clear()
        with hurried(session, seconds), pytest.raises(DeviceBlack, match=words):
            session.settle()

    monkeypatch.setattr(session_module, "IDLE_S", math.inf)
    phone.faults.set(Fault.ASLEEP)
    monkeypatch.setattr(AdbSession, "_text", slow)
    given_time(is_told)


def test_a_dark_screen_that_shows_anything_is_none_of_these(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    dark = picture(phone.machine.size, grey=1)
    monkeypatch.setattr(phone.machine, "png", lambda: dark)
    assert session.settle().png == dark


def test_an_app_that_begins_in_black_is_waited_for(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, black = phone.machine.png(), picture(phone.machine.size)
    shots = chain([black] * 4, repeat(whole))
    monkeypatch.setattr(phone.machine, "png", lambda: next(shots))
    patient = with_settings(session, settle_timeout_s=LONG_S)
    assert patient.settle().png == whole
    assert patient.retries > 0


@pytest.mark.parametrize("name", LOOKS)
@pytest.mark.parametrize(
    "garbage",
    [b"", b"Error: no display\n", b"\x89PNG\r\n\x1a\n" + bytes(500), picture((9, 9), "JPEG"), picture((9, 9)) + b"\n"],
    ids=["nothing", "words", "zeros", "another format", "more than a picture"],
)
def test_garbage_is_never_a_screenshot(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch, name: str, garbage: bytes
) -> None:
    def is_refused(seconds: float) -> None:
        with hurried(session, seconds), pytest.raises(DeviceGarbage, match="broken"):
            LOOKS[name](session)

    monkeypatch.setattr(phone.machine, "png", lambda: garbage)
    given_time(is_refused)


@pytest.mark.parametrize("name", LOOKS)
def test_a_screen_with_more_pixels_than_the_policy_reads_is_refused_at_once(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    out, shots = io.BytesIO(), itertools.count()
    Image.new("1", (8000, MAX_PIXELS // 8000 + 1), 1).save(out, "PNG")
    monkeypatch.setattr(phone.machine, "png", lambda: (next(shots), out.getvalue())[1])
    patient = with_settings(session, settle_timeout_s=LONG_S)
    with pytest.raises(DeviceOversized, match="8000 x 4001 pixels; at most 32,000,000") as refused:
        LOOKS[name](patient)
    assert "wm size" in refused.value.hint
    assert next(shots) == 1, "it is not asked for again"


def moving(phone: SimulatedPhone) -> Callable[[], bytes]:
    """Whole pictures, no two of which are equal. The phone may still make one that nobody waits for any longer, in a
    thread of its own, while the next is asked for."""
    numbers = itertools.count()

    def frame() -> bytes:
        number = next(numbers)
        return picture(phone.machine.size, grey=number % 255 + 1, left=number // 255)

    return frame


def test_of_a_screen_that_never_rests_the_last_whole_frame_counts_and_no_torn_or_black_one(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = moving(phone)
    broken = itertools.cycle([lambda png: png[: len(png) // 2], lambda png: picture(phone.machine.size)])

    def is_seen(seconds: float) -> None:
        whole, spoilt = list[bytes](), list[bytes]()

        def torn_after_the_third() -> bytes:
            png = frame()
            kept = whole if len(whole) < 3 else spoilt
            kept.append(png if kept is whole else next(broken)(png))
            return kept[-1]

        monkeypatch.setattr(phone.machine, "png", torn_after_the_third)
        with hurried(session, seconds):
            shot = session.settle()
        assert (shot.png, shot.restless) == (whole[2], True)
        assert len(spoilt) > 2

    given_time(is_seen)


@pytest.mark.parametrize(("rests_in", "error"), [("black", DeviceBlack), ("torn", DeviceGarbage)])
def test_a_screen_that_comes_to_rest_in_black_or_broken_is_an_error_whatever_was_seen_before(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch, rests_in: str, error: type[Exception]
) -> None:
    whole = phone.machine.png()
    last = {"black": picture(phone.machine.size), "torn": whole[: len(whole) // 2]}[rests_in]

    def is_told(seconds: float) -> None:
        shots = chain([whole], repeat(last))
        monkeypatch.setattr(phone.machine, "png", lambda: next(shots))
        with hurried(session, seconds), pytest.raises(error):
            session.settle()

    given_time(is_told)


def test_no_whole_frame_at_all_stays_an_error(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = moving(phone)
    monkeypatch.setattr(phone.machine, "png", lambda: frame()[:-20])

    def is_told(seconds: float) -> None:
        with hurried(session, seconds), pytest.raises(DeviceGarbage, match="broken"):
            session.settle()

    given_time(is_told)


def test_a_phone_that_falls_silent_within_its_deadline_for_one_operation_is_an_error(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    frame = moving(phone)

    def silent_after_the_third() -> bytes:
        shot, number = frame(), next(count)
        if number == 2:
            phone.faults.set(Fault.SILENT)
        return shot

    count = itertools.count()
    monkeypatch.setattr(phone.machine, "png", silent_after_the_third)
    with pytest.raises(DeviceTimeout, match="longer than 2 s"):
        with_settings(session, operation_timeout_s=2.0).settle()


def test_a_screen_that_moved_before_a_gesture_is_looked_at_as_long_as_one_that_is_unchanged(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It changes without the gesture, so a change says nothing of its effect."""
    frame, still = moving(phone), phone.machine.png()

    def is_looked_at(seconds: float) -> None:
        monkeypatch.setattr(phone.machine, "png", frame)
        patient = with_settings(session, settle_unchanged_s=seconds)
        with hurried(patient, seconds):
            assert patient.settle().restless
        late = chain(repeat(frame(), 3), repeat(still))
        monkeypatch.setattr(phone.machine, "png", lambda: next(late))
        patient.tap(CLOCK)
        shot = patient.settle()
        assert (shot.png, shot.restless) == (still, False)

    given_time(is_looked_at, (1.0, 4.0, LONG_S / 2))


def test_both_screenshots_of_a_settled_screen_are_asked_for_after_the_gesture_has_ended(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    happened: list[str] = []
    apply, png = phone.machine.apply, phone.machine.png

    def applying(event: Event) -> None:
        apply(event)
        happened.append("gesture")

    def picturing() -> bytes:
        happened.append("screenshot")
        return png()

    before = session.settle()
    monkeypatch.setattr(phone.machine, "apply", applying)
    monkeypatch.setattr(phone.machine, "png", picturing)
    session.tap(CLOCK)
    after = session.settle()
    assert happened == ["gesture", "screenshot", "screenshot"]
    assert before != after
    assert after.png == png()


def test_an_answer_that_came_too_late_is_never_taken_for_a_later_one(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    hasty = with_settings(session, operation_timeout_s=0.2)
    monkeypatch.setattr(shell, "SLOW_S", 0.4)
    phone.faults.set(Fault.SLOW)
    with pytest.raises(DeviceTimeout):
        hasty.screenshot()
    phone.faults.clear()
    hasty._devices = session._devices.model_copy(update={"operation_timeout_s": LONG_S, "settle_timeout_s": LONG_S})
    old = phone.machine.png()
    hasty.tap(CLOCK)
    until = Deadline(0.5)  # the late answer is due in it
    while until.remaining() > 0:
        assert hasty.settle().png == phone.machine.png() != old


@pytest.mark.parametrize(("unchanged_s", "stale"), [(0.0, True), (LONG_S / 2, False)])
def test_an_app_that_is_slow_to_show_a_gesture_is_waited_for_as_long_as_is_set(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch, unchanged_s: float, stale: bool
) -> None:
    """Without the wait the old screen settles: that is why there is one."""
    patient = with_settings(session, settle_unchanged_s=unchanged_s, settle_timeout_s=LONG_S)
    old, png = patient.settle().png, phone.machine.png
    patient.tap(CLOCK)
    late = repeat(old, 5)
    monkeypatch.setattr(phone.machine, "png", lambda: next(late, None) or png())
    assert (patient.settle().png == old) is stale


def test_a_gesture_without_effect_costs_that_wait_and_a_screen_that_has_changed_none(
    session: AdbSession, phone: SimulatedPhone
) -> None:
    patient = with_settings(session, settle_unchanged_s=0.4, settle_timeout_s=LONG_S)
    old = patient.settle()
    began = time.monotonic()
    patient.tap(Point(0.99, 0.99))
    assert patient.settle() == old
    assert time.monotonic() - began > 0.4
    endless = with_settings(session, settle_unchanged_s=10 * LONG_S, settle_timeout_s=LONG_S)
    assert endless.settle() == old
    endless.tap(CLOCK)
    assert endless.settle() != old  # by the deadline, and so without that wait
