"""How every policy draws a token, and what the probability of one that was drawn is."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import numpy as np
import numpy.typing as npt

from distrl.errors import PolicyError

if TYPE_CHECKING:
    from torch import Tensor

    from distrl.config import WorkerSettings


@dataclass(frozen=True, slots=True)
class Ladder:
    """The ε of each episode: ε_i = epsilon^(1 + alpha · i / (rungs − 1)) (Ape-X, arXiv 1803.00933, section 4).

    There i is an actor's number. Here it follows from the task's id: the record holds it, so ε can be computed again,
    and whichever worker plays the task has the same. It follows from a hash of the id and not from its number, by which
    suites assign families.
    """

    rungs: int
    epsilon: float = 0.4
    alpha: float = 7.0

    def at(self, rung: int) -> float:
        """ε_i of i = rung, 0 ≤ i < rungs."""
        return float(self.epsilon ** (1.0 + self.alpha * rung / (self.rungs - 1)))

    def of(self, task_id: str) -> float:
        digest = hashlib.sha256(f"{task_id}\nladder".encode()).digest()
        return self.at(int.from_bytes(digest[:8], "big") % self.rungs)


@dataclass(frozen=True, slots=True)
class Sampling:
    """The distribution of a token, from logits: softmax(logits / temperature), of which the `top_k` likeliest tokens
    are left, of these the fewest likeliest that hold `top_p` of their mass, and what is left sums to 1 again.

    top_k: None leaves all. Tokens as likely as the last one that is left are left, too. epsilon: that of a recurrent Q,
    in its logits; None: its base model's. Nothing is drawn by a ladder itself, but by each episode's ε (`by_episode`).
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int | None = None
    epsilon: float | Ladder | None = None

    @classmethod
    def of(cls, settings: WorkerSettings) -> Sampling:
        ladder = settings.ladder
        epsilon = None if ladder.rungs is None else Ladder(ladder.rungs, ladder.epsilon, ladder.alpha)
        return cls(settings.temperature, settings.top_p, settings.top_k, epsilon)

    @property
    def truncated(self) -> bool:
        """Whether some tokens may be left out."""
        return self.top_p < 1.0 or self.top_k is not None

    def support(self, logp: Tensor) -> Tensor:
        """(…, V) which tokens are left of log-probabilities (…, V)."""
        ordered = logp.sort(dim=-1, descending=True).values[..., : self.top_k]
        mass = ordered.exp().cumsum(-1)
        before = mass - ordered.exp()
        left = (before < self.top_p * mass[..., -1:]).sum(-1, keepdim=True)
        return logp >= ordered.gather(-1, (left - 1).clamp(min=0))  # none is left where they are no numbers

    def log_probabilities(self, logits: Tensor) -> Tensor:
        """(…, V) log-probabilities of logits (…, V); −∞ for what is left out."""
        scaled = logits / self.temperature
        if self.truncated:
            scaled = scaled.masked_fill(~self.support(scaled.detach().log_softmax(-1)), float("-inf"))
        return scaled.log_softmax(-1)


LEAST_LOGP: Final = np.float32(-1e30)
"""Stands for −∞, whose product with a probability of 0 would not be a number."""

FULL: Final = Sampling()
"""The learner's π, and every token of it."""


def draw(logp: npt.NDArray[np.float64], rule: np.random.Generator, *, greedy: bool) -> int:
    """A token of log-probabilities (V,) by inverse distribution function in float64, or the likeliest one."""
    if greedy:
        return int(logp.argmax())
    ladder = np.cumsum(np.exp(logp))
    return min(int(np.searchsorted(ladder, rule.random() * ladder[-1], side="right")), len(ladder) - 1)


Row = TypeVar("Row")
Drawn = TypeVar("Drawn", Sampling, Sampling | None)


def by_episode(sampling: Drawn, task_ids: Sequence[str]) -> dict[Drawn, list[int]]:
    """The rows of a batch that are drawn alike, by the sampling of their episodes; all of them, but for a ladder.

    task_ids: of each row's episode.
    """
    if sampling is None or not isinstance(sampling.epsilon, Ladder):
        return {sampling: list(range(len(task_ids)))}
    found: dict[Drawn, list[int]] = {}
    for row, task_id in enumerate(task_ids):
        found.setdefault(replace(sampling, epsilon=sampling.epsilon.of(task_id)), []).append(row)
    return found


def each_by_episode(
    sampling: Sampling | None, task_ids: Sequence[str], decide: Callable[[Sampling | None, list[int]], Sequence[Row]]
) -> list[Row]:
    """What `decide` gives for the rows of each group of `by_episode`, in the order of the batch."""
    found: dict[int, Row] = {}
    for own, rows in by_episode(sampling, task_ids).items():
        found.update(zip(rows, decide(own, rows), strict=True))
    return [found[row] for row in range(len(task_ids))]


Choose = Callable[[npt.NDArray[np.float64]], int]
"""The next token of one row, given log-probabilities (V,)."""


def drawing(sampling: Sampling | None, seeds: Sequence[int]) -> list[Choose]:
    """Draws each row by a generator of its own; sampling None: greedy."""
    return [partial(draw, rule=np.random.default_rng(seed), greedy=sampling is None) for seed in seeds]


def repeating(actions: Sequence[Sequence[int]]) -> list[Choose]:
    """Writes what was written before."""
    return [partial(_next, iter(action)) for action in actions]


def _next(ids: Iterator[int], logp: npt.NDArray[np.float64]) -> int:
    found = next(ids, None)
    if found is None:
        raise PolicyError("a recorded action", "goes on after its last token", "it was not written by this policy")
    return found


def drawn_from(logits: Tensor, sampling: Sampling | None) -> npt.NDArray[np.float64]:
    """(B, V) log-probabilities of logits (B, V), in float64; of FULL where sampling is None."""
    found: npt.NDArray[np.float64] = (sampling or FULL).log_probabilities(logits.double().cpu()).numpy()
    return found


def entropies(logp: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """(B,) entropy in nats of log-probabilities (B, V). In float32, exact to 1e-5, which halves its time."""
    some = logp.astype(np.float32)
    found: npt.NDArray[np.float32] = np.einsum("bv,bv->b", np.exp(some), np.maximum(some, LEAST_LOGP))
    return np.abs(found)  # the sum is no more than 0, up to rounding


def scores(logits: Tensor, tokens: Tensor, drawn: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """(B,) summed log-probability of `tokens` (B, T), and (B,) mean entropy in nats, exact over V, where `drawn` (B, T)
    is 1; it is 0 for padding and for an end that was not drawn. logits: (B, T, V)."""
    logp = sampling.log_probabilities(logits)
    probability = logp.exp()
    entropy = -(probability * (logp.masked_fill(probability == 0, 0.0) if sampling.truncated else logp)).sum(-1)
    chosen = logp.gather(-1, tokens[..., None]).squeeze(-1)
    return chosen.masked_fill(drawn == 0, 0.0).sum(1), (entropy * drawn).sum(1) / drawn.sum(1)
