"""Parses `dumpsys trust`: whether a phone is locked by a PIN, pattern, password or finger. Only a person can open it.

A lock screen that a swipe opens does not count: `wm dismiss-keyguard` ends it.
"""

from __future__ import annotations

import re

_LOCKED = re.compile(r"^ User .*\(current\):.*\bdeviceLocked=1\b", re.MULTILINE)
"""Of the user in front, by TrustManagerService.java of AOSP: a work profile has a line, and may have a lock, of its
own."""


def is_locked(dump: str) -> bool:
    """False for a dump that does not say."""
    return _LOCKED.search(dump) is not None
