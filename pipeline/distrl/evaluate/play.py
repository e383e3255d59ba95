"""Plays evaluation tasks and publishes each record, for trained versions and prompted agents alike."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from typing import Protocol

from distrl.broker.producer import RecordProducer
from distrl.config import Config
from distrl.evaluate.gather import records
from distrl.evaluate.policies import PolicyId
from distrl.rollout.actor_pool import play_all, publish_or_drop_steps
from distrl.rollout.back_pressure import Retry
from distrl.rollout.episode import Decider, Episode, Phone
from distrl.rollout.phones import Phones
from distrl.rollout.wiring import TRUTH, fallback_judge_of, judge_of, screenshot_store
from distrl.store.objects import ObjectStore
from distrl.tasks.lists import ListSuite, suite_of
from distrl.tasks.suite import EVALUATION_SEED
from distrl.text import printable
from distrl.types import DeviceHealth, Evaluation, LogPosition, Outcome, Split, Task, Trajectory

log = logging.getLogger(__name__)

ATTEMPT = "greedy"
"""Attempt id: greedy decoding is deterministic, so every attempt at a task is the same."""
SHOWN = 5
"""Most names in a message."""
RETRIES = 3
"""How often an interrupted episode is played again; its task is then left to the next evaluation."""

Keep = Callable[[Trajectory], None]
Turn = Callable[[tuple[DeviceHealth, ...]], object]
"""Called repeatedly while phones play, with their health."""
Actor = Callable[[Phone], AbstractContextManager[Decider]]
"""Gives the decider of one episode on a phone, for the time of the block."""


class Player(Protocol):
    """Plays each task once and passes every trajectory to `keep`. Ends early at `stop`, and sets `give_up` once waiting
    calls must end.
    """

    def __call__(
        self, tasks: Sequence[Task], episode: Episode, keep: Keep, *, stop: threading.Event, give_up: threading.Event
    ) -> None: ...


def evaluation_tasks(config: Config, split: Split, episodes: int) -> list[Task]:
    """The fixed tasks of a split, with ids that no training task has.

    Raises ConfigError for an unknown suite, and for a list that is wrong or has no task of the split.
    """
    suite = suite_of(config.feeder)
    return [suite.task(index, EVALUATION_SEED, split) for index in range(episodes)]


def warn_left_out(config: Config, split: Split, episodes: int, setting: str) -> None:
    """Log which suites or families of a list the first `episodes` tasks of a split have nothing of. setting: that gives
    their number."""
    suite = suite_of(config.feeder)
    if isinstance(suite, ListSuite) and (missing := suite.never_played(split, episodes)):
        log.warning(
            "none of the first %d %s tasks of feeder.tasks is of %s, so none of those is played; mix the rows of that "
            "split, or raise %s",
            episodes,
            split.value,
            ", ".join(map(printable, missing[:SHOWN])) + (" and others" if len(missing) > SHOWN else ""),
            setting,
        )


def known_of(config: Config, policy_id: PolicyId, split: Split, since_ms: int) -> dict[str, Evaluation]:
    """Task id -> its first evaluation of this policy, among records written since since_ms (ms since the epoch)."""
    found: dict[str, Evaluation] = {}
    for _, evaluation in records(config, "evaluations", Evaluation, since_ms):
        same = PolicyId(evaluation.version, evaluation.version_sha256) == policy_id
        if same and evaluation.trajectory.task.split is split:
            found.setdefault(evaluation.trajectory.task_id, evaluation)
    return found


def play_and_publish(
    config: Config,
    store: ObjectStore,
    policy_id: PolicyId,
    tasks: Sequence[Task],
    play: Player,
    stop: threading.Event,
    suffix: str = "",
    on_played: Callable[[Trajectory], None] = lambda trajectory: None,
) -> None:
    """Play each task once and publish what came of it.

    A task that was interrupted each time gets no record: it says nothing of the policy, and a record would count for
    good, though a later evaluation may find server and phones sound. What cannot be published is recorded as
    interrupted, as playing it again would give the same. suffix: added to `worker` of the trajectories. on_played:
    called with each record that was published.
    """
    give_up = threading.Event()
    retry = Retry(give_up)
    name = config.evaluate.name
    episode = Episode(
        name + suffix,
        screenshot_store(store, config.run, retry),
        TRUTH,
        fallback_judge=fallback_judge_of(judge_of(config, store)),
    )
    with RecordProducer(config, name) as producer:

        def publish(played: Trajectory) -> Future[LogPosition | None]:
            evaluation = Evaluation(policy_id.version, policy_id.sha256, f"{policy_id.label}-{played.task_id}", played)
            return producer.publish("evaluations", str(policy_id.version), evaluation)

        def keep(trajectory: Trajectory) -> None:
            if trajectory.outcome is Outcome.INTERRUPTED:
                log.warning("%s was interrupted each time and is left to the next evaluation", trajectory.task_id)
                return
            what = f"publishing the evaluation of {trajectory.task_id}"
            on_played(publish_or_drop_steps(retry, what, publish, trajectory))

        play(tasks, episode, keep, stop=stop, give_up=give_up)


def on_phones(
    config: Config,
    actor: Actor,
    tasks: Sequence[Task],
    episode: Episode,
    keep: Keep,
    *,
    stop: threading.Event,
    give_up: threading.Event,
    turn: Turn = lambda health: None,
) -> None:
    """Play on the phones of `config`; with `config` and `actor` bound it is a Player. Stores nothing itself.

    Raises DeviceError where there is no phone.
    """
    with Phones(config, stop) as phones:

        def play(task: Task, phone: Phone) -> Trajectory:
            with actor(phone) as decider:
                return episode.run(task, ATTEMPT, phone, decider)

        play_all(
            tasks,
            phones,
            play,
            keep,
            worker=episode.worker,
            retries=RETRIES,
            drain_s=config.worker.drain_timeout_s,
            stop=stop,
            give_up=give_up,
            turn=lambda: turn(phones.health()),
        )
