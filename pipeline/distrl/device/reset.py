"""Putting a phone where a task begins, and asking a simulated one for the truth."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from distrl.device.errors import DeviceGarbage, DeviceRefused, owed
from distrl.device.packages import allowed
from distrl.device.session import AdbSession
from distrl.names import PACKAGE
from distrl.types import Task

_NOT_FOUND = 127


def reset(session: AdbSession, task: Task, to_snapshot: Callable[[], None] | None = None) -> None:
    """Put the phone where `task` begins.

    An emulator with a snapshot goes back to it (to_snapshot does that), whatever the task's setup lists: everything
    that an episode can have changed is undone. A simulated phone takes the task's seed and setup. A real one is woken
    and goes home, and the packages that the setup lists under "packages" are stopped and their data is cleared.
    Raises DeviceError, DeviceRefused for an impossible setup only.
    """
    if to_snapshot is not None:
        to_snapshot()
        return
    session.put_back_keyboard()
    command = ["simctl", "reset", "--seed", str(task.phone_seed), "--setup", task.setup]
    finished = session.run(command)
    if finished.code == _NOT_FOUND:
        _reset_real(session, task)
    elif finished.code != 0:
        truth(session)  # a phone that refuses that as well is not well, and the task may be
        said = finished.stderr.decode("utf-8", "replace").strip()
        raise DeviceRefused(session.serial, f"task {task.task_id} cannot be set up: {said}", "correct the task's setup")


def truth(session: AdbSession) -> Mapping[str, Any] | None:
    """The whole state of a simulated phone; None of a real one, which does not say."""
    finished = session.run(["simctl", "state"])
    if finished.code == _NOT_FOUND:
        return None
    try:
        state = json.loads(finished.stdout)
    except ValueError as error:
        raise DeviceGarbage(session.serial, f"its state is no JSON: {error}") from error
    if finished.code != 0 or not isinstance(state, dict):
        raise DeviceGarbage(session.serial, f"its state is {finished.stdout[:80]!r}, exit code {finished.code}")
    return state


def _reset_real(session: AdbSession, task: Task) -> None:
    packages = _packages(session, task)
    with owed():
        session.key("WAKEUP")
    session.run(["wm", "dismiss-keyguard"])  # a phone with a PIN stays locked, whatever this exits with
    for package in packages:
        session.stop_app(package)
        session.output(["pm", "clear", package])
    with owed():
        session.key("HOME")


def _packages(session: AdbSession, task: Task) -> tuple[str, ...]:
    try:
        setup = json.loads(task.setup)
    except ValueError as error:
        raise DeviceRefused(session.serial, f"the setup of task {task.task_id} is no JSON") from error
    named = setup.get("packages", []) if isinstance(setup, dict) else None
    if not isinstance(named, list) or not all(isinstance(name, str) and PACKAGE.fullmatch(name) for name in named):
        raise DeviceRefused(session.serial, f'the setup of task {task.task_id} lists no package names as "packages"')
    for name in named if session.allowed_packages else ():
        if not allowed(name, session.allowed_packages):
            raise DeviceRefused(
                session.serial,
                f"the setup of task {task.task_id} clears {name}, which is not allowed",
                "correct the task's setup, or add the package to devices.allowed_packages",
            )
    return tuple(named)
