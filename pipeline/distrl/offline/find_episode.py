"""Finds one episode in a run's log, by its place or by its task id, with what its page needs of the run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from distrl.broker.journal import journalled
from distrl.broker.reader import LogReader, RawRecord, decoded, retained
from distrl.broker.topics import topic_name
from distrl.broker.versions import lineage
from distrl.config import Config
from distrl.errors import ConfigError, StoreError, WireError
from distrl.evaluate.curves import first_folds
from distrl.evaluate.episode_page import Episode, Read
from distrl.evaluate.gather import agent_names
from distrl.evaluate.policies import PolicyId
from distrl.offline.replay import read
from distrl.offline.topic_range import Range, TopicRange
from distrl.store.objects import CorruptObjectError, MissingObjectError, ObjectStore
from distrl.types import Evaluation, LogPosition, ObjectRef, Trajectory

SEARCHED: Final = ("trajectories", "evaluations", "demonstrations")
"""Topics that hold episodes, in the order in which a task id is looked for."""
_PLACE: Final = re.compile(r"([0-9]{1,9}):([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class Found:
    """An episode's record."""

    topic: str
    """A key of TOPICS."""
    position: LogPosition
    record: Trajectory | Evaluation

    @property
    def trajectory(self) -> Trajectory:
        return self.record.trajectory if isinstance(self.record, Evaluation) else self.record

    @property
    def place(self) -> str:
        """As a person writes it."""
        return f"{self.position.partition}:{self.position.offset}"


def place_of(text: str) -> tuple[int, int] | None:
    """(partition, offset) of PARTITION:OFFSET; None for any other text, which is a task id."""
    matched = _PLACE.fullmatch(text)
    return (int(matched[1]), int(matched[2])) if matched else None


def episode_at(config: Config, topic: str, partition: int, offset: int) -> Found:
    """The episode whose record is there. Raises ConfigError where there is none, WireError where it cannot be read."""
    kept = retained(config, topic)
    first, end = kept.get(partition, (0, 0))
    name = f"{topic_name(config.run, topic)}[{partition}]"
    if not first <= offset < end:
        what = f"it holds {first} to {end - 1}" if first < end else "it holds no record"
        raise ConfigError(
            f"{partition}:{offset}",
            f"is no record of {name}: {what}" if partition in kept else f"there is no partition {name}",
            f"`distrl replay --run {config.run} --topic {topic}` lists the records",
        )
    for item in read(config, TopicRange(config.run, topic, (Range(partition, offset, offset + 1),))):
        if item.error is not None:
            raise item.error
        if isinstance(item.record, Trajectory | Evaluation):
            return Found(topic, item.raw.position, item.record)
    raise ConfigError(f"{partition}:{offset}", f"{name} has no record there", "name another offset")


def episodes_of(config: Config, topic: str, task_id: str) -> Iterator[Found]:
    """Every readable record of `topic` with this task id, in the order of the log."""
    kind = Evaluation if topic == "evaluations" else Trajectory
    wanted = task_id.encode(errors="surrogateescape")
    with LogReader(config, topic) as reader:
        for batch in reader.to_end():
            for raw in batch:
                if wanted in (raw.value or b""):  # Avro writes text as it is, so few records have to be decoded
                    found = _found(raw, topic, kind)
                    if found is not None and found.trajectory.task_id == task_id:
                        yield found


def _found(raw: RawRecord, topic: str, kind: type[Trajectory] | type[Evaluation]) -> Found | None:
    try:
        return Found(topic, raw.position, decoded(raw, kind))
    except WireError:
        return None


def search(config: Config, task_id: str, topics: Sequence[str], version: int | None) -> list[Found]:
    """The records of a task id in the first of `topics` that has any, the one to show first.

    That is the first in the log, as learned from. version: of evaluations, those of this version alone. Raises
    ConfigError where there is none.
    """
    for topic in topics:
        found = [
            each
            for each in episodes_of(config, topic, task_id)
            if version is None or (isinstance(each.record, Evaluation) and each.record.version == version)
        ]
        if found:
            return found
    of = "" if version is None else f" of version {version}"
    raise ConfigError(
        "TASK_ID",
        f"run {config.run} has no record{of} of this task in {', '.join(topics)}",
        f"`distrl failures --run {config.run}` and `distrl replay --run {config.run}` list ids and places",
    )


def episode_of(config: Config, found: Found, store: ObjectStore) -> Episode:
    """What the page of `found` shows, with what versions and journal say of it."""
    record, versions, name = found.record, lineage(config), topic_name(config.run, found.topic)
    evaluation = record if isinstance(record, Evaluation) else None
    learned = None if evaluation else first_folds([found.position.offset], versions, journalled(config), name)[0]
    return Episode(
        config.run,
        found.topic,
        found.position,
        found.trajectory,
        versions,
        learned,
        PolicyId(evaluation.version, evaluation.version_sha256) if evaluation else None,
        agent_names(store, [evaluation]) if evaluation else {},
    )


def reading_once(get: Read) -> Read:
    """Reads an object once, and asks no more of a store that did not answer: every screen would wait for it again."""
    known: dict[str, bytes] = {}
    away: list[StoreError] = []

    def fetch(ref: ObjectRef) -> bytes:
        if away:
            raise away[0]
        try:
            return known.get(ref.key) or known.setdefault(ref.key, get(ref))
        except (MissingObjectError, CorruptObjectError):
            raise
        except StoreError as error:
            away.append(error)
            raise

    return fetch
