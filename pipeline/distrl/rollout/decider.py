"""The interface of a process's policy, wherever the weights are: in its own memory (batcher.py) or at a model server
(served/policy.py)."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from distrl.errors import PolicyError
from distrl.rollout.episode import Decision, Observation
from distrl.types import Version


class PolicyClosedError(PolicyError):
    """The policy was closed because its process ends."""


class PolicyEndedError(PolicyError):
    """The policy has ended unexpectedly, or will fail every time; no episode can continue."""


class VersionedDecider(Protocol):
    """Decides by the newest version that it was given. Actors call `decide`, the reloader calls `swap`, each from a
    thread of its own."""

    @property
    def earlier_screens(self) -> int:
        """How many screens before the present one it reads."""
        ...

    @property
    def loaded(self) -> Version | None:
        """The version of the next decision; None before the first swap."""
        ...

    def wait_loaded(self, version: int, timeout_s: float) -> bool:
        """Waits up to timeout_s. Returns whether `version` or a newer one is loaded."""
        ...

    def episode(self) -> AbstractContextManager[None]:
        """Counts a running episode."""
        ...

    def decide(self, observation: Observation) -> Decision:
        """The action for one observation. Raises PolicyClosedError once closed, PolicyEndedError where no decision will
        ever be made again, ChatError where a server does not answer."""
        ...

    def swap(self, version: Version, adapter: bytes) -> None:
        """Use `adapter` for decisions from now on; returns once it is in use. Raises PolicyClosedError once closed,
        PolicyEndedError once it has failed, and what loading it raised; the old version stays in use then."""
        ...

    def close(self) -> None:
        """Refuse further calls. Callers that still wait get a PolicyClosedError; with a server, only after it has
        answered their running request."""
        ...

    def check(self) -> None:
        """Raises PolicyEndedError where no decision will ever be made again."""
        ...
