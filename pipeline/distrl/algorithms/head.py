"""A small network from a policy's encoder states to one logit: what every critic is made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from distrl.algorithms.descent import passes
from distrl.algorithms.protocol import Context
from distrl.algorithms.returns import Array
from distrl.policy.protocol import TrajectoryStep

QUERIES = 4
HIDDEN = 128


class Head(nn.Module):
    """Attention pooling with learned queries over a set of states, then a two-layer perceptron to one logit.

    width: d of the states. extra: width of a vector that is concatenated with the pooled states.
    """

    def __init__(self, width: int, extra: int = 0) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(QUERIES, width) * 0.1)
        self.norm = nn.LayerNorm(width)
        self.keys = nn.Linear(width, width)
        self.perceptron = nn.Sequential(nn.Linear(QUERIES * width + extra, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, 1))

    def forward(self, states: Tensor, mask: Tensor, extra: Tensor | None = None) -> Tensor:
        """states (B, S, d), mask (B, S) of 0 and 1, extra (B, e) -> logits (B,)."""
        states = self.norm(states)
        scores = self.queries @ self.keys(states).transpose(1, 2) / math.sqrt(states.shape[-1])
        weights = scores.masked_fill(mask[:, None] == 0, -math.inf).softmax(-1)
        pooled = (weights @ states).flatten(1)
        if extra is not None:
            pooled = torch.cat([pooled, extra], dim=1)
        return cast(Tensor, self.perceptron(pooled)).squeeze(-1)


def state_values(context: Context, heads: Sequence[Head], steps: Sequence[TrajectoryStep]) -> tuple[Array, Array]:
    """Values and log-probabilities of B recorded steps, without gradient: (values (heads, B), log π (B,)).

    A value is σ of the head's logit, in [0, 1].
    """
    values, logprobs = np.zeros((len(heads), len(steps))), np.zeros(len(steps))

    def look(rows: NDArray[np.int64]) -> tuple[Array, Array]:
        scored = context.score([steps[row] for row in rows])
        logits = torch.stack([head(scored.states, scored.mask) for head in heads])
        return logits.sigmoid().cpu().numpy(), scored.logprob.cpu().numpy()

    def keep(rows: NDArray[np.int64], found: tuple[Array, Array]) -> None:
        values[:, rows], logprobs[rows] = found

    with torch.no_grad():
        context.compute.each(list(passes([each.step for each in steps], context.config.learner.microbatch)), look, keep)
    return values, logprobs
