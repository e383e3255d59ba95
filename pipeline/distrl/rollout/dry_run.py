"""A dry run: shows what the policy would do on a real phone, and does none of it.

The phone is not reset, since a reset clears data. A person does what is shown, or something else. The policy decides on
each new screen as if the actions shown before had been done. Nothing is published or stored, no consumer group is
joined and no task is taken, so a live run is not affected.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Final, Protocol

from distrl.broker.versions import VersionFollower
from distrl.config import Config
from distrl.device.allow_list import PackageAllowList
from distrl.device.leases import Leases
from distrl.device.pool import DevicePool
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.errors import DeviceError
from distrl.policy.sampling import Sampling
from distrl.rollout.episode import Decider, Observation
from distrl.rollout.reload import wait_first
from distrl.rollout.serving import refuse_other_base, serving
from distrl.store.objects import open_store
from distrl.tasks.lists import suite_of
from distrl.telemetry.monitor import Monitor
from distrl.types import Action, ActionKind, Split, Task

ATTEMPT: Final = "dry-run"
LOOK_S: Final = 0.5
"""Pause between two screenshots while the screen does not change."""


class ReadOnlyPhone(Protocol):
    """A phone that can only be looked at."""

    def screen(self) -> bytes:
        """PNG bytes, once the screen no longer changes."""

    def front(self) -> str:
        """The app in front, for people."""


def run_dry(config: Config, instruction: str | None, stop: threading.Event, report: Callable[[str], None]) -> None:
    """Show the actions of the newest version on the first phone that answers and that no worker holds.

    Ends when the policy says that it is done, the task's steps are used up, or at `stop`. report: prints one line,
    which may hold untrusted text that a model wrote. Raises DistrlError where there is no broker or phone, or the
    weights are not those of the version.
    """
    task = dry_task(config, instruction)
    with VersionFollower(config) as versions, serving(config, Sampling.of(config.worker)) as policy:
        version = wait_first(versions, stop, Monitor())
        if version is None:
            return
        refuse_other_base(version, policy.base_sha256)
        policy.decider.swap(version, open_store(config.store).get(version.adapter))
        with (
            AdbServer(config.adb, needed=Leases(config.devices.directory, config.adb).in_use) as server,
            closing(DevicePool(server, config.devices, stop=stop, run=config.run)) as pool,
            first_free(pool, stop) as session,
            policy.decider.episode(),
        ):
            if session is None:
                return
            report(f"version {version.version} on {session.serial}; nothing is done on the phone")
            report(f"task: {task.instruction}")
            show(
                task, ReadOnlySession(session, PackageAllowList(session, config.devices)), policy.decider, stop, report
            )


@contextmanager
def first_free(pool: DevicePool, stop: threading.Event) -> Iterator[AdbSession | None]:
    """The first phone that answers and is free; None once `stop` is set. Raises DeviceError where there is none.

    Tries each phone once, in turn: the pool's own discovery would lease all of them and start every emulator.
    """
    for _ in range(pool.count):
        if stop.is_set():
            break
        with pool.leased() as session:
            if session is not None:
                yield session
                return
    if not stop.is_set():
        raise pool.lock_fault or DeviceError(
            "devices", "no free phone answers", "`distrl devices` shows the state of each"
        )
    yield None


def dry_task(config: Config, instruction: str | None) -> Task:
    """The first training task that would be fed, or one with the instruction given."""
    task = suite_of(config.feeder).task(0, config.learner.seed, Split.TRAIN)
    return task if instruction is None else replace(task, task_id=ATTEMPT, instruction=instruction)


def show(
    task: Task, phone: ReadOnlyPhone, decider: Decider, stop: threading.Event, report: Callable[[str], None]
) -> None:
    """Decide on each new screen and report the action."""
    shown: list[Action] = []
    last: bytes | None = None
    earlier: deque[bytes] = deque(maxlen=decider.earlier_screens)
    while len(shown) < task.max_steps and not stop.is_set():
        png = phone.screen()
        if png == last:
            stop.wait(LOOK_S)
            continue
        last = png
        seen = Observation(task, ATTEMPT, len(shown), png, tuple(shown), lambda: None, tuple(earlier))
        decision = decider.decide(seen)
        earlier.append(png)
        report(f"step {len(shown)}, {phone.front()}: {decision.action_text}")
        shown.append(decision.action)
        if decision.action.kind is ActionKind.COMPLETE:
            return


class ReadOnlySession:
    """An adb session of which only reading operations are used."""

    def __init__(self, session: AdbSession, allow_list: PackageAllowList) -> None:
        self._session = session
        self._allow_list = allow_list

    def screen(self) -> bytes:
        return self._session.settle().png

    def front(self) -> str:
        foreign_app = self._allow_list.foreign_app()
        return (
            self._session.package_in_front()
            if foreign_app is None
            else f"{foreign_app} (not allowed: it would be left)"
        )
