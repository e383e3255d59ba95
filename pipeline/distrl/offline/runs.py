"""A run for notebooks: `distrl.open_run()`. Reads topics and objects; joins no group and writes nothing.

Bounds are as for `distrl replay`: an offset, a time (text or datetime), a time ago ("-2h" or a timedelta).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from distrl import config as settings
from distrl.broker.duplicates import FirstWins
from distrl.broker.versions import lineage
from distrl.config import Config
from distrl.errors import StoreError
from distrl.images import ImageError, opened
from distrl.offline.replay import Item, read, topic_range_of
from distrl.offline.topic_range import RangeRequest, as_bound
from distrl.store.objects import ObjectStore, open_store
from distrl.types import Evaluation, LoggedTrajectory, ObjectRef, Outcome, Step, Trajectory, Update, Version

if TYPE_CHECKING:
    from distrl.offline.samples import StepDataset

Bound = int | str | datetime | timedelta | None
Pixels = NDArray[np.uint8]

OUTCOMES: Final = {Outcome.SUCCESS: 1, Outcome.FAILURE: 0, Outcome.UNKNOWN: -1, Outcome.INTERRUPTED: -1}
"""Outcomes in arrays: -1 for unknown and interrupted."""


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of trajectories, one after the other: arrays (N,), one number per step."""

    trajectory: NDArray[np.int64]
    """Index of its trajectory, from 0."""
    offset: NDArray[np.int64]
    """Of its record."""
    step: NDArray[np.int64]
    """Index in its trajectory, from 0."""
    logprob: NDArray[np.float64]
    version: NDArray[np.int64]
    outcome: NDArray[np.int64]
    """Of its trajectory; see OUTCOMES."""
    is_expert: NDArray[np.bool_]
    prompt_length: NDArray[np.int64]
    """Tokens."""
    action_length: NDArray[np.int64]
    """Tokens."""
    at: NDArray[np.int64]
    """ms since the epoch."""

    def __len__(self) -> int:
        return len(self.step)


class Run:
    """One run's log. Every call reads what the broker holds then; records that cannot be decoded are skipped.

    line: the words of the command line without the range, as in `RangeRequest`.
    """

    def __init__(self, config: Config, line: Sequence[str] = ()) -> None:
        self.config = config
        self._line = tuple(line)

    def __repr__(self) -> str:
        return f"Run({self.config.run!r} at {self.config.kafka.bootstrap})"

    @cached_property
    def store(self) -> ObjectStore:
        return open_store(self.config.store)

    def trajectories(
        self, begin: Bound = None, end: Bound = None, *, expert: bool | None = False, repeated: bool = False
    ) -> Iterator[LoggedTrajectory]:
        """Trajectories of [begin, end), in the order of the log: of each id the first one in the range, as learned
        from.

        expert: False: what workers did; True: the demonstrations; None: both, the demonstrations first. repeated: later
        records of an id too. Raises ConfigError for malformed bounds and for those that the broker does not have.
        """
        for topic, wanted in (("demonstrations", True), ("trajectories", False)):
            if expert is None or expert == wanted:
                first = FirstWins()
                for item in self.records(topic, begin, end):
                    record = item.record
                    if isinstance(record, Trajectory) and (repeated or first.admits(record.task_id)):
                        yield LoggedTrajectory(item.raw.position, record)

    def versions(self) -> list[Version]:
        """Every published version, ascending."""
        return lineage(self.config)

    def updates(self, begin: Bound = None, end: Bound = None) -> list[Update]:
        """Lines of the learner's journal."""
        return [item.record for item in self.records("updates", begin, end) if isinstance(item.record, Update)]

    def evaluations(self, begin: Bound = None, end: Bound = None) -> list[Evaluation]:
        """Evaluated tasks."""
        return [item.record for item in self.records("evaluations", begin, end) if isinstance(item.record, Evaluation)]

    def records(
        self, topic: str, begin: Bound = None, end: Bound = None, *, partitions: Sequence[int] = ()
    ) -> Iterator[Item]:
        """Records of any topic, with key, time and bytes, also those that cannot be decoded. partitions: all if empty.

        Raises ConfigError for malformed bounds and for those that the broker does not have.
        """
        now = datetime.now(UTC)
        request = RangeRequest(
            self.config.run, topic, as_bound(begin, now), as_bound(end, now), tuple(partitions), self._line
        )
        yield from read(self.config, topic_range_of(self.config, request))

    def steps(self, trajectories: Iterable[LoggedTrajectory] | None = None) -> Steps:
        """Arrays over all steps of `trajectories`; by default those of the workers."""
        return steps_of(self.trajectories() if trajectories is None else trajectories)

    def screenshot(self, screen: ObjectRef | Step) -> Pixels:
        """(height, width, 3) pixels, from the store. Raises StoreError where the object is gone, altered or no PNG."""
        ref = screen.screenshot if isinstance(screen, Step) else screen
        return decoded_png(self.store.get(ref), ref.key)

    def dataset(self, trajectories: Iterable[LoggedTrajectory] | None = None, *, screens: bool = True) -> StepDataset:
        """A torch Dataset of all steps of `trajectories`; by default those of the workers.

        screens: include each step's screenshot, fetched from the store when the step is read.
        """
        from distrl.offline.samples import StepDataset

        taken = list(self.trajectories() if trajectories is None else trajectories)
        return StepDataset(taken, self.screenshot if screens else None)


def open_run(run: str | None = None, config: Config | Path | str | None = None, **sets: Any) -> Run:
    """Open run `run`. Its settings are those of its log; over them DISTRL_* variables, and the local stack.

    config: settings of your own, or their YAML file, which go over the log's; a Config is taken as it is.
    sets: further settings by path, with '__' for '.', like kafka__bootstrap="127.0.0.1:29092".
    Raises ConfigError for wrong settings, BrokerError where the broker does not answer or has no such run.
    """
    from distrl.broker.runs import check_run
    from distrl.runs.joined import over_recorded
    from distrl.stack.local import connect

    given = [f"{name.replace('__', '.')}={value}" for name, value in sets.items()]
    given += [] if run is None else [f"run={run}"]
    if isinstance(config, Config):
        if sets:
            raise TypeError("settings are either a Config or keywords")
        found = connect(config if run is None else settings.with_run(config, run))
        check_run(found)
        return Run(found)
    file = None if config is None else Path(config)
    found = connect(settings.load(file, given))
    check_run(found)
    return Run(over_recorded(found, lambda base: settings.load(file, given, base=base))[0])


def steps_of(trajectories: Iterable[LoggedTrajectory]) -> Steps:
    """Arrays over all steps of `trajectories`, in order. Pure."""
    rows = [
        (
            index,
            logged.position.offset,
            place,
            step.logprob,
            step.version,
            OUTCOMES[logged.trajectory.outcome],
            logged.trajectory.is_expert,
            len(step.prompt_ids),
            len(step.action_ids),
            step.at,
        )
        for index, logged in enumerate(trajectories)
        for place, step in enumerate(logged.trajectory.steps)
    ]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(Steps.__slots__)
    kinds = (np.int64, np.int64, np.int64, np.float64, np.int64, np.int64, np.bool_, np.int64, np.int64, np.int64)
    return Steps(*(np.array(column, dtype=kind) for column, kind in zip(columns, kinds, strict=True)))


def decoded_png(data: bytes, name: str) -> Pixels:
    """(height, width, 3) pixels of a PNG. Raises StoreError for bytes that are no PNG, or one with too many pixels."""
    try:
        return np.asarray(opened(data))
    except ImageError as error:
        raise StoreError(name, str(error), "check the worker that recorded it") from None
