"""How far each topic of a run is copied, so that the copy is a consistent state even if the run is active.

Topics refer to each other, so their ends are captured one after the other: a topic that refers to others comes before
them. Where that does not suffice, because topics refer to each other in both directions, one is cut short:

- `versions` ends before the first version that was made by an update behind the captured end of the journal;
- `trajectories` ends before the first one, behind all that the journal has folded, that acted under a version that is
  cut off. The tasks of the trajectories that are cut off are played again where the copy is continued.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from distrl.broker.group import GroupOffsets
from distrl.broker.journal import History
from distrl.broker.reader import LogReader, RawRecord, decoded, has_topic, retained
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.errors import WireError
from distrl.types import Trajectory, Update, Version

LOG: Final = "trajectories"
REFERRING: Final = ("settings", "evaluations", "figures", "trajectories.dlq")
"""Topics that others do not refer to."""
REFERRED: Final = ("demonstrations", "tasks")
"""Topics that refer to no other."""

Ends = Mapping[int, int]
"""Partition -> the offset to end before."""


@dataclass(frozen=True, slots=True)
class Extent:
    ends: Mapping[str, Ends]
    """Topic -> its ends; topics that the run does not have are left out."""
    committed: Ends
    """The workers' next offset in `tasks`."""
    cut: frozenset[bytes]
    """Keys of the trajectories that are cut off. These are task ids; the workers' group may have committed the tasks,
    although the copy has no trajectory of them."""

    def noting(self, again: list[RawRecord]) -> Callable[[list[RawRecord]], None]:
        """A function that adds to `again` the records of `tasks` whose trajectories are cut off."""
        return lambda batch: again.extend(raw for raw in batch if raw.key in self.cut)

    def resumed(self, again: Iterable[RawRecord]) -> Ends:
        """The offsets at which the workers' group continues: `committed`, or the first task that is played again."""
        found = dict(self.committed)
        for raw in again:
            at = raw.position
            found[at.partition] = min(found.get(at.partition, at.offset), at.offset)
        return found


def extent_of(source: Config) -> Extent:
    """Capture the ends. Copy the checkpoints before this, as they refer to records. Raises BrokerError."""
    ends = {topic: _ends(source, topic) for topic in REFERRING if has_topic(source, topic)}
    ends["updates"] = _ends(source, "updates")
    journal = History.of(_lines(_records(source, "updates", ends["updates"])))
    ends["versions"], newest = _versions(source, journal)
    with GroupOffsets(source) as group:
        committed = group.committed(tuple(_ends(source, "tasks")))
    ends[LOG], cut = _trajectories(source, journal, newest)
    ends |= {topic: _ends(source, topic) for topic in REFERRED}
    return Extent(ends, committed, cut)


def _versions(source: Config, journal: History) -> tuple[Ends, int]:
    """(ends of the versions, newest version before them, -1 for none). They end before the first version that no line
    of `journal` has made."""
    ends, found, newest = _ends(source, "versions"), dict[int, int](), -1
    for raw in _records(source, "versions", ends):
        at = raw.position
        with suppress(WireError):
            version = decoded(raw, Version)
            if version.version > journal.version and version.update >= len(journal.updates):
                found.setdefault(at.partition, at.offset)
            if at.partition not in found:
                newest = max(newest, version.version)
    return {**ends, **found}, newest


def _trajectories(source: Config, journal: History, newest: int) -> tuple[Ends, frozenset[bytes]]:
    """(ends of the trajectories, keys of those behind the ends)."""
    kept, cut, found = retained(source, LOG), set[bytes](), dict[int, int]()
    ends = {partition: end for partition, (_, end) in kept.items()}
    name, marks = topic_name(source.run, LOG), journal.updates[-1].watermarks if journal.updates else ()
    folded = {mark.partition: mark.offset for mark in marks if mark.topic == name}
    first = {partition: min(max(folded.get(partition, 0), begin), end) for partition, (begin, end) in kept.items()}
    for raw in _records(source, LOG, ends, first):
        at = raw.position
        if at.partition not in found:
            with suppress(WireError):  # the learner dead-letters it, so it does not matter what it names
                if _newest_named(decoded(raw, Trajectory)) > newest:
                    found[at.partition] = at.offset
        if at.partition in found and raw.key is not None:
            cut.add(raw.key)
    return {**ends, **found}, frozenset(cut)


def _newest_named(trajectory: Trajectory) -> int:
    return max((step.version for step in trajectory.steps), default=trajectory.task.fed_version)


def _lines(raws: Iterable[RawRecord]) -> Iterator[Update]:
    for raw in raws:
        with suppress(WireError):
            yield decoded(raw, Update)


def _ends(source: Config, topic: str) -> Ends:
    return {partition: end for partition, (_, end) in retained(source, topic).items()}


def _records(source: Config, topic: str, ends: Ends, start: Ends | None = None) -> Iterator[RawRecord]:
    with LogReader(source, topic, start) as reader:
        for batch in reader.to_end():
            yield from (raw for raw in batch if raw.position.offset < ends.get(raw.position.partition, 0))
