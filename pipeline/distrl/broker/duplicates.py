"""A trajectory is identified by its task id, an evaluation by its policy and task: the first record in the log wins, a
later one is counted and skipped."""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any, Final

import msgspec

from distrl.types import Evaluation

Series = tuple[str, int, str]
"""What ids have in common that differ in one number: the text before it, its number of digits, the text after it."""

_NUMBERED: Final = re.compile(r"(.*?)([0-9]{1,18})((?:\.e[1-9][0-9]*)?(?:\.r[1-9][0-9]*)?)", re.DOTALL | re.ASCII)
"""The last number and what names an episode or a retry (`feeder.facts`). Digits beyond 18 belong to the prefix."""

BLOCK: Final = 1024
"""Numbers of one bitmap. Adding an id copies its bitmap, so it is small; a dict entry costs more than an empty one."""
_FULL: Final = (1 << BLOCK) - 1


_Block = Annotated[int, msgspec.Meta(ge=0)]


@dataclass(frozen=True, slots=True)
class _Saved:
    """A series of an IdSet's JSON form."""

    prefix: str
    digits: Annotated[int, msgspec.Meta(ge=0, le=18)]
    suffix: str
    full: list[tuple[_Block, _Block]]
    blocks: dict[str, str]


class IdSet:
    """An exact set of ids, small if they are numbered: a bitmap for each block of numbers that differ in nothing else.

    Ids without a number at their end are stored one by one, as a number of 0 digits.
    """

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._bits: dict[tuple[Series, int], int] = {}
        self._count = 0
        if isinstance(ids, IdSet):
            self._bits, self._count = dict(ids._bits), ids._count
        else:
            for each in ids:
                self.add(each)

    @classmethod
    def of(cls, saved: Any) -> IdSet:
        """The inverse of `to_json()`; it also takes the ranges that checkpoints held before."""
        if isinstance(saved, Mapping):
            return cls(_of_ranges(saved))
        made = cls()
        for each in saved:
            series = (each["prefix"], each["digits"], each["suffix"])
            for first, last in each["full"]:
                made._bits.update(((series, block), _FULL) for block in range(first, last + 1))
            for block, bits in each["blocks"].items():
                made._bits[series, int(block)] = int.from_bytes(b64decode(bits), "little")
        made._count = sum(bits.bit_count() for bits in made._bits.values())
        return made

    @classmethod
    def parse(cls, saved: Any, most: int) -> IdSet:
        """As `of`, for untrusted input. Raises ValueError for anything but the form of `to_json()`, and for more than
        `most` ids.
        """
        every = msgspec.convert(saved, list[_Saved])
        if sum(max(0, last - first + 1) * BLOCK for each in every for first, last in each.full) > most:
            raise ValueError(f"there are more than {most} ids")
        made = cls.of(saved)
        if any(bits >> BLOCK for bits in made._bits.values()) or len(made) > most:
            raise ValueError(f"there are more than {most} ids, or some in no block of {BLOCK}")
        return made

    def add(self, each: str) -> bool:
        """Add it; False if it was in the set."""
        key, bit = _split(each)
        before = self._bits.get(key, 0)
        after = before | 1 << bit
        if after == before:
            return False
        self._bits[key] = after
        self._count += 1
        return True

    def to_json(self) -> list[dict[str, Any]]:
        """The set for JSON; equal sets give equal values, in the same order.

        Full blocks are [first, last] ranges of block numbers, the others the base64 of their little-endian bits.
        """
        found = []
        for series, keys in groupby(sorted(self._bits), key=lambda key: key[0]):
            full: list[list[int]] = []
            blocks = {}
            for key in keys:
                bits, block = self._bits[key], key[1]
                if bits != _FULL:
                    blocks[str(block)] = b64encode(bits.to_bytes((bits.bit_length() + 7) // 8, "little")).decode()
                elif full and full[-1][1] == block - 1:
                    full[-1][1] = block
                else:
                    full.append([block, block])
            found.append(dict(zip(("prefix", "digits", "suffix"), series, strict=True), full=full, blocks=blocks))
        return found

    def ranges(self) -> Iterator[tuple[str, str]]:
        """The first and the last id of each range without a gap, in order."""
        for series, keys in groupby(sorted(self._bits), key=lambda key: key[0]):
            numbers = (number for key in keys for number in _numbers(key[1], self._bits[key]))
            for first, last in _runs(numbers):
                yield _text(series, first), _text(series, last)

    def __contains__(self, each: str) -> bool:
        key, bit = _split(each)
        return bool(self._bits.get(key, 0) >> bit & 1)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for key in sorted(self._bits):
            yield from (_text(key[0], number) for number in _numbers(key[1], self._bits[key]))


class FirstWins:
    """Which records of a log are the first with their id. Pure; fed in log order, it is the same in every process.

    seen: ids of the records before the offset where reading starts (from a checkpoint).
    """

    def __init__(self, seen: Iterable[str] = ()) -> None:
        self._seen = IdSet(seen)
        self.duplicates = 0

    def admits(self, record_id: str) -> bool:
        """True for the first record with this id; a later one is counted in `duplicates`."""
        first = self._seen.add(record_id)
        self.duplicates += not first
        return first

    def __contains__(self, record_id: str) -> bool:
        return record_id in self._seen

    def __len__(self) -> int:
        return len(self._seen)


def _split(each: str) -> tuple[tuple[Series, int], int]:
    """An id as (series, block) and the bit in it; a bijection."""
    found = _NUMBERED.fullmatch(each)
    if found is None:
        return ((each, 0, ""), 0), 0
    prefix, digits, suffix = found.groups()
    block, bit = divmod(int(digits), BLOCK)
    return ((prefix, len(digits), suffix), block), bit


def policy_and_task(evaluation: Evaluation) -> str:
    """Names what was evaluated: a version, or an agent without weights, on a task.

    Of the evaluations with one name the first in the log counts, whatever its outcome: a later one that is judged does
    not take the place of one that is not. `distrl status`, reports and `distrl scores` all count by this name.
    """
    task = evaluation.trajectory.task
    policy = str(evaluation.version) if evaluation.version >= 0 else f"{evaluation.version} {evaluation.version_sha256}"
    # The number last: an IdSet then holds the versions of a task as bits, and not each pair by its name.
    return f"{task.suite}/{task.split.value}/{task.task_id}/{policy}"


def first_evaluations(evaluations: Iterable[Evaluation]) -> Iterator[Evaluation]:
    """Those that count, in the order of the log."""
    seen = IdSet()
    return (each for each in evaluations if seen.add(policy_and_task(each)))


def _text(series: Series, number: int) -> str:
    prefix, digits, suffix = series
    return f"{prefix}{number:0{digits}d}{suffix}" if digits else prefix


def _numbers(block: int, bits: int) -> Iterator[int]:
    """The numbers of a block that are in the set, in order."""
    return (block * BLOCK + bit for bit in range(bits.bit_length()) if bits >> bit & 1)


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The first and the last of each stretch of increasing `numbers` without a gap."""
    for _, stretch in groupby(enumerate(numbers), key=lambda each: each[1] - each[0]):
        run = [number for _, number in stretch]
        yield run[0], run[-1]


def _of_ranges(saved: Mapping[str, Mapping[str, Sequence[Sequence[int]]]]) -> Iterator[str]:
    """The ids of prefix -> number of digits -> [first, last] ranges."""
    for prefix, widths in saved.items():
        for width, ranges in widths.items():
            for first, last in ranges:
                yield from (_text((prefix, int(width), ""), number) for number in range(first, last + 1))
