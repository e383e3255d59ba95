"""One episode: reset, then look, store the screenshot, decide and act, until the policy says that it is done.

Phone, screenshot store, decider and clock come in; one trajectory comes out, whatever the phone does. A phone that
fails and a prompted model that does not answer end the episode as INTERRUPTED.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

from distrl import images
from distrl.clock import SYSTEM_CLOCK, Clock
from distrl.errors import ChatError, DeviceError, PolicyError
from distrl.tasks.outcome import StateCheck
from distrl.types import Action, ActionKind, HeldBack, ObjectRef, Outcome, ScreenSize, Step, Task, Trajectory, Unmet

log = logging.getLogger(__name__)

NOTE_CHARACTERS = 500
"""Bounds the note, which is for people: a device's error may carry a whole shell output, and records stay small."""
FOREIGN_APP_CHARACTERS = 150
"""Bounds the name of one app in the note, so that at least the first one fits."""
GROUND_TRUTH = "ground-truth"
NO_JUDGE = "none"


@dataclass(frozen=True, slots=True)
class Observation:
    """What a decision may depend on."""

    task: Task
    attempt_id: str
    step: int
    png: bytes
    """The screen."""
    previous: tuple[Action, ...]
    """The actions so far."""
    truth: Callable[[], Mapping[str, Any] | None]
    """Returns the phone's own state, None where it offers none. Only scripts read it."""
    earlier: tuple[bytes, ...] = ()
    """The screens before it, oldest first: `Decider.earlier_screens` of them, or as many as there were."""
    held_back: HeldBack = HeldBack.NO
    """Whether the previous action was not done, or undone. Only prompted models use it: the policy reads screen and
    prompt."""

    def screen(self) -> ScreenSize:
        """The size of the screenshot. Raises PolicyError where it is no PNG."""
        try:
            return images.size(self.png)
        except images.ImageError as error:
            raise PolicyError("screenshot", str(error), "check the device and its screen size") from None


@dataclass(frozen=True, slots=True)
class Decision:
    """One action, with the token ids read and written, and the weights that chose it."""

    action: Action
    action_text: str
    prompt_ids: tuple[int, ...]
    action_ids: tuple[int, ...]
    logprob: float
    """log μ(action), in nats."""
    version: int
    """Version of the weights; SCRIPTED or PROMPTED for deciders without weights."""
    version_sha256: str
    seconds: float = 0.0
    """Time from request to decision, including the wait for a batch."""
    entropy: float | None = None
    """As in `SampledAction`; None for a decider without weights, too."""


@dataclass(frozen=True, slots=True)
class Screen:
    """A screenshot of a phone."""

    png: bytes
    restless: bool = False
    """Whether it never stopped changing; this is then its last whole frame."""


class Decider(Protocol):
    @property
    def earlier_screens(self) -> int:
        """How many screens before the present one it reads."""
        ...

    def decide(self, observation: Observation) -> Decision: ...


class Phone(Protocol):
    """A leased phone. Every method has its own deadline and raises DeviceError where the phone fails."""

    @property
    def serial(self) -> str: ...
    def reset(self, task: Task) -> None: ...
    def settle(self) -> Screen:
        """The screen once it no longer changes, or its last frame at the deadline."""

    def perform(self, action: Action) -> HeldBack:
        """Do the action. Returns UNSENT where an app that is not allowed had come to the front (it was left), REFUSED
        where the phone cannot do the action; nothing is sent then."""

    def left_apps(self) -> Sequence[str]:
        """The apps that are not allowed and were left since the last call; for the note."""

    def truth(self) -> Mapping[str, Any] | None:
        """The phone's own state; None where it offers none, as a real phone."""

    def hierarchy(self, timeout_s: float) -> bytes | None:
        """The elements on the screen as XML, for prompted models; None where the phone gives none within timeout_s."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """How an episode ended, who says so, and why."""

    outcome: Outcome
    source: str
    unmet: tuple[Unmet, ...] = ()
    final_state: str = ""
    reason: str = ""


Judge = Callable[[Task, Mapping[str, Any]], StateCheck | None]
"""Judges a task by the phone's own state; None where the state does not decide it."""
FallbackJudge = Callable[[Task, bytes, Sequence[Step]], Judgement]
"""Judges from the last screen (PNG bytes) and the steps; UNKNOWN where these do not decide it."""


@dataclass(frozen=True)
class Episode:
    """What all episodes of a process share."""

    worker: str
    keep: Callable[[bytes], ObjectRef]
    """Stores a screenshot and returns its reference. The object exists before any record names it."""
    judge: Judge
    """Used where the phone offers its state."""
    clock: Clock = SYSTEM_CLOCK
    is_expert: bool = False
    fallback_judge: FallbackJudge | None = None
    """Used where the phone offers no state, or `judge` cannot decide by it."""

    def run(self, task: Task, attempt_id: str, phone: Phone, decider: Decider) -> Trajectory:
        """Play the episode. DeviceError and ChatError interrupt it; other errors of decider and store pass through."""
        playing = Playing(self, task, attempt_id, phone)
        while not playing.over:
            playing.step(decider)
        return playing.end()


class Playing:
    """A running episode: call `step` until it is `over`, then `end`, or `end` sooner.

    The constructor resets the phone. No method raises DeviceError or ChatError: they end the episode as INTERRUPTED.
    Other errors of decider and store pass through; the step that they broke off is not recorded.
    """

    def __init__(self, episode: Episode, task: Task, attempt_id: str, phone: Phone) -> None:
        self.task = task
        self.steps: list[Step] = []
        self.failed = ""
        """Why it was interrupted; empty while it was not."""
        self._episode = episode
        self._attempt_id = attempt_id
        self._phone = phone
        self._foreign_apps: list[str] = []
        self._earlier: deque[bytes] = deque()
        self._started_at = episode.clock.now_ms()
        with self._interrupted():
            phone.reset(task)

    @property
    def over(self) -> bool:
        """Whether it was interrupted, the policy said that it is done, or the task's steps are used up."""
        ended = bool(self.steps and self.steps[-1].action.kind is ActionKind.COMPLETE)
        return bool(self.failed) or ended or len(self.steps) >= self.task.max_steps

    def step(self, decider: Decider) -> None:
        with self._interrupted():
            step = self._next(decider)
            self._foreign_apps += _foreign_apps(self._phone, len(self.steps))
            self.steps.append(step)

    def end(self, fallback_judge: FallbackJudge | None = None) -> Trajectory:
        """The trajectory. fallback_judge: replaces the episode's own."""
        final, restless = None, False
        judged = Judgement(Outcome.INTERRUPTED, NO_JUDGE)
        if not self.failed:
            with self._interrupted():
                last = self._phone.settle()
                self._undone()
                final, restless = self._episode.keep(last.png), last.restless
                judged = self._judged(self._phone.truth(), last.png, fallback_judge or self._episode.fallback_judge)
        return Trajectory(
            self.task,
            self._attempt_id,
            self._episode.worker,
            self._phone.serial,
            tuple(self.steps),
            final,
            judged.outcome,
            judged.source,
            _note(self._foreign_apps, self.failed),
            self._episode.is_expert,
            self._started_at,
            self._episode.clock.now_ms(),
            final_restless=restless,
            unmet=judged.unmet,
            final_state=judged.final_state,
            reason=judged.reason[:NOTE_CHARACTERS],
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
        chosen = decider.decide(
            Observation(
                self.task,
                self._attempt_id,
                len(previous),
                seen.png,
                previous,
                phone.truth,
                tuple(self._earlier),
                self.steps[-1].held_back if self.steps else HeldBack.NO,
            )
        )
        self._earlier = deque((*self._earlier, seen.png), maxlen=decider.earlier_screens)
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
            entropy=chosen.entropy,
        )

    def _undone(self) -> None:
        """Note the apps that were left since the last call. If there are any, leaving them has undone the last action:
        mark it as undone if it was sent."""
        left, steps = _foreign_apps(self._phone, len(self.steps)), self.steps
        self._foreign_apps += left
        if left and steps and steps[-1].held_back is HeldBack.NO and _reaches_the_phone(steps[-1].action):
            steps[-1] = replace(steps[-1], held_back=HeldBack.UNDONE)

    def _judged(self, truth: Mapping[str, Any] | None, last: bytes, fallback_judge: FallbackJudge | None) -> Judgement:
        found = None if truth is None else self._episode.judge(self.task, truth)
        if found is not None:
            outcome = Outcome.SUCCESS if found.done else Outcome.FAILURE
            return Judgement(outcome, GROUND_TRUTH, found.unmet, found.final_state)
        if fallback_judge is not None:
            return fallback_judge(self.task, last, self.steps)
        return Judgement(Outcome.UNKNOWN, NO_JUDGE)


def sampling_seed(task_id: str, attempt_id: str, step: int) -> int:
    """The seed of one decision, in [0, 2^63), equal for equal task, attempt and step."""
    digest = hashlib.sha256(f"{task_id}\n{attempt_id}\n{step}".encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def _foreign_apps(phone: Phone, step: int) -> list[str]:
    """The apps that were left just before the screenshot or the action of step number `step` (from 0)."""
    return [f"{each} at step {step}" for each in phone.left_apps()]


def _note(foreign_apps: Sequence[str], why: str) -> str:
    """The apps that were left, then what ended the episode; each may take at least half of the note's length."""
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
    """Whether the action is sent: COMPLETE only ends the episode, and INVALID is untrusted text, no command."""
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
