"""Records that are read but not folded yet, and which of them the next update folds. Pure: records in, windows out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from distrl.broker.duplicates import FirstWins, IdSet
from distrl.config import Config
from distrl.learner.adapters import NamedVersions
from distrl.types import LoggedTrajectory, LogPosition, Outcome, Trajectory, Watermark

Place = tuple[str, int]


def counts(trajectory: Trajectory) -> bool:
    """Whether a trajectory counts towards `learner.trajectories_per_update`. The feeder relies on the same rule.

    All count except interrupted ones, whose tasks are fed again under another id.
    """
    return trajectory.outcome is not Outcome.INTERRUPTED


class PendingLog:
    """The records read past the watermarks, each id once, in the order of the log.

    demonstrations, trajectories: full names of the topics. watermarks: how far the log is folded. seen: the ids before
    the watermarks, as `folded_ids` returned them. named: the versions that trajectories before the watermarks name.
    """

    def __init__(
        self,
        demonstrations: str,
        trajectories: str,
        watermarks: Iterable[Watermark] = (),
        seen: Iterable[str] = (),
        named: NamedVersions | None = None,
    ) -> None:
        self._demonstrations, self._trajectories = demonstrations, trajectories
        self._folded = {(mark.topic, mark.partition): mark.offset for mark in watermarks}
        self._read = dict(self._folded)
        self._first = FirstWins(seen)
        self._folded_ids = IdSet(seen)
        self.named = NamedVersions() if named is None else named
        """The versions that trajectories name, including those that are not learned from. Part of a checkpoint."""
        self._pending: list[LoggedTrajectory] = []
        self.pending_ids = 0
        """Token ids of the pending records: nearly all of their memory."""
        self._counted_demonstrations: list[LogPosition] = []
        """Demonstrations that were read and not folded, pending or left out, in the order read."""
        self._contents: dict[LogPosition, bytes] = {}

    @property
    def duplicates(self) -> int:
        """Records dropped since the start because an earlier record has their id."""
        return self._first.duplicates

    @property
    def pending(self) -> Sequence[LoggedTrajectory]:
        return tuple(self._pending)

    @property
    def folded_ids(self) -> IdSet:
        """Every id before the watermarks. Part of a checkpoint."""
        return self._folded_ids

    def trajectories_read(self) -> dict[int, int]:
        """Partition of the trajectories topic -> offset of the next record to read; 0 for a partition not in it."""
        return {partition: offset for (topic, partition), offset in self._read.items() if topic == self._trajectories}

    @property
    def demonstrations_read(self) -> int:
        """One past the offset of the last record read of the demonstrations topic, which has one partition."""
        return self._read.get((self._demonstrations, 0), 0)

    def push(self, logged: LoggedTrajectory, content: bytes = b"") -> bool:
        """Add a record; those of a partition must come in order. Returns False, and adds nothing, where this record or
        an earlier one with its id was read before."""
        if not self.passed(logged.position, content):
            return False
        self.names(logged)
        if not self._first.admits(_name(logged)):
            return False
        self._pending.append(logged)
        self.pending_ids += _ids(logged)
        if logged.position.topic == self._demonstrations:
            self._counted_demonstrations.append(logged.position)
        return True

    def leave_out(self, position: LogPosition, content: bytes = b"") -> None:
        """Note that the record at `position` was read, and that a person left it out (`distrl skip`).

        A demonstration counts towards `warmup.demonstrations` all the same: nothing replaces it, and update 0 would
        wait for ever. One that cannot be decoded does not count: it may come back at the end of the topic
        (`distrl dlq retry`), and where it is given up, it can be left out.
        """
        if self.passed(position, content) and position.topic == self._demonstrations:
            self._counted_demonstrations.append(position)

    def names(self, logged: LoggedTrajectory) -> None:
        """Note which versions a record names; call it also for records that are not learned from."""
        if logged.position.topic == self._trajectories:
            self.named.see(logged.position, logged.trajectory)

    def passed(self, position: LogPosition, content: bytes = b"") -> bool:
        """Note that the record at `position` was read, decodable or not. Returns False where it was read before.

        content: the digest of its key and value.
        """
        place = (position.topic, position.partition)
        if position.offset < self._read.get(place, 0):
            return False
        self._read[place] = position.offset + 1
        self._contents[position] = content
        return True

    def window_sha256(self, watermarks: Iterable[Watermark]) -> str:
        """sha256 (hex) over position and content of every record read before `watermarks` and not folded.

        The journal carries it, so that a log with other records is noticed.
        """
        marks = {(mark.topic, mark.partition): mark.offset for mark in watermarks}
        found = [position for position in self._contents if _before(position, marks)]
        total = hashlib.sha256()
        for place in sorted(found, key=lambda each: (each.topic, each.partition, each.offset)):
            total.update(f"{place.topic} {place.partition} {place.offset} ".encode())
            total.update(self._contents[place])
        return total.hexdigest()

    def reaches(self, watermarks: Iterable[Watermark]) -> bool:
        """Whether everything before `watermarks` was read."""
        return all(self._read.get((mark.topic, mark.partition), 0) >= mark.offset for mark in watermarks)

    def missing_demonstrations(self, u: int, config: Config) -> int:
        """How many further demonstrations update `u` waits for. Only update 0 waits for any."""
        return max(0, config.warmup.demonstrations - len(self._counted_demonstrations)) if u == 0 else 0

    def due(self, u: int, config: Config) -> tuple[Watermark, ...] | None:
        """The watermarks of update `u`, or None while its records are not all read.

        Update 0 waits for `warmup.demonstrations` demonstrations, those left out included. The other updates of the
        warm-up wait for nothing. Each later update takes exactly `trajectories_per_update` trajectories that count, so
        that updates depend on the log and not on its timing.
        """
        if self.missing_demonstrations(u, config):
            return None
        taken = self._counted_demonstrations[: config.warmup.demonstrations if u == 0 else None]
        if u >= config.warmup.updates:
            trajectories = [logged for logged in self._pending if logged.position.topic == self._trajectories]
            enough = _first_that_count(trajectories, config.learner.trajectories_per_update)
            if enough is None:
                return None
            taken = [*taken, *(logged.position for logged in enough)]
        marks = dict(self._folded)
        for position in taken:
            place = (position.topic, position.partition)
            marks[place] = max(marks.get(place, 0), position.offset + 1)
        return tuple(Watermark(topic, partition, offset) for (topic, partition), offset in sorted(marks.items()))

    def window(self, watermarks: Iterable[Watermark]) -> list[LoggedTrajectory]:
        """The pending records before `watermarks`, in the order of the log."""
        marks = {(mark.topic, mark.partition): mark.offset for mark in watermarks}
        found = [logged for logged in self._pending if _before(logged.position, marks)]
        return sorted(
            found, key=lambda logged: (logged.position.topic, logged.position.partition, logged.position.offset)
        )

    def folded(self, watermarks: Iterable[Watermark]) -> None:
        """Forget the window of `watermarks`, which is folded."""
        marks = {(mark.topic, mark.partition): mark.offset for mark in watermarks}
        for logged in self._pending:
            if _before(logged.position, marks):
                self._folded_ids.add(_name(logged))
                self.pending_ids -= _ids(logged)
        self._pending = [logged for logged in self._pending if not _before(logged.position, marks)]
        self._counted_demonstrations = [place for place in self._counted_demonstrations if not _before(place, marks)]
        self._contents = {place: each for place, each in self._contents.items() if not _before(place, marks)}
        self._folded = marks


def _first_that_count(trajectories: Sequence[LoggedTrajectory], wanted: int) -> Sequence[LoggedTrajectory] | None:
    """The shortest prefix with `wanted` trajectories that count; None where there are fewer."""
    found = 0
    for index, logged in enumerate(trajectories):
        found += counts(logged.trajectory)
        if found == wanted:
            return trajectories[: index + 1]
    return None


def _before(position: LogPosition, marks: dict[Place, int]) -> bool:
    return position.offset < marks.get((position.topic, position.partition), 0)


def _ids(logged: LoggedTrajectory) -> int:
    return sum(len(step.prompt_ids) + len(step.action_ids) for step in logged.trajectory.steps)


def _name(logged: LoggedTrajectory) -> str:
    """The id that duplicates are recognised by: the topic is part of it, as a demonstration and a trajectory may have
    the same task id."""
    return f"{logged.position.topic}/{logged.trajectory.task_id}"
