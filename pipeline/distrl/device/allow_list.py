"""Keeping a phone within the apps that a person allows: what else comes to the front is left again, and counted.

The package whose window has the focus decides (window.py). The phone's home screen is always allowed, since every
undoing leads there. The system's own windows (notification shade, quick settings, "not responding") belong to
com.android.systemui, and questions for a permission to com.android.permissioncontroller or a maker's own; they are
foreign unless allowed by that name. A menu, dialog or keyboard that an app opens over itself is of the app.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

from distrl import config
from distrl.device.errors import DeviceGarbage, DeviceStray
from distrl.device.packages import allowed
from distrl.device.session import AdbSession
from distrl.device.window import SYSTEM_UI
from distrl.device.wire import Deadline
from distrl.names import PACKAGE

log = logging.getLogger(__name__)

NOT_STOPPED = frozenset({SYSTEM_UI})
"""It is started again at once, and takes the home screen with it for a while."""


class PackageAllowList:
    """devices.allowed_packages around one session. Where none is named, all are, and the phone is never asked."""

    def __init__(self, session: AdbSession, devices: config.Devices) -> None:
        self._session = session
        self._allowed = devices.allowed_packages
        self._wait_s = devices.settle_timeout_s
        self._poll_s = devices.settle_poll_s
        self._launcher: str | None = None

    def enforce(self) -> str | None:
        """Leave what is in front if it is foreign: by HOME, or by stopping it. What it was and what helped, or None.

        Raises DeviceStray where nothing helps, DeviceGarbage where the phone does not name its home screen.
        """
        package = self.foreign_app()
        if package is None:
            return None
        self._session.foreign_apps += 1
        log.warning("%s: %s is not among devices.allowed_packages, and is left", self._session.serial, package)
        for name, undo in self._undoings(package):
            undo()
            if self._back():
                return f"{package} ({name})"
        raise DeviceStray(
            self._session.serial,
            f"{package} stays in front",
            f"see to the phone: close it there, or add {package} to devices.allowed_packages",
        )

    def foreign_app(self) -> str | None:
        """The package in front if it is foreign, else None. Nothing is done about it."""
        if not self._allowed:
            return None
        package = self._front()
        return None if self._inside(package) else package

    def _undoings(self, package: str) -> Iterator[tuple[str, Callable[[], None]]]:
        def stop() -> None:
            self._session.stop_app(package)
            self._session.key("HOME")

        yield "HOME", lambda: self._session.key("HOME")
        if PACKAGE.fullmatch(package) and package not in NOT_STOPPED:
            yield "force-stop", stop

    def _front(self) -> str:
        """The package in front, once there is one: between two windows, none has the focus."""
        deadline = Deadline(self._wait_s)
        while not (package := self._session.package_in_front()):
            if deadline.remaining() <= 0:
                raise DeviceGarbage(self._session.serial, f"no window has had the focus for {self._wait_s:g} s")
            time.sleep(self._poll_s)
        return package

    def _back(self) -> bool:
        """Whether an allowed app comes to the front in time."""
        deadline = Deadline(self._wait_s)
        while not (inside := self._inside(self._session.package_in_front())) and deadline.remaining() > 0:
            time.sleep(self._poll_s)
        return inside

    def _inside(self, package: str) -> bool:
        if allowed(package, self._allowed):
            return True
        if self._launcher is None:
            self._launcher = self._session.launcher()
        return package == self._launcher
