"""Asynchronous action judge: judges each action of a finished episode while its phone already plays the next one.

`start` starts the threads. An actor hands a trajectory over and continues; a thread asks the judge and then delivers
the trajectory. One more thread delivers trajectories at their deadline with the verdicts so far, as the others may wait
for an answer or for a slow store. (Tasks are committed in the order of the log, so a held trajectory keeps all later
ones uncommitted.) After `stop_asking` no question is asked, and trajectories that no thread has begun to ask about are
delivered. After `stop` the threads end once nothing is held. `running` is false then, though a thread may still wait
for the store. If a trajectory is lost before its delivery, its task is uncommitted and will be delivered again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
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
"""How often deadlines are checked, hence the longest delay of a delivery past its deadline."""

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

    Their tasks are unfinished, and the feeder feeds at most `outstanding` (feeder.outstanding) unfinished tasks. Of
    those that are not being played, half may be held here; the other half is left for phones that become free. Since
    workers share these tasks, a worker holds at most two for each of its actors.
    """
    return max(0, min(2 * actors, (outstanding - actors) // 2))


@dataclass(slots=True, eq=False)
class Held:
    """A trajectory that waits for verdicts or delivery."""

    received: Received
    trajectory: Trajectory
    """With the verdicts so far."""
    deadline: float
    """In ticks; it is delivered then, judged or not."""
    is_asked_about: bool = False
    """A thread has taken it to ask the judge."""
    is_taken: bool = False
    """A thread has taken it to deliver it."""


class AsyncActionJudge:
    """deliver: publishes a trajectory and returns once it is safe. most: most questions about one trajectory.
    timeout_s: after this long a trajectory is delivered with the verdicts so far. room: most trajectories held at once,
    see max_held.
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
        self._held: list[Held] = []
        self._changed = threading.Condition()
        self._asking_over = False
        self._stopped = False
        self._threads = SupervisedThreads()
        self._counts = {"actions_judged": 0, "actions_invalid": 0, "actions_unjudged": 0}

    @property
    def running(self) -> bool:
        return bool(self._held) and self._threads.running

    def start(self) -> None:
        self._threads.start(self._deliver_late, "action_judge-deadlines")
        for number in range(THREADS):
            self._threads.start(self._ask, f"action_judge-{number}")

    def stop_asking(self) -> None:
        """Ask no further question: deliver what waits, and what is handed over from now on, as it is."""
        with self._changed:
            self._asking_over = True
            self._changed.notify_all()

    def stop(self) -> None:
        """Call after `stop_asking`, once no actor hands over any more."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def join(self, timeout_s: float) -> None:
        self._threads.join(timeout_s)

    def check(self) -> None:
        """Raises what ended a thread unexpectedly."""
        self._threads.check()

    def hand_over(self, received: Received, trajectory: Trajectory) -> None:
        """Take a trajectory from an actor; where there is no room, deliver it unjudged."""
        actions = len(to_be_judged(trajectory))
        if actions and self._takes(Held(received, trajectory, self._clock.ticks() + self._timeout_s)):
            return
        self._count(actions_unjudged=actions)
        self._deliver(received, trajectory)

    def _takes(self, held: Held) -> bool:
        with self._changed:
            if len(self._held) >= self._room:
                return False
            self._held.append(held)
            self._changed.notify_all()
            return True

    def metrics(self) -> Mapping[str, float]:
        with self._changed:
            counts = {name: float(count) for name, count in self._counts.items()}
            return counts | {"judge_queue": float(len(self._unasked()))}

    def _unasked(self) -> list[Held]:
        return [held for held in self._held if not (held.is_asked_about or held.is_taken)]

    def _ask(self) -> None:
        """Ask the judge about one trajectory after another, and deliver each."""
        with logged_if_abandoned():
            while (held := self._next()) is not None:
                left_s = partial(self._left_s, held)
                for so_far in judged(held.trajectory, self._judge, self._image, self._most, left_s):
                    held.trajectory = so_far
                self._finish(held)

    def _next(self) -> Held | None:
        """The oldest trajectory that no thread asks about; None after `stop` if there is none."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._unasked())
            for held in self._unasked():
                held.is_asked_about = True
                return held
            return None

    def _left_s(self, held: Held) -> float:
        return 0.0 if self._asking_over else held.deadline - self._clock.ticks()

    def _deliver_late(self) -> None:
        """Deliver at its deadline what the other threads have not; after `stop_asking`, what they do not ask about."""
        with logged_if_abandoned():
            while True:
                with self._changed:
                    if self._stopped and not self._held:
                        return
                    self._changed.wait_for(self._late, LOOK_S)
                    late = self._late()
                for held in late:
                    self._finish(held)

    def _late(self) -> list[Held]:
        now = self._clock.ticks()
        late = [held for held in self._held if not held.is_taken and held.deadline <= now]
        return late + [held for held in self._unasked() if self._asking_over and held not in late]

    def _finish(self, held: Held) -> None:
        """Deliver it, unless another thread does."""
        with self._changed:
            if held.is_taken:
                return
            held.is_taken = True
            trajectory = held.trajectory
        verdicts = [trajectory.steps[index].valid for index, _, _ in to_be_judged(trajectory)]
        self._count(
            actions_judged=len(verdicts) - verdicts.count(None),
            actions_invalid=verdicts.count(False),
            actions_unjudged=verdicts.count(None),
        )
        try:
            self._deliver(held.received, trajectory)
        finally:
            with self._changed:
                self._held.remove(held)
                self._changed.notify_all()

    def _count(self, **more: int) -> None:
        with self._changed:
            for name, number in more.items():
                self._counts[name] += number


@contextmanager
def logged_if_abandoned() -> Iterator[None]:
    """Log AbandonedError instead of raising it: a thread whose trajectory is given up at a stop has not failed."""
    try:
        yield
    except AbandonedError as error:
        log.warning("an episode is abandoned: %s", error.what)


def judged(
    trajectory: Trajectory, judge: ValidityJudge, image: Image, most: int, left_s: Callable[[], float]
) -> Iterator[Trajectory]:
    """`trajectory` with the verdicts so far, after each verdict of `judge` on the first `most` actions that can be
    judged.

    left_s: returns the seconds left for it; called before each action.

    Errors of judge and store leave `valid` None. If a question is not answered in time, or the endpoint refuses all
    questions, the remaining actions are not asked about. If it refuses a single question, they are.
    """
    screen = cache(image)
    steps = list(trajectory.steps)
    for index, step, after in to_be_judged(trajectory)[:most]:
        if left_s() <= 0:
            return
        try:
            question = ActionQuestion(step.action, screen(step.screenshot), screen(after))
            verdict = judge.valid(question, left_s())
        except (StoreError, ValueError, QuestionRefusedError) as error:
            log.warning("%s: action %d is not judged: %s", trajectory.task_id, index, error)
            continue
        except (NoAnswerError, ChatError) as error:
            log.warning("%s: action %d and those after it are not judged: %s", trajectory.task_id, index, error)
            return
        steps[index] = replace(step, valid=verdict.valid)
        yield replace(trajectory, steps=tuple(steps), validity_source=judge.source)
