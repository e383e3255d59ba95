"""Records of the log that are never folded: undecodable ones, and those left out by `distrl skip`. Pure."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence

from distrl.types import LogPosition, PutAside, Skipped, Update, Watermark


class SkippedRecords:
    """The records that the journal names as skipped, and new ones until they are journalled.

    journalled: the journal's updates, in order; those before a checkpoint may be missing. A newer reader might be able
    to decode a record that they skipped; folding it would fork the run, so it stays skipped.
    skipped: records left out by `distrl skip`, from anywhere in the log.
    """

    def __init__(self, journalled: Sequence[Update], skipped: Iterable[Skipped] = ()) -> None:
        self._left_out = {(LogPosition(each.topic, each.partition, each.offset), each.sha256) for each in skipped}
        self._places = {position for position, _ in self._left_out}
        self._skipped = {
            LogPosition(each.topic, each.partition, offset)
            for update in journalled
            for each in update.put_aside
            for offset in each.offsets
        }
        self._journalled = _marks(journalled[-1].watermarks) if journalled else {}
        self._new: list[LogPosition] = []
        self._unread: list[LogPosition] = []

    def skips(self, position: LogPosition) -> bool:
        """Whether the journal names this record as undecodable; it must not be folded."""
        return position in self._skipped

    def leaves_out(self, position: LogPosition, value: bytes | None) -> bool:
        """Whether `distrl skip` left out this record. value: compared too, as offsets may be used again."""
        return position in self._places and (position, hashlib.sha256(value or b"").hexdigest()) in self._left_out

    def add(self, position: LogPosition) -> bool:
        """Note a record that cannot be decoded. Returns False where the journal is past it and does not name it: the
        software that wrote the journal line could decode it."""
        if _before(position, self._journalled):
            self._unread.append(position)
            return False
        self._new.append(position)
        return True

    def unread(self, watermarks: Iterable[Watermark]) -> list[LogPosition]:
        """Records before `watermarks` that this reader cannot decode, and the software that folded them could."""
        marks = _marks(watermarks)
        return [position for position in self._unread if _before(position, marks)]

    def due(self, watermarks: Iterable[Watermark]) -> tuple[PutAside, ...]:
        """The new records before `watermarks`, which their update must name."""
        marks, found = _marks(watermarks), defaultdict(list)
        for position in self._new:
            if _before(position, marks):
                found[position.topic, position.partition].append(position.offset)
        return tuple(PutAside(topic, place, tuple(sorted(found[topic, place]))) for topic, place in sorted(found))

    def journalled(self, update: Update) -> None:
        """Forget the new records that `update`, now journalled, names."""
        self._journalled = _marks(update.watermarks)
        self._new = [position for position in self._new if not _before(position, self._journalled)]


def _marks(watermarks: Iterable[Watermark]) -> dict[tuple[str, int], int]:
    return {(mark.topic, mark.partition): mark.offset for mark in watermarks}


def _before(position: LogPosition, marks: dict[tuple[str, int], int]) -> bool:
    return position.offset < marks.get((position.topic, position.partition), 0)
