"""An app that nobody allowed is left again, whatever brought it to the front."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import repeat

import pytest
from distrl.config import load
from distrl.device.allow_list import PackageAllowList
from distrl.device.errors import DeviceForeignApp, DeviceGarbage
from distrl.device.session import AdbSession
from distrl.device.window import SYSTEM_UI, focused_window, package_in_front
from distrl.errors import ConfigError
from simphone.commands import COMMANDS, dumpsys
from simphone.commands.base import CommandResult, Invocation
from simphone.handset import Handset
from simphone.machine import Event, Key
from simphone.serve import SimulatedPhone

from .conftest import LONG_S, SLACK_S

CLOCK, SETTINGS, LAUNCHER = "com.sim.clock", "com.sim.settings", "com.sim.launcher"
SHADE = "  mCurrentFocus=Window{4b0 u0 NotificationShade}\n  mFocusedApp=ActivityRecord{1 u0 com.sim.clock/.Main t7}\n"


def allow_list(session: AdbSession, *allowed: str, wait_s: float = 0.3) -> PackageAllowList:
    return PackageAllowList(
        session, session._devices.model_copy(update={"allowed_packages": allowed, "settle_timeout_s": wait_s})
    )


def patched(phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch, takes: Callable[[Event], bool]) -> list[Event]:
    """Has the phone do only the events that it `takes`; all that reached it."""
    seen: list[Event] = []
    apply = phone.machine.apply

    def choosing(event: Event) -> None:
        seen.append(event)
        if takes(event):
            apply(event)

    monkeypatch.setattr(phone.machine, "apply", choosing)
    return seen


def window_says(monkeypatch: pytest.MonkeyPatch, shown: Callable[[str], str]) -> None:
    """Has `dumpsys window` print what `shown` makes of what it would."""
    real = dumpsys.SERVICES["window"]
    monkeypatch.setitem(dumpsys.SERVICES, "window", lambda phone, args: shown(real(phone, args)))


def test_an_allowed_app_and_the_home_screen_are_left_alone(session: AdbSession) -> None:
    kept = allow_list(session, CLOCK)
    assert kept.enforce() is None
    session.start_app(CLOCK)
    assert kept.enforce() is None
    assert session.package_in_front() == CLOCK
    assert session.foreign_apps == 0


def test_another_app_is_left_by_home_and_counted(session: AdbSession) -> None:
    session.start_app(SETTINGS)
    assert allow_list(session, CLOCK).enforce() == "com.sim.settings (HOME)"
    assert session.package_in_front() == LAUNCHER
    assert session.foreign_apps == 1


@pytest.mark.parametrize(
    ("allowed", "inside"),
    [("com.sim.*", True), ("com.*", True), (CLOCK, True), ("com.sim.clock.*", False), ("com.sim.clo", False),
     ("com.sim.clockwork", False), ("com.si.*", False)],
)  # fmt: skip
def test_a_pattern_allows_what_is_below_it(session: AdbSession, allowed: str, inside: bool) -> None:
    session.start_app(CLOCK)
    assert (allow_list(session, allowed).enforce() is None) is inside


def test_an_app_that_home_does_not_leave_is_stopped(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.start_app(SETTINGS)
    homes: list[Event] = []
    homes = patched(phone, monkeypatch, lambda event: len(homes) > 1)
    assert allow_list(session, CLOCK).enforce() == "com.sim.settings (force-stop)"
    assert session.package_in_front() == LAUNCHER


def test_an_app_that_nothing_leaves_ends_it_in_bounded_time(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.start_app(SETTINGS)
    patched(phone, monkeypatch, lambda event: False)
    began = time.monotonic()
    with pytest.raises(DeviceForeignApp, match="stays in front") as refused:
        allow_list(session, CLOCK).enforce()
    assert time.monotonic() - began < 0.6 + SLACK_S
    assert "devices.allowed_packages" in refused.value.hint


def test_the_shade_over_an_allowed_app_is_foreign_and_the_system_is_not_stopped(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.start_app(CLOCK)
    seen = patched(phone, monkeypatch, lambda event: True)
    window_says(monkeypatch, lambda real: real if Key("HOME") in seen else SHADE)
    assert allow_list(session, CLOCK).enforce() == f"{SYSTEM_UI} (HOME)"
    window_says(monkeypatch, lambda real: SHADE)
    assert allow_list(session, CLOCK, SYSTEM_UI).enforce() is None
    seen.clear()
    with pytest.raises(DeviceForeignApp):
        allow_list(session, CLOCK).enforce()
    assert seen == [Key("HOME")]


def test_a_moment_without_focus_is_waited_out_and_more_than_that_is_reported(
    session: AdbSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    none = "  mCurrentFocus=null\n  mFocusedApp=null\n"
    moment = repeat(none, 3)
    window_says(monkeypatch, lambda real: next(moment, real))
    assert allow_list(session, CLOCK, wait_s=LONG_S).enforce() is None
    window_says(monkeypatch, lambda real: none)
    with pytest.raises(DeviceGarbage, match="no window has had the focus"):
        allow_list(session, CLOCK).enforce()


@pytest.mark.parametrize("said", [b"No activity found\n", b"android/com.android.internal.app.ResolverActivity\n"])
def test_a_phone_that_names_no_home_screen_is_not_driven_and_no_home_screen_stopped(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    async def cmd(phone: Handset, call: Invocation) -> CommandResult:
        return CommandResult(said)

    monkeypatch.setitem(COMMANDS, "cmd", cmd)
    seen = patched(phone, monkeypatch, lambda event: True)
    with pytest.raises(DeviceGarbage, match="names no home screen") as refused:
        allow_list(session, CLOCK).enforce()
    assert "devices.allowed_packages" in refused.value.hint
    assert seen == []
    assert allow_list(session, CLOCK, LAUNCHER).enforce() is None


def test_without_a_list_the_phone_is_not_even_asked(session: AdbSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "run", lambda command, within=None: pytest.fail(f"{command} was run"))
    assert allow_list(session).enforce() is None


APP = "  mFocusedApp=ActivityRecord{b3a u0 com.a.b/.Main t82}\n"
OLD_APP = "  mFocusedApp=AppWindowToken{1f0 token=Token{6d5 ActivityRecord{b3a u0 com.a.b/.Main t82}}}\n"


@pytest.mark.parametrize(
    ("dump", "window", "package"),
    [
        ("  mCurrentFocus=Window{5c4 u0 com.a.b/com.a.b.Main}\n" + APP, "com.a.b/com.a.b.Main", "com.a.b"),
        ("  mCurrentFocus=Window{5c4 u0 PopupWindow:81f}\n" + APP, "PopupWindow:81f", "com.a.b"),
        ("  mCurrentFocus=Window{5c4 u0 PopupWindow:81f}\n" + OLD_APP, "PopupWindow:81f", "com.a.b"),
        ("  mCurrentFocus=Window{5c4 u0 PopupWindow:81f}\n  mFocusedApp=null\n", "PopupWindow:81f", SYSTEM_UI),
        (SHADE, "NotificationShade", SYSTEM_UI),
        ("  mCurrentFocus=Window{5c4 u0 Application Not Responding: com.a.b}\n" + APP, "Application", SYSTEM_UI),
        ("  mCurrentFocus=null\n" + APP, "", ""),
        ("  mCurrentFocus=null\n  mCurrentFocus=Window{5c4 u0 com.a.b/com.a.b.Main}\n", "", ""),
        ("Can't find service: window\n", None, None),
        ("", None, None),
    ],
)
def test_what_android_says_is_in_front(dump: str, window: str | None, package: str | None) -> None:
    assert (focused_window(dump), package_in_front(dump)) == (window, package)


@pytest.mark.parametrize("pattern", ["", "*", "com.*.clock", "com.sim.", "com.sim; reboot", ".*", "com.sim.clock*"])
def test_what_is_no_package_is_refused_before_anything_starts(pattern: str) -> None:
    with pytest.raises(ConfigError, match="is no package") as refused:
        load(sets=[f"devices.allowed_packages=['{pattern}']"], environ={})
    assert refused.value.where == "devices.allowed_packages"
