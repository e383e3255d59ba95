"""Evaluates a prompted agent like a version: the same tasks, the same episodes, the same topic.

The agent's description (the model's name, its prompts and its notes; docs/wire.md) is an object of the store, and every
record carries its sha256. With other notes it is another agent, evaluated anew.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from distrl.appagent import identity
from distrl.appagent.agent import Agent
from distrl.chat.endpoint import Counted
from distrl.config import Config
from distrl.evaluate import curves
from distrl.evaluate.play import evaluation_tasks, known_of, on_phones, play_and_publish, warn_left_out
from distrl.evaluate.policies import PolicyId
from distrl.rollout.episode import Decider, Phone
from distrl.rollout.prompted import attempt_on, notes_of, ready_endpoint
from distrl.store.objects import open_store
from distrl.types import PROMPTED, Split, Trajectory

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AgentScore:
    """The result of evaluating an agent."""

    name: str
    """For people."""
    sha256: str
    split: Split
    score: curves.SuccessRate
    left: int
    """Tasks without a record."""
    counters: Mapping[str, int]
    """What became of its answers in this call."""
    spent: Counted
    """Requests to the endpoint in this call."""

    def __str__(self) -> str:
        return f"{self.name} ({self.sha256[:12]}), {self.split.value}: {self.score}" + (
            f"; {self.left} tasks have no record yet, and the same command plays them" if self.left else ""
        )


def evaluate_agent(
    config: Config, split: Split, episodes: int, stop: threading.Event, advance: Callable[[int, int], None]
) -> AgentScore:
    """Play the tasks of `split` that the agent of `config.appagent` has no record for. Returns once all are over.

    advance: called with the number of tasks that have a record and of all. Episodes interrupted by the phone or the
    endpoint are not recorded. Raises ConfigError and ChatError before anything starts, and ChatError once the endpoint
    has failed for good; the tasks played so far are recorded.
    """
    warn_left_out(config, split, episodes, "--episodes or evaluate.episodes")
    tasks, notes, store = evaluation_tasks(config, split, episodes), notes_of(config), open_store(config.store)
    endpoint = ready_endpoint(config, pictures=1)
    agent = Agent(config.appagent, endpoint, notes)
    described = identity.description(config.appagent, notes)
    sha256 = store.put(identity.FOLDER, described, identity.SUFFIX).sha256
    known = known_of(config, PolicyId(PROMPTED, sha256), split, 0)
    left = [task for task in tasks if task.task_id not in known]
    name = identity.named(described)
    log.info("%s, %s: %d tasks, %d of them evaluated before", name, split.value, len(tasks), len(tasks) - len(left))

    @contextmanager
    def acting(phone: Phone) -> Iterator[Decider]:
        try:
            yield attempt_on(agent, phone, sha256)
        finally:
            if agent.failure is not None:
                stop.set()

    played: list[str] = []
    advance(len(tasks) - len(left), len(tasks))

    def on_played(trajectory: Trajectory) -> None:
        played.append(trajectory.task_id)
        advance(len(tasks) - len(left) + len(played), len(tasks))

    if left:
        play = partial(on_phones, config, acting)
        play_and_publish(config, store, PolicyId(PROMPTED, sha256), left, play, stop, on_played=on_played)
        known = known_of(config, PolicyId(PROMPTED, sha256), split, 0)
    if agent.failure is not None:
        raise agent.failure
    found = [known[task.task_id].trajectory for task in tasks if task.task_id in known]
    return AgentScore(
        name, sha256, split, curves.score(found), len(tasks) - len(found), dict(agent.counters), endpoint.counted
    )
