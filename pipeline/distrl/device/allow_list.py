"""Keeps a phone within devices.allowed_packages: a foreign app in front is left or stopped, and counted.

The package whose window has the focus decides (window.py). The phone's home screen is always allowed, since it is where
a foreign app is left to. The system's own windows (notification shade, quick settings, "not responding") belong to
com.android.systemui, and permission dialogs to com.android.permissioncontroller or a manufacturer's own; they are
foreign unless allowed by that name. A menu, dialog or keyboard that an app opens over itself belongs to the app.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

from distrl import config
from distrl.device.adb_protocol import Deadline
from distrl.device.errors import DeviceForeignApp, DeviceGarbage
from distrl.device.packages import allowed
from distrl.device.session import AdbSession
from distrl.device.window import SYSTEM_UI
from distrl.names import PACKAGE

log = logging.getLogger(__name__)

NOT_STOPPED = frozenset({SYSTEM_UI})
"""Android restarts it at once, and the home screen is gone meanwhile."""


class PackageAllowList:
    """Enforces devices.allowed_packages in one session. If the list is empty, all are allowed without any query."""

    def __init__(self, session: AdbSession, devices: config.DeviceSettings) -> None:
        self._session = session
        self._allowed = devices.allowed_packages
        self._wait_s = devices.settle_timeout_s
        self._poll_s = devices.settle_poll_s
        self._launcher: str | None = None

    def enforce(self) -> str | None:
        """Leave a foreign app in front, by HOME or else by stopping it. Returns "package (what helped)", or None.

        Raises DeviceForeignApp if nothing helps, DeviceBlack if the screen is off, DeviceLocked if it is locked,
        DeviceGarbage if the phone does not name its home screen.
        """
        package = self.foreign_app()
        if package is None:
            return None
        self._session.foreign_apps += 1
        log.warning("%s: leaving %s, which is not in devices.allowed_packages", self._session.serial, package)
        for name, undo in self._ways_back(package):
            undo()
            if self._back():
                return f"{package} ({name})"
        self._session.require_awake()  # else its lock screen would be taken for an app
        self._session.require_unlocked()
        raise DeviceForeignApp(
            self._session.serial,
            f"{package} stays in front",
            f"close it on the phone, or add {package} to devices.allowed_packages",
        )

    def foreign_app(self) -> str | None:
        """The package in front if it is foreign, else None. Does not change anything."""
        if not self._allowed:
            return None
        package = self._front()
        return None if self._inside(package) else package

    def _ways_back(self, package: str) -> Iterator[tuple[str, Callable[[], None]]]:
        def stop() -> None:
            self._session.stop_app(package)
            self._session.key("HOME")

        if package == SYSTEM_UI and (failed := self._session.in_front().failed_app):
            yield f"{failed} stopped", lambda: self._session.stop_app(failed)
        yield "HOME", lambda: self._session.key("HOME")
        if PACKAGE.fullmatch(package) and package not in NOT_STOPPED:
            yield "force-stop", stop

    def _front(self) -> str:
        """The package in front. Waits for one, as no window has the focus while windows change."""
        deadline = Deadline(self._wait_s)
        while not (package := self._session.package_in_front()):
            if deadline.remaining() <= 0:
                self._session.require_awake()
                raise DeviceGarbage(self._session.serial, f"no window has had the focus for {self._wait_s:g} s")
            time.sleep(self._poll_s)
        return package

    def _back(self) -> bool:
        """Waits for an allowed app in front; False if none comes within devices.settle_timeout_s."""
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
