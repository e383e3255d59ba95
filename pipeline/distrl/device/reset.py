"""Resets a phone for a task, and reads the state of a simulated one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from distrl.device.errors import DeviceForbids, DeviceGarbage, DeviceRefused, must_succeed
from distrl.device.packages import allowed
from distrl.device.session import AdbSession
from distrl.names import PACKAGE
from distrl.types import Task

_NOT_FOUND = 127


def reset(session: AdbSession, task: Task, to_snapshot: Callable[[], None] | None = None) -> None:
    """Put the phone into the initial state of `task`.

    to_snapshot: restores an emulator's snapshot, whatever the task's setup lists; it undoes everything that an episode
    can have changed. A simulated phone takes the task's seed and setup. A real one is woken and goes home, and the
    packages that the setup lists under "packages" are stopped and their data is cleared.
    Raises DeviceError; DeviceRefused only for an impossible setup.
    """
    if to_snapshot is not None:
        to_snapshot()
        return
    with must_succeed():
        session.put_back_keyboard()
    command = ["simctl", "reset", "--seed", str(task.phone_seed), "--setup", task.setup]
    finished = session.run(command)
    if finished.code == _NOT_FOUND:
        _reset_real(session, task)
    elif finished.code != 0:
        truth(session)  # raises if the phone is at fault, not the task
        reply = finished.stderr.decode("utf-8", "replace").strip()
        raise DeviceRefused(
            session.serial, f"task {task.task_id} cannot be set up: {reply}", "correct the task's setup"
        )
    else:
        session.require_unlocked()


def truth(session: AdbSession) -> Mapping[str, Any] | None:
    """The whole state of a simulated phone; None for a real one."""
    finished = session.run(["simctl", "state"])
    if finished.code == _NOT_FOUND:
        return None
    try:
        state = json.loads(finished.stdout)
    except (ValueError, RecursionError) as error:
        raise DeviceGarbage(session.serial, f"its state is not JSON: {error}") from error
    if finished.code != 0 or not isinstance(state, dict):
        raise DeviceGarbage(session.serial, f"its state is {finished.stdout[:80]!r}, exit code {finished.code}")
    return state


def _reset_real(session: AdbSession, task: Task) -> None:
    packages = _packages(session, task)
    with must_succeed():
        session.key("WAKEUP")
    session.run(["wm", "dismiss-keyguard"])  # exit status ignored: a phone with a PIN stays locked in any case
    session.require_unlocked()
    with must_succeed(DeviceForbids):  # another refusal may be the task's fault, as for a package that is not there
        for package in packages:
            session.stop_app(package)
            session.output(["pm", "clear", package])
    with must_succeed():
        session.key("HOME")


def _packages(session: AdbSession, task: Task) -> tuple[str, ...]:
    try:
        setup = json.loads(task.setup)
    except (ValueError, RecursionError) as error:
        raise DeviceRefused(session.serial, f"the setup of task {task.task_id} is not JSON") from error
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
