"""A prompted agent on the tasks that versions are evaluated on, through the same episodes, into the same topic.

What acted is an object of the store, named by its sha256, which every record carries: the model by name, what it is
told and its notes (docs/wire.md). An agent with other notes is another one, evaluated anew.
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
from distrl.evaluate.play import evaluation_tasks, known_of, on_phones, play_and_publish
from distrl.evaluate.policies import Acted
from distrl.rollout.episode import Decider, Phone
from distrl.rollout.prompted import attempt_on, notes_of, ready_endpoint
from distrl.store.objects import open_store
from distrl.types import PROMPTED, Outcome, Split, Trajectory

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AgentScore:
    """name: what people call it. left: tasks without a record. counters: what became of its answers, this time."""

    name: str
    sha256: str
    split: Split
    score: curves.Score
    left: int
    counters: Mapping[str, int]
    spent: Counted

    def __str__(self) -> str:
        return f"{self.name} ({self.sha256[:12]}), {self.split.value}: {self.score}" + (
            f"; {self.left} tasks have no record yet, and the same command plays them" if self.left else ""
        )


def evaluate_agent(
    config: Config, split: Split, episodes: int, stop: threading.Event, advance: Callable[[int, int], None]
) -> AgentScore:
    """Play the tasks of `split` that the agent of `config.appagent` has no record for. A role that ends.

    advance: told how many of how many tasks have a record, as they come. An interrupted episode, whether the phone or
    the endpoint failed, is not recorded. Raises ConfigError and ChatError before anything starts, and ChatError once
    the endpoint has gone for good; what was played by then is recorded.
    """
    tasks, notes, store = evaluation_tasks(config, split, episodes), notes_of(config), open_store(config.store)
    endpoint = ready_endpoint(config, pictures=1)
    agent = Agent(config.appagent, endpoint, notes)
    described = identity.description(config.appagent, notes)
    sha256 = store.put(identity.FOLDER, described, identity.SUFFIX).sha256
    known = known_of(config, Acted(PROMPTED, sha256), split, 0)
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

    def wanted(trajectory: Trajectory) -> bool:
        if trajectory.outcome is Outcome.INTERRUPTED:
            return False
        played.append(trajectory.task_id)
        advance(len(tasks) - len(left) + len(played), len(tasks))
        return True

    if left:
        play = partial(on_phones, config, acting)
        play_and_publish(config, store, Acted(PROMPTED, sha256), left, play, stop, wanted)
        known = known_of(config, Acted(PROMPTED, sha256), split, 0)
    if agent.failure is not None:
        raise agent.failure
    found = [known[task.task_id].trajectory for task in tasks if task.task_id in known]
    return AgentScore(
        name, sha256, split, curves.score(found), len(tasks) - len(found), dict(agent.counters), endpoint.counted
    )
