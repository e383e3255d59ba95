"""Computes gradients reproducibly: in shards summed in a fixed order, by deterministic kernels on a set number of
threads.

    minibatch ──▶ shard 0, 1, … ──▶ one gradient each ──▶ summed, shard 0 first
    shard     ──▶ passes of at most learner.microbatch rows ──▶ one gradient each ──▶ summed, the first rows first

A shard's gradient depends only on the shard, so it does not matter which process computes it. Shards, and other work
that comes in pieces, are split among the ranks here and nowhere else: rank r of n gets pieces r, r + n, …, and every
rank ends with the results of all.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import count, islice, pairwise
from typing import TypeVar

import torch
from torch import Tensor, nn

from distrl.accelerator import is_out_of_memory
from distrl.config import Config
from distrl.errors import ConfigError, DistrlError
from distrl.ranks.group import ALONE, NOTHING, Ranks
from distrl.seeds import seed_of, torch_seed
from distrl.text import first_line

LOG = logging.getLogger("distrl.compute")

T = TypeVar("T")
R = TypeVar("R")

Gradients = list[Tensor | None]
"""One for each parameter, in their order; None where the loss does not depend on it."""


@dataclass(frozen=True, slots=True)
class ShardResult:
    """The result of a shard of n rows."""

    loss: Tensor
    """A scalar, the mean over its rows."""
    rows: Mapping[str, Tensor]
    """(n,) each, detached, for metrics."""


Shard = tuple[Gradients, Mapping[str, Tensor]]
"""The gradients of a shard and its `ShardResult.rows`."""

PER_RANK = 16
"""Pieces of work of one rank between two exchanges. It bounds what is in memory twice, such as features of screens."""


class Compute:
    """Computes gradients in `learner.shards` shards, and these in passes of `learner.microbatch` rows. Both numbers
    change the result's last bits, as that of threads; the number of ranks changes nothing. Every rank calls the same
    methods with equal arguments, in the same order.

    save_memory: has a pass take less memory without changing its bits; False where nothing is left to be saved.
    """

    def __init__(self, config: Config, save_memory: Callable[[], bool] = lambda: False) -> None:
        self._config, self._save_memory = config, save_memory
        self._ranks = ALONE
        self.shards = config.learner.shards

    def split_among(self, ranks: Ranks) -> None:
        """Compute on `ranks` from now on. Raises ConfigError where one of them would have nothing to do."""
        refuse_idle_ranks(self._config, ranks.world)
        self._ranks = ranks

    def gradients(
        self, parameters: Sequence[nn.Parameter], rows: int, part: Callable[[slice], ShardResult], purpose: str, u: int
    ) -> tuple[Gradients, dict[str, Tensor]]:
        """The gradient of the mean loss over a minibatch of `rows` rows, and `ShardResult.rows` of them all, in order.

        part: computes the rows of a slice. purpose, u: seed a shard's random draws, such as dropout; with one shard
        they come from the caller's generator.
        """
        every = pieces(rows, self.shards)
        mine = (
            self._shard(parameters, every[number], rows, part, f"{purpose} shard {number}", u)
            for number in range(self._ranks.rank, len(every), self._ranks.world)
        )
        total: Gradients = [None] * len(parameters)
        found: list[Mapping[str, Tensor]] = []
        if self._ranks.world > 1:
            total, found = self._together(parameters, list(mine), len(every))
        else:
            for each, more in mine:
                total = [_sum(*pair) for pair in zip(total, each, strict=True)]
                found.append(more)
        return total, {name: torch.cat([each[name] for each in found]) for name in found[0]}

    def lacking(self, mine: Iterable[T]) -> list[T]:
        """The items that any rank lacks, each once, in the order of the ranks. mine: those that this one lacks."""
        return list(dict.fromkeys(item for each in self._ranks.gather(list(mine)) for item in each))

    def each(
        self,
        items: Sequence[T],
        work: Callable[[T], R],
        take: Callable[[T, R], None],
        at_hand: Callable[[T], bool] | None = None,
    ) -> None:
        """`take` every item and what `work` makes of it, in order; the items are split among the ranks.

        at_hand: whether this rank has what an item's work needs: it is assigned to the first rank that has. A
        DistrlError of either on any rank is raised on all of them, after what was done is taken.
        """
        if self._ranks.world == 1:
            for item in items:
                take(item, work(item))
            return
        owners, size = self._owners(items, at_hand), PER_RANK * self._ranks.world
        pairs = list(zip(items, owners, strict=True))
        blocks = [pairs[begin : begin + size] for begin in range(0, len(pairs), size)]
        error: DistrlError | None = None
        for block in [*blocks, []] if blocks else []:  # the last one only hears of an error in the last `take`
            mine = [item for item, owner in block if owner == self._ranks.rank]
            shares = self._ranks.gather(([], error) if error else _done(work, mine))
            made = [iter(done) for done, _ in shares]
            try:
                for item, owner in block:
                    for each in islice(made[owner], 1):  # none of what its rank has not come to
                        take(item, each)
            except DistrlError as found:
                error = found
            for _, failed in shares:
                if failed is not None:
                    raise failed

    def _owners(self, items: Sequence[T], at_hand: Callable[[T], bool] | None) -> list[int]:
        """The rank of each item: the first that has it at hand, of the others in turn. The same on every rank."""
        world = self._ranks.world
        if at_hand is None:
            return [number % world for number in range(len(items))]
        by_rank = self._ranks.gather([at_hand(item) for item in items])
        turn = count()
        having = ([rank for rank in range(world) if by_rank[rank][number]] for number in range(len(items)))
        return [ranks[0] if ranks else next(turn) % world for ranks in having]

    def _shard(
        self,
        parameters: Sequence[nn.Parameter],
        piece: slice,
        rows: int,
        part: Callable[[slice], ShardResult],
        purpose: str,
        u: int,
    ) -> Shard:
        with torch_seed(seed_of(self._config, purpose, u)) if self.shards > 1 else nullcontext():
            total, found = self._in_passes(parameters, rows, piece, part)
        return total, {name: torch.cat([each[name] for each in found]) for name in found[0]}

    def _in_passes(
        self, parameters: Sequence[nn.Parameter], rows: int, shard: slice, part: Callable[[slice], ShardResult]
    ) -> tuple[Gradients, list[Mapping[str, Tensor]]]:
        """A shard's part of the gradient of the mean loss over `rows` rows, and the `ShardResult.rows` of its
        passes."""
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
        """The same of one pass. Where memory is not enough, it is repeated from the same random state with less."""
        drawn = _random_state()

        def once() -> tuple[Sequence[Tensor | None], Mapping[str, Tensor]]:
            made = part(piece)
            share = made.loss * ((piece.stop - piece.start) / rows)
            return torch.autograd.grad(share, parameters, allow_unused=True), made.rows

        while True:
            try:
                return once()
            except RuntimeError as error:
                if not is_out_of_memory(error) or not self._save_memory():
                    raise
                what = first_line(error)
            # past the except block: the error holds the frame of `once`, and so what the failed pass has made
            LOG.warning(
                "memory is not enough for a pass of %d rows (%s): it is repeated, and later passes run, with "
                "learner.gradient_checkpointing, which changes no bit",
                piece.stop - piece.start,
                what,
            )
            torch.cuda.empty_cache()
            _set_random_state(drawn)

    def _together(
        self, parameters: Sequence[nn.Parameter], mine: Sequence[Shard], count: int
    ) -> tuple[Gradients, list[Mapping[str, Tensor]]]:
        """The sum of the gradients of `count` shards of all ranks, and the rows of each shard."""
        world = self._ranks.world
        shares = self._ranks.gather(
            [
                ([_layout(each) for each in gradients], {name: each.cpu() for name, each in rows.items()})
                for gradients, rows in mine
            ]
        )
        by_shard = [shares[number % world][number // world] for number in range(count)]
        layouts = list(zip(*(each for each, _ in by_shard), strict=True))
        total = [_sum_layout(each, parameter) for each, parameter in zip(layouts, parameters, strict=True)]
        for kind in dict.fromkeys((each.dtype, each.device) for each in parameters):  # the same on every rank
            here = [i for i, each in enumerate(parameters) if (each.dtype, each.device) == kind]
            vectors = [_flat([gradients[i] for i in here], [parameters[i] for i in here]) for gradients, _ in mine]
            length = sum(parameters[i].numel() for i in here)
            like = parameters[here[0]]
            summed = self._ranks.sum_in_order(torch.stack(vectors) if vectors else like.new_empty(0, length), count)
            for i, part in zip(here, torch.split(summed, [parameters[i].numel() for i in here]), strict=True):
                if (each := total[i]) is not None:
                    each.copy_(part.view_as(each))
        device = parameters[0].device
        return total, [{name: each.to(device) for name, each in rows.items()} for _, rows in by_shard]


def pieces(rows: int, shards: int) -> list[slice]:
    """`rows` rows as `shards` consecutive slices, as even as possible; fewer where there are fewer rows."""
    bounds = [rows * number // shards for number in range(shards + 1)]
    return [slice(begin, end) for begin, end in pairwise(bounds) if end > begin]


@contextmanager
def reproducible(threads: int) -> Iterator[None]:
    """Within, torch gives the same bits each time: deterministic kernels and a set number of threads.

    The number of threads decides how sums are split, so it is a setting of the fold, not of the machine. It is the
    calling thread's own; whether kernels are deterministic is the process's, so it stays until the last thread leaves.
    """
    _DETERMINISTIC.enter()
    try:
        with on_threads(threads):
            yield
    finally:
        _DETERMINISTIC.leave()


@contextmanager
def on_threads(count: int) -> Iterator[None]:
    """Within, torch computes on `count` threads where the calling thread asks it to."""
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(count)
        yield
    finally:
        torch.set_num_threads(before)


class _Deterministic:
    """Deterministic kernels for as long as any thread is within: torch has one switch for all of them."""

    def __init__(self) -> None:
        self._lock, self._within, self._before = threading.Lock(), 0, False

    def enter(self) -> None:
        with self._lock:
            if self._within == 0:
                self._before = torch.are_deterministic_algorithms_enabled()
                torch.use_deterministic_algorithms(True)
            self._within += 1

    def leave(self) -> None:
        with self._lock:
            self._within -= 1
            if self._within == 0:
                torch.use_deterministic_algorithms(self._before)


_DETERMINISTIC = _Deterministic()


def _random_state() -> tuple[Tensor, list[Tensor]]:
    """Of the CPU, and of the GPUs that are in use."""
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []


def _set_random_state(state: tuple[Tensor, list[Tensor]]) -> None:
    torch.set_rng_state(state[0])
    if state[1]:
        torch.cuda.set_rng_state_all(state[1])


def refuse_idle_ranks(config: Config, world: int) -> None:
    """Raises ConfigError where a minibatch has fewer shards than there are ranks."""
    shards = config.learner.shards
    if world > shards:
        raise ConfigError(
            "learner.shards",
            f"a minibatch has {shards} {'shards' if shards > 1 else 'shard'}, and there are {world} ranks",
            f"begin the run with learner.shards={world} or more (it belongs to the run, and changes its last bits), or "
            f"start at most {shards} with learner.ranks or torchrun",
        )


def _done(work: Callable[[T], R], items: Iterable[T]) -> tuple[list[R], DistrlError | None]:
    """The results of `work` up to the first item that fails, and the error of that item."""
    done: list[R] = []
    try:
        for item in items:
            done.append(work(item))  # noqa: PERF401 - what was done counts where the next one fails
    except DistrlError as error:
        return done, error
    return done, None


def _sum(total: Tensor | None, more: Tensor | None) -> Tensor | None:
    return more if total is None else total if more is None else total + more


def _layout(gradient: Tensor | None) -> tuple[int, ...] | None:
    return None if gradient is None else gradient.stride()


def _sum_layout(layouts: Iterable[tuple[int, ...] | None], parameter: Tensor) -> Tensor | None:
    """An empty gradient that lies in memory as the sum in one process does: the norm of a tensor depends, in its last
    bits, on the order in which its numbers lie. None where no shard has one."""
    total: Tensor | None = None
    for strides in layouts:
        total = _sum(total, None if strides is None else torch.empty_strided(parameter.shape, strides, device="meta"))
    return (
        None
        if total is None
        else torch.empty_strided(total.shape, total.stride(), dtype=parameter.dtype, device=parameter.device)
    )


def _flat(gradients: Gradients, parameters: Iterable[Tensor]) -> Tensor:
    """All numbers of a shard's gradients one after the other."""
    pairs = zip(gradients, parameters, strict=True)
    return torch.cat(
        [like.new_full((like.numel(),), NOTHING) if each is None else each.flatten() for each, like in pairs]
    )
