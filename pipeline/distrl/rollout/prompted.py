"""Deciders that ask a model which has no weights here (appagent), and how their steps are stamped."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from distrl.appagent import prompt, tags
from distrl.appagent.agent import Agent, Attempt, Dump, unanswered
from distrl.appagent.notes import Notes, load
from distrl.chat.endpoint import Endpoint, NoAnswerError
from distrl.config import Config
from distrl.policy.actions import to_text
from distrl.rollout.episode import Decision, Observation, Phone
from distrl.types import PROMPTED, Action


class Acting(Protocol):
    """One episode of an agent."""

    def act(self, task: str, png: bytes) -> Action: ...
    def refused(self) -> None:
        """The phone could not do the action before."""


class Prompted:
    """A Decider. sha256: of the agent's description (docs/wire.md). There are no token ids of ours, and so no
    probability: `logprob` is 0. No learner takes such a step for its own policy's, since it learns from token ids.
    """

    def __init__(self, acting: Acting, sha256: str, ticks: Callable[[], float] = time.perf_counter) -> None:
        self._acting = acting
        self._sha256 = sha256
        self._ticks = ticks

    def decide(self, observation: Observation) -> Decision:
        """Raises ChatError where the model says nothing, DeviceError where the phone is gone."""
        began = self._ticks()
        if observation.refused:
            self._acting.refused()
        action = self._acting.act(observation.task.instruction, observation.png)
        return Decision(action, to_text(action), (), (), 0.0, PROMPTED, self._sha256, self._ticks() - began)


def ready_endpoint(config: Config, pictures: int) -> Endpoint:
    """The endpoint of `appagent`, once its model has answered a question with so many pictures.

    Raises ChatError where none is set, it does not answer, or it takes no such question: before a phone is touched.
    """
    endpoint = Endpoint(config.appagent, "appagent")
    try:
        endpoint.ask(prompt.trial(config.appagent.model, *[tags.blank()] * pictures))
    except NoAnswerError as error:
        raise unanswered(error) from None
    return endpoint


def notes_of(config: Config) -> Notes:
    """Those that `appagent.notes` names, if any; none on the grid, which has no elements that they could be of.

    Raises ConfigError for a file that holds none.
    """
    asked = config.appagent
    return {} if asked.notes is None or asked.mode == "grid" else load(asked.notes)


def attempt_on(agent: Agent, phone: Phone, sha256: str) -> Prompted:
    return Prompted(Attempt(agent, dump_of(agent, phone)), sha256)


def dump_of(agent: Agent, phone: Phone) -> Dump:
    return partial(phone.hierarchy, agent.settings.dump_timeout_s)
