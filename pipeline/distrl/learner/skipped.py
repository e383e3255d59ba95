"""Which records of the log are folded by nobody: whoever journalled past them could not read them, or a person said so.

Pure.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence

from distrl.types import LogPosition, PutAside, Skipped, Update, Watermark


class SkippedRecords:
    """What was put aside, by the journal; and what is, until it is journalled.

    journalled: the journal's lines, in order; those before a checkpoint may be missing. A reader that was upgraded
    since could read some of these records now, and to fold them would be another run than the one that was.
    skipped: what a person has asked to leave out, wherever the journal stands.
    """

    def __init__(self, journalled: Sequence[Update], skipped: Iterable[Skipped] = ()) -> None:
        self._left_out = {(LogPosition(each.topic, each.partition, each.offset), each.sha256) for each in skipped}
        self._places = {position for position, _ in self._left_out}
        self._skipped = {
            LogPosition(aside.topic, aside.partition, offset)
            for update in journalled
            for aside in update.put_aside
            for offset in aside.offsets
        }
        self._journalled = _marks(journalled[-1].watermarks) if journalled else {}
        self._new: list[LogPosition] = []

    def skips(self, position: LogPosition) -> bool:
        """The journal says that this record was put aside: it is not to be read."""
        return position in self._skipped

    def leaves_out(self, position: LogPosition, value: bytes | None) -> bool:
        """A person has asked to leave out this very record."""
        return position in self._places and (position, hashlib.sha256(value or b"").hexdigest()) in self._left_out

    def adds(self, position: LogPosition) -> bool:
        """Take note of a record that cannot be read. False where the journal is past it: it was dealt with before."""
        if _before(position, self._journalled):
            return False
        self._new.append(position)
        return True

    def due(self, watermarks: Iterable[Watermark]) -> tuple[PutAside, ...]:
        """What the update that folds up to `watermarks` has to name."""
        marks, found = _marks(watermarks), defaultdict(list)
        for position in self._new:
            if _before(position, marks):
                found[position.topic, position.partition].append(position.offset)
        return tuple(PutAside(topic, place, tuple(sorted(found[topic, place]))) for topic, place in sorted(found))

    def journalled(self, update: Update) -> None:
        """`update` is in the journal, with what was due."""
        self._journalled = _marks(update.watermarks)
        self._new = [position for position in self._new if not _before(position, self._journalled)]


def _marks(watermarks: Iterable[Watermark]) -> dict[tuple[str, int], int]:
    return {(mark.topic, mark.partition): mark.offset for mark in watermarks}


def _before(position: LogPosition, marks: dict[tuple[str, int], int]) -> bool:
    return position.offset < marks.get((position.topic, position.partition), 0)
