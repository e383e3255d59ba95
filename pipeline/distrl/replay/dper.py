"""Distributed prioritised experience replay (DistRL, section 5.3): the probabilities with which trajectories are drawn.

p(τ) = w1 mean|δ| / max|δ| + w2 mean min(1, ρ) + w3 mean H / max H,   H_t = −log π(a_t|s_t)
P(τ) ∝ (p(τ) · filter(τ))^α
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from distrl.config import PrioritisedReplaySettings
from distrl.replay.circular import CircularBuffer

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

PRIORITY_FLOOR = 1e-3
"""Added to every priority: a trajectory of priority 0 would never be drawn, and its priority never updated."""


def priorities(buffer: CircularBuffer, config: PrioritisedReplaySettings) -> Floats:
    """(n,) p(τ) > 0 of each entry, from the columns td, ratio and nll; the maxima are those of the buffer now."""
    layout, columns = buffer.layout, buffer.columns
    if not layout.entries:
        return np.zeros(0)

    def mean(column: Floats) -> Floats:
        return np.bincount(layout.owner, column, len(layout.entries)) / layout.lengths

    # one column after the other, so that each is still in the processor's cache when it is summed
    td = np.abs(layout.of(columns["td"]))
    total: Floats = config.w1 * mean(td) / max(float(td.max()), PRIORITY_FLOOR)
    ratio = np.minimum(1.0, layout.of(columns["ratio"]))
    total += config.w2 * mean(ratio)
    nll = np.maximum(layout.of(columns["nll"]), 0.0)
    total += config.w3 * mean(nll) / max(float(nll.max()), PRIORITY_FLOOR)
    return total + PRIORITY_FLOOR


def filtered(priority: Floats, v_traj: Floats, strength: float) -> Floats:
    """Priorities after V_traj's filter (section 5.1: it "filters/prioritizes trajectories for training").

    The paper does not say how. Here a priority is multiplied by 1 − strength · (1 − V_traj(s_H, a_H)): strength 0
    filters nothing, 1 leaves only what V_traj takes for a success. Below 1 every trajectory can still be drawn, so V(s)
    is also fitted to failures. v_traj: (n,) in [0, 1].
    """
    left: Floats = np.maximum(priority * (1.0 - strength * (1.0 - np.clip(v_traj, 0.0, 1.0))), PRIORITY_FLOOR)
    return left


def probabilities(priority: Floats, alpha: float) -> Floats:
    """(n,) P(τ) = p^α / Σ p^α (A.4.2). alpha 0 is uniform. priority: (n,), each > 0."""
    weights: Floats = priority**alpha
    total: Floats = weights / weights.sum()
    return total


def importance_weights(probability: Floats, lengths: Ints) -> Floats:
    """(n,) w = 1 / (N q) of a transition of each entry; q = P(τ) / T_τ is its probability in `sample`, N = Σ T_τ.

    With these weights, draws by priority have the mean of uniform ones: E_q[w f] = 1/N Σ_i f_i (Schaul 2015, section
    3.4, with β = 1, and not divided by the largest, so unbiased at any size). For f that is 0 on all but one step of
    each entry, weights times the mean length N/n give the mean over entries. probability: (n,) P(τ) > 0, sum 1.
    lengths: (n,) T_τ.
    """
    weights: Floats = lengths / (lengths.sum() * probability)
    return weights


def sample(rng: np.random.Generator, probability: Floats, lengths: Ints, size: int) -> Ints:
    """(size, 2) draws with replacement of [entry, step]: an entry by P(τ), then one of its steps uniformly.

    Draws by the inverse distribution function from one block of uniform numbers, so they depend on `rng` alone.
    """
    uniform = rng.random((size, 2))
    ladder = np.cumsum(probability)
    entry = np.minimum(np.searchsorted(ladder, uniform[:, 0] * ladder[-1], side="right"), len(ladder) - 1)
    step = np.minimum((uniform[:, 1] * lengths[entry]).astype(np.int64), lengths[entry] - 1)
    return np.stack([entry, step], axis=1)
