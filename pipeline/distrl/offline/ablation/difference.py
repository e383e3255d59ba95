"""The difference in success between two policies that played the same tasks. Pure.

Tasks are pairs: a hard one is hard for both, so that what both did, or both failed, says nothing of the difference. The
interval is Newcombe's for paired proportions (Statistics in Medicine 17, 1998, 2635–2650, method 10): the Wilson
intervals of both shares, combined with the correlation of the outcomes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from distrl.evaluate.curves import wilson


@dataclass(frozen=True, slots=True)
class Difference:
    """Success of one policy minus that of another, with its 95 % interval; shares in [-1, 1]."""

    tasks: int
    """With a known outcome under both."""
    value: float
    low: float
    high: float


def difference(one: Mapping[str, bool], other: Mapping[str, bool]) -> Difference | None:
    """`one` minus `other`, over the tasks of both. Task id -> success; None where they have no task in common."""
    pairs = [(won, other[task]) for task, won in one.items() if task in other]
    if not pairs:
        return None
    both, first, second = (pairs.count(each) for each in ((True, True), (True, False), (False, True)))
    low, high = newcombe(both, first, second, len(pairs) - both - first - second)
    return Difference(len(pairs), (first - second) / len(pairs), low, high)


def newcombe(both: int, first: int, second: int, neither: int) -> tuple[float, float]:
    """95 % interval of p₁ − p₂ = (first − second) / n; n > 0 pairs, of which both, one alone, or neither succeeded."""
    n = both + first + second + neither
    (p1, low1, high1), (p2, low2, high2) = ((won / n, *wilson(won, n)) for won in (both + first, both + second))
    phi = _correlation(both, first, second, neither)
    below = math.hypot(p1 - low1, high2 - p2) ** 2 - 2 * phi * (p1 - low1) * (high2 - p2)
    above = math.hypot(high1 - p1, p2 - low2) ** 2 - 2 * phi * (high1 - p1) * (p2 - low2)
    return p1 - p2 - math.sqrt(max(below, 0.0)), p1 - p2 + math.sqrt(max(above, 0.0))


def _correlation(both: int, first: int, second: int, neither: int) -> float:
    """φ of the outcomes, a positive one corrected for continuity; 0 where one of them never varies."""
    margins = (both + first) * (second + neither) * (both + second) * (first + neither)
    product, n = both * neither - first * second, both + first + second + neither
    corrected = max(product - n / 2, 0.0) if product > 0 else product
    return corrected / math.sqrt(margins) if margins else 0.0
