"""Insert, draw and update of priorities: A-RIDE's replay buffer beside cpprb, TorchRL and plain NumPy.

    .venv/bin/uv pip install --python .venv/bin/python --group bench
    .venv/bin/python bench/replay.py --json out/replay.json

All hold the same: 50,000 transitions with 1,408 float32 each, and draw with P ∝ p^0.5 and importance weights. A round
is what an update does: 16 episodes come in, then 16 times a minibatch is drawn, as one array of B × 1,408, and its
priorities change. In each round the buffers take turns, beginning with another one each time. Of seconds by the wall
clock the median is printed, and of the rounds' ratios ours / theirs the median and the quartiles.

What differs: a peer draws each minibatch by the priorities that the one before it left. Ours draws all minibatches of
an update by those at its start and keeps the scores of all of them after the last, as A-RIDE does, so that both are
shared by them; `--minibatches 1` shares nothing. The peers' priorities are numbers; ours follow from three columns of
all steps of a trajectory (section 5.3). Ours takes records by reference and their features by name; where these lie is
noted at the beginning of an update, as the learner does when it scores what is new.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import torch
from distrl.algorithms.aride.memory import ArideMemory, Draw, Scores
from distrl.algorithms.screens import screens_of
from distrl.config import load
from distrl.policy.feature_store import FeatureStore
from distrl.replay.circular import Rows
from distrl.types import (
    Action,
    ActionKind,
    LoggedTrajectory,
    LogPosition,
    ObjectRef,
    Outcome,
    Split,
    Step,
    Task,
    Trajectory,
)
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

CAPACITY, WIDTH, EPISODE, ALPHA = 50_000, 1_408, 8, 0.5
OPERATIONS: Final = ("insert", "draw", "update", "round")
Floats = NDArray[np.float32]


class Buffer(Protocol):
    """One of those that are compared. `found` is what `draw` returned."""

    def insert(self, record: LoggedTrajectory, features: Floats) -> None:
        """Take in an episode: (EPISODE, WIDTH). A peer has no use for its record."""
        ...

    def begin(self) -> None:
        """What an update computes once for all of its minibatches."""
        ...

    def draw(self) -> Any:
        """A minibatch, its features in one array."""
        ...

    def update(self, found: Any, priorities: NDArray[np.float64]) -> None:
        """New (B,) priorities of what was drawn."""
        ...


class Ours:
    """A-RIDE's memory with the store of features."""

    def __init__(self, batch: int, minibatches: int) -> None:
        sets = {
            "warmup.updates": 0,
            "algorithm.critic_warmup_updates": 0,
            "algorithm.replay.capacity": CAPACITY,
            "algorithm.batch_size": batch,
            "algorithm.minibatches": minibatches,
            "learner.rebuild_window": CAPACITY,
        }
        self.memory = ArideMemory(load(sets=[f"{name}={value}" for name, value in sets.items()], environ={}))
        self.store, self.names, self.u = FeatureStore(512 << 20), list[list[str]](), 0
        self.batch, self.found = batch, list[Scores]()
        self.arrived = 0
        """Episodes since the last update."""

    def insert(self, record: LoggedTrajectory, features: Floats) -> None:
        self.memory.admit(record)
        names = [step.screenshot.sha256 for step in record.trajectory.steps]
        for name, row in zip(names, torch.from_numpy(features), strict=True):
            self.store.put(name, row)
        self.names.append(names)
        self.arrived += 1
        if len(self.names) * EPISODE > CAPACITY:
            for name in self.names.pop(0):
                self.store.drop(name)

    def begin(self) -> None:
        layout = self.memory.buffer.layout  # as those that came are found when they are scored, before the draws
        new = np.arange(max(len(self.names) - self.arrived, 0) * EPISODE, len(layout.slots))
        screens_of(Rows(layout, layout.owner[new], new % EPISODE), self.memory.buffer, self.store)
        self.u, self.arrived = self.u + 1, 0
        self.drawn, self.found = self.memory.draw(self.u), []
        self.screens = screens_of(self.drawn.rows, self.memory.buffer, self.store)

    def draw(self) -> tuple[Draw, torch.Tensor]:
        begin = len(self.found) * self.batch
        part = slice(begin, begin + self.batch)
        features = self.store.gather(self.screens[part])
        assert features is not None
        return self.drawn[part], features

    def update(self, found: tuple[Draw, torch.Tensor], priorities: NDArray[np.float64]) -> None:
        """The scores of all minibatches are kept at once after the last, as the learner does."""
        self.found.append(Scores(priorities, -priorities, priorities))
        if len(self.found) * self.batch == len(self.drawn.rows):
            self.memory.take(self.u, self.drawn.rows, Scores.joined(self.found))


class Cpprb:
    def __init__(self, batch: int) -> None:
        from cpprb import PrioritizedReplayBuffer

        self.batch = batch
        self.buffer = PrioritizedReplayBuffer(CAPACITY, {"obs": {"shape": (WIDTH,), "dtype": np.float32}}, alpha=ALPHA)

    def insert(self, record: LoggedTrajectory, features: Floats) -> None:
        self.buffer.add(obs=features, priorities=np.ones(EPISODE))

    def begin(self) -> None:
        return

    def draw(self) -> Mapping[str, NDArray[Any]]:
        found: Mapping[str, NDArray[Any]] = self.buffer.sample(self.batch, beta=1.0)
        return found

    def update(self, found: Mapping[str, NDArray[Any]], priorities: NDArray[np.float64]) -> None:
        self.buffer.update_priorities(found["indexes"], priorities)


class TorchRl:
    def __init__(self, batch: int) -> None:
        from tensordict import TensorDict
        from torchrl.data import LazyTensorStorage, TensorDictPrioritizedReplayBuffer

        logging.getLogger("torchrl").setLevel(logging.WARNING)  # it sets its own when it is imported
        self.dict = TensorDict
        self.buffer = TensorDictPrioritizedReplayBuffer(
            alpha=ALPHA, beta=1.0, storage=LazyTensorStorage(CAPACITY), batch_size=batch, priority_key="td_error"
        )

    def insert(self, record: LoggedTrajectory, features: Floats) -> None:
        rows = {"obs": torch.from_numpy(features), "td_error": torch.ones(EPISODE)}
        self.buffer.extend(self.dict(rows, batch_size=[EPISODE]))

    def begin(self) -> None:
        return

    def draw(self) -> Any:
        return self.buffer.sample()

    def update(self, found: Any, priorities: NDArray[np.float64]) -> None:
        found["td_error"] = torch.from_numpy(priorities).float()
        self.buffer.update_tensordict_priority(found)


class PlainNumpy:
    """Two arrays, and a sum over all of one for each minibatch."""

    def __init__(self, batch: int) -> None:
        self.batch, self.at, self.rule = batch, 0, np.random.default_rng(0)
        self.features, self.weights = np.zeros((CAPACITY, WIDTH), np.float32), np.zeros(CAPACITY)

    def insert(self, record: LoggedTrajectory, features: Floats) -> None:
        rows = np.arange(self.at, self.at + EPISODE) % CAPACITY
        self.features[rows], self.weights[rows] = features, 1.0
        self.at = (self.at + EPISODE) % CAPACITY

    def begin(self) -> None:
        return

    def draw(self) -> tuple[NDArray[np.int64], Floats, NDArray[np.float64]]:
        ladder = np.cumsum(self.weights)
        rows = np.searchsorted(ladder, self.rule.random(self.batch) * ladder[-1], side="right")
        return rows, self.features[rows], ladder[-1] / (CAPACITY * self.weights[rows])

    def update(
        self, found: tuple[NDArray[np.int64], Floats, NDArray[np.float64]], priorities: NDArray[np.float64]
    ) -> None:
        self.weights[found[0]] = priorities**ALPHA


PEERS: Final[Mapping[str, Callable[[int], Buffer]]] = {"cpprb": Cpprb, "TorchRL": TorchRl, "NumPy": PlainNumpy}
_STEP: Final = Step(
    ObjectRef("", "", 1), (1,), (2,), Action(ActionKind.HOME), "home", -1.0, version=0, version_sha256="", at=0
)
_TASK: Final = Task("", "home", "toggle", Split.TRAIN, "turn on wifi lock", 14, 1)


def record(number: int) -> LoggedTrajectory:
    """Episode `number`, each of its screens with a name of its own."""
    names = [f"{number * EPISODE + i:064x}" for i in range(EPISODE)]
    steps = tuple(replace(_STEP, screenshot=ObjectRef(f"screenshots/{name}.png", name, 1)) for name in names)
    task, outcome = replace(_TASK, task_id=f"task-{number}"), (Outcome.SUCCESS, Outcome.FAILURE)[number % 2]
    made = Trajectory(task, "a", "w", "d", steps, None, outcome, "truth", "", False, 0, 1)
    return LoggedTrajectory(LogPosition("trajectories", 0, number), made)


def round_of(buffer: Buffer, first: int, episodes: Sequence[Floats], minibatches: int, batch: int) -> list[float]:
    """Seconds of each of OPERATIONS: for an episode, a minibatch, a minibatch, and all together."""
    rule, clock = np.random.default_rng(first), time.perf_counter
    new = rule.random((minibatches, batch)) + 0.1
    arrived = [(record(number), features.copy()) for number, features in enumerate(episodes, first)]
    began = clock()
    for each, features in arrived:
        buffer.insert(each, features)
    inserted = clock()
    buffer.begin()
    drawn, updated = clock() - inserted, 0.0
    for priorities in new:
        tick = clock()
        found = buffer.draw()
        tock = clock()
        buffer.update(found, priorities)
        drawn, updated = drawn + tock - tick, updated + clock() - tock
    return [(inserted - began) / len(episodes), drawn / minibatches, updated / minibatches, clock() - began]


def measured(batch: int, given: argparse.Namespace) -> dict[str, NDArray[np.float64]]:
    """(rounds, operations) seconds by buffer, all full."""
    buffers: dict[str, Buffer] = {"ours": Ours(batch, given.minibatches)}
    for name, make in PEERS.items():
        try:
            buffers[name] = make(batch)
        except ImportError as error:
            print(f"{name} is left out: {error}")
    rule = np.random.default_rng(1)
    few = rule.random((64, EPISODE, WIDTH)).astype(np.float32)
    count = CAPACITY // EPISODE
    for buffer in buffers.values():
        for number in range(count):
            buffer.insert(record(number), few[number % len(few)].copy())
    found: dict[str, list[list[float]]] = {name: [] for name in buffers}
    names = list(buffers)
    for number in range(given.rounds + 2):
        first = count + number * given.episodes
        episodes = [few[i % len(few)] for i in range(given.episodes)]
        for name in names[number % len(names) :] + names[: number % len(names)]:
            gc.collect()
            seconds = round_of(buffers[name], first, episodes, given.minibatches, batch)
            if number >= 2:  # the first rounds make what later ones find made
                found[name].append(seconds)
    return {name: np.array(rows) for name, rows in found.items()}


def table_of(batch: int, found: Mapping[str, NDArray[np.float64]], rows: list[dict[str, Any]]) -> Table:
    table = Table(title=f"batch {batch}")
    for column in ("operation", "buffer", "median", "ours / theirs", "quartiles"):
        table.add_column(column)
    for index, operation in enumerate(OPERATIONS):
        for name, seconds in found.items():
            ratios = found["ours"][:, index] / seconds[:, index]
            low, middle, high = statistics.quantiles(ratios, n=4)
            median = float(np.median(seconds[:, index]))
            rows.append(
                {
                    "batch": batch,
                    "operation": operation,
                    "buffer": name,
                    "seconds": median,
                    "ratio": [low, middle, high],
                }
            )
            compared = ("", "") if name == "ours" else (f"{middle:.2f}", f"{low:.2f} to {high:.2f}")
            table.add_row(operation, name, f"{median * 1e6:,.0f} µs", *compared)
        table.add_section()
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", default="64,256", help="transitions in a minibatch, one table for each")
    parser.add_argument("--minibatches", type=int, default=16, help="in a round")
    parser.add_argument("--episodes", type=int, default=16, help="that come in before each round")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for batch in map(int, given.batches.split(",")):
        Console().print(table_of(batch, measured(batch, given), rows))
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
