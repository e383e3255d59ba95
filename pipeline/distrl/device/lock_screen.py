"""Whether a phone is locked by a PIN, pattern, password or finger, which a person alone can open.

A lock screen that a swipe opens does not count: `wm dismiss-keyguard` ends it.
"""

from __future__ import annotations

import re

from distrl.device.errors import DeviceLocked
from distrl.device.session import AdbSession

_LOCKED = re.compile(r"^ User .*\(current\):.*\bdeviceLocked=1\b", re.MULTILINE)
"""Of the user in front, by TrustManagerService.java of AOSP: a work profile has a line, and may have a lock, of its
own."""


def require_unlocked(session: AdbSession) -> None:
    """Raises DeviceLocked where the phone says that it is locked. One that does not say counts as unlocked."""
    if _LOCKED.search(session.run("dumpsys trust").stdout.decode("utf-8", "replace")):
        raise DeviceLocked(session.serial)
