from __future__ import annotations

import io
import time
from collections.abc import Callable
from typing import Any

import pytest
from distrl import config
from distrl.device.adb_protocol import Deadline
from distrl.device.errors import DeviceGarbage, DeviceGone, DeviceRefused, DeviceTimeout
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.errors import DeviceError
from distrl.types import Action, ActionKind, Point
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image
from simphone import shell
from simphone.commands import COMMANDS
from simphone.commands.base import CommandResult, Invocation
from simphone.faults import Fault
from simphone.handset import Handset
from simphone.machine import Event, Key, Open, Swipe, Tap, Text
from simphone.serve import SimulatedPhone

from .conftest import LONG_S, SLACK_S, given_time, hurried

PRINTABLE = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), max_size=60)
AWKWARD = st.lists(st.sampled_from(["%s", "%", "s", " ", "'", '"', "\\", "; reboot", "$(id)", "`id`", "&&", "|", "-d"]))


@pytest.fixture
def events(phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch) -> list[Event]:
    """What reaches the phone's machine, in order."""
    seen: list[Event] = []
    apply = phone.machine.apply

    def noting(event: Event) -> None:
        seen.append(event)
        apply(event)

    monkeypatch.setattr(phone.machine, "apply", noting)
    return seen


def test_each_action_arrives_as_its_gesture(session: AdbSession, phone: SimulatedPhone, events: list[Event]) -> None:
    width, height = phone.machine.size
    session.perform(Action(ActionKind.TAP, touch=Point(0.0, 0.5)))
    session.perform(Action(ActionKind.TAP, touch=Point(1.0, 1.0)))
    session.perform(Action(ActionKind.SWIPE, touch=Point(0.5, 0.75), lift=Point(0.5, 0.25)))
    session.perform(Action(ActionKind.TYPE, text="red shoes"))
    for kind in (ActionKind.BACK, ActionKind.HOME, ActionKind.ENTER):
        session.perform(Action(kind))
    assert events == [
        Tap(0, height // 2),
        Tap(width - 1, height - 1),
        Swipe(width // 2, height * 3 // 4, width // 2, height // 4),
        Text("red shoes"),
        Key("BACK"),
        Key("HOME"),
        Key("ENTER"),
    ]


def test_an_end_and_an_invalid_action_send_nothing(session: AdbSession, events: list[Event]) -> None:
    session.perform(Action(ActionKind.COMPLETE))
    session.perform(Action(ActionKind.INVALID, text="; reboot"))
    session.perform(Action(ActionKind.TYPE, text=""))
    assert events == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(PRINTABLE, AWKWARD.map("".join)))
@example(text="%s" * 4)
def test_text_is_typed_to_the_last_character_and_never_run(session: AdbSession, events: list[Event], text: str) -> None:
    """In several lines where it has many %s: each event has all that was typed until then."""
    events.clear()
    session.type_text(text)
    assert all(isinstance(event, Text) for event in events)
    assert [event.text for event in events if isinstance(event, Text)][-1:] == ([text] if text else [])


@pytest.mark.parametrize("text", ["caf\u00e9", "two\nlines", "tab\t", "nul\0", "x" * 2001])
def test_text_that_cannot_be_typed_is_refused_whole(session: AdbSession, events: list[Event], text: str) -> None:
    with pytest.raises(DeviceRefused, match="typed"):
        session.type_text(text)
    assert events == []


@pytest.mark.parametrize("point", [Point(-0.01, 0.5), Point(0.5, 1.01), Point(float("nan"), 0.5)])
def test_a_point_off_the_screen_is_refused(session: AdbSession, events: list[Event], point: Point) -> None:
    with pytest.raises(DeviceRefused, match="not on the screen"):
        session.tap(point)
    assert events == []


def test_a_gesture_that_does_not_say_where_is_refused(session: AdbSession) -> None:
    with pytest.raises(DeviceRefused, match="without coordinates"):
        session.perform(Action(ActionKind.SWIPE, touch=Point(0.5, 0.5)))


def test_a_screenshot_is_what_the_phone_shows(session: AdbSession, phone: SimulatedPhone) -> None:
    shot = session.settle()
    assert shot == session.screenshot()
    assert shot.png == phone.machine.png()
    assert (shot.width, shot.height) == Image.open(io.BytesIO(shot.png)).size == phone.machine.size


def test_a_failing_command_is_refused_with_what_it_said(session: AdbSession) -> None:
    with pytest.raises(DeviceRefused, match="exited with 127"):
        session.shell(["reboot"])
    assert session.shell(["echo", "; reboot"]) == "; reboot\n"


def test_a_truncated_screenshot_is_never_returned(session: AdbSession, phone: SimulatedPhone) -> None:
    phone.faults.set(Fault.TRUNCATED)
    with pytest.raises(DeviceGarbage, match="broken"):
        session.screenshot()

    def is_refused(seconds: float) -> None:
        with hurried(session, seconds), pytest.raises(DeviceGarbage, match="broken"):
            session.settle()

    given_time(is_refused)
    phone.faults.clear()
    assert session.settle().png == phone.machine.png()
    assert session.retries > 0


OPERATIONS: dict[str, Callable[[AdbSession], object]] = {
    "tap": lambda session: session.tap(Point(0.5, 0.5)),
    "type": lambda session: session.type_text("a"),
    "key": lambda session: session.key("BACK"),
    "settle": lambda session: session.settle(),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_silent_phone_costs_one_deadline(session: AdbSession, phone: SimulatedPhone, name: str) -> None:
    session.size()
    phone.faults.set(Fault.SILENT)
    started = time.monotonic()
    with hurried(session, 1.0), pytest.raises(DeviceTimeout):
        OPERATIONS[name](session)
    assert 0.9 < time.monotonic() - started < 1.0 + SLACK_S


def test_a_slow_phone_is_waited_for_no_longer_than_the_deadline(session: AdbSession, phone: SimulatedPhone) -> None:
    phone.faults.set(Fault.SLOW)
    with hurried(session, 1.0), pytest.raises(DeviceTimeout, match="longer than 1 s"):
        session.key("BACK")
    assert session.run("echo slow", within=Deadline(LONG_S)).stdout == b"slow\n"


def test_a_screen_that_never_rests_is_its_last_frame_at_the_deadline(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    frames: list[bytes] = []

    def restless() -> bytes:
        picture = io.BytesIO()
        Image.new("L", (8, 8 + len(frames)), 200).save(picture, "PNG")
        frames.append(picture.getvalue())
        return frames[-1]

    monkeypatch.setattr(phone.machine, "png", restless)

    def is_seen(seconds: float) -> None:
        began = time.monotonic()
        with hurried(session, seconds):
            shot = session.settle()
        assert seconds - 0.1 < time.monotonic() - began < seconds + SLACK_S
        assert shot.restless
        assert len(frames) > 1
        assert shot.png in frames[-2:], "the last one may have been cut by the deadline"

    given_time(is_seen)


def test_a_phone_that_vanishes_in_an_episode_heals_with_a_new_connection(
    session: AdbSession, phone: SimulatedPhone, adb: AdbServer
) -> None:
    def go_on() -> None:
        while time.monotonic() < until:
            session.settle()

    session.tap(Point(0.5, 0.5))
    session.shell("simctl fault gone 600")
    until = time.monotonic() + LONG_S
    with pytest.raises(DeviceGone):
        go_on()
    phone.faults.end(Fault.GONE)
    shown, until = None, time.monotonic() + LONG_S
    while shown is None and time.monotonic() < until:
        adb.disconnect(phone.address)
        try:
            adb.connect(phone.address)
            shown = session.settle()  # on a busy machine a phone is offline for a moment after it is connected
        except DeviceGone:
            time.sleep(0.05)
    assert shown is not None
    assert shown.png == phone.machine.png()


def test_a_phone_that_vanishes_during_a_command_is_gone(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shell.Shell.run

    async def vanishing(self: shell.Shell, *args: Any, **more: Any) -> CommandResult:
        """The phone has been asked."""
        phone.faults.set(Fault.GONE)
        return await run(self, *args, **more)

    phone.faults.set(Fault.SLOW)
    monkeypatch.setattr(shell.Shell, "run", vanishing)
    with pytest.raises(DeviceGone):
        session.key("BACK")


def test_a_serial_that_nobody_knows_is_gone(adb: AdbServer, timeouts: config.DeviceSettings) -> None:
    with pytest.raises(DeviceGone, match="not found"):
        AdbSession(adb, "nobody", timeouts).settle()


def test_no_adb_server_is_said_with_its_address(timeouts: config.DeviceSettings) -> None:
    nowhere = AdbServer(config.AdbSettings(port=1))
    with pytest.raises(DeviceError, match=r"no adb server answers at 127\.0\.0\.1:1 "):
        AdbSession(nowhere, "sim", timeouts).settle()


def test_an_app_is_started_seen_in_front_and_stopped(session: AdbSession, events: list[Event]) -> None:
    session.start_app("com.sim.clock")
    assert session.focus().startswith("com.sim.clock/")
    session.stop_app("com.sim.clock")
    assert session.focus().startswith("com.sim.launcher/")
    assert events == [Open("clock"), Key("HOME")]


@pytest.mark.parametrize("package", ["com.sim.none", "", "clock", "com.sim.clock; reboot", "-p", "com.sim.\nclock"])
def test_what_is_no_app_of_the_phone_is_refused(session: AdbSession, events: list[Event], package: str) -> None:
    with pytest.raises(DeviceRefused):
        session.start_app(package)
    assert events == []


@pytest.mark.parametrize(
    ("said", "focus"),
    [
        (b"  mCurrentFocus=Window{4b0 u0 com.a.b/com.a.b.Main}\n", "com.a.b/com.a.b.Main"),
        (b"  mCurrentFocus=Window{4b0 u0 NotificationShade}\n", "NotificationShade"),
        (b"  mCurrentFocus=null\n", ""),
    ],
)
def test_a_focus_as_android_prints_it(
    session: AdbSession, monkeypatch: pytest.MonkeyPatch, said: bytes, focus: str
) -> None:
    monkeypatch.setattr(session, "output", lambda command, within=None: said)
    assert session.focus() == focus


def test_an_android_that_names_the_focus_after_the_windows_is_asked_for_those(
    session: AdbSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Android 8 and 9."""
    said = {
        "dumpsys window displays": b"WINDOW MANAGER DISPLAY CONTENTS (dumpsys window displays)\n"
        b"  Display: mDisplayId=0\n    init=1080x1920 420dpi cur=1080x1920\n",
        "dumpsys window windows": b"WINDOW MANAGER WINDOWS (dumpsys window windows)\n"
        b"  Window #0 Window{4b0 u0 com.a.b/com.a.b.Main}:\n    mDisplayId=0 mSession=Session{1}\n"
        b"    mOwnerUid=10050 mShowToOwnerOnly=true package=com.a.b appop=NONE\n\n"
        b"  mGlobalConfiguration={1.0 310mcc}\n  mHasPermanentDpad=false\n"
        b"  mCurrentFocus=Window{4b0 u0 com.a.b/com.a.b.Main}\n"
        b"  mFocusedApp=AppWindowToken{7 token=Token{8 ActivityRecord{9 u0 com.a.b/.Main t12}}}\n",
    }
    monkeypatch.setattr(session, "output", lambda command, within=None: said[command])
    assert session.in_front() == ("com.a.b", "")


def test_a_title_that_forges_the_focus_after_the_windows_is_not_believed(
    session: AdbSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    forged = b"  Window #0 Window{5 u0 x\n  mCurrentFocus=Window{6 u0 com.a.b/com.a.b.Main}\n}:\n"
    said = {
        "dumpsys window windows": forged + b"  mCurrentFocus=Window{5 u0 x\n  mCurrentFocus=Window{6 u0 com.a.b}\n}\n"
    }
    monkeypatch.setattr(session, "output", lambda command, within=None: said.get(command, b""))
    with pytest.raises(DeviceGarbage, match="names no focus"):
        session.in_front()


def test_a_dump_without_a_focus_is_garbage(session: AdbSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "output", lambda command, within=None: b"Can't find service: window\n")
    with pytest.raises(DeviceGarbage, match="names no focus"):
        session.focus()


def test_an_android_that_fails_with_exit_code_0_is_understood(
    session: AdbSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = b"Starting: Intent { }\nError: Activity not started, unable to resolve Intent { }\n"
    monkeypatch.setattr(session, "output", lambda command, within=None: said)
    with pytest.raises(DeviceRefused, match="unable to resolve"):
        session.start_app("com.a.b")


def test_the_elements_in_front_are_those_of_now(session: AdbSession, phone: SimulatedPhone) -> None:
    session.start_app("com.sim.browser")
    assert b'package="com.sim.browser"' in session.hierarchy(LONG_S)
    session.key("HOME")
    found = session.hierarchy(LONG_S)
    assert found.startswith(b"<?xml")
    assert found.endswith(b"</hierarchy>")
    assert b'content-desc="settings"' in found
    assert b"com.sim.browser" not in found


def test_elements_that_cannot_be_had_are_never_those_of_before(
    session: AdbSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never_rests(phone: Handset, call: Invocation) -> CommandResult:
        """As Android's own says it, and with the same exit code."""
        return CommandResult(stderr=b"ERROR: could not get idle state.\n")

    session.hierarchy(LONG_S)
    monkeypatch.setitem(COMMANDS, "uiautomator", never_rests)
    with pytest.raises(DeviceRefused, match="No such file"):
        session.hierarchy(LONG_S)


def test_elements_are_waited_for_no_longer_than_asked(session: AdbSession, phone: SimulatedPhone) -> None:
    phone.faults.set(Fault.SILENT)
    began = time.monotonic()
    with pytest.raises(DeviceTimeout):
        session.hierarchy(0.3)
    assert time.monotonic() - began < 0.3 + SLACK_S
