"""Asynchronous action judge: judges each action of a finished episode while its phone already plays the next one.

`start` starts the threads. An actor hands a trajectory over and goes on; a thread asks the judge and delivers the
trajectory, at its deadline with the verdicts so far. (Tasks are committed in the order of the log, so a held trajectory
keeps all later ones uncommitted.) After `stop_asking` no question is asked, and an extra thread delivers what waits,
since all others may be in an unanswered question. After `stop` the threads end once nothing waits; `running` is false
once all is delivered. A trajectory lost before that leaves its task uncommitted, and it is delivered again.
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
from distrl.rollout.back_pressure import AbandonedError
from distrl.rollout.task_queue import Received
from distrl.supervised import SupervisedThreads
from distrl.types import ObjectRef, Trajectory

log = logging.getLogger(__name__)

THREADS: Final = 4
"""Concurrent questions of one process. A question about an outcome, for which a phone waits, shares
judge.requests_per_minute with them and so queues behind at most this many."""
LOOK_S: Final = 0.2
"""Longest wait of an idle thread before it checks for `stop`."""

Image = Callable[[ObjectRef], bytes]


class ValidityJudge(Protocol):
    """Judges whether an action can be done on its screen (judge/vlm.py)."""

    @property
    def source(self) -> str: ...
    @property
    def counted(self) -> Counted: ...
    def valid(self, question: ActionQuestion, within_s: float) -> Validity: ...


def max_held(actors: int, outstanding: int) -> int:
    """Most trajectories that may wait for the judge; further ones are delivered unjudged.

    Their tasks are unfinished, and the feeder feeds at most `outstanding` (feeder.outstanding) unfinished tasks. Half
    of those not being played may be held; the other half is left for phones that become free. Since workers share them,
    each holds at most two for each of its actors.
    """
    return max(0, min(2 * actors, (outstanding - actors) // 2))


@dataclass(frozen=True, slots=True)
class Held:
    """A trajectory that waits for the judge."""

    received: Received
    trajectory: Trajectory
    deadline: float
    """In ticks; it is delivered then, judged or not."""


class AsyncActionJudge:
    """deliver: publishes a trajectory and returns once it is safe. most: questions about one trajectory. timeout_s:
    from hand-over to delivery, with the verdicts so far. room: most trajectories held at once, see max_held.
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
        self._asking_over = threading.Event()
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

    def stop_asking(self) -> None:
        """Ask no further question: deliver what waits, and what is handed over from now on, as it is."""
        self._asking_over.set()
        self._threads.start(self._work, "action_judge-rest")

    def stop(self) -> None:
        """Call after `stop_asking`, once no actor hands over any more."""
        self._stop.set()

    def join(self, timeout_s: float) -> None:
        self._threads.join(timeout_s)

    def check(self) -> None:
        """Raises what ended a thread unexpectedly."""
        self._threads.check()

    def hand_over(self, received: Received, trajectory: Trajectory) -> None:
        """Take a trajectory from an actor; where there is no room, deliver it unjudged."""
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
            return 0.0 if self._asking_over.is_set() else held.deadline - self._clock.ticks()

        trajectory = judged(held.trajectory, self._judge, self._image, self._most, left_s)
        verdicts = [trajectory.steps[index].valid for index, _, _ in to_be_judged(held.trajectory)]
        self._count(
            actions_judged=len(verdicts) - verdicts.count(None),
            actions_invalid=verdicts.count(False),
            actions_unjudged=verdicts.count(None),
        )
        return trajectory

    def _count(self, **more: int) -> None:
        with self._lock:
            for name, number in more.items():
                self._counts[name] += number


def judged(
    trajectory: Trajectory, judge: ValidityJudge, image: Image, most: int, left_s: Callable[[], float]
) -> Trajectory:
    """`trajectory` with the verdicts of `judge` on the first `most` actions that can be judged.

    left_s: seconds left for it; called before each action.

    Errors of judge and store leave `valid` None. After a question without an answer in time, and where the endpoint
    refuses all, the remaining actions are not asked about; where it refuses only one question, they are.
    """
    screen = cache(image)
    steps = list(trajectory.steps)
    asked = False
    for index, step, after in to_be_judged(trajectory)[:most]:
        if left_s() <= 0:
            break
        try:
            question = ActionQuestion(step.action, screen(step.screenshot), screen(after))
            verdict = judge.valid(question, left_s())
        except (StoreError, ValueError, QuestionRefusedError) as error:
            log.warning("%s: action %d is not judged: %s", trajectory.task_id, index, error)
            continue
        except (NoAnswerError, ChatError) as error:
            log.warning("%s: action %d and those after it are not judged: %s", trajectory.task_id, index, error)
            break
        asked = True
        steps[index] = replace(step, valid=verdict.valid)
    return replace(trajectory, steps=tuple(steps), validity_source=judge.source) if asked else trajectory
