"""Deciders that prompt an external model (appagent), and how their steps are stamped."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol

from distrl.appagent import prompt, tags
from distrl.appagent.agent import Agent, AgentEpisode, Dump, unanswered
from distrl.appagent.notes import Notes, load
from distrl.chat.endpoint import LONGEST_PAUSES_S, Endpoint, NoAnswerError
from distrl.config import Config
from distrl.policy.actions import to_text
from distrl.rollout.episode import Decision, Observation, Phone
from distrl.types import PROMPTED, Action, HeldBack


class Acting(Protocol):
    """One episode of an agent."""

    def act(self, task: str, png: bytes) -> Action: ...
    def held_back(self, why: HeldBack) -> None:
        """Note that the previous action was not done, or undone."""


class Prompted:
    """A Decider. sha256: of the agent's description (docs/wire.md).

    Its steps have no token ids, hence no probability: `logprob` is 0, and no learner learns from them.
    """

    earlier_screens: Final = 0

    def __init__(self, acting: Acting, sha256: str, ticks: Callable[[], float] = time.perf_counter) -> None:
        self._acting = acting
        self._sha256 = sha256
        self._ticks = ticks

    def decide(self, observation: Observation) -> Decision:
        """Raises ChatError where the model does not answer, DeviceError where the phone fails."""
        began = self._ticks()
        if observation.held_back is not HeldBack.NO:
            self._acting.held_back(observation.held_back)
        action = self._acting.act(observation.task.instruction, observation.png)
        return Decision(action, to_text(action), (), (), 0.0, PROMPTED, self._sha256, self._ticks() - began)


def ready_endpoint(config: Config, pictures: int) -> Endpoint:
    """The endpoint of `appagent`, after its model has answered a test question with `pictures` pictures.

    Raises ChatError, before a phone is used, where no endpoint is set, it does not answer, or it refuses the question.
    """
    endpoint = Endpoint(config.appagent, "appagent")
    try:
        endpoint.ask(prompt.probe(config.appagent.model, *[tags.blank()] * pictures), pauses_s=LONGEST_PAUSES_S)
    except NoAnswerError as error:
        raise unanswered(error) from None
    return endpoint


def notes_of(config: Config) -> Notes:
    """The notes in the file `appagent.notes`; empty where it is not set, and in grid mode, which has no elements.

    Raises ConfigError for a file that does not hold notes.
    """
    asked = config.appagent
    return {} if asked.notes is None or asked.mode == "grid" else load(asked.notes)


def attempt_on(agent: Agent, phone: Phone, sha256: str) -> Prompted:
    return Prompted(AgentEpisode(agent, dump_of(agent, phone)), sha256)


def dump_of(agent: Agent, phone: Phone) -> Dump:
    return partial(phone.hierarchy, agent.settings.dump_timeout_s)
