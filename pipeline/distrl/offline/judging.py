"""Judges trajectories of the log, several at once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from distrl.chat.endpoint import NoAnswerError, QuestionRefusedError
from distrl.errors import ChatError, StoreError
from distrl.judge.question import Question, Verdict
from distrl.rollout.episode import GROUND_TRUTH
from distrl.types import LoggedTrajectory, ObjectRef, Outcome

log = logging.getLogger(__name__)

AT_ONCE = 8
"""Concurrent questions."""
REFUSED = 2 * AT_ONCE
"""After this many questions that were refused or not answered in time, and none with a verdict, the others are not
asked."""

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

    One without a last screenshot is UNKNOWN, and nothing is asked about it. A single question that the endpoint
    refuses, as for its content or length, is UNKNOWN, and so is one without an answer in time. Raises ChatError where
    REFUSED questions, or all that there are, came to that and none was answered; the others are not asked then.
    """
    given_up, answered = threading.Event(), threading.Event()
    failed: list[ChatError] = []

    def asked(question: Question) -> Verdict:
        try:
            verdict = ask(question)
        except QuestionRefusedError as error:
            return failing(error, "the endpoint refuses this question")
        except NoAnswerError as error:
            hint = "see to the endpoint, or raise judge.timeout_s, and judge again"
            return failing(ChatError("judge.endpoint", f"no answer: {error}", hint), f"no answer: {error}")
        answered.set()
        return verdict

    def failing(error: ChatError, why: str) -> Verdict:
        failed.append(error)
        if len(failed) >= REFUSED and not answered.is_set():
            raise error
        log.warning("no verdict: %s", error)
        return Verdict(Outcome.UNKNOWN, why)

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
    if failed and not answered.is_set():
        raise failed[0]
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
