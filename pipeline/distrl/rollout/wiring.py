"""Wiring shared by worker, demonstrations and evaluators: the screenshot store and the judges."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from distrl.chat.endpoint import Endpoint
from distrl.clock import SYSTEM_CLOCK, Clock
from distrl.config import Config
from distrl.errors import ChatError, StoreError
from distrl.judge.question import Question
from distrl.judge.vlm import VlmJudge
from distrl.rollout.back_pressure import Retry
from distrl.rollout.episode import FallbackJudge, Judge, Judgement
from distrl.store.folders import SCREENSHOTS, VERDICTS
from distrl.store.objects import ObjectStore, utc_day
from distrl.tasks.outcome import checked
from distrl.types import ObjectRef, Outcome, Step, Task

log = logging.getLogger(__name__)

TRUTH: Judge = checked
"""Judges from the phone's own state, where it offers one."""


def screenshot_store(
    store: ObjectStore, run: str, retry: Retry, clock: Clock = SYSTEM_CLOCK
) -> Callable[[bytes], ObjectRef]:
    """Stores a screenshot of `run`, retrying while the store fails; returns once the object is there."""
    folder = SCREENSHOTS.of(run)

    def put(png: bytes) -> ObjectRef:
        day = utc_day(clock.now_ms())
        return retry.call("storing a screenshot", lambda: store.put(folder, png, "png", day), StoreError)

    return put


def judge_of(config: Config, store: ObjectStore) -> VlmJudge | None:
    """The judge at judge.endpoint, if one is configured."""
    if config.judge.endpoint is None:
        return None
    return VlmJudge(Endpoint(config.judge, "judge"), config.judge.model, store, VERDICTS.of(config.run))


def fallback_judge_of(judge: VlmJudge | None) -> FallbackJudge | None:
    """Judges tasks on phones that offer no state.

    It never raises: where the judge refuses every question (ChatError), the error is logged and outcomes are UNKNOWN
    until it is fixed, since a finished episode is not worth repeating for a verdict.
    """
    if judge is None:
        return None

    def fallback(task: Task, last: bytes, steps: Sequence[Step]) -> Judgement:
        try:
            verdict = judge.judge(Question(task.instruction, last, tuple(step.action_text for step in steps)))
        except ChatError as error:
            log.error("the judge gave no verdict: %s", error)
            return Judgement(Outcome.UNKNOWN, judge.source, reason=error.what)
        return Judgement(verdict.outcome, judge.source, reason=verdict.reason)

    return fallback
