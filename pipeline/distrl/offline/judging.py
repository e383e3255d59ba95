"""Judges trajectories of the log, several at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from distrl.chat.endpoint import QuestionRefusedError
from distrl.errors import StoreError
from distrl.judge.question import Question, Verdict
from distrl.rollout.episode import GROUND_TRUTH
from distrl.types import LoggedTrajectory, ObjectRef, Outcome

log = logging.getLogger(__name__)

AT_ONCE = 8
"""Concurrent questions."""
REFUSED = 2 * AT_ONCE
"""So many refused questions, and none with a verdict, are the fault of all questions."""

Ask = Callable[[Question], Verdict]


@dataclass(frozen=True, slots=True)
class Judged:
    """A trajectory and the judge's verdict."""

    logged: LoggedTrajectory
    verdict: Verdict

    @property
    def truth(self) -> Outcome:
        """The outcome by the phone's own state; UNKNOWN where it was not used."""
        trajectory = self.logged.trajectory
        return trajectory.outcome if trajectory.outcome_source == GROUND_TRUTH else Outcome.UNKNOWN


def judged(
    trajectories: Iterable[LoggedTrajectory],
    ask: Ask,
    image: Callable[[ObjectRef], bytes],
    done: Callable[[Judged | None], None],
) -> Sequence[Judged]:
    """Judge each trajectory, in the order given. done: called after each, in any thread; None where it was not judged.

    One without a last screenshot is UNKNOWN, and nothing is asked about it. A question that the endpoint refuses by
    itself, as for its content or length, is UNKNOWN. Raises ChatError where it has refused REFUSED of them, or all that
    there are, and answered none; the others are not asked then.
    """
    given_up, answered = threading.Event(), threading.Event()
    refused: list[QuestionRefusedError] = []

    def asked(question: Question) -> Verdict:
        try:
            verdict = ask(question)
        except QuestionRefusedError as error:
            refused.append(error)
            if len(refused) >= REFUSED and not answered.is_set():
                raise
            log.warning("no verdict: %s", error)
            return Verdict(Outcome.UNKNOWN, "the endpoint refuses this question")
        answered.set()
        return verdict

    def one(logged: LoggedTrajectory) -> Judged | None:
        if given_up.is_set():
            return None
        found = None
        try:
            found = Judged(logged, _verdict(logged, asked, image))
            return found
        except BaseException:
            given_up.set()
            raise
        finally:
            done(found)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        judgements = [found for found in threads.map(one, trajectories) if found is not None]
    if refused and not answered.is_set():
        raise refused[0]
    return judgements


def _verdict(logged: LoggedTrajectory, ask: Ask, image: Callable[[ObjectRef], bytes]) -> Verdict:
    trajectory = logged.trajectory
    if trajectory.final_screenshot is None:
        return Verdict(Outcome.UNKNOWN, "it has no last screenshot")
    try:
        png = image(trajectory.final_screenshot)
    except StoreError as error:
        return Verdict(Outcome.UNKNOWN, f"its last screenshot cannot be fetched: {error.what}")
    return ask(Question(trajectory.task.instruction, png, tuple(step.action_text for step in trajectory.steps)))
