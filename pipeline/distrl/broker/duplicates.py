"""A trajectory is its task id: the first record in the log wins, a later one is counted and skipped."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

Ranges = Mapping[str, Mapping[str, list[list[int]]]]
"""JSON-able: an id's prefix before its last number -> number of digits -> [first, last] ranges."""

_NUMBERED: Final = re.compile(r"(.*?)([0-9]{1,18})", re.DOTALL | re.ASCII)
"""At most 18 digits, so that every number fits into 64 bits; further ones belong to the prefix."""


class IdSet:
    """An exact set of ids, small if they are numbered: months of a run are a handful of ranges.

    Ids without a number at their end are stored one by one, as a number of 0 digits.
    """

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._ranges: dict[tuple[str, int], list[list[int]]] = {}
        self._count = 0
        if isinstance(ids, IdSet):
            self._ranges = {key: [list(each) for each in ranges] for key, ranges in ids._ranges.items()}
            self._count = ids._count
        else:
            for each in ids:
                self.add(each)

    @classmethod
    def of(cls, ranges: Ranges) -> IdSet:
        """The inverse of `ranges()`."""
        made = cls()
        for prefix, widths in ranges.items():
            for width, found in widths.items():
                made._ranges[prefix, int(width)] = [[first, last] for first, last in found]
                made._count += sum(last - first + 1 for first, last in found)
        return made

    def add(self, each: str) -> bool:
        """Add it; False if it was in the set."""
        key, number = _split(each)
        ranges = self._ranges.setdefault(key, [])
        after = bisect_right(ranges, number, key=_first)
        if after and number <= ranges[after - 1][1]:
            return False
        joins_left = after > 0 and ranges[after - 1][1] == number - 1
        joins_right = after < len(ranges) and ranges[after][0] == number + 1
        if joins_left and joins_right:
            ranges[after - 1][1] = ranges.pop(after)[1]
        elif joins_left:
            ranges[after - 1][1] = number
        elif joins_right:
            ranges[after][0] = number
        else:
            ranges.insert(after, [number, number])
        self._count += 1
        return True

    def ranges(self) -> Ranges:
        """The set for JSON; equal sets give equal values, in the same order."""
        found: dict[str, dict[str, list[list[int]]]] = {}
        for (prefix, width), ranges in sorted(self._ranges.items()):
            found.setdefault(prefix, {})[str(width)] = [list(each) for each in ranges]
        return found

    def __contains__(self, each: str) -> bool:
        key, number = _split(each)
        ranges = self._ranges.get(key, [])
        after = bisect_right(ranges, number, key=_first)
        return after > 0 and number <= ranges[after - 1][1]

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[str]:
        for (prefix, width), ranges in sorted(self._ranges.items()):
            for first, last in ranges:
                yield from (f"{prefix}{number:0{width}d}" if width else prefix for number in range(first, last + 1))


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


def _split(each: str) -> tuple[tuple[str, int], int]:
    """An id as (prefix, number of digits) and the number; a bijection."""
    found = _NUMBERED.fullmatch(each)
    return ((found[1], len(found[2])), int(found[2])) if found else ((each, 0), 0)


def _first(each: list[int]) -> int:
    return each[0]
