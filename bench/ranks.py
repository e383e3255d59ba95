"""What it costs to sum gradients in a fixed order, beside an all-reduce; and a minibatch on one rank and on all.

    python bench/ranks.py --ranks 2 --rounds 9 [--device cuda]

Ranks are processes of this machine. On processors they exchange by gloo; with --device cuda each has a GPU of its own,
and they exchange by NCCL. First, vectors of as many numbers as LoRA adapters have, one
a rank: summed in order (Ranks.sum_in_order), by all-reduce, and by gathering all of them, in turn, so that what else
the machine does hits all alike. Printed: median seconds of the slowest rank, and the ratio to the all-reduce. Then a
minibatch of the shipped model in `--ranks` shards, computed by this process alone and by all ranks in turn.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import psutil
import shards
import torch
import torch.distributed as dist
from distrl.accelerator import device_of, kind_of
from distrl.compute import Compute, ShardResult, reproducible
from distrl.config import load
from distrl.learner.state import LearnerState
from distrl.ranks.group import Ranks, joined, leave
from distrl.ranks.place import LOOPBACK, Place, place_of
from rich.console import Console
from rich.table import Table

SIZES = (300_000, 3_000_000, 20_000_000)
"""Numbers in an adapter: about the shipped model's, a model of 0.5 B parameters, one of 7 B."""
ANSWER_S = 600.0


def exchanges(ranks: Ranks, size: int, device: torch.device) -> dict[str, Callable[[], object]]:
    mine, every = torch.randn(1, size, device=device), torch.empty(ranks.world * size, device=device)

    def gather() -> torch.Tensor:
        dist.all_gather_into_tensor(every, mine[0])
        return every.view(ranks.world, size).sum(0)

    return {
        "all-reduce": lambda: dist.all_reduce(mine[0].clone()),
        "in order": lambda: ranks.sum_in_order(mine, ranks.world),
        "gathered whole": gather,
    }


def timed(ranks: Ranks, acts: dict[str, Callable[[], object]], rounds: int, device: torch.device) -> dict[str, float]:
    """Median seconds of the slowest rank."""
    found = {name: list[float]() for name in acts}
    for _ in range(rounds):
        for name, act in acts.items():
            ranks.gather(None)
            began = time.perf_counter()
            act()
            if device.type == "cuda":
                torch.cuda.synchronize(device)  # a kernel runs on when its call has returned
            found[name].append(max(ranks.gather(time.perf_counter() - began)))
    return {name: statistics.median(times) for name, times in found.items()}


def minibatch(ranks: Ranks, batch: int, rounds: int, device: torch.device) -> dict[str, float]:
    config = load(sets=[f"learner.shards={ranks.world}", f"learner.device={device}"], environ={})
    state = LearnerState(config)
    parameters = list(state.policy.parameters().values())
    steps = shards.recorded(state, batch)

    def part(piece: slice) -> ShardResult:
        logprob = state.context.score(steps[piece]).logprob
        return ShardResult(-logprob.mean(), {"logprob": logprob.detach()})

    def act(compute: Compute, leads: bool) -> Callable[[], object]:
        return lambda: compute.gradients(parameters, len(steps), part, "bench", 0) if leads else None

    with reproducible(config.learner.torch_threads):
        part(slice(0, len(steps)))
        together, alone = Compute(config), Compute(config)
        together.split_among(ranks)
        acts = {"one rank": act(alone, ranks.rank == 0), "all ranks": act(together, True)}
        return timed(ranks, acts, rounds, device)


def measure(ranks: Ranks, given: argparse.Namespace) -> None:
    device = device_of(given.device, "--device")
    found = {size: timed(ranks, exchanges(ranks, size, device), given.rounds, device) for size in SIZES}
    update = minibatch(ranks, given.batch, given.rounds, device)
    if ranks.rank > 0:
        return
    what = kind_of(device) if device.type == "cuda" else f"{os.cpu_count()} cores"
    table = Table(title=f"{ranks.world} ranks on {what}, {given.rounds} rounds, medians")
    for column in ("numbers", "how", "seconds", "to an all-reduce"):
        table.add_column(column, justify="right")
    for size, times in found.items():
        for name, seconds in times.items():
            table.add_row(f"{size:,}", name, f"{seconds:.4f}", f"{seconds / times['all-reduce']:.2f}")
    Console().print(table)
    table = Table(title=f"the gradient of {given.batch} transitions of the shipped model in {ranks.world} shards")
    for column in ("by", "seconds", "to one rank"):
        table.add_column(column, justify="right")
    for name, seconds in update.items():
        table.add_row(name, f"{seconds:.3f}", f"{seconds / update['one rank']:.2f}")
    Console().print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="cuda: a GPU for each rank")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    loopback = next(n for n, each in psutil.net_if_addrs().items() if any(one.address == LOOPBACK for one in each))
    os.environ["GLOO_SOCKET_IFNAME"] = loopback
    torch.set_num_threads(1)
    if (place := place_of(os.environ)) is not None:
        ranks = joined(place, ANSWER_S, threading.Event())
    else:
        listener = socket.create_server((LOOPBACK, 0))
        port = listener.getsockname()[1]
        for rank in range(1, given.ranks):
            environ = os.environ | Place(rank, given.ranks, rank).environ(port)
            subprocess.Popen([sys.executable, *sys.argv], env=environ)
        ranks = joined(Place(0, given.ranks), ANSWER_S, threading.Event(), listener)
    assert ranks is not None
    measure(ranks, given)
    leave()


if __name__ == "__main__":
    main()
