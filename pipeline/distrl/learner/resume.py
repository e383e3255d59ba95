"""Where a learner may resume: the newest checkpoint that both journal and log support. Pure (docs/adr/0010).

A checkpoint is of the updates that were in force when it was saved. It is supported where the journal still has those
updates, and the log still has every record that it folded or holds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distrl.broker.journal import History
from distrl.types import LogPosition, Update, Version, Watermark

Place = tuple[str, int]
Kept = Mapping[Place, tuple[int, int]]
"""Partition of a folded topic -> (first record kept, one past the last)."""


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint as its manifest describes it. needed: the records that it holds. history: `chain` of its updates;
    empty in older checkpoints. Its watermarks are compared with the journal's either way."""

    u: int
    watermarks: Mapping[Place, int]
    needed: tuple[LogPosition, ...] = ()
    history: str = ""

    @classmethod
    def of(cls, meta: Mapping[str, Any], needed: Iterable[LogPosition]) -> Saved:
        marks = {(topic, partition): offset for topic, partition, offset in meta["watermarks"]}
        return cls(int(meta["u"]), marks, tuple(needed), str(meta.get("history", "")))


@dataclass(frozen=True, slots=True)
class Choice:
    """u: of the checkpoint to resume from, None for none. refused: why each newer one is not it."""

    u: int | None
    refused: Mapping[int, str]


def chain(updates: Iterable[Update], before: str = "") -> str:
    """A digest (hex) that names exactly these updates, from the first on. before: that of those in front of them."""
    for update in updates:
        line = [
            update.u,
            [[mark.topic, mark.partition, mark.offset] for mark in update.watermarks],
            [[each.topic, each.partition, list(each.offsets)] for each in update.put_aside],
            update.window_sha256,
        ]
        before = hashlib.sha256(f"{before}{json.dumps(line)}".encode()).hexdigest()
    return before


def choose(checkpoints: Iterable[Saved], updates: Sequence[Update], kept: Kept) -> Choice:
    """The newest of `checkpoints` that `updates`, the journal's, and the log support."""
    refused: dict[int, str] = {}
    for saved in sorted(checkpoints, key=lambda each: each.u, reverse=True):
        why = refusal(saved, updates, kept)
        if why is None:
            return Choice(saved.u, refused)
        refused[saved.u] = why
    return Choice(None, refused)


def refusal(saved: Saved, updates: Sequence[Update], kept: Kept) -> str | None:
    """Why `saved` cannot be resumed from; None where it can, as far as offsets tell."""
    if saved.u > len(updates):
        return f"the journal ends after {len(updates)} updates"
    if saved.watermarks != (marks(updates[saved.u - 1].watermarks) if saved.u else {}):
        return f"update {saved.u - 1} in the journal has other watermarks"
    if saved.history and saved.history != chain(updates[: saved.u]):
        return "it is of other updates than the journal's"
    for place, offset in sorted(saved.watermarks.items()):
        if kept.get(place, (0, 0))[1] < offset:
            return f"{place[0]}[{place[1]}] ends at {kept.get(place, (0, 0))[1]}, and it has folded up to {offset}"
    for at in saved.needed:
        first, end = kept.get((at.topic, at.partition), (0, 0))
        if not first <= at.offset < end:
            return f"it holds record {at.offset} of {at.topic}[{at.partition}], which keeps {first} to {end}"
    return None


def beyond(history: History, versions: Iterable[Version]) -> list[int]:
    """The numbers of the versions that follow an update which the journal does not have, ascending."""
    published = [each for each in versions if each.update >= len(history.updates) and not history.voided(each)]
    superseded = {number for each in versions for number in each.supersedes}
    return sorted(each.version for each in published if each.version not in superseded)


def marks(watermarks: Iterable[Watermark]) -> dict[Place, int]:
    return {(mark.topic, mark.partition): mark.offset for mark in watermarks}
