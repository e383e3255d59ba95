"""Parses `dumpsys window`: the window in front, and the package that it belongs to for a person.

`dumpsys window displays` names the window by its title alone. The title of an activity is package/activity; a menu or
dialog has any text that its app gives it, in the phone's language, and that text may hold lines that look like others
of the dump. `dumpsys window windows` names the owner of such a window, and before Android 10 it alone names the window
in front. Of several displays the phone's own counts: screenshots show it, and touches go to it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, NamedTuple

from distrl.names import PACKAGE

SYSTEM_UI: Final = "com.android.systemui"
"""The package of the system's own windows: NotificationShade, StatusBar, "Application Not Responding"."""
ANDROID: Final = "android"
"""The owner of the dialogs of the system's server."""
_DISPLAY = re.compile(r"^\s*Display: mDisplayId=(\d+)\b", re.MULTILINE)
_OWN_DISPLAY = "0"
_FOCUS = re.compile(r"mCurrentFocus=(?:Window\{(\S+) \S+ ([^\n]*))?")
_FOCUS_LINE = re.compile(r"^  mCurrentFocus=", re.MULTILINE)
_APP = re.compile(r"mFocusedApp=.*?ActivityRecord\{\S+ \S+ ([^\s/}]+)/")
_ACTIVITY = re.compile(rf"({PACKAGE.pattern})/\S+")
_BLOCK = re.compile(r"^  Window #\d+ ", re.MULTILINE)
_OWNER = re.compile(r"\s+mOwnerUid=\d+ .*?package=(\S+)")
_POPUP = "PopupWindow:"
"""Prefix of the titles of menus and lists that an app opens over itself with Android's own class for them."""
_FAILED = re.compile(rf"Application (?:Not Responding|Error): ({PACKAGE.pattern})(?::\S*)?")
"""Title of the system's dialog about an app; behind a colon the name of one of several processes of it."""


@dataclass(frozen=True, slots=True)
class FrontWindow:
    """The window that has the focus."""

    id: str
    """By which Android tells it from others; empty while no window has the focus."""
    title: str
    """package/activity, a system window's name, what an app named its dialog; empty while no window has the focus."""
    app: str
    """The package of the activity that has the focus among activities; empty for none."""
    is_one_line: bool = True
    """Whether title and app are what Android says: a title that holds lines may say anything."""

    @property
    def package(self) -> str | None:
        """The package that it belongs to, "" while no window has the focus; None where its owner has to be asked for,
        as an app may name its window like another's."""
        if not self.id:
            return ""
        if not self.is_one_line:
            return None
        activity = _ACTIVITY.fullmatch(self.title)
        if activity is not None and self.app in ("", activity.group(1)):
            return activity.group(1)
        return self.app if self.app and self.title.startswith(_POPUP) else None

    @property
    def failed_app(self) -> str:
        """The package of the app that has failed or hangs, by the title. Any window may have such a title: check who
        owns it."""
        found = _FAILED.fullmatch(self.title)
        return found.group(1) if found else ""


class InFront(NamedTuple):
    """What a phone shows."""

    package: str
    """That the window in front belongs to; empty while no window has the focus."""
    failed_app: str
    """The package of the app that the system's dialog in front says has failed or hangs; empty without one."""


def front_window(dump: str) -> FrontWindow | None:
    """Of `dumpsys window displays`; None for a dump without a focus."""
    of_display = _own_display(dump)
    found = _FOCUS.search(of_display)
    if found is None:
        return None
    title, apps = found.group(2) or "", set(_APP.findall(of_display))
    is_one_line = len(apps) <= 1 and (not title or title.endswith("}"))
    return FrontWindow(found.group(1) or "", title.removesuffix("}"), min(apps, default=""), is_one_line)


def focus_after_windows(dump: str) -> FrontWindow | None:
    """Of `dumpsys window windows` before Android 10, which ends with the focus; None for a dump without one, or with
    several: a window's title, which may hold lines, then names another."""
    found = list(_FOCUS_LINE.finditer(dump))
    return front_window(dump[found[0].start() :]) if len(found) == 1 else None


def _own_display(dump: str) -> str:
    """The part of the dump about the phone's own display; the whole dump if it does not distinguish displays, or names
    one focus after all of them, as older Androids do."""
    places = [(found.group(1), found.start()) for found in _DISPLAY.finditer(dump)]
    for (display, start), (_, end) in pairwise([*places, ("", len(dump))]):
        if display == _OWN_DISPLAY and _FOCUS.search(dump, start, end):
            return dump[start:end]
    return dump


def owner_of(window: str, dump: str) -> str:
    """The package that the window of this id belongs to, by `dumpsys window windows`: SYSTEM_UI for those of the system
    and for one whose owner is not named or whose title, which may hold lines, names another; "" where the window has
    gone meanwhile."""
    _, *listed = _BLOCK.split(dump)
    block = next((each for each in listed if each.startswith(f"Window{{{window} ")), None)
    if listed and block is None:
        return ""
    owners = {found.group(1) for line in (block or "").splitlines() if (found := _OWNER.match(line))}
    return owners.pop() if len(owners) == 1 and ANDROID not in owners else SYSTEM_UI
