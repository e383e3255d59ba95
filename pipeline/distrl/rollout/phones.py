"""The phones that a process drives: the device room's pool, as the actor pool leases from it."""

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
    DeviceRefused,
    DeviceTimeout,
    must_succeed,
)
from distrl.device.pool import DevicePool
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.errors import DeviceError
from distrl.rollout.episode import Screen
from distrl.types import Action, DeviceHealth, HeldBack, Task

log = logging.getLogger(__name__)
R = TypeVar("R")

MOST_LEFT = 2
"""How often foreign apps are left for one screen; one that comes back after that ends the episode."""


class Phones:
    """The phones that `config.devices` names, through the adb server of `config`.

    A context manager. Emulators are started, and ended at the end; so is an adb server of our own where none runs, and
    another's is left as it is. stop: once set, entering waits for no emulator any more. Raises DeviceError where no
    phone is named, there is no adb server to be had, or no phone answers and an emulator cannot be started.
    """

    def __init__(self, config: Config, stop: threading.Event | None = None) -> None:
        self._devices = config.devices
        self._server = AdbServer(config.adb)
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
        """A phone for the block, or None if none is healthy within timeout_s. Its last failure goes to the pool."""
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
    """A leased adb session as an episode sees it. failure: the error that ended an episode, if one did. well: whether
    an episode ended without one, which is known once the next begins.

    A refusal is the phone's failure, unless it answers an action or a task's setup: those are somebody else's words. An
    action that the phone cannot do, as text that it cannot type, is no failure at all: the policy should not have
    written it.

    An app that the allow-list does not allow is left before a screen is shown, also one whose screen never rests or is
    black, and again before an action is sent: it may have come to the front while the action was decided on. The action
    is dropped then, since it was meant for a screen that is no more. to_snapshot: puts the phone back to its snapshot,
    if it has one.
    """

    def __init__(
        self, session: AdbSession, allow_list: PackageAllowList, to_snapshot: Callable[[], None] | None = None
    ) -> None:
        self._session = session
        self._allow_list = allow_list
        self._to_snapshot = to_snapshot
        self._taken_back: list[str] = []
        self._playing = False
        self.failure: DeviceError | None = None
        self.well = False

    @property
    def serial(self) -> str:
        return self._session.serial

    def reset(self, task: Task) -> None:
        self._taken_back.clear()
        self.well = self.well or self._playing
        self._playing = True
        self._noting(lambda: resetting.reset(self._session, task, self._to_snapshot))

    def settle(self) -> Screen:
        return self._noting(self._settled)

    def perform(self, action: Action) -> HeldBack:
        return self._noting(lambda: self._perform(action))

    def taken_back(self) -> tuple[str, ...]:
        found, self._taken_back = tuple(self._taken_back), []
        return found

    def truth(self) -> Mapping[str, Any] | None:
        return self._noting(lambda: resetting.truth(self._session))

    def hierarchy(self, timeout_s: float) -> bytes | None:
        """A phone whose screen never rests, or is slow, makes none and is well."""
        return self._noting(lambda: self._dumped(timeout_s))

    def _dumped(self, timeout_s: float) -> bytes | None:
        try:
            return self._session.hierarchy(timeout_s)
        except (DeviceRefused, DeviceTimeout) as error:
            log.info("%s: no elements: %s", self.serial, error.what)
            return None

    @must_succeed()
    def _settled(self) -> Screen:
        for _ in range(MOST_LEFT):
            seen: Screen | None = None
            fault: DeviceError | None = None
            try:
                seen = self._seen()
            except (DeviceTimeout, DeviceBlack) as error:
                fault = error  # a foreign app may forbid pictures
            if (left := self._allow_list.enforce()) is not None:
                self._taken_back.append(left)
            elif seen is not None:
                return seen
            elif fault is not None:
                raise fault
        seen = self._seen()
        if (package := self._allow_list.foreign_app()) is not None:
            raise DeviceForeignApp(
                self.serial,
                f"{package} comes back each time that it is left",
                f"see to the phone: end it there, or add {package} to devices.allowed_packages",
            )
        return seen

    def _seen(self) -> Screen:
        shot = self._session.settle()
        return Screen(shot.png, shot.restless)

    def _perform(self, action: Action) -> HeldBack:
        with must_succeed():
            left = self._allow_list.enforce()
        if left is not None:
            self._taken_back.append(f"{left}, its action was not sent")
            return HeldBack.UNSENT
        try:
            self._session.perform(action)
        except ActionRefused as error:
            log.warning("%s: %s is refused, and counts as invalid: %s", self.serial, action.kind, error.what)
            return HeldBack.REFUSED
        return HeldBack.NO

    def _noting(self, call: Callable[[], R]) -> R:
        try:
            return call()
        except DeviceError as error:
            self.failure, self._playing = error, False
            raise
