"""What an update of A-RIDE costs as its buffer grows, and the part of it that scores the buffer anew.

A buffer of every capacity is filled with demonstrations of the script (few screens many times over: what a screen
shows does not change what it costs), then updates with new trajectories are timed, of which the first ones are left
out. Seconds are those of the processor (one thread), so that other work on the machine disturbs them less.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import learning
import revision
from distrl.algorithms.aride import algorithm
from distrl.compute import reproducible
from distrl.config import Config, load
from distrl.learner.fold import fold
from distrl.learner.state import LearnerState
from distrl.runs.settings import learning_fingerprint
from distrl.tasks.suite import suites
from distrl.types import LoggedTrajectory, LogPosition, Split, Trajectory, Update, Watermark

EPISODES = 160
"""Different ones; the buffer holds copies."""
SETTLING, COUNTED = 4, 8
"""Updates before those that are timed, and those: multiples of the four that earlier revisions scored everything at."""

Figures = Mapping[str, float]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--capacities", default="2500,5000,10000", help="transitions, one buffer for each")
    parser.add_argument("--against", help="a revision to compare with, as git names it, measured in turn")
    parser.add_argument("--plot", type=Path, help="draw the growth there")


def measure(given: argparse.Namespace) -> Figures:
    """Processor seconds of an update by the capacity of a full buffer, beside another revision's."""
    capacities = [int(each) for each in given.capacities.split(",")]
    with ExitStack() as stack:
        trees = {"this": revision.ROOT}
        if given.against is not None:
            trees[given.against] = stack.enter_context(revision.checkout(given.against))
        found = {
            (name, capacity): _measured_with(tree, capacity) for capacity in capacities for name, tree in trees.items()
        }
    if given.plot is not None:
        _plot(given.plot, list(trees), capacities, found)
    return dict(_rows(list(trees), capacities, found))


def _rows(
    names: Sequence[str], capacities: Sequence[int], found: Mapping[tuple[str, int], Figures]
) -> Iterator[tuple[str, float]]:
    for capacity in capacities:
        for name in names:
            for what, figure in found[name, capacity].items():
                yield f"{capacity}: {name}: {what}", figure
        if len(names) > 1:
            mine, theirs = (found[name, capacity]["an update, s"] for name in names)
            yield f"{capacity}: updates in the same time, ratio", theirs / mine


def _measured_with(tree: Path, capacity: int) -> Figures:
    """This script with the code of `tree`, in a process of its own."""
    environ = os.environ | {"PYTHONPATH": str(tree / "pipeline")}
    made = subprocess.run(
        [sys.executable, __file__, str(capacity)], env=environ, check=True, stdout=subprocess.PIPE, text=True
    )
    figures: Figures = json.loads(made.stdout.splitlines()[-1])
    return figures


def timed(capacity: int) -> Figures:
    """Of the revision that this process imports."""
    config = load(
        sets=["warmup.updates=0", "algorithm.critic_warmup_updates=0", f"algorithm.replay.capacity={capacity}"],
        environ={},
    )
    state, objects = LearnerState(config), dict[str, bytes]()
    tasks = [suites()["home"].task(index, 1000, Split.TRAIN) for index in range(EPISODES)]
    with reproducible(config.learner.torch_threads):
        made = learning.episodes(tasks, learning.script(state.policy, 0), objects, 0.0, True)
    full = capacity // (sum(len(each.steps) for each in made) // len(made)) + len(made)
    training, whole, ages = _Timer(), 0.0, dict[str, float]()
    inner, algorithm.improve = algorithm.improve, lambda *args, **kw: training(inner, *args, **kw)
    log = _Log(config, state, made, objects)
    log.fold(full)
    for number in range(SETTLING + COUNTED):
        if number == SETTLING:
            training.seconds = whole = 0.0
        began = time.process_time()
        metrics = log.fold(config.learner.trajectories_per_update)
        whole += time.process_time() - began
        ages = {name: metrics[name] for name in ("score_age", "priority_age") if name in metrics}
    return {
        "an update, s": whole / COUNTED,
        "of it beside the gradient steps, share": 1 - training.seconds / whole,
        "transitions": metrics["buffer"],
        **ages,
    }


class _Timer:
    seconds = 0.0

    def __call__(self, inner: Any, *args: Any, **kw: Any) -> Any:
        began = time.process_time()
        result = inner(*args, **kw)
        self.seconds += time.process_time() - began
        return result


class _Log:
    """Copies of some episodes, one after the other, each a task of its own."""

    def __init__(
        self, config: Config, state: LearnerState, episodes: Sequence[Trajectory], objects: Mapping[str, bytes]
    ) -> None:
        self._config, self._state, self._episodes, self._objects = config, state, episodes, objects
        self._end = 0

    def fold(self, count: int) -> Mapping[str, float]:
        window = [self._logged(offset) for offset in range(self._end, self._end + count)]
        self._end += count
        marks = (Watermark("trajectories", 0, self._end),)
        update = Update(self._state.u, marks, learning_fingerprint(self._config), 0)
        return fold(self._state, window, update, lambda ref: self._objects[ref.sha256], self._config)

    def _logged(self, offset: int) -> LoggedTrajectory:
        like = self._episodes[offset % len(self._episodes)]
        task = dataclasses.replace(like.task, task_id=f"t-{offset}")
        return LoggedTrajectory(LogPosition("trajectories", 0, offset), dataclasses.replace(like, task=task))


def _plot(
    path: Path, names: Sequence[str], capacities: Sequence[int], found: Mapping[tuple[str, int], Figures]
) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.0, 3.2), layout="constrained")
    axes = figure.subplots()
    for name, colour in zip(names, ("C0", "C1"), strict=False):
        whole = [found[name, capacity]["an update, s"] for capacity in capacities]
        scoring = [
            found[name, capacity]["an update, s"] * found[name, capacity]["of it beside the gradient steps, share"]
            for capacity in capacities
        ]
        axes.plot(capacities, whole, f"{colour}o-", label=f"{name}: an update")
        axes.plot(capacities, scoring, f"{colour}o--", label=f"{name}: beside the gradient steps")
    axes.set(xlabel="transitions in the buffer", ylabel="seconds of one processor", ylim=(0, None))
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    print(json.dumps(timed(int(sys.argv[1]))))
