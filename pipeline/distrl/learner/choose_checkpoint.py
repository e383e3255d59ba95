"""Where a learner may resume: the newest checkpoint that both journal and log support. Pure (docs/adr/0010).

The journal supports a checkpoint if it still has the updates that were in force when the checkpoint was saved. The log
supports it if it still has the records of the checkpoint's buffers and does not end before the last record folded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distrl.broker.journal import History
from distrl.learner.reservations import Reservation
from distrl.types import LogPosition, Update, Version, Watermark

Place = tuple[str, int]
OffsetRanges = Mapping[Place, tuple[int, int]]
"""Partition of a folded topic -> (offset of the first record left in the log, one past the last)."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint as its manifest describes it."""

    u: int
    """Updates folded."""
    watermarks: Mapping[Place, int]
    needed: tuple[LogPosition, ...] = ()
    """The records in its buffers."""
    history: str = ""
    """`chain` of its updates; empty in older checkpoints, of which only the watermarks are compared."""

    @classmethod
    def of(cls, meta: Mapping[str, Any], needed: Iterable[LogPosition]) -> Saved:
        marks = {(topic, partition): offset for topic, partition, offset in meta["watermarks"]}
        return cls(int(meta["u"]), marks, tuple(needed), str(meta.get("history", "")))


@dataclass(frozen=True, slots=True)
class CheckpointChoice:
    """The checkpoint to resume from."""

    u: int | None
    """Its updates; None where no checkpoint is supported."""
    refused: Mapping[int, str]
    """Why each newer one is refused."""


def chain(updates: Iterable[Update], before: str = "") -> str:
    """A digest (hex) of these updates, in order. before: the digest of the updates before them."""
    for update in updates:
        line = [
            update.u,
            [[mark.topic, mark.partition, mark.offset] for mark in update.watermarks],
            [[each.topic, each.partition, list(each.offsets)] for each in update.put_aside],
            update.window_sha256,
        ]
        before = hashlib.sha256(f"{before}{json.dumps(line)}".encode()).hexdigest()
    return before


def choose(checkpoints: Iterable[Saved], updates: Sequence[Update], ranges: OffsetRanges) -> CheckpointChoice:
    """The newest of `checkpoints` that the journal (`updates`) and the log (`ranges`) support."""
    refused: dict[int, str] = {}
    for saved in sorted(checkpoints, key=lambda each: each.u, reverse=True):
        why = refusal(saved, updates, ranges)
        if why is None:
            return CheckpointChoice(saved.u, refused)
        refused[saved.u] = why
    return CheckpointChoice(None, refused)


def refusal(saved: Saved, updates: Sequence[Update], ranges: OffsetRanges) -> str | None:
    """Why `saved` cannot be resumed from; None where it can, as far as offsets tell."""
    return not_of_journal(saved, updates) or not_in_log(saved, ranges)


def not_in_log(saved: Saved, ranges: OffsetRanges) -> str | None:
    """Why the log does not support `saved`; None where it does, as far as offsets tell."""
    for place, offset in sorted(saved.watermarks.items()):
        if ranges.get(place, (0, 0))[1] < offset:
            return f"{place[0]}[{place[1]}] ends at {ranges.get(place, (0, 0))[1]}, and it has folded up to {offset}"
    for at in saved.needed:
        first, end = ranges.get((at.topic, at.partition), (0, 0))
        if not first <= at.offset < end:
            return f"it needs record {at.offset} of {at.topic}[{at.partition}], which now has {first} to {end}"
    return None


def not_of_journal(saved: Saved, updates: Sequence[Update]) -> str | None:
    """Why the journal does not support `saved`; None where it does."""
    if saved.u > len(updates):
        return f"the journal ends after {len(updates)} updates"
    if saved.watermarks != (marks(updates[saved.u - 1].watermarks) if saved.u else {}):
        return f"update {saved.u - 1} in the journal has other watermarks"
    if saved.history and saved.history != chain(updates[: saved.u]):
        return "it has folded other updates than the journal's"
    return None


def is_void(saved: Saved, history: History) -> bool:
    """Whether the journal, which does not support `saved` (`not_of_journal`), once had its updates, and later made some
    of them void.

    Journal and checkpoint then belong together, wherever both were copied to. False for a checkpoint of earlier
    software, whose manifest does not say which updates it has folded.
    """
    return saved.history != "" and any(not_of_journal(saved, updates) is None for updates in history.before_voids())


def beyond(history: History, versions: Iterable[Version], reserved: Iterable[Reservation] = ()) -> list[int]:
    """The numbers, ascending, of the versions made by updates that the journal no longer has.

    Void and superseded versions are left out. reserved: the reservations with the highest number. One above all
    other numbers may be of a version that nobody sees yet: its transaction has lost its end, and it shows with the
    next one.
    """
    versions = list(versions)
    known = max((history.version, *(each.version for each in versions)))
    unseen = [each.version for each in reserved if each.version > known and each.update >= len(history.updates)]
    published = [each for each in versions if each.update >= len(history.updates) and not history.voided(each)]
    superseded = {number for each in versions for number in each.supersedes}
    return sorted({each.version for each in published if each.version not in superseded} | {*unseen})


def marks(watermarks: Iterable[Watermark]) -> dict[Place, int]:
    return {(mark.topic, mark.partition): mark.offset for mark in watermarks}
