"""Computes gradients reproducibly: in shards summed in a fixed order, by deterministic kernels on a set number of
threads.

    minibatch ──▶ shard 0, 1, … ──▶ one gradient each ──▶ summed, shard 0 first

Here one process computes every shard, in float32 on its CPU. A shard's gradient depends only on the shard, so it does
not matter which process computes it: spreading shards over processes or GPUs belongs in this module only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from distrl.config import Config
from distrl.seeds import seed_of, torch_seed

Gradients = list[Tensor | None]
"""One for each parameter, in their order; None where the loss does not depend on it."""


@dataclass(frozen=True, slots=True)
class ShardResult:
    """The result of a shard of n rows."""

    loss: Tensor
    """A scalar, the mean over its rows."""
    rows: Mapping[str, Tensor]
    """(n,) each, detached, for metrics."""


class Compute:
    """Computes gradients in `learner.shards` shards. Their number changes the result's last bits, as that of
    threads."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.shards = config.learner.shards

    def gradients(
        self, parameters: Sequence[nn.Parameter], rows: int, part: Callable[[slice], ShardResult], purpose: str, u: int
    ) -> tuple[Gradients, dict[str, Tensor]]:
        """The gradient of the mean loss over a minibatch of `rows` rows, and `ShardResult.rows` of them all, in order.

        part: computes the rows of a slice. purpose, u: seed a shard's random draws, such as dropout; with one shard
        they come from the caller's generator.
        """
        total: Gradients = [None] * len(parameters)
        found: list[Mapping[str, Tensor]] = []
        for number, piece in enumerate(pieces(rows, self.shards)):
            seed = seed_of(self._config, f"{purpose} shard {number}", u)
            with torch_seed(seed) if self.shards > 1 else nullcontext():
                made = part(piece)
                share = made.loss * ((piece.stop - piece.start) / rows)
                each = torch.autograd.grad(share, parameters, allow_unused=True)
            total = [_sum(*pair) for pair in zip(total, each, strict=True)]
            found.append(made.rows)
        return total, {name: torch.cat([each[name] for each in found]) for name in found[0]}


def pieces(rows: int, shards: int) -> list[slice]:
    """`rows` rows as `shards` consecutive slices, as even as possible; fewer where there are fewer rows."""
    bounds = [rows * number // shards for number in range(shards + 1)]
    return [slice(begin, end) for begin, end in pairwise(bounds) if end > begin]


@contextmanager
def reproducible(threads: int) -> Iterator[None]:
    """Within, torch gives the same bits each time: deterministic kernels and a set number of threads.

    The number of threads decides how sums are split, so it is a setting of the fold, not of the machine.
    """
    before = torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0])
        torch.set_num_threads(before[1])


def _sum(total: Tensor | None, more: Tensor | None) -> Tensor | None:
    return more if total is None else total if more is None else total + more
