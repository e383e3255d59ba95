"""What things cost in virtual seconds: the models, and the draws of one experiment. Pure.

A draw depends on the seed, on what is drawn and on whose it is (phone, episode, step), and on nothing else: not on the
order in which things happen, nor on what the other phones do. So two ways of collecting are compared under the same
latencies.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from statistics import NormalDist
from types import MappingProxyType
from typing import Any, Final

NORMAL: Final = NormalDist()


@dataclass(frozen=True, slots=True)
class Latency:
    """Log-normal with the mean `mean_s`, cut at `most` times its median; constant where sigma is 0.

    sigma: of its logarithm, as in `simphone.latency`.
    """

    mean_s: float
    sigma: float = 0.0
    most: float = 1000.0

    def draw(self, rng: random.Random) -> float:
        """Seconds."""
        return self.median_s * min(self.most, math.exp(self.sigma * rng.gauss(0.0, 1.0)))

    @property
    def median_s(self) -> float:
        return self.mean_s / _mean_of_cut(self.sigma, self.most)


@cache
def _mean_of_cut(sigma: float, most: float) -> float:
    """E[min(most, exp(σ z))], z normal, which the cut makes smaller than exp(σ² / 2)."""
    if sigma == 0:
        return 1.0
    cut = math.log(most) / sigma
    return math.exp(sigma**2 / 2) * NORMAL.cdf(cut - sigma) + most * NORMAL.cdf(-cut)


@dataclass(frozen=True, slots=True)
class CostModel:
    """Latencies of a fleet. source: where the numbers come from, for readers of the report."""

    source: str
    reset: Latency
    """A phone's, before an episode."""
    look: Latency
    """Until a phone's screen rests and is read: once a step, and once at the end."""
    act: Latency
    """An action on a phone."""
    decision_s: float
    """A batch of decisions, however many they are."""
    decision_row_s: float
    """Each decision of the batch."""
    record_s: float
    """From the writer of a record to its readers."""
    reload_s: float
    """Fetching a version's adapter and loading it."""
    update: Latency
    """An update of the learner."""

    @property
    def own_decision_s(self) -> float:
        """A decision that waits for no other."""
        return self.decision_s + self.decision_row_s

    def with_tail(self, sigma: float) -> CostModel:
        """The same means with another tail of the phones' latencies."""
        return replace(
            self,
            reset=replace(self.reset, sigma=sigma),
            look=replace(self.look, sigma=sigma),
            act=replace(self.act, sigma=sigma),
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Draws:
    """The latencies of one experiment."""

    model: CostModel
    seed: int

    def reset(self, phone: int, episode: int) -> float:
        return self._draw(self.model.reset, "reset", phone, episode)

    def look(self, phone: int, episode: int, step: int) -> float:
        return self._draw(self.model.look, "look", phone, episode, step)

    def act(self, phone: int, episode: int, step: int) -> float:
        return self._draw(self.model.act, "act", phone, episode, step)

    def update(self, u: int) -> float:
        return self._draw(self.model.update, "update", u)

    def _draw(self, latency: Latency, what: str, *whose: int) -> float:
        if latency.sigma == 0:
            return latency.mean_s
        return latency.draw(random.Random(f"{self.seed} {what} {whose}"))


FREE: Final = CostModel("", *(Latency(0.0),) * 3, 0.0, 0.0, 0.0, 0.0, Latency(0.0))
"""Nothing takes any time."""

TAILS: Final[Mapping[str, float]] = MappingProxyType({"steady": 0.0, "plain": 0.8, "heavy": 2.2})
"""σ of the phones' latencies, by the names of the profiles of simulated phones (`simphone.profiles`)."""

PAPER: Final = CostModel(
    source="DistRL's fleet. Its figures: an update takes 120 s and sending the weights 1.6 s (A.3.2), and 32 emulators "
    "bring 800 trajectories in 6,000 s asynchronously (6.3), so an episode takes 240 s. Ours: how these 240 s are "
    "divided between reset, screens, actions and decisions, and the tail, of which the paper says nothing.",
    reset=Latency(22.0, TAILS["plain"]),
    look=Latency(15.5, TAILS["plain"]),
    act=Latency(18.5, TAILS["plain"]),
    decision_s=0.3,
    decision_row_s=0.05,
    record_s=0.1,
    reload_s=1.6,
    update=Latency(120.0),
)
