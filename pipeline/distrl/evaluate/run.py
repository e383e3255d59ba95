"""The evaluator role: greedy episodes under fixed versions on tasks that nobody trains on, judged by ground truth.

The task list of a split is fixed: indices 0 to n − 1 under one seed, whatever the run's own seed is, so that versions,
runs and settings are compared on the same tasks. An evaluated task is one record, the first in the log of its version
and task id; an evaluation that is stopped or killed, and started again, goes on with the tasks that have none yet.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from distrl.broker.connect import RefusedError
from distrl.broker.heartbeats import HeartbeatSender
from distrl.broker.producer import RecordProducer
from distrl.broker.versions import VersionFollower, lineage, written_at
from distrl.config import Config
from distrl.errors import BrokerError, ConfigError, StoreError
from distrl.evaluate import curves
from distrl.evaluate.gather import records
from distrl.evaluate.play import Keep, evaluation_tasks, known_of, on_phones, play_and_publish
from distrl.evaluate.policies import Acted
from distrl.rollout.episode import Decider, Episode, Phone
from distrl.rollout.reload import wait_first
from distrl.rollout.serving import refuse_other_base, serving
from distrl.store.objects import CorruptObjectError, MissingObjectError, open_store
from distrl.supervised import StoppableThread
from distrl.types import Evaluation, Split, Task, Version

log = logging.getLogger(__name__)

SKEW_MS = 600_000
"""How far the brokers' clocks may be apart, or one of them go back. Evaluations of a version are looked for from when
it came into the log: to read all of them for each version would take longer with every one, for ever."""

BY_HAND = "-by-hand"
"""Ends the name of the evaluator in what a person had played (`evaluate --versions`): of as many tasks as they like."""


@dataclass(frozen=True, slots=True)
class VersionScore:
    """What a person is told of one evaluated version."""

    version: int
    split: Split
    score: curves.Score

    def __str__(self) -> str:
        return f"version {self.version}, {self.split.value}: {self.score}"


def evaluate_version(
    config: Config, version: Version, split: Split, tasks: Sequence[Task], stop: threading.Event, suffix: str = ""
) -> list[Evaluation]:
    """Play the tasks that `version` has no record for, publish each, and return all records of it, in task order.

    tasks: of `split`. suffix: of the evaluator's name in what is played. Fewer records than tasks if stopped before.
    Raises PolicyError where the version belongs to another base model.
    """
    acted = Acted(version.version, version.adapter.sha256)
    since = max(0, (written_at(config, version.version) or 0) - SKEW_MS)
    known = known_of(config, acted, split, since)
    left = [task for task in tasks if task.task_id not in known]
    log.info(
        "version %d, %s: %d tasks, %d of them evaluated before",
        version.version,
        split.value,
        len(tasks),
        len(tasks) - len(left),
    )
    if left:
        store = open_store(config.store)
        play = partial(greedy, config, version, store.get(version.adapter))
        play_and_publish(config, store, acted, left, play, stop, suffix=suffix)
        known = known_of(config, acted, split, since)  # not what was played here: another evaluator may have been first
    return [known[task.task_id] for task in tasks if task.task_id in known]


def evaluate_versions(
    config: Config, wanted: str, split: Split, episodes: int, stop: threading.Event
) -> list[VersionScore]:
    """Evaluate the versions that `wanted` names (numbers, `first`, `last`, joined by commas). A role that ends."""
    tasks = evaluation_tasks(config, split, episodes)
    scores = []
    for version in named(wanted, lineage(config)):
        found = evaluate_version(config, version, split, tasks, stop, BY_HAND)
        scores.append(VersionScore(version.version, split, curves.score(item.trajectory for item in found)))
        if stop.is_set():
            break
    return scores


def run_evaluator(config: Config, stop: threading.Event) -> None:
    """Evaluate the newest version on the validation tasks, again and again, until `stop`.

    A version that an evaluator before this one was killed or stopped in is finished first: half of its tasks, the
    short ones rather than the long, would be another measure than the whole of them. A broker or a store that is away
    is waited out.
    """
    tasks = evaluation_tasks(config, Split.VALIDATION, config.evaluate.validation_episodes)
    progress = Progress()
    with VersionFollower(config) as versions, RecordProducer(config, config.evaluate.name) as producer:
        if wait_first(versions, stop) is None:
            return
        beating = StoppableThread(lambda ended: _beat_until(ended, config, producer, progress), "heartbeats")
        try:
            begun, dealt_with = _begun(config, tasks), None
            while not stop.is_set():
                beating.check()
                version = begun or versions.latest()
                if version is not None and version != dealt_with and _follow(config, version, tasks, progress, stop):
                    dealt_with = version
                    if begun is not None:
                        begun = None
                        continue
                stop.wait(config.evaluate.every_s)
        finally:
            beating.stop()


@dataclass
class Progress:
    """What the heartbeats tell: the version evaluated last, and how many records all of them have.

    A version that was passed over is none of them.
    """

    version: Version | None = None
    evaluated: int = 0


def _follow(config: Config, version: Version, tasks: Sequence[Task], progress: Progress, stop: threading.Event) -> bool:
    """Whether `version` is dealt with, evaluated or passed over; False where that is worth another try."""
    try:
        found = evaluate_version(config, version, Split.VALIDATION, tasks, stop)
    except (MissingObjectError, CorruptObjectError) as error:
        log.error("version %d is passed over, and not evaluated: %s", version.version, error)
        return True
    except (StoreError, BrokerError) as error:
        if isinstance(error, RefusedError):
            raise
        log.error("version %d is evaluated later: %s", version.version, error)
        return False
    progress.version, progress.evaluated = version, progress.evaluated + len(found)
    score = curves.score(item.trajectory for item in found)
    log.info("%s", VersionScore(version.version, Split.VALIDATION, score))
    return True


def _begun(config: Config, tasks: Sequence[Task]) -> Version | None:
    """The version that an evaluator before this one did not finish; None where there is none."""
    found = cut_off((evaluation for _, evaluation in records(config, "evaluations", Evaluation)), tasks)
    return next((version for version in lineage(config) if version.version == found), None)


def cut_off(evaluations: Iterable[Evaluation], tasks: Sequence[Task]) -> int | None:
    """The newest version that has a record of some of `tasks` and none of others, whoever's record came last.

    What a person had played completes a version and begins none: they may have wanted fewer tasks.
    """
    ids = {task.task_id for task in tasks}
    done: dict[int, set[str]] = defaultdict(set)
    begun: set[int] = set()
    for evaluation in evaluations:
        played = evaluation.trajectory
        if evaluation.version >= 0 and played.task_id in ids:
            done[evaluation.version].add(played.task_id)
            if not played.worker.endswith(BY_HAND):
                begun.add(evaluation.version)
    return max((version for version in begun if done[version] != ids), default=None)


def named(wanted: str, versions: Sequence[Version]) -> list[Version]:
    """The versions that `wanted` names, each once, in the order named. Raises ConfigError for one that is not there."""
    if not versions:
        raise ConfigError("--versions", "this run has published no version yet", "start the learner and wait for it")
    by_name = {str(version.version): version for version in versions}
    by_name |= {"first": versions[0], "last": versions[-1]}
    found: dict[int, Version] = {}
    for name in (part.strip() for part in wanted.split(",")):
        if name not in by_name:
            raise ConfigError("--versions", f"no version '{name}'", f"first, last, or one up to {versions[-1].version}")
        found[by_name[name].version] = by_name[name]
    return list(found.values())


def greedy(
    config: Config,
    version: Version,
    adapter: bytes,
    tasks: Sequence[Task],
    episode: Episode,
    keep: Keep,
    *,
    stop: threading.Event,
    give_up: threading.Event,
) -> None:
    """Play every task once on the phones of `config` under the weights `adapter`, and `keep` each trajectory.

    Where screenshots and trajectories go is the caller's: this writes nothing. Ends early at `stop`. Raises
    PolicyError where the version belongs to another base model, DeviceError where there is no phone.
    """
    with serving(config, temperature=None) as policy:
        refuse_other_base(version, policy.base_sha256)
        policy.batcher.swap(version, adapter)

        @contextmanager
        def acting(phone: Phone) -> Iterator[Decider]:
            with policy.batcher.episode():
                yield policy.batcher

        on_phones(config, acting, tasks, episode, keep, stop=stop, give_up=give_up)


def _beat_until(ended: threading.Event, config: Config, producer: RecordProducer, progress: Progress) -> None:
    """Heartbeats on a timer: an evaluation lasts longer than a process may be silent."""
    every_s = config.worker.heartbeat_s
    heartbeats = HeartbeatSender(
        config.evaluate.name, "evaluator", every_s, lambda beat: producer.publish("heartbeats", beat.process, beat)
    )
    while not ended.wait(every_s):
        heartbeats.send(progress.version, {"evaluated": progress.evaluated})
