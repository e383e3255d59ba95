"""Exchanges values between ranks. The only module that uses torch.distributed.

Each method is called by every rank, in the same order. When a rank ends for any reason, its connections close and the
others notice at once; that a rank hangs or cannot be reached is noticed within `answer_s` of `joined`. The others then
raise RankError and must end, since later exchanges would no longer match.

Tensors travel by gloo between processors and by NCCL between GPUs. Other values are pickled: ranks trust one another,
and their ports must be open to ranks alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from queue import Empty, SimpleQueue
from socket import socket
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed.rendezvous import rendezvous

from distrl.errors import DistrlError
from distrl.ranks.place import LOOPBACK, Place

T = TypeVar("T")

POLL_S = 0.1
AGAIN = "the log of that rank says why; start the learner again: nothing is lost, the update is repeated"
SLOW: Final = "where it only needed longer, as to load a large base model, raise monitoring.stuck_s on every rank first"
NOTHING: Final = -0.0
"""x + −0 is x, bit for bit, whatever x is; x + 0 is not where x is −0."""


class RankError(DistrlError):
    """Another rank has ended or does not answer."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """This process among the ranks. One thread."""

    rank: int = 0
    world: int = 1

    def send(self, value: object) -> None:
        """Called by rank 0 alone: send `value` to all other ranks, which call `receive`."""
        if self.world > 1:
            with self._answered():
                dist.broadcast_object_list([value], src=0)

    def receive(self) -> Any:
        """The value that rank 0 sends; waits for it."""
        found: list[Any] = [None]
        with self._answered():
            dist.broadcast_object_list(found, src=0)
        return found[0]

    def gather(self, value: T) -> list[T]:
        """The value of every rank, by rank."""
        if self.world == 1:
            return [value]
        found: list[Any] = [None] * self.world
        with self._answered():
            dist.all_gather_object(found, value)
        return found

    def sum_in_order(self, mine: Tensor, count: int) -> Tensor:
        """(P,) the sum of `count` vectors, vector 0 first: the same bits on any number of ranks.

        mine: (k, P) this rank's vectors, which have the numbers rank, rank + world, …; all ranks together have `count`.

        Each rank receives one slice of every vector, sums it, and sends the sum to all. With one vector per rank, it
        sends 2 P numbers, as in an all-reduce, whose order of summation would depend on the number of ranks.
        """
        most, length = -(-count // self.world), mine.shape[1]
        width = -(-length // self.world)
        packed = mine.new_full((most, self.world * width), NOTHING)
        packed[: len(mine), :length] = mine
        slices = packed.view(most, self.world, width).transpose(0, 1).contiguous()
        found = torch.empty_like(slices)
        whole = packed.new_empty(self.world * width)
        with self._answered():
            dist.all_to_all_single(found, slices)
        vectors = found.transpose(0, 1).flatten(0, 1)[:count]
        total = vectors[0]
        for vector in vectors[1:]:
            total = total + vector
        with self._answered():
            dist.all_gather_into_tensor(whole, total.contiguous())
        return whole[:length]

    @contextmanager
    def _answered(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:  # also torch's DistError
            raise RankError(
                f"rank {self.rank} of {self.world}",
                f"another rank has ended or does not answer ({reason(str(error))})",
                f"{AGAIN}; {SLOW}",
            ) from None


def reason(text: str) -> str:
    """The useful part of torch's message of a failed collective: its first line, and NCCL's last error if it has one.
    The rest is a stack trace."""
    first, *more = text.splitlines() or [""]
    last = next((why for mark, why in pairwise(more) if mark.strip() == "Last error:"), "")
    return f"{first}: {last.strip()}" if last else first


ALONE: Final = Ranks()


def joined(
    place: Place,
    answer_s: float,
    stop: threading.Event,
    listener: socket | None = None,
    check: Callable[[], object] = lambda: None,
) -> Ranks | None:
    """Wait until all ranks have joined; None where `stop` is set before.

    answer_s: how long a rank may take to answer, now and later. listener: a listening socket of rank 0 at which the
    ranks meet; MASTER_ADDR and MASTER_PORT if None. check: called while it waits; may raise. Raises RankError.
    """
    outcome = SimpleQueue[Exception | None]()

    def join() -> None:
        try:
            _join(place, timedelta(seconds=answer_s), listener)
        except Exception as error:
            outcome.put(error)
        else:
            outcome.put(None)

    threading.Thread(target=join, name="joining", daemon=True).start()
    while not stop.is_set():
        with suppress(Empty):
            error = outcome.get(timeout=POLL_S)
            if error is None:
                return Ranks(place.rank, place.world)
            why = reason(str(error)) or type(error).__name__
            raise RankError(
                f"rank {place.rank} of {place.world}",
                f"the ranks did not meet within {answer_s:g} s, or one of them ended ({why})",
                "start as many as WORLD_SIZE says, and see whether they can reach MASTER_ADDR at MASTER_PORT",
            ) from None
        check()
    return None


def leave() -> None:
    """Close the connections, once no rank waits for this one."""
    if dist.is_initialized():
        dist.destroy_process_group()


def _join(place: Place, answer: timedelta, listener: socket | None) -> None:
    if listener is None:
        store, _, _ = next(rendezvous("env://", place.rank, place.world, timeout=answer))
    else:
        store = TCPStore(
            LOOPBACK,
            listener.getsockname()[1],
            place.world,
            is_master=True,
            timeout=answer,
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )
    nccl = torch.cuda.is_available() and dist.is_nccl_available()
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if nccl else "gloo",
        # torchrun keeps its store when it starts ranks again, with the addresses of those that have ended.
        store=PrefixStore(f"attempt-{place.attempt}", store),
        rank=place.rank,
        world_size=place.world,
        timeout=answer,
    )
