"""Exploration on phones for prompted agents: writes notes, publishes nothing and reads no topic."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from distrl.appagent.agent import Agent
from distrl.appagent.explore import Exploring, Notebook
from distrl.appagent.notes import count, save
from distrl.chat.endpoint import Counted
from distrl.config import Config
from distrl.errors import ConfigError
from distrl.rollout.actor_pool import play_all
from distrl.rollout.episode import Episode, Phone
from distrl.rollout.phones import Phones
from distrl.rollout.prompted import Prompted, dump_of, notes_of, ready_endpoint
from distrl.store.folders import SCREENSHOTS
from distrl.store.objects import reference
from distrl.tasks.held_out import held_out
from distrl.tasks.lists import suite_of
from distrl.types import Outcome, Split, Task, Trajectory

log = logging.getLogger(__name__)

NAME: Final = "explore"
RETRIES: Final = 1
"""How often an interrupted exploration is tried again; its notes so far stay."""


@dataclass(frozen=True, slots=True)
class Explored:
    """The result of an exploration."""

    notes: int
    """How many there are now."""
    before: int
    """How many there were."""
    tasks: int
    """How many were tried."""
    interrupted: int
    """How many of `tasks` were interrupted."""
    counters: Mapping[str, int]
    """Of the agent."""
    spent: Counted
    """Requests to the endpoint."""


def explore(
    config: Config, tasks: Sequence[Task], stop: threading.Event, advance: Callable[[int, int], None]
) -> Explored:
    """Explore each task and write the notes to `appagent.notes` after each new one. Returns once all tasks are over.

    advance: called with the number of tasks that are over and the number of all tasks. Raises ConfigError or ChatError
    before anything starts, and ChatError once the endpoint has failed for good; the notes so far are in the file.
    """
    path = _refuse_impossible(config)
    notes = notes_of(config) if path.exists() else {}
    endpoint = ready_endpoint(config, pictures=2)
    save(path, notes)
    agent = Agent(config.appagent, endpoint, {})
    book = Notebook(notes, lambda found: save(path, found))
    outcomes: list[Outcome] = []

    def keep(trajectory: Trajectory) -> None:
        outcomes.append(trajectory.outcome)
        advance(len(outcomes), len(tasks))

    advance(0, len(tasks))
    _on_phones(config, agent, book, tasks, keep, stop)
    save(path, book.notes)  # retries a note that could not be written before; raises where it still cannot
    if agent.failure is not None:
        raise agent.failure
    return Explored(
        count(book.notes),
        count(notes),
        len(outcomes),
        outcomes.count(Outcome.INTERRUPTED),
        dict(agent.counters),
        endpoint.counted,
    )


def exploration_tasks(config: Config, tasks: int, instructions: Sequence[str]) -> list[Task]:
    """The first training tasks that would be fed, or the given instructions; `appagent.rounds` steps each.

    Held-out tasks are never among them: notes on them would leak what the agent is evaluated on. Raises ConfigError for
    the instruction of one (tasks/held_out.py).
    """
    rounds = config.appagent.rounds
    if instructions:
        refused = held_out(config.feeder)
        for instruction in instructions:
            refused.refuse(instruction, "--instruction")
        return [
            Task(f"{NAME}-{at}", NAME, NAME, Split.TRAIN, instruction, rounds, phone_seed=at)
            for at, instruction in enumerate(instructions)
        ]
    suite = suite_of(config.feeder)
    chosen = (suite.task(index, config.learner.seed, Split.TRAIN) for index in range(tasks))
    return [replace(task, max_steps=rounds) for task in chosen]


def _refuse_impossible(config: Config) -> Path:
    """The path of the notes. Raises ConfigError where none is set, or the mode has no elements."""
    if config.appagent.notes is None:
        raise ConfigError("appagent.notes", "is not set", "name the JSON file that notes are written to")
    if config.appagent.mode != "elements":
        raise ConfigError("appagent.mode", "notes are of elements, and the grid has none", "set it to elements")
    return config.appagent.notes


def _on_phones(
    config: Config,
    agent: Agent,
    book: Notebook,
    tasks: Sequence[Task],
    keep: Callable[[Trajectory], None],
    stop: threading.Event,
) -> None:
    give_up = threading.Event()
    episode = Episode(NAME, lambda png: reference(SCREENSHOTS.name, png, "png", None), lambda task, truth: None)
    with Phones(config, stop) as phones:

        def play(task: Task, phone: Phone) -> Trajectory:
            try:
                decider = Prompted(Exploring(agent, dump_of(agent, phone), book), "")
                return episode.run(task, NAME, phone, decider)
            finally:
                if agent.failure is not None:
                    stop.set()

        play_all(
            tasks,
            phones,
            play,
            keep,
            worker=NAME,
            retries=RETRIES,
            drain_s=config.worker.drain_timeout_s,
            stop=stop,
            give_up=give_up,
        )
