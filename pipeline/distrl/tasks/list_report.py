"""Statistics of a list for people: overlap of training and held-out splits, size, suspicious rows. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from simphone.machine import fresh
from simphone.state import State

from distrl.tasks.check import holds, parse_check
from distrl.tasks.row import Row
from distrl.tasks.suite import BuiltIn
from distrl.types import Split

HELD_OUT: Final = (Split.TEST, Split.VALIDATION)
PHONES_TRIED: Final = 8
"""Phones on which a check is tried in the initial state: their contents are mostly random."""
_SUBJECT: Final = re.compile(r"\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)|\d+")


@dataclass(frozen=True, slots=True)
class Overlap:
    """Rows of a held-out split that training has too, in the order of the list.

    identical: training has the same instruction, except for case and white space. alike: further ones that training
    has with other entities: filled in from the same template, or the same but for what is quoted and for numbers.
    """

    split: Split
    rows: int
    identical: tuple[Row, ...]
    alike: tuple[Row, ...]

    def __str__(self) -> str:
        return (
            f"{len(self.identical)} of {self.rows} {self.split.value} tasks have an instruction that training has, "
            f"{len(self.alike)} more its template"
        )


@dataclass(frozen=True, slots=True)
class Share:
    """The rows of one suite and split. checked: rows with a check, the others need a judge. steps: least, most."""

    suite: str
    split: Split
    rows: int
    checked: int
    steps: tuple[int, int]


def folded(instruction: str) -> str:
    """Normalises case and white space, to compare instructions."""
    return " ".join(instruction.casefold().split())


def template_of(row: Row) -> str:
    """A row's instruction without its entities."""
    return folded(row.template) if row.template else _SUBJECT.sub("{}", folded(row.instruction))


def overlaps(rows: Sequence[Row]) -> tuple[Overlap, ...]:
    """The overlap of each held-out split of the list."""
    training = [row for row in rows if row.split is Split.TRAIN]
    said, templates = {folded(row.instruction) for row in training}, {template_of(row) for row in training}
    found = []
    for split in HELD_OUT:
        held = [row for row in rows if row.split is split]
        same = [row for row in held if folded(row.instruction) in said]
        like = [row for row in held if folded(row.instruction) not in said and template_of(row) in templates]
        if held:
            found.append(Overlap(split, len(held), tuple(same), tuple(like)))
    return tuple(found)


def shares(rows: Sequence[Row]) -> tuple[Share, ...]:
    """By suite, then split."""
    groups: dict[tuple[str, Split], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.suite, row.split), []).append(row)
    order = list(Split)
    return tuple(
        Share(
            suite,
            split,
            len(group),
            sum(bool(row.check) for row in group),
            (min(row.steps for row in group), max(row.steps for row in group)),
        )
        for (suite, split), group in sorted(groups.items(), key=lambda item: (item[0][0], order.index(item[0][1])))
    )


def shared(suite: BuiltIn, split: Split) -> int:
    """Tasks of a held-out split of a built-in suite whose instruction training has."""
    training = {folded(each) for each in suite.said(Split.TRAIN)}
    return sum(folded(each) in training for each in suite.said(split))


def unknown_words(rows: Iterable[Row], unknown: Callable[[str], Sequence[str]]) -> Counter[str]:
    """The frequency of each word that the policy reads as <unk>. unknown: those of one instruction."""
    return Counter(word for row in rows for word in unknown(row.instruction))


def done_at_the_start(rows: Iterable[Row]) -> list[Row]:
    """The rows whose check already holds in some initial state: an agent that stops at once succeeds there."""
    return [row for row in rows if row.check and any(_done(row, seed) for seed in range(PHONES_TRIED))]


def _done(row: Row, seed: int) -> bool:
    try:
        return holds(parse_check(json.loads(row.check)), _phone(seed, row.setup))
    except ValueError:  # a setup for a real phone
        return False


@lru_cache(maxsize=1024)
def _phone(seed: int, setup: str) -> State:
    """Most rows of a list have one of a few setups."""
    return fresh(seed, json.loads(setup), 0.0)


def as_json(overlap: Overlap) -> dict[str, Any]:
    """The overlap, JSON-able, with every row by file and line."""
    return {
        "split": overlap.split.value,
        "rows": overlap.rows,
        **{
            name: [{"file": row.file, "line": row.line, "instruction": row.instruction} for row in rows]
            for name, rows in (("identical", overlap.identical), ("same_template", overlap.alike))
        },
    }
