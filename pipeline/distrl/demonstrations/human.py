"""Human demonstrations: a person does tasks in the page of `distrl phones play`, and they are published like scripted
ones (scripted.py), to the demonstrations topic.

A step is recorded like the policy's: the screen once it rests, then the action as tokens can express it (a tap in the
middle of its cell, one of four swipes), which is then done. Actions without tokens are refused and not done. log μ is
0: the person's policy is unknown, and taken as certain.

Not thread-safe: the page sends one request at a time.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TooLate
from dataclasses import replace
from typing import Any, Final

from distrl.clock import SYSTEM_CLOCK
from distrl.config import Config
from distrl.device.allow_list import PackageAllowList
from distrl.device.session import AdbSession
from distrl.errors import BrokerError, ConfigError, DistrlError
from distrl.policy.actions import to_text
from distrl.policy.protocol import Tokenizer
from distrl.policy.registry import tokenizer_of
from distrl.rollout.actor_pool import new_attempt_id
from distrl.rollout.episode import Decision, Episode, Judgement, Observation, Phone, Playing
from distrl.rollout.phones import SessionPhone
from distrl.rollout.vocabulary import refuse_unknown_instruction
from distrl.rollout.wiring import TRUTH
from distrl.store.folders import SCREENSHOTS
from distrl.store.objects import open_store, utc_day
from distrl.tasks.demonstration import PLAYED_ID
from distrl.tasks.held_out import HeldOut, held_out
from distrl.tasks.lists import suite_of
from distrl.tasks.row import MAX_INSTRUCTION, plain_text
from distrl.types import (
    SCRIPTED,
    Action,
    ActionKind,
    HeldBack,
    LogPosition,
    ObjectRef,
    Outcome,
    Split,
    Step,
    Task,
    Trajectory,
)

NAME: Final = "play"
PERSON: Final = "person"
"""Outcome source where only the person's word tells."""
OFFERED: Final = 28
"""Tasks of the suite that a person may choose from: four of each family of the home suite."""
FREE: Final = "free"
"""Suite and family of a task in the person's own words."""
FREE_STEPS: Final = 30
ACKNOWLEDGE_S: Final = 20.0
"""Longest wait of the page for the broker's acknowledgement; pressing done again waits again."""

NOT_DONE: Final[Mapping[HeldBack, tuple[str, str]]] = {
    HeldBack.UNSENT: ("another app came to the front and was left; nothing was done",
                      "look at the screen, and do it again"),
    HeldBack.REFUSED: ("the phone cannot do this; nothing was done",
                       "type printable ASCII, or install ADBKeyBoard on the phone and set devices.keyboard to auto"),
}  # fmt: skip
"""Why an action was not done and is not recorded -> (what happened, hint)."""

Publish = Callable[[Trajectory], Future[LogPosition | None]]


class NotRecordedError(DistrlError):
    """The request cannot be part of a demonstration; nothing was done."""


class Decided:
    """A Decider whose action the person has chosen; it is done as tokens express it."""

    earlier_screens: Final = 0

    def __init__(self, action: Action, tokenizer: Tokenizer) -> None:
        self._action = action
        self._tokenizer = tokenizer

    def decide(self, observation: Observation) -> Decision:
        """Raises PolicyError or NotRecordedError where tokens cannot express the action."""
        screen = observation.screen()
        ids = self._tokenizer.encode_action(self._action, screen)
        action = self._tokenizer.decode_action(ids, screen)
        if action.kind is ActionKind.TYPE and action.text != self._action.text:
            raise NotRecordedError(
                "record",
                f"the base model cannot write {self._action.text!r:.80}; it would type {action.text!r:.80}",
                "type it as the base model does: lower case, no punctuation around words, single spaces",
            )
        prompt = self._tokenizer.encode_prompt(observation.task.instruction, observation.previous, screen)
        return Decision(action, to_text(action), prompt, ids, 0.0, SCRIPTED, "")


class Recorder:
    """tasks: those on offer, in order. refused: held-out instructions, which a person may not give as a task either.
    publish: to the demonstrations topic. episode: with is_expert.
    """

    def __init__(
        self,
        phone: Phone,
        tokenizer: Tokenizer,
        episode: Episode,
        tasks: Sequence[Task],
        refused: HeldOut,
        publish: Publish,
    ) -> None:
        self._phone = phone
        self._tokenizer = tokenizer
        self._episode = episode
        self._tasks = tuple(tasks)
        self._refused = refused
        self._publish = publish
        self._playing: Playing | None = None
        self._unpublished: Trajectory | None = None
        self._queued: Future[LogPosition | None] | None = None

    @property
    def recording(self) -> bool:
        return self._playing is not None or self._unpublished is not None

    def state(self) -> Mapping[str, Any]:
        """JSON-able: the tasks on offer, and what is being recorded; `over` once no further action is possible."""
        playing, waiting = self._playing, self._unpublished
        now: Mapping[str, Any] | None = None
        if playing is not None:
            now = _state_of(playing.task, playing.steps, over=playing.over, failed=playing.failed)
        elif waiting is not None:
            now = _state_of(waiting.task, waiting.steps, over=True, failed="")
        return {"tasks": [task.instruction for task in self._tasks], "recording": now}

    def begin(self, asked: Mapping[str, Any]) -> None:
        """Put the phone where a task begins: {"task": its number} or {"instruction": "what to do"}.

        Raises ConfigError for an instruction that the base model cannot read, and for an own one that is held out;
        NotRecordedError for an unknown task, and where the phone cannot be put there.
        """
        if self.recording:
            raise NotRecordedError("record", "a demonstration is under way", "finish or discard it first")
        task = self._task(asked)
        refuse_unknown_instruction(task.instruction, self._tokenizer)
        playing = Playing(self._episode, task, new_attempt_id(), self._phone)
        if playing.failed:
            raise NotRecordedError(
                "record",
                f"the phone cannot be put where the task begins: {playing.failed}",
                "fix the phone, or choose another task",
            )
        self._playing = playing

    def act(self, action: Action) -> None:
        """Do the next action of the demonstration, as tokens express it.

        Raises PolicyError or NotRecordedError where they cannot, NotRecordedError where the allow-list dropped it or
        the phone cannot do it, StoreError where the screenshot cannot be stored; nothing was done then.
        """
        playing = self._under_way()
        if playing.over:
            raise NotRecordedError("record", f"no further action: {_why_over(playing)}", "press done, or discard it")
        playing.step(Decided(action, self._tokenizer))
        self._refuse_failed(playing)
        held_back = playing.steps[-1].held_back
        if held_back in NOT_DONE:
            playing.steps.pop()
            raise NotRecordedError("record", *NOT_DONE[held_back])

    def finish(self, *, well: bool) -> Mapping[str, Any]:
        """Publish the demonstration. well: whether the person says it succeeded; counts where the phone's state cannot
        tell.

        If `well`, it ends with COMPLETE, as a policy must end. Returns the result, JSON-able. Raises BrokerError where
        it is not acknowledged; the next call then publishes it.
        """
        if self._unpublished is None:
            self._unpublished = self._ended(self._under_way(), well)
            self._playing = None
        trajectory = self._unpublished
        at = self._acknowledged(trajectory)
        self._unpublished = None
        state = _state_of(trajectory.task, trajectory.steps, over=True, failed="")
        place = at.offset if at is not None else None
        return {**state, "outcome": trajectory.outcome.value, "source": trajectory.outcome_source, "offset": place}

    def discard(self) -> None:
        """Drop the recording without publishing it. Raises NotRecordedError if the producer has it already."""
        if self._queued is not None:
            raise NotRecordedError(
                "record", "it waits for Kafka, and is published as soon as that answers", "press done again then"
            )
        self._playing = self._unpublished = None

    def _task(self, asked: Mapping[str, Any]) -> Task:
        number = asked.get("task")
        if number is None:
            try:
                instruction = plain_text(asked.get("instruction"), "instruction", MAX_INSTRUCTION)
            except ValueError as error:
                raise NotRecordedError("record", str(error), "say in one line what is to be done") from None
            self._refused.refuse(instruction, "record")
            name = f"{PLAYED_ID}{uuid.uuid4().hex}"
            return Task(name, FREE, FREE, Split.TRAIN, instruction, FREE_STEPS, _seed(name))
        if type(number) is not int or not 0 <= number < len(self._tasks):
            raise NotRecordedError("record", f"there is no task {number!r:.40}", "choose one of the list")
        return replace(self._tasks[number], task_id=f"{PLAYED_ID}{uuid.uuid4().hex}")

    def _ended(self, playing: Playing, well: bool) -> Trajectory:
        if not playing.steps and not well:
            raise NotRecordedError("record", "nothing was done yet", "do something first, or discard it")
        if well and not playing.over:
            playing.step(Decided(Action(ActionKind.COMPLETE), self._tokenizer))
        word = Outcome.SUCCESS if well else Outcome.FAILURE
        trajectory = playing.end(lambda task, last, steps: Judgement(word, PERSON))
        self._refuse_failed(playing)
        return trajectory

    def _acknowledged(self, trajectory: Trajectory) -> LogPosition | None:
        queued = self._queued = self._queued or self._publish(trajectory)
        try:
            at = queued.result(ACKNOWLEDGE_S)
        except TooLate:
            raise BrokerError(
                "demonstrations", f"not acknowledged within {ACKNOWLEDGE_S:g} s", "press done again once Kafka is back"
            ) from None
        except BrokerError:
            self._queued = None
            raise
        self._queued = None
        return at

    def _under_way(self) -> Playing:
        if self._playing is None:
            raise NotRecordedError("record", "nothing is being recorded", "press record first")
        return self._playing

    def _refuse_failed(self, playing: Playing) -> None:
        if playing.failed:
            raise NotRecordedError(
                "record",
                f"the phone failed, and what it interrupted is no demonstration: {playing.failed}",
                "discard it, and record it again",
            )


def recorder_of(config: Config, session: AdbSession, publish: Publish) -> Recorder:
    """The recorder of the phone behind `session`, for the run of `config`.

    Raises PolicyError without a base model; ConfigError for an emulator whose tasks begin at a snapshot: only the
    process that started it can restore that.
    """
    emulators = config.devices.emulators
    if emulators.snapshot and session.serial in emulators.serials:
        raise ConfigError(
            "devices.emulators.snapshot",
            f"a demonstration on {session.serial} would not begin at its snapshot",
            "record on another phone, or with the snapshot set to nothing here and for the workers",
        )
    store, folder = open_store(config.store), SCREENSHOTS.of(config.run)

    def keep(png: bytes) -> ObjectRef:
        return store.put(folder, png, "png", utc_day(SYSTEM_CLOCK.now_ms()))

    return Recorder(
        SessionPhone(session, PackageAllowList(session, config.devices)),
        tokenizer_of(config.policy),
        Episode(NAME, keep, TRUTH, is_expert=True),
        offered_tasks(config),
        held_out(config.feeder),
        publish,
    )


def offered_tasks(config: Config, most: int = OFFERED) -> list[Task]:
    """Training tasks under another seed than the feeder's, so that no demonstrated task is fed in the same way.

    One per instruction, since a short list repeats itself.
    """
    suite, seed = suite_of(config.feeder), _seed(f"played {config.learner.seed}")
    drawn = [suite.task(index, seed, Split.TRAIN) for index in range(most)]
    return list({task.instruction: task for task in drawn}.values())


def _state_of(task: Task, steps: Sequence[Step], *, over: bool, failed: str) -> dict[str, Any]:
    return {
        "instruction": task.instruction,
        "steps": len(steps),
        "most": task.max_steps,
        "over": over,
        "failed": failed,
    }


def _why_over(playing: Playing) -> str:
    return "the phone failed" if playing.failed else f"its {playing.task.max_steps} steps are used up"


def _seed(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "big") >> 1
