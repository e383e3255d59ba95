"""Reads the journal, the log and the versions of a run for `trace.py`. Joins no group and writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from distrl.broker.journal import History, in_force
from distrl.broker.journal import history as read_history
from distrl.broker.reader import LogReader, decoded
from distrl.broker.topics import topic_name
from distrl.broker.versions import lineage as published
from distrl.config import Config
from distrl.errors import BrokerError, ConfigError, WireError
from distrl.images import ImageError, opened
from distrl.learner.fold import is_usable
from distrl.learner.pending import PendingLog
from distrl.learner.reading import TOPICS
from distrl.learner.skipped import SkippedRecords
from distrl.learner.verify import windows
from distrl.offline.lineage.trace import Attempt, Trace, VersionLineage, of_trajectory, of_version, trace
from distrl.policy.protocol import Tokenizer
from distrl.policy.registry import tokenizer_of
from distrl.runs.recorded import refuse_other_settings
from distrl.store.objects import ObjectStore, open_store
from distrl.text import ranges
from distrl.types import LoggedTrajectory, LogPosition, ObjectRef, Trajectory, Version

Images = Callable[[Trajectory], bool]


@dataclass(frozen=True, slots=True)
class RunHistory:
    """A run's versions and journal, read from the log."""

    versions: Sequence[Version]
    """Those in force, ascending."""
    history: History


def behind_version(config: Config, number: int, check_screens: bool = False) -> VersionLineage:
    """What version `number` learned from. Raises what `follow` raises, and ConfigError where there is no such
    version."""
    run = read_run(config)
    wanted = next((version for version in run.versions if version.version == number), None)
    if wanted is None:
        known = ranges(version.version for version in run.versions) or "none"
        raise ConfigError(
            f"version {number}",
            f"is no version of run {config.run}, or its updates are void; the run has {known}",
            "name one of those, or another run with --run" if run.versions else "name another run with --run",
        )
    followed = follow(config, run.history, wanted.update + 1, check_screens)
    found = of_version(number, run.versions, followed)
    assert found is not None
    return found


def behind_trajectory(config: Config, task_id: str, check_screens: bool = False) -> list[Attempt]:
    """What became of each record of `task_id`, demonstrations first. Raises what `follow` raises, and ConfigError where
    there is no record."""
    run = read_run(config)
    records, skipped = records_of(config, task_id, run.history)
    if not records:
        raise ConfigError(
            f"task id {task_id!r}",
            f"no trajectory or demonstration of run {config.run} has it",
            "`distrl replay` lists the ids; or name another run with --run",
        )
    return of_trajectory(records, run.versions, follow(config, run.history, None, check_screens), skipped)


def read_run(config: Config) -> RunHistory:
    history = read_history(config)
    return RunHistory(in_force(published(config), history), history)


def records_of(config: Config, task_id: str, history: History) -> tuple[list[LoggedTrajectory], set[LogPosition]]:
    """Every decodable record of a task id, demonstrations first, and the places of those that the journal leaves
    out."""
    journalled = SkippedRecords(history.updates, history.skipped)
    found: list[LoggedTrajectory] = []
    skipped: set[LogPosition] = set()
    for name in TOPICS:
        with LogReader(config, name) as reader:
            for batch in reader.to_end():
                for raw in batch:
                    try:
                        logged = LoggedTrajectory(raw.position, decoded(raw, Trajectory))
                    except WireError:
                        continue
                    if logged.trajectory.task_id == task_id:
                        found.append(logged)
                        if journalled.skips(raw.position) or journalled.leaves_out(raw.position, raw.value):
                            skipped.add(raw.position)
    return found, skipped


def follow(config: Config, history: History, to: int | None = None, check_screens: bool = False) -> Trace:
    """Follow the log through the first `to` updates of the journal (None: all of them).

    check_screens: fetch every screenshot, as the learner did, to leave out trajectories with one that is no image;
    otherwise all are taken for images. Raises ConfigError where the settings are not those of the run, BrokerError
    where the log no longer holds what was folded, StoreError where a screenshot is gone.
    """
    updates = history.updates[:to]
    for place, update in enumerate(updates):
        refuse_other_settings(update.config_fingerprint, config, f"update {update.u} in the journal")
        if update.u != place:
            raise BrokerError(
                topic_name(config.run, "updates"),
                f"its update {update.u} stands at place {place}",
                "set `run` and kafka.bootstrap to those of a whole journal",
            )
    tokenizer = tokenizer_of(config.policy)
    readable = Screens(open_store(config.store)) if check_screens else None
    demonstrations, trajectories = (topic_name(config.run, name) for name in TOPICS)
    return trace(
        windows(config, updates, PendingLog(demonstrations, trajectories), (), history.skipped),
        config,
        lambda record: left_out(record, tokenizer, readable),
    )


def left_out(trajectory: Trajectory, tokenizer: Tokenizer, readable: Images | None) -> str | None:
    """Why the learner does not learn from `trajectory`; None where it does."""
    if not is_usable(trajectory, tokenizer):
        if not trajectory.outcome.is_known:
            return f"outcome {trajectory.outcome.value}"
        return "no steps" if not trajectory.steps else "holds steps that this policy cannot have taken"
    if readable is not None and not readable(trajectory):
        return "holds a screenshot that is no image"
    return None


class Screens:
    """Tells whether every screenshot of a trajectory is an image, as for the learner. Each is fetched once."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._known: dict[str, bool] = {}

    def __call__(self, trajectory: Trajectory) -> bool:
        return all(map(self._is_image, (step.screenshot for step in trajectory.steps)))

    def _is_image(self, ref: ObjectRef) -> bool:
        if ref.sha256 not in self._known:
            data = self._store.get(ref)
            try:
                opened(data)
                self._known[ref.sha256] = True
            except ImageError:
                self._known[ref.sha256] = False
        return self._known[ref.sha256]
