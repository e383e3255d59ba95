"""The phones that a process drives: the device pool, as the actor pool leases from it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from distrl.config import Config
from distrl.device import reset as resetting
from distrl.device.allow_list import PackageAllowList
from distrl.device.errors import (
    ActionRefused,
    DeviceBlack,
    DeviceForeignApp,
    DeviceGone,
    DeviceRefused,
    DeviceTimeout,
    must_succeed,
)
from distrl.device.leases import Leases
from distrl.device.pool import DevicePool
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.errors import DeviceError
from distrl.rollout.episode import Screen
from distrl.types import Action, DeviceHealth, HeldBack, Task

log = logging.getLogger(__name__)
R = TypeVar("R")

MAX_APP_EXITS = 2
"""How often foreign apps are left for one screenshot; one that comes back after that ends the episode."""


class Phones:
    """The phones that `config.devices` names, through the adb server of `config`. A context manager.

    Starts emulators, and an adb server where none runs, and stops them at the end; not an adb server that was already
    running, or through which other processes drive phones. stop: once set, entering no longer waits for emulators.
    Raises DeviceError where no phone is named, there is no adb server, or no phone answers and an emulator cannot be
    started.
    """

    def __init__(self, config: Config, stop: threading.Event | None = None) -> None:
        self._devices = config.devices
        self._server = AdbServer(config.adb, needed=Leases(config.devices.directory, config.adb).in_use)
        self._pool = DevicePool(self._server, config.devices, stop=stop, run=config.run)

    def __enter__(self) -> Phones:
        try:
            self._server.start()
            found = self._pool.discover()
        except BaseException:
            self._close()
            raise
        log.info("%d of %d phones answer", len(found), self._pool.count)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        self._pool.close()
        self._server.stop()

    @property
    def count(self) -> int:
        return self._pool.count

    @property
    def answering(self) -> int:
        return self._pool.answering

    def health(self) -> tuple[DeviceHealth, ...]:
        return self._pool.health()

    @contextmanager
    def lease(self, timeout_s: float) -> Iterator[SessionPhone | None]:
        """A phone for the block; None where none is healthy within timeout_s. The pool learns of its last failure."""
        session = self._pool.lease(timeout_s)
        if session is None:
            yield None
            return
        phone = SessionPhone(session, PackageAllowList(session, self._devices), self._pool.snapshot_of(session))
        try:
            yield phone
        finally:
            self._pool.release(session, phone.failure, well=phone.well)


class SessionPhone:
    """A leased adb session as an episode uses it. to_snapshot: restores the phone's snapshot, if it has one.

    A refused command counts as the phone's failure, unless it came from an action or a task's setup. An action that the
    phone cannot do, like text that it cannot type, is the policy's mistake and not a failure of the phone.

    An app that is not on the allow-list is left before a screenshot is taken, even if its screen never settles or is
    black. It is left again before an action is sent, as it may have come to the front during the decision; the action
    is then dropped, since it was meant for another screen.
    """

    def __init__(
        self, session: AdbSession, allow_list: PackageAllowList, to_snapshot: Callable[[], None] | None = None
    ) -> None:
        self._session = session
        self._allow_list = allow_list
        self._to_snapshot = to_snapshot
        self._left_apps: list[str] = []
        self._task: Task | None = None
        """The task that is being played; None before the first, and after a failure."""
        self.failure: DeviceError | None = None
        """The last error that ended an episode."""
        self.well = False
        """Whether some episode ended without an error; set when the next one begins."""

    @property
    def serial(self) -> str:
        return self._session.serial

    def reset(self, task: Task) -> None:
        self._left_apps.clear()
        self.well = self.well or self._task is not None
        self._task = task
        self._recording_failure(lambda: resetting.reset(self._session, task, self._to_snapshot))

    def settle(self) -> Screen:
        return self._recording_failure(self._settled)

    def perform(self, action: Action) -> HeldBack:
        return self._recording_failure(lambda: self._perform(action))

    def left_apps(self) -> tuple[str, ...]:
        found, self._left_apps = tuple(self._left_apps), []
        return found

    def truth(self) -> Mapping[str, Any] | None:
        return self._recording_failure(self._truth)

    def _truth(self) -> Mapping[str, Any] | None:
        state = resetting.truth(self._session)
        if state is not None and self._task is not None and state.get("seed") != self._task.phone_seed:
            # a restart between two operations shows nowhere else, as adb reconnects by itself
            raise DeviceGone(self.serial, f"it was started again while {self._task.task_id} was played on it")
        return state

    def hierarchy(self, timeout_s: float) -> bytes | None:
        """None does not count as a failure of the phone: its screen may never settle, or it may be slow."""
        return self._recording_failure(lambda: self._dumped(timeout_s))

    def _dumped(self, timeout_s: float) -> bytes | None:
        try:
            return self._session.hierarchy(timeout_s)
        except (DeviceRefused, DeviceTimeout) as error:
            log.info("%s: no element hierarchy: %s", self.serial, error.what)
            return None

    @must_succeed()
    def _settled(self) -> Screen:
        for _ in range(MAX_APP_EXITS):
            seen: Screen | None = None
            fault: DeviceError | None = None
            try:
                seen = self._seen()
            except (DeviceTimeout, DeviceBlack) as error:
                if isinstance(error, DeviceBlack) and error.asleep:
                    raise
                fault = error  # perhaps a foreign app that forbids screenshots
            if (left := self._allow_list.enforce()) is not None:
                self._left_apps.append(left)
            elif seen is not None:
                return seen
            elif fault is not None:
                raise fault
        seen = self._seen()
        if (package := self._allow_list.foreign_app()) is not None:
            raise DeviceForeignApp(
                self.serial,
                f"{package} comes back each time that it is left",
                f"end it on the phone, or add {package} to devices.allowed_packages",
            )
        return seen

    def _seen(self) -> Screen:
        shot = self._session.settle()
        return Screen(shot.png, shot.restless)

    def _perform(self, action: Action) -> HeldBack:
        with must_succeed():
            left = self._allow_list.enforce()
        if left is not None:
            self._left_apps.append(f"{left}, its action was not sent")
            return HeldBack.UNSENT
        try:
            self._session.perform(action)
        except ActionRefused as error:
            log.warning("%s: the phone cannot do %s, which counts as invalid: %s", self.serial, action.kind, error.what)
            return HeldBack.REFUSED
        return HeldBack.NO

    def _recording_failure(self, call: Callable[[], R]) -> R:
        try:
            return call()
        except DeviceError as error:
            self.failure, self._task = error, None
            raise
