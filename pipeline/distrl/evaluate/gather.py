"""Reads a run's topics and store into what a report is made of. The one place of this room that knows where it lies."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Protocol, TypeVar

from distrl.broker.reader import LogReader, decoded
from distrl.broker.topics import topic_name
from distrl.broker.versions import lineage
from distrl.config import Config
from distrl.errors import WireError
from distrl.evaluate.curves import first_of_each
from distrl.evaluate.report import RunData
from distrl.store.checkpoints import latest_checkpoint
from distrl.store.objects import ObjectStore, open_store
from distrl.types import Evaluation, LoggedTrajectory, LogPosition, Record, Trajectory, Update, Version

log = logging.getLogger(__name__)
R = TypeVar("R", bound=Record)


class Times(Protocol):
    """What the log does not say: seconds of set-up and of training."""

    @property
    def setup_seconds(self) -> float: ...
    @property
    def train_seconds(self) -> float: ...


def gather(config: Config, times: Times) -> RunData:
    """Everything about the run `config.run` up to now. Raises BrokerError and StoreError where they cannot be read."""
    store = open_store(config.store)
    versions = lineage(config)
    trajectories = [LoggedTrajectory(at, record) for at, record in records(config, "trajectories", Trajectory)]
    return RunData(
        run=config.run,
        seed=config.learner.seed,
        topic=topic_name(config.run, "trajectories"),
        trajectories=first_of_each(trajectories),
        versions=versions,
        updates=[update for _, update in records(config, "updates", Update)],
        evaluations=[evaluation for _, evaluation in records(config, "evaluations", Evaluation)],
        setup_seconds=times.setup_seconds,
        train_seconds=times.train_seconds,
        digests=final_digests(store, config.run, versions),
        read=store.get,
    )


def records(config: Config, topic: str, expected: type[R]) -> Iterator[tuple[LogPosition, R]]:
    """The records of a topic of the run up to its present end; one that cannot be read is reported and passed over."""
    with LogReader(config, topic) as reader:
        for batch in reader.to_end():
            for raw in batch:
                try:
                    yield raw.position, decoded(raw, expected)
                except WireError as error:
                    log.error("record passed over: %s", error)


def final_digests(store: ObjectStore, run: str, versions: list[Version]) -> dict[str, str]:
    """sha256 by name: of the last published adapter's file, and what the last checkpoint says of the learner's state."""
    digests = {"adapter": versions[-1].adapter.sha256} if versions else {}
    checkpoint = latest_checkpoint(store, run)
    if checkpoint is not None:
        digests.update(checkpoint[0].get("digests", {}))
    return digests
