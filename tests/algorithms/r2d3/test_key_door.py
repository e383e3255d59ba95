"""R2D3 away from phones: `bench/r2d3.py` in the smallest form that can fail.

A task that is partially observable and hard to explore: with demonstrations and a memory it is solved, without either
it is not, as the paper argues (arXiv 1909.01387, section 5).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from distrl.compute import reproducible
from distrl.replay.sequences import Shape

BENCH = Path(__file__).parents[3] / "bench"


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return importlib.import_module("key_door")


@pytest.fixture
def bench(task: ModuleType) -> ModuleType:
    return importlib.import_module("r2d3")


@pytest.fixture(autouse=True)
def same_numbers_on_any_number_of_processors() -> Iterator[None]:
    with reproducible(1), torch.random.fork_rng(devices=[]):
        yield


def played(task: ModuleType, start: object) -> tuple[float, list[tuple[np.ndarray, int]]]:
    """The reward of the script, and what was seen before each of its actions."""
    environment = task.KeyDoor(task.Room())
    observation, _ = environment.reset(options={"start": start})
    seen = []
    while True:
        action = task.scripted(environment.state, environment.room)
        seen.append((observation, action))
        observation, reward, terminated, truncated, _ = environment.step(action)
        if terminated or truncated:
            return reward, seen


def test_the_script_succeeds_from_every_start(task: ModuleType) -> None:
    assert [played(task, start)[0] for start in task.starts(task.Room())] == [1.0] * 108


def test_after_the_key_nothing_seen_says_its_colour(task: ModuleType) -> None:
    """So whoever has no memory acts alike for all four colours, and succeeds for one of them at most."""
    for start in task.starts(task.Room()):
        if start.colour:
            continue
        after = []
        for colour in range(task.COLOURS):
            _, seen = played(task, start._replace(colour=colour))
            picked = [action for _, action in seen].index(task.PICK)
            after.append(np.stack([observation for observation, _ in seen[picked + 1 :]]))
        assert all(np.array_equal(after[0], each) for each in after[1:])


def test_the_chance_of_random_actions_is_that_of_all_plays(task: ModuleType) -> None:
    """Against every sequence of six actions, written out."""
    room = task.Room(columns=2, corridor=0, limit=6)

    def wins(state: object, left: int) -> float:
        if not left:
            return 0.0
        found = [task.after(state, action, room) for action in task.ACTIONS]
        return sum(each if isinstance(each, float) else wins(each, left - 1) for each in found) / len(found)

    expected = np.mean([wins(start, room.limit) for start in task.starts(room)])
    assert expected > 0
    assert task.chance_of_random(room) == pytest.approx(expected)


def test_an_alarm_and_a_wrong_way_end_the_episode_without_a_reward(task: ModuleType) -> None:
    room, start = task.Room(), task.starts(task.Room())[0]
    assert task.after(start, task.PICK, room) == 0.0
    assert task.after(start, task.OPEN, room) == 0.0
    crossing = start._replace(row=1, column=task.crossing(room), key=None, colour=task.LEFT, opened=True)
    assert [task.after(crossing, action, room) for action in task.ACTIONS] == [0.0, 0.0, 1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize(("arm", "least", "most"), [("r2d3", 0.9, 1.0), ("r2d2", 0.0, 0.1), ("dqfd", 0.0, 0.25)])
def test_only_memory_and_demonstrations_together_solve_it(
    bench: ModuleType, task: ModuleType, arm: str, least: float, most: float
) -> None:
    """A room of two columns whose door is the crossing: 36 starts, about 7 steps. Exact, as all starts are played."""
    given = bench.ARMS[arm]
    small = replace(
        given,
        room=task.Room(columns=2, corridor=0, limit=12),
        shape=Shape(burn_in=2, length=8, ahead=5, stride=4) if given.recurrent else given.shape,
        demonstrations=min(given.demonstrations, 20),
        pretraining=100,
        rounds=60,
        actors=8,
        updates=12,
        batch=16,
        width=32,
        lr=3e-3,
        older=50,
    )
    found = bench.measured(arm, small, seed=0)
    assert least <= found.success <= most
    assert (found.rewarded > 0) == (arm != "r2d2")
