"""The evaluator role: greedy episodes of published versions on held-out tasks, judged by ground truth.

The tasks of a split are fixed: indices 0 to n − 1 under one seed, whatever the run's seed is, so that versions, runs
and settings are compared on the same tasks. Of each version and task the first record in the log counts, whatever its
outcome (`broker.duplicates.policy_and_task`); one without a known outcome is counted apart. An evaluation that is
stopped or killed goes on, when started again, with the tasks without a record.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

from distrl.broker.connect import RefusedError
from distrl.broker.heartbeats import HeartbeatSender
from distrl.broker.journal import versions_in_force
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import retained
from distrl.broker.versions import VersionFollower, lineage, written_at
from distrl.clock import SYSTEM_CLOCK
from distrl.config import Config
from distrl.errors import BrokerError, ConfigError, StoreError
from distrl.evaluate import curves
from distrl.evaluate.curves import BY_HAND
from distrl.evaluate.gather import records
from distrl.evaluate.play import Keep, Turn, evaluation_tasks, known_of, on_phones, play_and_publish, warn_left_out
from distrl.evaluate.policies import PolicyId
from distrl.rollout.decider import PolicyClosedError, VersionedDecider
from distrl.rollout.episode import Decider, Episode, Phone
from distrl.rollout.reload import wait_first
from distrl.rollout.served.server import ServerError
from distrl.rollout.serving import refuse_other_base, serving
from distrl.store.adapters import read_adapter
from distrl.store.objects import CorruptObjectError, MissingObjectError, open_store
from distrl.supervised import StoppableThread
from distrl.telemetry.logs import about
from distrl.telemetry.monitor import SHOWN_S, Monitor, Reporter
from distrl.telemetry.stalls import ANSWERING
from distrl.text import ranges
from distrl.types import DeviceHealth, Evaluation, Split, Task, Trajectory, Version

log = logging.getLogger(__name__)

SKEW_MS = 600_000
"""How far brokers' clocks may differ or jump back. A version's evaluations are read from its own record's time on:
reading all of them for each version would take longer and longer."""

LOOKED_AT = 20
"""Of how many versions an evaluator's start sees the evaluation: all those of weeks take it many minutes."""
FURTHER = 4
"""How many times as far back it looks where it has seen fewer."""
TIMES = 3
"""Most evaluations of the newest version where tasks of it are interrupted each time."""
STOP_S = 0.1
"""Interval at which the loading of a version checks whether the evaluator is to stop."""
CLOSING = "closing"
"""Name of the thread that checks."""
TURN_S = 1.0
"""Longest pause of the evaluator's loop between two versions."""


@dataclass(frozen=True, slots=True)
class VersionScore:
    """The score of one evaluated version, for people."""

    version: int
    split: Split
    score: curves.SuccessRate
    left: int = 0
    """Tasks without a record, because the evaluation was stopped (those that are done are then rather the short ones),
    or because they were interrupted each time."""

    def __str__(self) -> str:
        return f"version {self.version}, {self.split.value}: {self.score}" + (
            f"; {self.left} tasks have no record yet" if self.left else ""
        )


def evaluate_version(
    config: Config,
    version: Version,
    split: Split,
    tasks: Sequence[Task],
    stop: threading.Event,
    suffix: str = "",
    turn: Turn = lambda health: None,
) -> list[Evaluation]:
    """Play the tasks that `version` has no record for, publish each, and return all its records, in task order.

    tasks: of `split`. suffix: added to the evaluator's name in the trajectories. turn: called while phones play.
    Returns fewer records than tasks if stopped before, or where tasks were interrupted each time. Raises PolicyError
    where the version belongs to another base model.
    """
    policy_id = PolicyId(version.version, version.adapter.sha256)
    since = begins_at(version, written_at(config, version.version))
    known = known_of(config, policy_id, split, since)
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
        play = partial(greedy, config, version, read_adapter(store, config.run, version), turn=turn)
        play_and_publish(config, store, policy_id, left, play, stop, suffix=suffix)
        known = known_of(config, policy_id, split, since)  # read again: another evaluator may have been first
    return [known[task.task_id] for task in tasks if task.task_id in known]


def begins_at(version: Version, written: int | None) -> int:
    """The time (ms since the epoch) from which on the log may have evaluations of `version`. written: when its record
    was, by its broker; in a copy of a run that may be long after its evaluations, which are copied before it."""
    return max(0, min(written or 0, version.published_at) - SKEW_MS)


def evaluate_versions(
    config: Config, wanted: str, split: Split, episodes: int, stop: threading.Event
) -> list[VersionScore]:
    """Evaluate the versions in `wanted` (numbers, `first`, `last`, joined by commas). Returns once all were played, or
    at `stop`."""
    tasks = evaluation_tasks(config, split, episodes)
    warn_left_out(config, split, episodes, "--episodes or evaluate.episodes")
    scores = []
    for version in named(wanted, published(config)):
        found = evaluate_version(config, version, split, tasks, stop, BY_HAND)
        left = len(tasks) - len(found)
        scores.append(VersionScore(version.version, split, curves.score(item.trajectory for item in found), left))
        if stop.is_set():
            break
    return scores


def run_evaluator(config: Config, stop: threading.Event, monitor: Monitor | None = None) -> None:
    """Evaluate the newest version on the validation tasks, again and again, until `stop`.

    A version that an earlier evaluator left unfinished is finished first: its finished tasks, rather the short ones,
    would be a biased measure. Retries while the broker, the store or the model server does not answer. Tasks of the
    newest version that were interrupted each time are played again, in TIMES evaluations at most.
    """
    tasks = evaluation_tasks(config, Split.VALIDATION, config.evaluate.validation_episodes)
    warn_left_out(config, Split.VALIDATION, len(tasks), "evaluate.validation_episodes")
    progress, monitor = EvaluationProgress(len(tasks)), monitor or Monitor()
    with VersionFollower(config) as versions, RecordProducer(config, config.evaluate.name) as producer:
        if wait_first(versions, stop, monitor) is None:
            return
        monitor.waits_for("its phones and the weights of a version")
        heartbeat_thread = StoppableThread(
            lambda ended: _report(ended, config, producer, progress, monitor), "heartbeats"
        )
        try:
            unfinished, handled = _unfinished(config, tasks, stop, monitor), None
            played, times = None, 0
            while not stop.is_set():
                heartbeat_thread.check()
                monitor.progress()
                version = unfinished or versions.latest()
                if (
                    version is not None
                    and version != handled
                    and (left := _follow(config, version, tasks, progress, stop, monitor)) is not None
                ):
                    played, times = version, times + 1 if version == played else 1
                    is_old = unfinished is not None and version != versions.latest()
                    if left == 0 or is_old or times >= TIMES:
                        handled = version
                        if unfinished is not None:
                            unfinished = None
                            continue
                _pause(config.evaluate.every_s, stop, monitor)
        finally:
            heartbeat_thread.stop()


def _pause(seconds: float, stop: threading.Event, monitor: Monitor) -> None:
    """Wait, and report progress meanwhile, so that the process counts as alive."""
    until = SYSTEM_CLOCK.ticks() + seconds
    while not stop.wait(min(TURN_S, max(0.0, until - SYSTEM_CLOCK.ticks()))) and SYSTEM_CLOCK.ticks() < until:
        monitor.progress()


@dataclass
class EvaluationProgress:
    """What heartbeats report. Its fields are replaced as a whole: another thread reads them."""

    tasks: int
    """Of each evaluation."""
    version: Version | None = None
    """Evaluated last; skipped versions do not count."""
    evaluated: int = 0
    """Records of all evaluated versions."""
    before: int = 0
    """Those of versions before `version`."""
    success: Mapping[tuple[str, ...], float] = field(default_factory=dict)
    """(suite,) -> success of `version`."""
    devices: tuple[DeviceHealth, ...] = ()
    """While phones play."""


def _follow(
    config: Config,
    version: Version,
    tasks: Sequence[Task],
    progress: EvaluationProgress,
    stop: threading.Event,
    monitor: Monitor,
) -> int | None:
    """Evaluate `version`. Returns how many tasks have no record yet, 0 if it is skipped; None: try again later."""

    def turn(health: tuple[DeviceHealth, ...]) -> None:
        monitor.progress()
        progress.devices = health
        if any(device.state in ANSWERING for device in health):
            monitor.ready()
        else:
            monitor.waits_for("a phone that answers")

    try:
        with about(version=version.version):
            found = evaluate_version(config, version, Split.VALIDATION, tasks, stop, turn=turn)
    except (MissingObjectError, CorruptObjectError) as error:
        log.error("version %d is skipped, and not evaluated: %s", version.version, error)
        return 0
    except (StoreError, BrokerError, ServerError) as error:
        if isinstance(error, RefusedError):
            raise
        log.error("version %d is evaluated later: %s", version.version, error)
        return None
    finally:
        progress.devices = ()
    monitor.ready()
    if version != progress.version:
        progress.before = progress.evaluated
    progress.version, progress.evaluated = version, progress.before + len(found)
    progress.success = success_by_suite(found)
    score = curves.score(item.trajectory for item in found)
    left = len(tasks) - len(found)
    log.info("%s", VersionScore(version.version, Split.VALIDATION, score, left))
    return left


def success_by_suite(found: Iterable[Evaluation]) -> dict[tuple[str, ...], float]:
    """(suite,) -> share of successes among the evaluations with a known outcome; a suite without one is left out."""
    by_suite: dict[str, list[Trajectory]] = defaultdict(list)
    for evaluation in found:
        by_suite[evaluation.trajectory.task.suite].append(evaluation.trajectory)
    scores = {suite: curves.score(played) for suite, played in by_suite.items()}
    return {(suite,): score.success for suite, score in scores.items() if score.episodes}


def _unfinished(config: Config, tasks: Sequence[Task], stop: threading.Event, monitor: Monitor) -> Version | None:
    """The version that an earlier evaluator left unfinished; None where there is none among those evaluated last.

    The first that the tail of the log has may look unfinished though it is not: evaluating it finds all of its records.
    """
    first, end = retained(config, "evaluations")[0]
    most, begun = LOOKED_AT * len(tasks), set[int]()

    def evaluations(start: int) -> Iterator[Evaluation]:
        for _, evaluation in records(config, "evaluations", Evaluation, start={0: start}):
            monitor.progress()
            if stop.is_set():
                return
            if evaluation.version >= 0 and not evaluation.trajectory.worker.endswith(BY_HAND):
                begun.add(evaluation.version)
            yield evaluation

    while True:
        start = max(first, end - most)
        found = cut_off(evaluations(start), tasks)
        if start == first or len(begun) >= LOOKED_AT or stop.is_set():
            return next((version for version in lineage(config) if version.version == found), None)
        most *= FURTHER  # what people and prompted agents evaluated is there too


def cut_off(evaluations: Iterable[Evaluation], tasks: Sequence[Task]) -> int | None:
    """The newest version with records of some of `tasks` but not all.

    Records of `evaluate --versions` may complete a version but begin none: a person may have wanted fewer tasks.
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


def published(config: Config) -> list[Version]:
    """The versions in force, ascending; with void ones where the user may not read the journal, as an evaluator's."""
    try:
        return versions_in_force(config)
    except RefusedError:
        return lineage(config)


def named(wanted: str, versions: Sequence[Version]) -> list[Version]:
    """The versions in `wanted`, each once, in that order. Raises ConfigError for an unknown one.

    versions: those in force, ascending.
    """
    if not versions:
        raise ConfigError("--versions", "this run has published no version yet", "start the learner and wait for it")
    by_name = {str(version.version): version for version in versions}
    by_name |= {"first": versions[0], "last": versions[-1]}
    found: dict[int, Version] = {}
    for name in (part.strip() for part in wanted.split(",")):
        if name not in by_name:
            known = ranges(version.version for version in versions)
            raise ConfigError(
                "--versions", f"no version '{name}', or its updates are void", f"name first, last, or one of {known}"
            )
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
    turn: Turn = lambda health: None,
) -> None:
    """Play every task once on the phones of `config` under the weights `adapter`, and `keep` each trajectory.

    Stores and publishes nothing itself. Ends early at `stop`. Raises PolicyError where the version belongs to another
    base model, DeviceError where there is no phone.
    """
    with serving(config, sampling=None) as policy:
        refuse_other_base(version, policy.base_sha256)
        if not _loaded(policy.decider, version, adapter, stop):
            return

        @contextmanager
        def acting(phone: Phone) -> Iterator[Decider]:
            with policy.decider.episode():
                yield policy.decider

        on_phones(config, acting, tasks, episode, keep, stop=stop, give_up=give_up, turn=turn)


def _loaded(decider: VersionedDecider, version: Version, adapter: bytes, stop: threading.Event) -> bool:
    """Load `adapter`; False where `stop` is set before it is there: a model server may take minutes, and is asked
    nothing more then."""

    def close_at_stop(ended: threading.Event) -> None:
        while not ended.is_set():
            if stop.wait(STOP_S):
                decider.close()
                return

    closing = StoppableThread(close_at_stop, CLOSING)
    try:
        decider.swap(version, adapter)
    except PolicyClosedError:
        if not stop.is_set():
            raise
    finally:
        closing.stop()
    return not stop.is_set()


def _report(
    ended: threading.Event, config: Config, producer: RecordProducer, progress: EvaluationProgress, monitor: Monitor
) -> None:
    """Report on a timer: an evaluation takes longer than a process may be silent."""
    every_s = config.worker.heartbeat_s
    heartbeats = HeartbeatSender(
        config.evaluate.name, "evaluator", every_s, lambda each: producer.publish("heartbeats", each.process, each)
    )
    reporter = Reporter(heartbeats, monitor)
    while not ended.wait(min(every_s, SHOWN_S)):
        if reporter.due:
            labelled = {"evaluation_success": progress.success}
            metrics = {"evaluated": progress.evaluated, "evaluation_tasks": progress.tasks}
            reporter.report(progress.version, metrics, progress.devices, labelled=labelled)
