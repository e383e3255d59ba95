"""Exploration on phones: episodes of which nothing but the notes is kept. Nothing is published, no topic is read."""

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
from distrl.rollout.wiring import SCREENSHOTS
from distrl.store.objects import reference
from distrl.tasks.held_out import held_out
from distrl.tasks.lists import suite_of
from distrl.types import Outcome, Split, Task, Trajectory

log = logging.getLogger(__name__)

NAME: Final = "explore"
RETRIES: Final = 1
"""How often an exploration that was interrupted is begun again; what it had noted by then is kept."""


@dataclass(frozen=True, slots=True)
class Explored:
    """notes: how many there are now. before: how many there were. tasks: that were tried, interrupted: of those."""

    notes: int
    before: int
    tasks: int
    interrupted: int
    counters: Mapping[str, int]
    spent: Counted


def explore(
    config: Config, tasks: Sequence[Task], stop: threading.Event, advance: Callable[[int, int], None]
) -> Explored:
    """Try each task and write what is found out to `appagent.notes`, after each note. A role that ends.

    advance: told how many of how many tasks are over. Raises ConfigError and ChatError before anything starts, and
    ChatError once the endpoint has gone for good; what was noted by then is in the file.
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
    save(path, book.notes)  # a note that could not be written then may be now, or is told
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
    """The first training tasks that would be fed, or what a person asks instead; of `appagent.rounds` steps each.

    Held-out tasks are none of them: notes of those would tell an agent what it is measured on. Raises ConfigError for
    an instruction that is one (heldout.py).
    """
    rounds = config.appagent.rounds
    if instructions:
        refused = held_out(config.feeder)
        for said in instructions:
            refused.refuse(said, "--instruction")
        return [
            Task(f"{NAME}-{at}", NAME, NAME, Split.TRAIN, said, rounds, phone_seed=at)
            for at, said in enumerate(instructions)
        ]
    suite = suite_of(config.feeder)
    chosen = (suite.task(index, config.learner.seed, Split.TRAIN) for index in range(tasks))
    return [replace(task, max_steps=rounds) for task in chosen]


def _refuse_impossible(config: Config) -> Path:
    """The file of notes."""
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
    episode = Episode(NAME, lambda png: reference(SCREENSHOTS, png, "png", None), lambda task, truth: None)
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
