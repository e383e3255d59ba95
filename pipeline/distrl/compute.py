"""How gradients are computed: in shards whose sum has one order, on deterministic kernels with a set number of threads.

    minibatch ──▶ shard 0, 1, … ──▶ one gradient each ──▶ summed, shard 0 first

Here one process computes every shard, in float32 on its CPU. Since a shard's gradient depends on nothing but the shard,
who computes it changes no bit: what spreads shards over processes or GPUs belongs in this module and in no other.
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
    """What a shard of n rows gives. loss: a scalar, the mean over its rows. rows: (n,) each, for metrics, detached."""

    loss: Tensor
    rows: Mapping[str, Tensor]


class Compute:
    """Shards as `learner.shards` says. A part of the result, as the number of threads is: sums are split by it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self.shards = config.learner.shards

    def gradients(
        self, parameters: Sequence[nn.Parameter], rows: int, part: Callable[[slice], ShardResult], purpose: str, u: int
    ) -> tuple[Gradients, dict[str, Tensor]]:
        """The gradient of the mean over a minibatch of `rows` rows, and what each row gave, in their order.

        part: of the rows that a slice names. purpose, u: what seeds the draws of a shard, such as dropout; a minibatch
        in one piece takes them from the caller's generator.
        """
        total: Gradients = [None] * len(parameters)
        found: list[Mapping[str, Tensor]] = []
        for number, piece in enumerate(pieces(rows, self.shards)):
            seeded = torch_seed(seed_of(self._config, f"{purpose} shard {number}", u))
            with seeded if self.shards > 1 else nullcontext():
                made = part(piece)
                share = made.loss * ((piece.stop - piece.start) / rows)
                each = torch.autograd.grad(share, parameters, allow_unused=True)
            total = [_sum(*pair) for pair in zip(total, each, strict=True)]
            found.append(made.rows)
        return total, {name: torch.cat([each[name] for each in found]) for name in found[0]}


def pieces(rows: int, shards: int) -> list[slice]:
    """`rows` in `shards` runs of rows, as even as can be; fewer where there are fewer rows."""
    bounds = [rows * number // shards for number in range(shards + 1)]
    return [slice(begin, end) for begin, end in pairwise(bounds) if end > begin]


@contextmanager
def reproducible(threads: int) -> Iterator[None]:
    """Within, torch computes the same bits each time: deterministic kernels, and a set number of threads.

    The number of threads decides how sums are split, so it is a setting of the fold and not of the machine.
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
