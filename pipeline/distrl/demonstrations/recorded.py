"""Recorded demonstrations: episodes of AndroidControl and Android in the Wild, published to the demonstrations topic.
No phone is needed.

A step is recorded as tokens express it, as a person's is (human.py); log μ is 0. The episode is a success: the data
sets hold no failures but tasks that were found impossible, which are skipped. An episode's id is that of its data
set, so a role that was stopped, or is run again, goes on with the episodes that are not in the topic. They come one
after another in the order of the files: the warm-up draws by position, so a seed always has the same version 0.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, field
from itertools import dropwhile
from typing import Final

from distrl import images
from distrl.broker.connect import BeyondUseError
from distrl.broker.producer import RecordProducer, RecordTooLargeError
from distrl.clock import SYSTEM_CLOCK, Clock
from distrl.config import Config
from distrl.demonstrations.scripted import NAME, ids_in_topic
from distrl.errors import BrokerError, ConfigError, PolicyError
from distrl.policy.actions import to_text
from distrl.policy.protocol import Tokenizer
from distrl.policy.registry import tokenizer_of
from distrl.recordings.episode import EPISODES, RecordedEpisode, RecordedStep, Unreadable
from distrl.recordings.folder import Found
from distrl.rollout.back_pressure import AbandonedError, Retry
from distrl.rollout.wiring import screenshot_store
from distrl.store.objects import open_store
from distrl.tasks.held_out import HeldOut, held_out
from distrl.telemetry.monitor import Monitor, Report
from distrl.types import SCRIPTED, Action, ActionKind, ObjectRef, Outcome, Split, Step, Task, Trajectory

log = logging.getLogger(__name__)

RECORDED: Final = "recorded"
"""Outcome source: the data set says that the person did the task."""
ATTEMPT: Final = "recorded"
LEFT_OUT: Final = "wait"
"""Type of a step in which nothing is done."""
OPENS: Final = "open_app"
"""Type of a step that opens an app. If an episode begins with it, its demonstration begins after it, with the app
open."""

Keep = Callable[[bytes], ObjectRef]


class UnusableError(ValueError):
    """The episode cannot be a demonstration. kind: why, the same words for the same reason."""

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind


@dataclass
class Published:
    """What became of the episodes."""

    written: int = 0
    known: int = 0
    """In the topic before, or twice in the folder."""
    left_out: int = 0
    """Those that the caller named, and that are not in the topic."""
    already: int = 0
    """Those that the caller named, and that are demonstrations of this run all the same."""
    in_topic: int = 0
    """Demonstrations, others included."""
    skipped: Counter[str] = field(default_factory=Counter)
    """Reason -> how many were skipped for it."""


def run_recorded(
    config: Config,
    found: Iterable[Found],
    count: int | None,
    stop: threading.Event,
    monitor: Monitor | None = None,
    without: Set[str] = frozenset(),
) -> Published:
    """Publish the episodes in `found` that the topic does not have, until it has `count` demonstrations, there are no
    more, or `stop`.

    without: ids of episodes to leave out, as those of a split that is measured on; a topic keeps those that it has.
    Raises ConfigError where not one of them could be published and none was before.
    """
    monitor = monitor or Monitor()
    tokenizer, refused = tokenizer_of(config.policy), held_out(config.feeder)
    known = ids_in_topic(config)
    result = Published(in_topic=len(known))
    retry = Retry(stop)
    keep = screenshot_store(open_store(config.store), config.run, retry)
    monitor.ready()
    with RecordProducer(config, NAME) as producer:

        def publish(trajectory: Trajectory) -> None:
            what = f"publishing {trajectory.task_id}"
            queued = retry.call(
                what,
                lambda: producer.publish("demonstrations", trajectory.task_id, trajectory),
                BrokerError,
                but=(RecordTooLargeError, BeyondUseError),
            )
            retry.acknowledged(what, queued)

        for each in found:
            if stop.is_set() or (count is not None and result.in_topic >= count):
                return result
            monitor.progress()
            monitor.show(Report(metrics={"demonstrations": float(result.written)}))
            if isinstance(each, RecordedEpisode) and each.episode_id in without:
                there = task_id(each) in known
                result.already, result.left_out = result.already + there, result.left_out + (not there)
                continue
            try:
                _take(each, tokenizer, refused, known, keep, publish, result)
            except AbandonedError:
                return result
    if not (stop.is_set() or result.written or result.known or result.already):
        skipped = result.skipped + Counter({f"{EPISODES}: left out": result.left_out})
        reasons = "; ".join(f"{number} {why}" for why, number in skipped.most_common(3))
        raise ConfigError(
            "--episodes",
            f"no episode can be a demonstration: {reasons or 'there is none'}",
            "name another folder, fewer ids to leave out, or a base model that has their words in policy.base_model",
        )
    return result


def _take(
    found: Found,
    tokenizer: Tokenizer,
    refused: HeldOut,
    known: set[str],
    keep: Keep,
    publish: Callable[[Trajectory], None],
    result: Published,
) -> None:
    """Publish one episode, or count it as known or skipped."""
    if isinstance(found, Unreadable):
        result.skipped[f"{found.what}: cannot be read"] += 1
        log.warning("skipped: %s", found)
        return
    if task_id(found) in known:
        result.known += 1
        return
    try:
        refuse(found, tokenizer, refused)
        publish(demonstration_of(found, tokenizer, keep))
    except (UnusableError, RecordTooLargeError) as error:
        kind = error.kind if isinstance(error, UnusableError) else "too large for the broker"
        result.skipped[f"{EPISODES}: {kind}"] += 1
        log.info("skipped: %s: %s", found.where, error)
        return
    known.add(task_id(found))
    result.written += 1
    result.in_topic += 1


def task_id(episode: RecordedEpisode) -> str:
    return f"{episode.dataset.value}-{episode.episode_id}"


def refuse(episode: RecordedEpisode, tokenizer: Tokenizer, refused: HeldOut) -> None:
    """Raises UnusableError for a goal that is held out, or that the base model would read <unk> in."""
    try:
        refused.refuse(episode.goal, episode.where)
    except ConfigError as error:
        raise UnusableError("its goal is held out", error.what) from None
    if missing := tokenizer.unknown_words([episode.goal]):
        raise UnusableError("the base model lacks words of its goal", ", ".join(missing[:8]))


def demonstrated(episode: RecordedEpisode) -> list[RecordedStep]:
    """The steps of `episode` that can be learned from, and a COMPLETE at the end, as a policy must end.

    Left out are steps that wait, and those at the beginning that open an app. Raises UnusableError if another step has
    no counterpart among the actions: the steps after it would not follow from what is demonstrated.
    """
    begun = dropwhile(lambda step: step.type in (OPENS, LEFT_OUT), episode.steps)
    steps = [step for step in begun if step.type != LEFT_OUT]
    for step in steps:
        if step.action is None:
            raise UnusableError(f"`{step.type}` has no counterpart")
    kinds = [step.action.kind for step in steps if step.action is not None]
    if ActionKind.COMPLETE in kinds[:-1]:
        raise UnusableError("it goes on after it is complete")
    if set(kinds) <= {ActionKind.COMPLETE}:
        raise UnusableError("nothing is done in it")
    if episode.final is not None and kinds[-1] is not ActionKind.COMPLETE:
        steps.append(RecordedStep(episode.final, ActionKind.COMPLETE.value, Action(ActionKind.COMPLETE)))
    return steps


def demonstration_of(
    episode: RecordedEpisode, tokenizer: Tokenizer, keep: Keep, clock: Clock = SYSTEM_CLOCK
) -> Trajectory:
    """The episode as a record; its screenshots are kept once it is sure to be one. Raises UnusableError."""
    steps = demonstrated(episode)
    actions: list[Action] = []
    written: list[tuple[tuple[int, ...], tuple[int, ...]]] = []
    for step in steps:
        assert step.action is not None
        screen = images.size(step.png)
        try:
            prompt = tokenizer.encode_prompt(episode.goal, tuple(actions), screen)
            ids = tokenizer.encode_action(step.action, screen)
        except PolicyError as error:
            raise UnusableError("the base model cannot write or read a step", error.what) from None
        action = tokenizer.decode_action(ids, screen)
        if action.kind is not step.action.kind or action.text != step.action.text:
            raise UnusableError("the base model cannot write what is typed", f"{step.action.text!r:.80}")
        actions.append(action)
        written.append((prompt, ids))
    now = clock.now_ms()
    screens = [keep(step.png) for step in steps]
    made = tuple(
        Step(screen, prompt, ids, action, to_text(action), 0.0, SCRIPTED, "", now)
        for screen, (prompt, ids), action in zip(screens, written, actions, strict=True)
    )
    seed = int.from_bytes(hashlib.sha256(task_id(episode).encode()).digest()[:4], "big") >> 1
    suite = episode.dataset.value
    task = Task(task_id(episode), suite, suite, Split.TRAIN, episode.goal, len(made), seed)
    final = screens[-1] if actions[-1].kind is ActionKind.COMPLETE else None
    note = f"from {episode.where}"[:200]
    return Trajectory(
        task, ATTEMPT, NAME, suite, made, final, Outcome.SUCCESS, RECORDED, note, is_expert=True,
        started_at=now, finished_at=now,
    )  # fmt: skip
