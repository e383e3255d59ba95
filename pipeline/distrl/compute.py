"""Computes gradients reproducibly: in shards summed in a fixed order, by deterministic kernels on a set number of
threads.

    minibatch ──▶ shard 0, 1, … ──▶ one gradient each ──▶ summed, shard 0 first
    shard     ──▶ passes of at most learner.microbatch rows ──▶ one gradient each ──▶ summed, the first rows first

Here one process computes every shard, on one device. A shard's gradient depends only on the shard, so it does
not matter which process computes it: spreading shards over processes or GPUs belongs in this module only.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn

from distrl.accelerator import first_line, is_out_of_memory
from distrl.config import Config
from distrl.seeds import seed_of, torch_seed

LOG = logging.getLogger("distrl.compute")

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
    """Computes gradients in `learner.shards` shards, and these in passes of `learner.microbatch` rows. Both numbers
    change the result's last bits, as that of threads.

    save_memory: has a pass take less memory without changing its bits; False where nothing is left to be saved.
    """

    def __init__(self, config: Config, save_memory: Callable[[], bool] = lambda: False) -> None:
        self._config, self._save_memory = config, save_memory
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
                of_shard, made = self._in_passes(parameters, rows, piece, part)
            total = [_sum(*pair) for pair in zip(total, of_shard, strict=True)]
            found += made
        return total, {name: torch.cat([each[name] for each in found]) for name in found[0]}

    def _in_passes(
        self, parameters: Sequence[nn.Parameter], rows: int, shard: slice, part: Callable[[slice], ShardResult]
    ) -> tuple[Gradients, list[Mapping[str, Tensor]]]:
        """What a shard adds to the gradient of the mean loss of `rows` rows, and what is known of its own."""
        total: Gradients = [None] * len(parameters)
        found: list[Mapping[str, Tensor]] = []
        most = self._config.learner.microbatch or shard.stop - shard.start
        for begin in range(shard.start, shard.stop, most):
            each, made = self._pass(parameters, rows, slice(begin, min(begin + most, shard.stop)), part)
            total = [_sum(*pair) for pair in zip(total, each, strict=True)]
            found.append(made)
        return total, found

    def _pass(
        self, parameters: Sequence[nn.Parameter], rows: int, piece: slice, part: Callable[[slice], ShardResult]
    ) -> tuple[Sequence[Tensor | None], Mapping[str, Tensor]]:
        """Of one pass. Where memory is not enough, it is repeated from the same random state with less."""
        drawn = _random_state()
        while True:
            try:
                made = part(piece)
                share = made.loss * ((piece.stop - piece.start) / rows)
                return torch.autograd.grad(share, parameters, allow_unused=True), made.rows
            except RuntimeError as error:
                if not is_out_of_memory(error) or not self._save_memory():
                    raise
                what = first_line(error)
            # past the except block: the error holds what the failed pass has made
            LOG.warning(
                "memory is not enough for a pass of %d rows (%s); it is repeated, as all later ones, with "
                "learner.gradient_checkpointing, which changes no bit",
                piece.stop - piece.start,
                what,
            )
            torch.cuda.empty_cache()
            _set_random_state(drawn)


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


def _random_state() -> tuple[Tensor, list[Tensor]]:
    """Of the CPU, and of the GPUs that are in use."""
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []


def _set_random_state(state: tuple[Tensor, list[Tensor]]) -> None:
    torch.set_rng_state(state[0])
    if state[1]:
        torch.cuda.set_rng_state_all(state[1])


def _sum(total: Tensor | None, more: Tensor | None) -> Tensor | None:
    return more if total is None else total if more is None else total + more
