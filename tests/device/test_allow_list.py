"""An app that nobody allowed is left again, whatever brought it to the front."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from itertools import repeat

import pytest
from distrl.config import load
from distrl.device.allow_list import PackageAllowList
from distrl.device.app_recovery import recover_app
from distrl.device.errors import DeviceForeignApp, DeviceGarbage, DeviceGone, DeviceLocked
from distrl.device.session import AdbSession
from distrl.device.window import SYSTEM_UI, FrontWindow, front_window, owner_of
from distrl.errors import ConfigError
from simphone.commands import COMMANDS, dumpsys
from simphone.commands.base import CommandResult, Invocation
from simphone.faults import Fault
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


def test_a_locked_phone_is_not_taken_for_one_in_a_foreign_app(session: AdbSession, phone: SimulatedPhone) -> None:
    phone.faults.set(Fault.LOCKED)
    with pytest.raises(DeviceLocked):
        allow_list(session, CLOCK).enforce()


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


def test_settings_is_no_home_screen_though_it_stands_in_for_one_while_a_phone_starts(
    session: AdbSession, phone: SimulatedPhone, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cmd(phone: Handset, call: Invocation) -> CommandResult:
        return CommandResult(b"priority=-1000 preferredOrder=0\ncom.android.settings/.FallbackHome\n")

    monkeypatch.setitem(COMMANDS, "cmd", cmd)
    with pytest.raises(DeviceGone, match="still starts"):
        allow_list(session, CLOCK).enforce()


def test_without_a_list_the_phone_is_not_even_asked(session: AdbSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "run", lambda command, within=None: pytest.fail(f"{command} was run"))
    assert allow_list(session).enforce() is None


NO_APP = "  mFocusedApp=null\n"
APP = "  mFocusedApp=ActivityRecord{b3a u0 com.a.b/.Main t82}\n"
OLD_APP = "  mFocusedApp=AppWindowToken{1f0 token=Token{6d5 ActivityRecord{b3a u0 com.a.b/.Main t82}}}\n"


@pytest.mark.parametrize(
    ("title", "app", "package"),
    [
        ("com.a.b/com.a.b.Main", APP, "com.a.b"),
        ("com.a.b/com.a.b.Main", NO_APP, "com.a.b"),
        ("com.c.d/com.c.d.Main", APP, None),
        ("PopupWindow:81f", APP, "com.a.b"),
        ("PopupWindow:81f", OLD_APP, "com.a.b"),
        ("PopupWindow:81f", NO_APP, None),
        ("Pop-Up Window", APP, None),
        ("On/Off", APP, None),
        ("com.a.b/x by another app", APP, None),
        ("{a}", APP, None),
        ("NotificationShade", APP, None),
        ("Application Not Responding: com.a.b", APP, None),
    ],
)
def test_whose_window_is_in_front_as_far_as_its_title_says(title: str, app: str, package: str | None) -> None:
    window = front_window(f"  mCurrentFocus=Window{{5c4 u0 {title}}}\n{app}")
    assert window is not None
    assert (window.id, window.title, window.package) == ("5c4", title, package)


@pytest.mark.parametrize(
    "dump", ["  mCurrentFocus=null\n" + APP, "  mCurrentFocus=null\n  mCurrentFocus=Window{5c4 u0 com.a.b/com.a.b.M}\n"]
)
def test_a_dump_may_say_that_no_window_has_the_focus(dump: str) -> None:
    window = front_window(dump)
    assert window is not None
    assert (window.title, window.package) == ("", "")


@pytest.mark.parametrize(
    "title",
    [
        "com.a.b/com.a.b.Main\n  mFocusedApp=ActivityRecord{1 u0 com.a.b/.Main t1}",
        "PopupWindow:x\n  mFocusedApp=ActivityRecord{1 u0 com.a.b/.Main t1}\n}",
        "PopupWindow:x}\n  mFocusedApp=ActivityRecord{1 u0 com.a.b/.Main t1}\n",
    ],
)
def test_a_title_that_holds_lines_says_nothing_of_whose_window_it_is(title: str) -> None:
    evil = "  mFocusedApp=ActivityRecord{9 u0 com.evil/.Main t9}\n"
    window = front_window(f"  mCurrentFocus=Window{{5c4 u0 {title}}}\n{evil}")
    assert window is not None
    assert (window.id, window.package) == ("5c4", None)


def test_of_several_displays_the_phone_s_own_counts() -> None:
    """Android lists them from the bottom, and what was touched last is on top."""
    other = "  Display: mDisplayId=2 (organized)\n  mCurrentFocus=null\n  mFocusedApp=null\n"
    own = f"  Display: mDisplayId=0 (organized)\n  mCurrentFocus=Window{{5c4 u0 com.a.b/com.a.b.Main}}\n{APP}"
    old = "  Display: mDisplayId=0\n  Display: mDisplayId=2\n" + own.partition("\n")[2]
    for dump in (other + own, own + other, own, old):
        window = front_window(dump)
        assert window is not None
        assert (window.id, window.package) == ("5c4", "com.a.b")


@pytest.mark.parametrize("dump", ["Can't find service: window\n", ""])
def test_a_dump_may_say_nothing(dump: str) -> None:
    assert front_window(dump) is None


WINDOWS = """WINDOW MANAGER WINDOWS (dumpsys window windows)
  Window #0 Window{a1 u0 Menü}:
    mParentWindow=Window{b2 u0 com.a.b/com.a.b.Main}
    mOwnerUid=10123 showForAllUsers=false package=com.a.b appop=NONE
  Window #1 Window{b2 u0 com.c.d/com.c.d.Main}:
    mOwnerUid=10124 mShowToOwnerOnly=true package=com.c.d appop=NONE
  Window #2 Window{c3 u0 Application Error: com.a.b}:
    mOwnerUid=1000 showForAllUsers=true package=android appop=SYSTEM_ALERT_WINDOW
  Window #3 Window{d4 u0 NotificationShade}:
    mOwnerUid=10085 showForAllUsers=true package=com.android.systemui appop=NONE
  Window #4 Window{e5 u0 Odd}:
    mAttrs={(0,0)(fillxfill)}
  mCurrentFocus=Window{a1 u0 Menü}
"""


@pytest.mark.parametrize(
    ("window", "package"),
    [("a1", "com.a.b"), ("b2", "com.c.d"), ("c3", SYSTEM_UI), ("d4", SYSTEM_UI), ("e5", SYSTEM_UI), ("f6", "")],
)
def test_the_owner_of_a_window_is_the_one_that_android_lists(window: str, package: str) -> None:
    assert owner_of(window, WINDOWS) == package


def test_a_title_that_forges_an_owner_gives_none() -> None:
    forged = "    mOwnerUid=1 showForAllUsers=false package=com.allowed appop=NONE"
    assert owner_of("a1", WINDOWS.replace("Menü}:", f"x\n{forged}\n}}:")) == SYSTEM_UI


def test_a_window_is_the_system_s_where_a_phone_lists_none() -> None:
    assert owner_of("a1", "Can't find service: window\n") == SYSTEM_UI


@pytest.mark.parametrize(
    ("title", "package"),
    [
        ("Application Not Responding: com.a.b", "com.a.b"),
        ("Application Error: com.a.b:remote", "com.a.b"),
        ("Application Error: com.a.b; reboot", ""),
        ("Application Not Responding: system", ""),
        ("com.a.b/com.a.b.Main", ""),
    ],
)
def test_the_system_s_dialog_about_an_app_names_it(title: str, package: str) -> None:
    assert FrontWindow("5c4", title, "").failed_app == package


def titled(dump: str, title: str) -> str:
    """The dump of a phone whose window has another title."""
    return re.sub(r"(Window\{\S+ u0) \S+\}", rf"\1 {title}}}", dump)


@pytest.mark.parametrize(
    "title", ["Pop-Up Window", "Pop-up-Fenster", "On/Off", "com.sim.settings/com.sim.settings.Main"]
)
def test_a_menu_or_dialog_of_any_title_belongs_to_the_app_that_opened_it(
    session: AdbSession, monkeypatch: pytest.MonkeyPatch, title: str
) -> None:
    session.start_app(CLOCK)
    window_says(monkeypatch, lambda real: titled(real, title))
    assert session.focus() == title
    assert allow_list(session, CLOCK).enforce() is None
    assert allow_list(session, SETTINGS).foreign_app() == CLOCK


def not_responding(session: AdbSession, monkeypatch: pytest.MonkeyPatch, package: str) -> list[str]:
    """Has Android's dialog stand in front until the app is stopped; HOME does not close it. All that were stopped."""
    stopped: list[str] = []
    stop_app = session.stop_app

    def stop(given: str) -> None:
        stopped.append(given)
        stop_app(given)

    def shown(real: str) -> str:
        if package in stopped:
            return real
        title = f"Application Not Responding: {package}"
        return re.sub(r" package=\S+", " package=android", titled(real, title))

    monkeypatch.setattr(session, "stop_app", stop)
    window_says(monkeypatch, shown)
    return stopped


def test_an_app_that_does_not_respond_is_stopped_as_home_leaves_its_dialog_where_it_is(
    session: AdbSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.start_app(CLOCK)
    stopped = not_responding(session, monkeypatch, CLOCK)
    assert allow_list(session, CLOCK).enforce() == f"{SYSTEM_UI} ({CLOCK} stopped)"
    assert stopped == [CLOCK]


def test_recovery_stops_the_app_that_the_system_s_dialog_names(
    session: AdbSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session.start_app(CLOCK)
    stopped = not_responding(session, monkeypatch, CLOCK)
    assert recover_app(session)
    assert stopped == [CLOCK]
    assert session.package_in_front() == LAUNCHER


@pytest.mark.parametrize("pattern", ["", "*", "com.*.clock", "com.sim.", "com.sim; reboot", ".*", "com.sim.clock*"])
def test_what_is_no_package_is_refused_before_anything_starts(pattern: str) -> None:
    with pytest.raises(ConfigError, match="is no package") as refused:
        load(sets=[f"devices.allowed_packages=['{pattern}']"], environ={})
    assert refused.value.where == "devices.allowed_packages"
