"""Parses `dumpsys window displays`: the window in front, and the package that it belongs to for a person."""

from __future__ import annotations

import re
from typing import Final

SYSTEM_UI: Final = "com.android.systemui"
"""The package of windows without one: NotificationShade, StatusBar, "Application Not Responding"."""
_FOCUS = re.compile(r"mCurrentFocus=(?:Window\{\S+ \S+ ([^\s}]+))?")
_APP = re.compile(r"mFocusedApp=.*?ActivityRecord\{\S+ \S+ ([^\s/}]+)/")
_POPUP = "PopupWindow:"
"""Prefix of the names of menus and lists that an app opens over itself."""


def focused_window(dump: str) -> str | None:
    """package/activity, a system window's name, "" while no window has the focus; None for a dump without a focus."""
    found = _FOCUS.search(dump)
    return None if found is None else found.group(1) or ""


def package_in_front(dump: str) -> str | None:
    """The package whose window has the focus, SYSTEM_UI for a window of no app, "" for none; None as above.

    A menu that an app opens over itself belongs to the app.
    """
    window = focused_window(dump)
    if window is None or window == "":
        return window
    if "/" in window:
        return window.partition("/")[0]
    app = _APP.search(dump) if window.startswith(_POPUP) else None
    return app.group(1) if app else SYSTEM_UI
