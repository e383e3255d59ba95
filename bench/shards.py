"""What it costs to compute a minibatch's gradient in shards, all of them in this process.

    python bench/shards.py --batch 64 --rounds 5

One minibatch of the shipped model on screens that the script of the demonstrations came through; equation 1 is replaced
by −E[log π], which has the same passes. Each round computes it in 1, 2, 4 and 8 shards, one after the other, so that
what else the machine does hits all alike. Printed: median seconds, and the ratio to one shard.
"""

from __future__ import annotations

import argparse
import statistics
import time

import learning
from distrl.compute import Compute, ShardResult, reproducible
from distrl.config import load
from distrl.learner.state import LearnerState
from distrl.policy.protocol import TrajectoryStep, trajectory_steps
from distrl.tasks.suite import suites
from distrl.types import LoggedTrajectory, LogPosition, Split
from rich.console import Console
from rich.table import Table

SHARDS = (1, 2, 4, 8)


def recorded(state: LearnerState, count: int) -> list[TrajectoryStep]:
    """Steps of demonstrations, their screenshots' features loaded."""
    suite, objects = suites()["home"], dict[str, bytes]()
    tasks = [suite.task(index, 1000, Split.TRAIN) for index in range(count)]
    found = learning.episodes(tasks, learning.script(state.policy, 0), objects, 0.0, True)
    logged = [LoggedTrajectory(LogPosition("demonstrations", 0, i), each) for i, each in enumerate(found)]
    state.features.load(state.screens(logged), lambda ref: objects[ref.sha256])
    return [step for each in found for step in trajectory_steps(each)][:count]


def seconds(state: LearnerState, shards: int, steps: list[TrajectoryStep]) -> float:
    compute = Compute(load(sets=[f"learner.shards={shards}"], environ={}))

    def part(piece: slice) -> ShardResult:
        logprob = state.context.score(steps[piece]).logprob
        return ShardResult(-logprob.mean(), {"logprob": logprob.detach()})

    began = time.perf_counter()
    compute.gradients(list(state.policy.parameters().values()), len(steps), part, "bench", 0)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    config = load(environ={})
    state = LearnerState(config)
    with reproducible(config.learner.torch_threads):
        steps = recorded(state, given.batch)
        seconds(state, 1, steps)  # the first pass makes what the others find made
        found = {shards: list[float]() for shards in SHARDS}
        for _ in range(given.rounds):
            for shards in SHARDS:
                found[shards].append(seconds(state, shards, steps))
    table = Table(title=f"{len(steps)} transitions, {given.rounds} rounds, {config.learner.torch_threads} thread(s)")
    for column in ("shards", "seconds", "to one shard"):
        table.add_column(column, justify="right")
    whole = statistics.median(found[1])
    for shards, times in found.items():
        table.add_row(str(shards), f"{statistics.median(times):.3f}", f"{statistics.median(times) / whole:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
