"""Off-policy estimates of a policy's success from episodes of other policies. Pure NumPy.

Notation: n episodes of at most T steps; behaviour μ, target π; ρ_t = π(a_t|s_t) / μ(a_t|s_t) over the whole action;
w_t = Π_{k≤t} ρ_k, which stays as it is after an episode's last step; W = w at the last step; rewards r_t, undiscounted
(outcome 1 on the last step of a success), so that an estimate reads as a success rate. π samples at temperature 1.

    ordinary      1/n Σ_i W_i G_i                                          unbiased; no bound on its variance
    weighted      Σ_i W_i G_i / Σ_i W_i                                    biased towards the mean, far less variance
    per_decision  Σ_t Σ_i w_{i,t} r_{i,t} / Σ_i w_{i,t}                    weighted, a reward by the actions before it
    doubly_robust 1/n Σ_i [V(s_0) + Σ_t w_t (r_t + V(s_{t+1}) − V(s_t))]   V takes variance away, not the expectation
    mean_weight   1/n Σ_i W_i                                              no value but a check: its expectation is 1

Every estimate is a function of sums over episodes, so the bootstrap is the same function with each episode counted as
often as it was drawn: `counts` is (B, n), one row per resample, and a row of ones gives the estimate itself.

The unweighted per-decision form equals `ordinary` where the reward comes at the end, so it is not among them.
doubly_robust is Jiang and Li's (2016) with Q(s, a) = V(s). It is honest only with a V that was not fitted to these
episodes: a V that knows how each of them ended turns it into the mean of the data, whatever π is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEAST_EPISODES: Final = 30.0
"""Effective episodes below which an estimate is called noise: the 95 % interval of a share is then wider than ±18
points, and the bootstrap cannot know how wide, since it only redraws the few episodes that carry all the weight."""

LOG_WEIGHT_BOUND: Final = 500.0
"""log w is held within ± this, so that sums stay finite in float64; e^500 is as hopeless as infinity."""

RESAMPLES: Final = 2_000
ROWS_AT_ONCE: Final = 200
"""Resamples computed together: a block of counts has this times n numbers."""


@dataclass(frozen=True, slots=True)
class Episodes:
    """n episodes, as arrays (n, T) with zeros after the last step of each."""

    log_ratios: Array
    """log ρ_t."""
    rewards: Array
    """r_t."""
    lengths: NDArray[np.int64]
    """(n,) steps."""
    values: Array | None = None
    """V(s_t), not fitted to these episodes; None without one."""

    @classmethod
    def of(
        cls, log_ratios: Sequence[Array], rewards: Sequence[Array], values: Sequence[Array] | None = None
    ) -> Episodes:
        """From one array per trajectory, each (T_i,)."""
        lengths = np.array([len(each) for each in log_ratios], dtype=np.int64)
        return cls(_padded(log_ratios), _padded(rewards), lengths, None if values is None else _padded(values))

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def log_weights(self) -> Array:
        """(n, T) log w_t, constant after the last step."""
        return np.clip(np.cumsum(self.log_ratios, axis=1), -LOG_WEIGHT_BOUND, LOG_WEIGHT_BOUND)

    @property
    def returns(self) -> Array:
        """(n,) Σ_t r_t."""
        total: Array = self.rewards.sum(axis=1)
        return total


@dataclass(frozen=True, slots=True)
class Estimate:
    """An estimate with its 95 % bootstrap interval."""

    value: float
    low: float
    high: float
    episodes: float
    """Effective episodes."""
    of: int
    """Episodes."""

    @property
    def is_noise(self) -> bool:
        return self.episodes < LEAST_EPISODES


Estimator = Callable[[Episodes, Array], Array]


def mean_return(episodes: Episodes, counts: Array) -> Array:
    """(B,) the mean return of μ, without any correction."""
    return _mean(episodes.returns, counts)


def mean_weight(episodes: Episodes, counts: Array) -> Array:
    """(B,) 1/n Σ_i W_i. Far from 1, the data lacks what π does, and the other estimates miss it too."""
    return _mean(np.exp(episodes.log_weights[:, -1]), counts)


def ordinary(episodes: Episodes, counts: Array) -> Array:
    """(B,) importance sampling: 1/n Σ_i W_i G_i."""
    return _mean(np.exp(episodes.log_weights[:, -1]) * episodes.returns, counts)


def weighted(episodes: Episodes, counts: Array) -> Array:
    """(B,) self-normalised importance sampling: Σ_i W_i G_i / Σ_i W_i."""
    weights = _scaled(episodes.log_weights[:, -1:])[:, 0]
    return _ratio(counts @ (weights * episodes.returns), counts @ weights)


def per_decision(episodes: Episodes, counts: Array) -> Array:
    """(B,) self-normalised at each step: Σ_t Σ_i w_{i,t} r_{i,t} / Σ_i w_{i,t}. An episode that is over earns 0."""
    weights = _scaled(episodes.log_weights)
    each: Array = _ratio(counts @ (weights * episodes.rewards), counts @ weights).sum(axis=1)
    return each


def doubly_robust(episodes: Episodes, counts: Array) -> Array:
    """(B,) 1/n Σ_i [V(s_0) + Σ_t w_t (r_t + V(s_{t+1}) − V(s_t))], V = 0 after the last step."""
    if episodes.values is None:
        raise ValueError("no values were given with these episodes")
    following = np.concatenate([episodes.values[:, 1:], np.zeros((len(episodes), 1))], axis=1)
    surprise = np.exp(episodes.log_weights) * (episodes.rewards + following - episodes.values)
    return _mean(episodes.values[:, 0] + surprise.sum(axis=1), counts)


def effective_episodes(log_weights: Array) -> float:
    """(Σ w)² / Σ w² of (n,) log weights: how many equally weighted episodes would have the same variance."""
    if not len(log_weights):
        return 0.0
    weights = np.exp(log_weights - log_weights.max())
    return float(weights.sum() ** 2 / (weights**2).sum())


def least_effective_episodes(log_weights: Array) -> float:
    """The smallest number of effective episodes of any step; (n, T) log weights."""
    return min((effective_episodes(column) for column in log_weights.T), default=0.0)


def estimates(episodes: Episodes, seed: int, resamples: int = RESAMPLES) -> dict[str, Estimate]:
    """Every estimate by name, `mean_return` first, `doubly_robust` only with values; empty without episodes.

    Equal arguments give equal numbers.
    """
    if not len(episodes):
        return {}
    log_weights = episodes.log_weights
    whole = effective_episodes(log_weights[:, -1])
    steps = least_effective_episodes(log_weights)
    chosen: Mapping[str, tuple[Estimator, float]] = {
        "mean_return": (mean_return, float(len(episodes))),
        "mean_weight": (mean_weight, whole),
        "ordinary": (ordinary, whole),
        "weighted": (weighted, whole),
        "per_decision": (per_decision, steps),
        **({"doubly_robust": (doubly_robust, steps)} if episodes.values is not None else {}),
    }
    found = {}
    for name, (estimator, effective) in chosen.items():
        value = float(estimator(episodes, np.ones((1, len(episodes))))[0])
        low, high = bootstrap(estimator, episodes, seed, resamples)
        found[name] = Estimate(value, low, high, effective, len(episodes))
    return found


def bootstrap(estimator: Estimator, episodes: Episodes, seed: int, resamples: int = RESAMPLES) -> tuple[float, float]:
    """The 2.5 % and 97.5 % points of an estimate over episodes redrawn with replacement."""
    rng = np.random.Generator(np.random.PCG64(seed))
    n = len(episodes)
    found = []
    for begin in range(0, resamples, ROWS_AT_ONCE):
        rows = min(ROWS_AT_ONCE, resamples - begin)
        found.append(estimator(episodes, rng.multinomial(n, np.full(n, 1.0 / n), size=rows).astype(np.float64)))
    low, high = np.quantile(np.concatenate(found), [0.025, 0.975])
    return float(low), float(high)


def _mean(each: Array, counts: Array) -> Array:
    total: Array = counts @ each / counts.sum(axis=1)
    return total


def _ratio(above: Array, below: Array) -> Array:
    """above / below; 0 where a resample has no episode with weight."""
    return np.divide(above, below, out=np.zeros_like(above), where=below > 0)


def _scaled(log_weights: Array) -> Array:
    """(n, T) weights scaled to a largest one of 1 in each column, which self-normalised estimates do not notice."""
    scaled: Array = np.exp(log_weights - log_weights.max(axis=0, keepdims=True))
    return scaled


def _padded(rows: Sequence[Array]) -> Array:
    result = np.zeros((len(rows), max(map(len, rows), default=0)))
    for place, row in enumerate(rows):
        result[place, : len(row)] = row
    return result
