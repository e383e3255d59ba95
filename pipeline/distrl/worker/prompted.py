"""A Decider that asks a model which has no weights here (appagent): how its steps are stamped."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from distrl.policy.actions import to_text
from distrl.types import PROMPTED, Action
from distrl.worker.episode import Decision, Observation


class Acting(Protocol):
    """One episode of an agent."""

    def act(self, task: str, png: bytes) -> Action: ...


class Prompted:
    """sha256: of the description of the agent (docs/wire.md). There are no token ids of ours, and so no probability:
    `logprob` is 0. No learner can take such a step for its own policy's, since it learns from token ids.
    """

    def __init__(self, acting: Acting, sha256: str, ticks: Callable[[], float] = time.perf_counter) -> None:
        self._acting = acting
        self._sha256 = sha256
        self._ticks = ticks

    def decide(self, observation: Observation) -> Decision:
        """Raises ChatError where the model says nothing, DeviceError where the phone is gone."""
        began = self._ticks()
        action = self._acting.act(observation.task.instruction, observation.png)
        return Decision(action, to_text(action), (), (), 0.0, PROMPTED, self._sha256, self._ticks() - began)
