"""The first recovery step for a phone whose adb connection works: leave the app in front and stop it.

Such a failure is mostly an app that shows black or hangs. A new connection would not help, and an app that is only left
hangs again when it is next opened.
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
"""Tests the shell (the adb server reports a frozen phone as "device" all the same) and that the boot is complete: after
a restart the shell works long before the screen."""
BOOTED = b"1"


def probe(session: AdbSession) -> None:
    """Raises DeviceError if the phone does not answer, has not booted, or is locked."""
    if session.output(PROBE).strip() != BOOTED:
        raise DeviceGone(session.serial, "it is still starting")
    session.require_unlocked()


def recover_app(session: AdbSession) -> bool:
    """Wake the phone, press HOME and stop the app that was in front, unless it is the home screen or the system's.

    An app whose "isn't responding" dialog is in front is stopped first: HOME does not close that dialog.

    Returns whether the phone shows a whole screen afterwards. Does nothing if its shell does not answer, since that is
    not an app's fault.
    """
    try:
        probe(session)
        session.app_recoveries += 1
        package, failed = session.in_front()
        if failed:
            log.warning("%s: stopping %s, which has failed", session.serial, failed)
            session.stop_app(failed)
        session.key("WAKEUP")
        session.key("HOME")
        if PACKAGE.fullmatch(package) and package not in (SYSTEM_UI, session.launcher()):
            log.warning("%s: stopping %s, which was in front when the episode failed", session.serial, package)
            session.stop_app(package)
        session.settle()
    except DeviceError as error:
        log.warning("%s: leaving its app did not help: %s", session.serial, error.what)
        return False
    return True
