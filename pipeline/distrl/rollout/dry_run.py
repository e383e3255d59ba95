"""What the policy would do, shown and never done: for a person who is about to let it act on a phone of their own.

One phone is looked at as it stands, without a reset: a reset clears data. A person does by hand what is shown, or
something else, and each new screen is decided on, with the actions shown before as what was done. Nothing is published
or stored, no consumer group is joined and no task is taken, so that a run that is under way does not notice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Final, Protocol

from distrl.broker.versions import VersionFollower
from distrl.config import Config
from distrl.device.allow_list import PackageAllowList
from distrl.device.pool import DevicePool
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.errors import DeviceError
from distrl.rollout.episode import Decider, Observation
from distrl.rollout.reload import wait_first
from distrl.rollout.serving import refuse_other_base, serving
from distrl.store.objects import open_store
from distrl.tasks.lists import suite_of
from distrl.types import Action, ActionKind, Split, Task

ATTEMPT: Final = "dry-run"
LOOK_S: Final = 0.5
"""Between two looks at a screen that waits for a person."""


class Looking(Protocol):
    """A phone that can be seen and not touched."""

    def screen(self) -> bytes:
        """PNG bytes, once the screen no longer changes."""

    def front(self) -> str:
        """What is in front, in words."""


def run_dry(config: Config, instruction: str | None, stop: threading.Event, say: Callable[[str], None]) -> None:
    """Show the actions of the newest version on the first phone that answers and that no worker has, until the policy
    says that it is done, the task's steps are used up, or `stop`. say: takes one line, which may hold what a model
    wrote.

    Raises DistrlError: no broker, no phone, weights that are not those of their version.
    """
    task = dry_task(config, instruction)
    with VersionFollower(config) as versions, serving(config, config.worker.temperature) as policy:
        version = wait_first(versions, stop)
        if version is None:
            return
        refuse_other_base(version, policy.base_sha256)
        policy.batcher.swap(version, open_store(config.store).get(version.adapter))
        with (
            AdbServer(config.adb) as server,
            closing(DevicePool(server, config.devices, stop=stop, run=config.run)) as pool,
            first_free(pool, stop) as session,
            policy.batcher.episode(),
        ):
            if session is None:
                return
            say(f"version {version.version} on {session.serial}; nothing is sent to it")
            say(f"task: {task.instruction}")
            show(task, SeenSession(session, PackageAllowList(session, config.devices)), policy.batcher, stop, say)


@contextmanager
def first_free(pool: DevicePool, stop: threading.Event) -> Iterator[AdbSession | None]:
    """The first phone that answers and that nobody has; None once `stop` is set.

    They are tried one after the other, each once: the pool's own discovery would take all of them from the workers, and
    start every emulator, to look at one. Raises DeviceError where none is to be had.
    """
    for _ in range(pool.count):
        if stop.is_set():
            break
        with pool.leased() as session:
            if session is not None:
                yield session
                return
    if not stop.is_set():
        raise DeviceError("devices", "no phone answers that no worker has", "`distrl devices` says what is with each")
    yield None


def dry_task(config: Config, instruction: str | None) -> Task:
    """The first training task that would be fed, or what a person asks instead."""
    task = suite_of(config.feeder).task(0, config.learner.seed, Split.TRAIN)
    return task if instruction is None else replace(task, task_id=ATTEMPT, instruction=instruction)


def show(task: Task, phone: Looking, decider: Decider, stop: threading.Event, say: Callable[[str], None]) -> None:
    """Decide on each new screen and say what would be done."""
    shown: list[Action] = []
    last: bytes | None = None
    while len(shown) < task.max_steps and not stop.is_set():
        png = phone.screen()
        if png == last:
            stop.wait(LOOK_S)
            continue
        last = png
        decision = decider.decide(Observation(task, ATTEMPT, len(shown), png, tuple(shown), lambda: None))
        say(f"step {len(shown)}, {phone.front()}: {decision.action_text}")
        shown.append(decision.action)
        if decision.action.kind is ActionKind.COMPLETE:
            return


class SeenSession:
    """An adb session of which nothing but looking is used."""

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
