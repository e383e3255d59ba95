"""Parses `dumpsys power` and `dumpsys trust`: whether a phone's screen is off, and whether the phone is locked.

Locked by a PIN, pattern, password or finger, which only a person can open. A lock screen that a swipe opens does not
count: `wm dismiss-keyguard` ends it.
"""

from __future__ import annotations

import re

_WAKEFULNESS = re.compile(r"(?:mWakefulness|getWakefulnessLocked\(\))=(\w+)")
"""Some vendors name the method in place of the field (as in flutter's issue 98146)."""
_LOCKED = re.compile(r"^ User .*\(current\):.*\bdeviceLocked=1\b", re.MULTILINE)
"""Of the user in front, by TrustManagerService.java of AOSP: a work profile has a line, and may have a lock, of its
own."""


def off_word(dump: str) -> str:
    """The phone's word for its state while its screen is off; "" while it is on, and for a dump that does not say."""
    found = _WAKEFULNESS.search(dump)
    return "" if found is None or found.group(1) == "Awake" else found.group(1)


def is_locked(dump: str) -> bool:
    """False for a dump that does not say."""
    return _LOCKED.search(dump) is not None
