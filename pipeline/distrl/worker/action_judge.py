"""What a judge says of each action of a finished episode, asked for while its phone already plays the next one.

Life cycle. `start` begins the threads. An actor hands a trajectory over and goes on; a thread asks about it and
delivers it, at its deadline with what was said until then: tasks are committed in the order of the log, so what is held
keeps all after it uncommitted. After `ask_no_more` nothing further is asked, and another thread delivers what waits,
since all others may be in a question that nobody answers. After `stop` the threads end once nothing waits; `running` is
false once all is delivered. A trajectory that is lost before leaves its task uncommitted, to be delivered again.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Final, Protocol

from distrl.chat.endpoint import Counted, NoAnswerError, QuestionRefusedError
from distrl.clock import SYSTEM_CLOCK, Clock
from distrl.errors import ChatError, StoreError
from distrl.judge.validity import ActionQuestion, Validity, to_be_judged
from distrl.rollout.actor_pool import Deliver
from distrl.rollout.retry import AbandonedError
from distrl.rollout.task_queue import Received
from distrl.supervised import SupervisedThreads
from distrl.types import ObjectRef, Trajectory

log = logging.getLogger(__name__)

THREADS: Final = 4
"""Questions of one process that are under way at once. The outcome's question, which a phone waits for, shares the
pace of judge.requests_per_minute with them and so stands behind this many at the most."""
LOOK_S: Final = 0.2
"""Longest wait of an idle thread before it looks whether it is to stop."""

Image = Callable[[ObjectRef], bytes]


class ValidityJudge(Protocol):
    """As judge/vlm.py."""

    @property
    def source(self) -> str: ...
    @property
    def counted(self) -> Counted: ...
    def valid(self, question: ActionQuestion, within_s: float) -> Validity: ...


def most_held(actors: int, outstanding: int) -> int:
    """How many episodes of a worker with so many actors may be with the judge; what comes on top is delivered unjudged.

    Their tasks are not finished, and the feeder feeds no more than `outstanding` (feeder.outstanding) unfinished ones.
    Held is half of what is outstanding beside those that are played; the other half is there for phones that get free.
    Other workers share it: none holds more than two for each of its actors.
    """
    return max(0, min(2 * actors, (outstanding - actors) // 2))


@dataclass(frozen=True, slots=True)
class Held:
    """deadline: in ticks, until when its actions are asked about."""

    received: Received
    trajectory: Trajectory
    deadline: float


class AsyncActionJudge:
    """deliver: publishes a trajectory and returns once it is safe. most: actions asked about in one trajectory.
    timeout_s: from its being handed over until it is delivered, whatever was said of it until then. room: for so many
    at once, see most_held.
    """

    def __init__(
        self,
        judge: ValidityJudge,
        image: Image,
        deliver: Deliver,
        most: int,
        timeout_s: float,
        room: int,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._judge = judge
        self._image = image
        self._deliver = deliver
        self._most = most
        self._timeout_s = timeout_s
        self._room = room
        self._clock = clock
        self._waiting: queue.Queue[Held] = queue.Queue()
        self._asked_enough = threading.Event()
        self._stop = threading.Event()
        self._threads = SupervisedThreads()
        self._lock = threading.Lock()
        self._counts = {"actions_judged": 0, "actions_invalid": 0, "actions_unjudged": 0}

    @property
    def running(self) -> bool:
        return self._threads.running

    def start(self) -> None:
        for number in range(THREADS):
            self._threads.start(self._work, f"action_judge-{number}")

    def ask_no_more(self) -> None:
        """Deliver what waits, and what is handed over from now on, as it is."""
        self._asked_enough.set()
        self._threads.start(self._work, "action_judge-rest")

    def stop(self) -> None:
        """To be called after `ask_no_more`, once no actor hands anything over any more."""
        self._stop.set()

    def join(self, timeout_s: float) -> None:
        self._threads.join(timeout_s)

    def check(self) -> None:
        """Raises what ended a thread unforeseen."""
        self._threads.check()

    def hand_over(self, received: Received, trajectory: Trajectory) -> None:
        """Take a trajectory from an actor, or deliver it as it is where there is no room for more."""
        actions = len(to_be_judged(trajectory))
        if actions and self._takes():
            self._waiting.put(Held(received, trajectory, self._clock.ticks() + self._timeout_s))
            return
        self._count(actions_unjudged=actions)
        self._deliver(received, trajectory)

    def _takes(self) -> bool:
        with self._lock:
            taken = self._room > 0
            self._room -= taken
            return taken

    def metrics(self) -> Mapping[str, float]:
        with self._lock:
            counts = {name: float(count) for name, count in self._counts.items()}
        return counts | {"judge_queue": float(self._waiting.qsize())}

    def _work(self) -> None:
        try:
            while True:
                try:
                    held = self._waiting.get(timeout=LOOK_S)
                except queue.Empty:
                    if self._stop.is_set():
                        return
                    continue
                self._deliver(held.received, self._judged(held))
                with self._lock:
                    self._room += 1
        except AbandonedError as error:
            log.warning("an episode is abandoned: %s", error.what)

    def _judged(self, held: Held) -> Trajectory:
        def left_s() -> float:
            return 0.0 if self._asked_enough.is_set() else held.deadline - self._clock.ticks()

        said = judged(held.trajectory, self._judge, self._image, self._most, left_s)
        asked = {index for index, _, _ in to_be_judged(held.trajectory)}
        told = [said.steps[index].valid for index in asked]
        self._count(
            actions_judged=len(told) - told.count(None),
            actions_invalid=told.count(False),
            actions_unjudged=told.count(None),
        )
        return said

    def _count(self, **more: int) -> None:
        with self._lock:
            for name, number in more.items():
                self._counts[name] += number


def judged(
    trajectory: Trajectory, judge: ValidityJudge, image: Image, most: int, left_s: Callable[[], float]
) -> Trajectory:
    """`trajectory` with what `judge` says of its first `most` actions that can be asked about.

    left_s: seconds that are left for it, asked again before each action.

    It raises nothing of the judge or the store: an action that nobody judged is None, like one that was never asked
    about. After a question that nobody answers in time, and where the endpoint refuses all, the others of this
    trajectory are not asked; where it takes one question not, the others are.
    """
    screen = cache(image)
    steps = list(trajectory.steps)
    asked = False
    for index, step, after in to_be_judged(trajectory)[:most]:
        if left_s() <= 0:
            break
        try:
            question = ActionQuestion(step.action, screen(step.screenshot), screen(after))
            said = judge.valid(question, left_s())
        except (StoreError, ValueError, QuestionRefusedError) as error:
            log.warning("%s: action %d is not judged: %s", trajectory.task_id, index, error)
            continue
        except (NoAnswerError, ChatError) as error:
            log.warning("%s: action %d and those after it are not judged: %s", trajectory.task_id, index, error)
            break
        asked = True
        steps[index] = replace(step, valid=said.valid)
    return replace(trajectory, steps=tuple(steps), validity_source=judge.source) if asked else trajectory
