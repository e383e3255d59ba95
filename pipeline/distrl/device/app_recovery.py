"""The recovery ladder's first rung for a phone whose adb connection is well: leave the app in front and stop it.

What ends an episode there is mostly an app: one that shows black, or hangs. A new connection changes nothing about it,
and an app that is only left hangs again when it is next opened.
"""

from __future__ import annotations

import logging

from distrl.device.errors import DeviceGone
from distrl.device.session import AdbSession
from distrl.device.window import SYSTEM_UI
from distrl.errors import DeviceError
from distrl.names import PACKAGE

log = logging.getLogger(__name__)

PROBE = "getprop sys.boot_completed"
"""Answered by a phone whose shell works; the adb server calls a frozen phone a "device" all the same. One that has just
restarted has a shell long before it has a screen."""
BOOTED = b"1"


def probe(session: AdbSession) -> None:
    """Raises DeviceError where the phone does not answer, or has not booted."""
    if session.output(PROBE).strip() != BOOTED:
        raise DeviceGone(session.serial, "it is still starting")


def recover_app(session: AdbSession) -> bool:
    """Wake the phone, press HOME and stop the app that was in front, if it is neither home screen nor the system's.

    Returns whether the phone shows a whole screen afterwards. Where its shell does not answer, it is no app's
    fault, and nothing is done.
    """
    try:
        probe(session)
        session.app_recoveries += 1
        package = session.package_in_front()
        session.key("WAKEUP")
        session.key("HOME")
        if PACKAGE.fullmatch(package) and package not in (SYSTEM_UI, session.launcher()):
            log.warning("%s: %s was in front when its episode failed, and is stopped", session.serial, package)
            session.stop_app(package)
        session.settle()
    except DeviceError as error:
        log.warning("%s: leaving its app does not help: %s", session.serial, error.what)
        return False
    return True
