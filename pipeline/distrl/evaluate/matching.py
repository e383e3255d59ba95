"""Action matching as published with Android in the Wild (arXiv 2307.10088, section 5.1): does a predicted action do
what the recorded one did? Vectorised over pairs; its mean is the offline accuracy of AutoUI and its successors.

Two taps match where their touches are near each other, or lie in one annotated box after it was grown; two drags match
when they move along the same axis, in either direction; all other actions match when their types are equal, whatever is
typed. Single precision, as in the published metric, so that pairs at a threshold fall on the same side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from distrl.types import TAP_DISTANCE

Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]

DUAL_POINT: Final = "DUAL_POINT"
TAPS_APART: Final = np.float32(0.14)
"""In fractions of the screen, like all lengths here."""
BOX_GROWTH: Final = np.float32(1.4)
"""A box is widened by this share of its size, half of it on either side."""


@dataclass(frozen=True, slots=True)
class Gestures:
    """N actions."""

    touch: Floats
    """(N, 2), each (y, x) in [0, 1]; ignored but for DUAL_POINT."""
    lift: Floats
    """Like `touch`."""
    type: npt.NDArray[np.str_]
    """(N,) names of AitW's action types."""

    @classmethod
    def of(cls, touch: npt.ArrayLike, lift: npt.ArrayLike, types: Sequence[str]) -> Gestures:
        """Raises ValueError where shapes differ, or a DUAL_POINT has a point that is not finite."""
        made = cls(np.asarray(touch, np.float32), np.asarray(lift, np.float32), np.asarray(types, np.str_))
        count = len(made.type)
        if made.touch.shape != (count, 2) or made.lift.shape != (count, 2):
            raise ValueError(
                f"{count} types, but touch {made.touch.shape} and lift {made.lift.shape}, not ({count}, 2)"
            )
        points = np.concatenate([made.touch, made.lift], axis=1)[made.type == DUAL_POINT]
        if not np.isfinite(points).all():
            raise ValueError("a DUAL_POINT gesture has a point that is not finite")
        return made

    @property
    def dual_point(self) -> Bools:
        return np.asarray(self.type == DUAL_POINT)

    @property
    def tap(self) -> Bools:
        """(N,) whether the gesture is a DUAL_POINT that ends where it began."""
        return self.dual_point & (_length(self.lift - self.touch) <= np.float32(TAP_DISTANCE))


def matches(first: Gestures, second: Gestures, boxes: npt.ArrayLike) -> Bools:
    """(N,) whether each pair matches.

    boxes: (N, K, 4) the annotated elements of each pair's screen as (y, x, height, width); rows of NaN are none.
    Raises ValueError where the lengths differ.
    """
    annotated = np.asarray(boxes, np.float32)
    if not len(first.type) == len(second.type) == len(annotated) or annotated.shape[2:] != (4,):
        raise ValueError(f"{len(first.type)} and {len(second.type)} actions, boxes of shape {annotated.shape}")
    both_dual = first.dual_point & second.dual_point
    both_taps = first.tap & second.tap
    both_drags = both_dual & ~first.tap & ~second.tap
    return np.select(
        [both_taps, both_drags, both_dual],
        [_near(first, second) | _in_one_box(first, second, annotated), _main_axis(first) == _main_axis(second), False],
        first.type == second.type,
    )


def padded(boxes: Sequence[npt.ArrayLike]) -> Floats:
    """(N, K, 4) of N screens with any number of boxes each, filled behind with NaN; K is 1 or more."""
    arrays = [np.asarray(each, np.float32).reshape(-1, 4) for each in boxes]
    filled = np.full((len(arrays), max([1, *map(len, arrays)]), 4), np.nan, np.float32)
    for row, array in zip(filled, arrays, strict=True):
        row[: len(array)] = array
    return filled


def _near(first: Gestures, second: Gestures) -> Bools:
    return np.asarray(_length(first.touch - second.touch) <= TAPS_APART)


def _in_one_box(first: Gestures, second: Gestures, boxes: Floats) -> Bools:
    grown = _grown(boxes)
    return np.asarray((_inside(first.touch, grown) & _inside(second.touch, grown)).any(axis=1))


def _grown(boxes: Floats) -> Floats:
    """Corner and size grow apart from each other: where the corner is clamped, the far side moves out by as much."""
    growth = BOX_GROWTH * boxes[..., 2:]
    return np.concatenate([np.maximum(0, boxes[..., :2] - growth / 2), np.minimum(1, boxes[..., 2:] + growth)], axis=-1)


def _inside(points: Floats, boxes: Floats) -> Bools:
    """(N, K) of points (N, 2) and boxes (N, K, 4); edges belong to a box, and nothing to a box of NaN."""
    corner, size, at = boxes[..., :2], boxes[..., 2:], points[:, None, :]
    return np.asarray(((at >= corner) & (at <= corner + size)).all(axis=-1))


def _main_axis(gestures: Gestures) -> npt.NDArray[np.int64]:
    """(N,) 0 where a gesture moves more in y, 1 in x."""
    return np.asarray(np.abs(gestures.lift - gestures.touch).argmax(axis=1))


def _length(vectors: Floats) -> Floats:
    return np.asarray(np.linalg.norm(vectors, axis=-1), np.float32)
