"""One episode: reset, then look, keep what was seen, decide and act, until the policy says that it is done.

The loop owns nothing. The phone, the place where screenshots are kept, the decider and the clock come in, and one
trajectory comes out, whatever the phone does: a phone that fails ends its episode as INTERRUPTED, and so does a model
behind an endpoint that says nothing.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from distrl.clock import SYSTEM_CLOCK, Clock
from distrl.errors import ChatError, DeviceError
from distrl.types import Action, ActionKind, HeldBack, ObjectRef, Outcome, Step, Task, Trajectory

log = logging.getLogger(__name__)

NOTE_CHARACTERS = 500
"""A note is for people; a device's error may carry a whole shell output, and the record must stay small."""
FOREIGN_APP_CHARACTERS = 150
"""Of one app that was left: a phone may name any, and the first one is always told."""
GROUND_TRUTH = "ground-truth"
NO_JUDGE = "none"


@dataclass(frozen=True, slots=True)
class Observation:
    """What a decision may depend on: the task, the screen as PNG bytes, and the actions so far.

    truth is the phone's own state where it offers one. Only the script of the demonstrations reads it. refused: the
    phone could not do the action before; only prompted models are told, since the policy reads screen and prompt alone.
    """

    task: Task
    attempt_id: str
    step: int
    png: bytes
    previous: tuple[Action, ...]
    truth: Callable[[], Mapping[str, Any] | None]
    refused: bool = False


@dataclass(frozen=True, slots=True)
class Decision:
    """One action with exactly what was read and written, by which weights, and log μ(action) in nats.

    What has no weights here stamps it as rollout/prompted.py does. seconds: time in the policy, the wait for a batch
    included.
    """

    action: Action
    action_text: str
    prompt_ids: tuple[int, ...]
    action_ids: tuple[int, ...]
    logprob: float
    version: int
    version_sha256: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Screen:
    """What a phone showed, as PNG bytes. restless: it never rested, and this is its last whole frame."""

    png: bytes
    restless: bool = False


class Decider(Protocol):
    def decide(self, observation: Observation) -> Decision: ...


class Phone(Protocol):
    """A leased phone. Every method keeps its own deadline and raises DeviceError where the phone does not do it."""

    @property
    def serial(self) -> str: ...
    def reset(self, task: Task) -> None: ...
    def settle(self) -> Screen:
        """The screen once it no longer changes, or as it is after long enough."""

    def perform(self, action: Action) -> HeldBack:
        """Do it. UNSENT where another app had come to the front, and was left; REFUSED where the phone cannot do it.

        Neither sends anything.
        """

    def taken_back(self) -> Sequence[str]:
        """The apps that it was brought back from since this was last asked, since they are not allowed; for people."""

    def truth(self) -> Mapping[str, Any] | None:
        """The phone's own state, or None if it offers none (a real phone)."""

    def hierarchy(self, timeout_s: float) -> bytes | None:
        """The elements in front as XML, or None if the phone makes none within timeout_s; for prompted models."""


Judge = Callable[[Task, Mapping[str, Any]], bool | None]
"""Whether a task is done, from the phone's own state; None where the task does not say what that would be."""
FallbackJudge = Callable[[Task, bytes, Sequence[Step]], tuple[Outcome, str]]
"""The same where the state does not say: from the last screen as PNG bytes and the steps. Returns the outcome (UNKNOWN
where there is no telling) and who says so."""


@dataclass(frozen=True)
class Episode:
    """How an episode is run here.

    keep: puts a screenshot in the store and returns its reference; the object is there before any record names it.
    judge: asked where the phone tells its state; fallback_judge: where it does not, or the judge cannot tell from it.
    """

    worker: str
    keep: Callable[[bytes], ObjectRef]
    judge: Judge
    clock: Clock = SYSTEM_CLOCK
    is_expert: bool = False
    fallback_judge: FallbackJudge | None = None

    def run(self, task: Task, attempt_id: str, phone: Phone, decider: Decider) -> Trajectory:
        """Play the episode. Never raises DeviceError or ChatError; what else decider or store raise passes through."""
        playing = Playing(self, task, attempt_id, phone)
        while not playing.over:
            playing.step(decider)
        return playing.end()


class Playing:
    """One episode under way: `step` until it is `over`, then `end`, which may come sooner.

    Made, it has put the phone where the task begins. No method raises DeviceError or ChatError: a phone that fails or
    a model that says nothing ends the episode as INTERRUPTED. What else the decider or the store raises passes through,
    and the step that it broke off did not happen.
    """

    def __init__(self, episode: Episode, task: Task, attempt_id: str, phone: Phone) -> None:
        self.task = task
        self.steps: list[Step] = []
        self.failed = ""
        """Why it could not go on; empty while it does."""
        self._episode = episode
        self._attempt_id = attempt_id
        self._phone = phone
        self._foreign_apps: list[str] = []
        self._started_at = episode.clock.now_ms()
        with self._interrupted():
            phone.reset(task)

    @property
    def over(self) -> bool:
        """It has failed, the policy said that it is done, or the task's steps are used up."""
        ended = bool(self.steps and self.steps[-1].action.kind is ActionKind.COMPLETE)
        return bool(self.failed) or ended or len(self.steps) >= self.task.max_steps

    def step(self, decider: Decider) -> None:
        with self._interrupted():
            step = self._next(decider)
            self._foreign_apps += _foreign_apps(self._phone, len(self.steps))
            self.steps.append(step)

    def end(self, fallback_judge: FallbackJudge | None = None) -> Trajectory:
        """The trajectory. fallback_judge: asked in place of the episode's own."""
        final, restless = None, False
        outcome, source = Outcome.INTERRUPTED, NO_JUDGE
        if not self.failed:
            with self._interrupted():
                last = self._phone.settle()
                self._undone()
                final, restless = self._episode.keep(last.png), last.restless
                outcome, source = self._outcome(
                    self._phone.truth(), last.png, fallback_judge or self._episode.fallback_judge
                )
        return Trajectory(
            self.task,
            self._attempt_id,
            self._episode.worker,
            self._phone.serial,
            tuple(self.steps),
            final,
            outcome,
            source,
            _note(self._foreign_apps, self.failed),
            self._episode.is_expert,
            self._started_at,
            self._episode.clock.now_ms(),
            final_restless=restless,
        )

    @contextmanager
    def _interrupted(self) -> Iterator[None]:
        try:
            yield
        except (DeviceError, ChatError) as error:
            self.failed = f"{type(error).__name__}: {error.what}"
            log.warning(
                "%s: interrupted on %s after %d steps: %s",
                self.task.task_id,
                self._phone.serial,
                len(self.steps),
                self.failed[:NOTE_CHARACTERS],
            )
            self._undone()

    def _next(self, decider: Decider) -> Step:
        clock, phone = self._episode.clock, self._phone
        watch = _Stopwatch(clock.ticks)
        seen = phone.settle()
        adb_s = watch.lap()
        self._undone()
        screenshot = self._episode.keep(seen.png)
        publish_s = watch.lap()
        previous = tuple(step.action for step in self.steps)
        refused = bool(self.steps) and self.steps[-1].held_back is HeldBack.REFUSED
        chosen = decider.decide(
            Observation(self.task, self._attempt_id, len(previous), seen.png, previous, phone.truth, refused)
        )
        at = clock.now_ms()
        watch.lap()
        held_back = phone.perform(chosen.action) if _reaches_the_phone(chosen.action) else HeldBack.NO
        phone_s = watch.lap()
        return Step(
            screenshot,
            chosen.prompt_ids,
            chosen.action_ids,
            chosen.action,
            chosen.action_text,
            chosen.logprob,
            chosen.version,
            chosen.version_sha256,
            at,
            phone_ms=phone_s * 1000,
            adb_ms=adb_s * 1000,
            policy_ms=chosen.seconds * 1000,
            publish_ms=publish_s * 1000,
            held_back=held_back,
            restless=seen.restless,
        )

    def _undone(self) -> None:
        """Note what was left before a screen was shown. It is the doing of the last action, if that was sent."""
        left, steps = _foreign_apps(self._phone, len(self.steps)), self.steps
        self._foreign_apps += left
        if left and steps and steps[-1].held_back is HeldBack.NO and _reaches_the_phone(steps[-1].action):
            steps[-1] = replace(steps[-1], held_back=HeldBack.UNDONE)

    def _outcome(
        self, truth: Mapping[str, Any] | None, last: bytes, fallback_judge: FallbackJudge | None
    ) -> tuple[Outcome, str]:
        done = None if truth is None else self._episode.judge(self.task, truth)
        if done is None:
            return (
                fallback_judge(self.task, last, self.steps)
                if fallback_judge is not None
                else (Outcome.UNKNOWN, NO_JUDGE)
            )
        return (Outcome.SUCCESS if done else Outcome.FAILURE), GROUND_TRUTH


def sampling_seed(task_id: str, attempt_id: str, step: int) -> int:
    """The seed of one decision, in [0, 2^63): the same task, attempt and step draw the same action again."""
    digest = hashlib.sha256(f"{task_id}\n{attempt_id}\n{step}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _foreign_apps(phone: Phone, step: int) -> list[str]:
    """What the phone was brought back from just before step number `step` was looked at or sent; the first is 0."""
    return [f"{each} at step {step}" for each in phone.taken_back()]


def _note(foreign_apps: Sequence[str], why: str) -> str:
    """What was left, then what ended the episode. Neither hides the other: each has half of the note for certain."""
    shown = [each[:FOREIGN_APP_CHARACTERS] for each in foreign_apps]
    room = NOTE_CHARACTERS - min(len(why), NOTE_CHARACTERS // 2) - len("; ")
    while len(left := _left(shown, len(foreign_apps) - len(shown))) > room:
        shown.pop()
    return "; ".join(filter(None, (left, why)))[:NOTE_CHARACTERS]


def _left(shown: Sequence[str], cut: int) -> str:
    if not shown:
        return ""
    return f"left the allowed apps: {', '.join(shown)}" + (f" and {cut} more" if cut else "")


def _reaches_the_phone(action: Action) -> bool:
    """An end is the policy's own; an invalid action is untrusted text that is no command."""
    return action.kind not in (ActionKind.COMPLETE, ActionKind.INVALID)


class _Stopwatch:
    def __init__(self, ticks: Callable[[], float]) -> None:
        self._ticks = ticks
        self._last = ticks()

    def lap(self) -> float:
        """Seconds since the last lap."""
        now = self._ticks()
        seconds, self._last = now - self._last, now
        return seconds
