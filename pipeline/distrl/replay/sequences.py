"""Sequences cut from episodes, and draws of them by priority from two buffers: the agent's own and the demonstrations.

P(i) = p_i^α / Σ_k p_k^α within a buffer;  a draw is from the demonstrations with probability `demo_ratio` (R2D3, arXiv
1909.01387, section 3);  w_i = (N P(i))^−β (arXiv 1511.05952, section 3.4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from distrl.errors import ConfigError
from distrl.replay.dper import probabilities

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]

PRIORITY_FLOOR = 1e-3
"""Added to every priority: a sequence of priority 0 would never be drawn, and its priority never updated."""


class Window(NamedTuple):
    """A part of an episode. start: the first step that is learned from. burn_in: steps before it that are only read."""

    start: int
    burn_in: int


@dataclass(frozen=True, slots=True)
class Shape:
    """The columns of a sequence, in steps."""

    burn_in: int
    """Steps read before those that are learned from; fewer at the beginning of an episode."""
    length: int
    """Steps that are learned from. DQfD: 1."""
    ahead: int
    """Steps read after them. With n of them, each learned step has the same n-step return as in the whole episode."""
    stride: int
    """Steps from the start of one sequence to that of the next. R2D2: half of `length`."""

    def __post_init__(self) -> None:
        if self.burn_in < 0 or self.ahead < 1 or not 1 <= self.stride <= self.length:
            raise ConfigError(
                "sequence",
                f"burn-in {self.burn_in}, length {self.length}, ahead {self.ahead}, stride {self.stride}",
                "burn in 0 or more, look 1 ahead or more, and go on by 1 to `length`, so that no step is left out",
            )

    @property
    def columns(self) -> int:
        return self.burn_in + self.length + self.ahead


def windows(steps: int, shape: Shape) -> list[Window]:
    """The sequences of an episode: each step is learned from in one of them or more. None of an empty episode."""
    last = max(steps - shape.length, 0)
    starts = [*range(0, last, shape.stride), last] if steps else []
    return [Window(start, min(start, shape.burn_in)) for start in starts]


class Draws(NamedTuple):
    """Some draws. is_expert: (size,) whether from the demonstrations. place: (size,) index in its buffer. weights:
    (size,) in (0, 1]."""

    is_expert: Mask
    place: Ints
    weights: Floats


def draw(
    rng: np.random.Generator,
    agent: Floats,
    demonstrations: Floats,
    *,
    demo_ratio: float,
    size: int,
    alpha: float,
    beta: float,
) -> Draws:
    """Draws with replacement, by the inverse distribution function from one block of uniform numbers.

    agent, demonstrations: (n,), (m,) priorities, each > 0. If one buffer is empty, or a ratio of 0 or 1 excludes it,
    all draws are from the other. Weights are divided by the largest of these draws, so that they only scale a batch's
    gradients down. Raises ValueError where there is nothing to draw from.
    """
    if not len(agent) and not len(demonstrations):
        raise ValueError("both buffers are empty")
    if not len(agent) and demo_ratio == 0.0:
        raise ValueError("the agent's buffer is empty, and demonstrations are left out")
    ratio = 0.0 if not len(demonstrations) else 1.0 if not len(agent) else demo_ratio
    uniform = rng.random((size, 2))
    is_expert = uniform[:, 0] < ratio
    place, chance = np.zeros(size, dtype=np.int64), np.ones(size)
    for expert, priorities in ((False, agent), (True, demonstrations)):
        rows = is_expert == expert
        if rows.any():
            probability = probabilities(priorities, alpha)
            ladder = np.cumsum(probability)
            found = np.searchsorted(ladder, uniform[rows, 1] * ladder[-1], side="right")
            place[rows] = np.minimum(found, len(ladder) - 1)
            chance[rows] = len(probability) * probability[place[rows]]
    weights: Floats = chance**-beta
    return Draws(is_expert, place, weights / weights.max())
