"""A model server that is asked for recorded decisions again.

A chat endpoint reports the log-probabilities of what it writes, in the distribution that it draws from, and of no given
tokens in it. (vLLM's `prompt_logprobs` are those before temperature, biases, top-k and top-p, of a text that it splits
into tokens itself.) So the request of the recorded decision is sent once more, with its seed. A server that computes
as it did then writes the recorded tokens; what it writes otherwise can be scored as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from distrl.rollout.decider import VersionedDecider
from distrl.rollout.episode import Decision, Observation
from distrl.types import Version


class AskedServer:
    """version: finds the version of an adapter by the sha256 in a step; None where there is none, and so no name for
    the server."""

    def __init__(self, decider: VersionedDecider, version: Callable[[str], Version | None]) -> None:
        self._decider, self._version = decider, version

    def load(self, sha256: str, adapter: bytes) -> bool:
        """Decide by `adapter` from now on, that of the steps of `sha256`. False where it has no version, and so no name
        at a server. Raises PolicyError, ServerError, ConfigError where the server cannot take it."""
        version = self._version(sha256)
        if version is not None and version != self._decider.loaded:
            self._decider.swap(version, adapter)
        return version is not None

    def decide(self, observations: Sequence[Observation]) -> list[Decision]:
        """One for each, asked for at once. Raises ChatError where the server does not answer, or not as it must;
        PolicyEndedError where it never will."""
        with ThreadPoolExecutor(max(1, len(observations))) as pool:
            return list(pool.map(self._decider.decide, observations))
