"""Reads the data of a report from a run's topics and store."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

from distrl.appagent import identity
from distrl.broker.journal import history, in_force
from distrl.broker.reader import LogReader, decoded
from distrl.broker.times import offsets_at
from distrl.broker.topics import topic_name
from distrl.broker.versions import lineage
from distrl.config import Config
from distrl.errors import StoreError, WireError
from distrl.evaluate.curves import first_of_each
from distrl.evaluate.facts import RunData
from distrl.evaluate.failures import lean
from distrl.store.checkpoints import latest_checkpoint
from distrl.store.objects import ObjectStore, open_store
from distrl.types import PROMPTED, Evaluation, LoggedTrajectory, LogPosition, Record, Trajectory, Version

log = logging.getLogger(__name__)
R = TypeVar("R", bound=Record)


class Times(Protocol):
    """Times in s that the log does not have."""

    @property
    def setup_seconds(self) -> float: ...
    @property
    def train_seconds(self) -> float: ...


def gather(config: Config, times: Times) -> RunData:
    """The data of run `config.run` up to now. Raises BrokerError and StoreError.

    Versions whose updates became void are left out, with what they were evaluated on. Records are held without what
    their steps read and wrote, which a report does not show: whole ones take some 50 kB of memory, these 8.
    """
    store = open_store(config.store)
    found = history(config)
    versions = in_force(lineage(config), found)
    counting = {version.version for version in versions}
    trajectories = (LoggedTrajectory(at, lean(record)) for at, record in records(config, "trajectories", Trajectory))
    evaluations, evaluated_at = [], dict[tuple[int, str], LogPosition]()
    for position, evaluation in records(config, "evaluations", Evaluation):
        if evaluation.version != PROMPTED and evaluation.version not in counting:
            continue
        evaluations.append(replace(evaluation, trajectory=lean(evaluation.trajectory)))
        evaluated_at.setdefault((evaluation.version, evaluation.trajectory.task_id), position)
    return RunData(
        run=config.run,
        seed=config.learner.seed,
        topic=topic_name(config.run, "trajectories"),
        trajectories=first_of_each(trajectories),
        versions=versions,
        updates=list(found.updates),
        evaluations=evaluations,
        setup_seconds=times.setup_seconds,
        train_seconds=times.train_seconds,
        digests=final_digests(store, config.run, versions),
        read=store.get,
        agents=agent_names(store, evaluations),
        demonstrated=frozenset(each.task.instruction for _, each in records(config, "demonstrations", Trajectory)),
        evaluated_at=evaluated_at,
    )


def agent_names(store: ObjectStore, evaluations: Iterable[Evaluation]) -> dict[str, str]:
    """sha256 -> name of the evaluated agents without weights, for those that the store has a description of."""
    found = {}
    for sha256 in {each.version_sha256 for each in evaluations if each.version == PROMPTED}:
        key = identity.key(sha256)
        try:
            data = store.get_named(key) or b""
            if hashlib.sha256(data).hexdigest() == sha256:
                found[sha256] = identity.named(data)
        except (StoreError, ValueError) as error:
            log.warning("%s: the agent's name cannot be read: %s", key, error)
    return found


def records(
    config: Config, topic: str, expected: type[R], since_ms: int | None = None, start: Mapping[int, int] | None = None
) -> Iterator[tuple[LogPosition, R]]:
    """The records of a topic of the run up to its present end; one that cannot be decoded is logged and skipped.

    since_ms: records written before this time (ms since the epoch) may be left out; only for topics of one partition.
    start: partition -> the offset to begin at; default: the first.
    """
    if since_ms is not None:
        first = offsets_at(config, topic, (0,), since_ms)[0]
        if first is None:
            return
        start = {0: first}
    with LogReader(config, topic, start) as reader:
        for batch in reader.to_end():
            for raw in batch:
                try:
                    yield raw.position, decoded(raw, expected)
                except WireError as error:
                    log.error("record skipped: %s", error)


def final_digests(store: ObjectStore, run: str, versions: Sequence[Version]) -> dict[str, str]:
    """Name -> sha256 of what a run has learned, as `distrl learner --verify` prints them.

    adapter: the file of the last version. critic, optimisers, buffer: of the last checkpoint's state; left out without
    a checkpoint.
    """
    found = latest_checkpoint(store, run)
    digests: dict[str, str] = {} if found is None else found[0].get("digests", {})
    return {**digests, **({"adapter": versions[-1].adapter.sha256} if versions else {})}
