"""The policy of a worker in virtual time: it gathers batches and swaps weights by the rules of
`distrl.rollout.batcher`, and computes a batch by the same function."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, Protocol

from distrl.experiment.costs import CostModel
from distrl.experiment.virtual_time import Actor, VirtualTime
from distrl.policy.actions import to_text
from distrl.policy.protocol import Policy
from distrl.policy.sampling import Sampling
from distrl.rollout.batcher import Request, decided
from distrl.rollout.episode import Decision, Observation, sampling_seed
from distrl.tasks.oracle import ImperfectScript
from distrl.types import Version


class BatchDecider(Protocol):
    """Decides on batches of requests by one version."""

    @property
    def earlier_screens(self) -> int: ...
    def request(self, observation: Observation, asked: float) -> Request: ...
    def load(self, version: Version) -> None: ...
    def decide(self, batch: Sequence[Request], version: Version, ticks: Callable[[], float]) -> Sequence[Decision]:
        """version: the one that was loaded last."""
        ...


class PolicyBatches:
    """Decides by weights. fetch: the bytes of a version's adapter."""

    def __init__(self, policy: Policy, sampling: Sampling | None, fetch: Callable[[Version], bytes]) -> None:
        self._policy, self._sampling, self._fetch = policy, sampling, fetch

    @property
    def earlier_screens(self) -> int:
        return self._policy.earlier_screens

    def request(self, observation: Observation, asked: float) -> Request:
        return Request.of(observation, self._policy.tokenizer, asked)

    def load(self, version: Version) -> None:
        self._policy.load(self._fetch(version))

    def decide(self, batch: Sequence[Request], version: Version, ticks: Callable[[], float]) -> Sequence[Decision]:
        return decided(batch, self._policy, self._sampling, version, ticks)


class ScriptBatches:
    """Decides by the imperfect script of the demonstrations, which reads the phone's state and no screen.

    It learns nothing. Its steps name the version that was loaded, so that lags are those that a policy would have.
    """

    earlier_screens: Final = 0

    def request(self, observation: Observation, asked: float) -> Request:
        seed = sampling_seed(observation.task.task_id, observation.attempt_id, observation.step)
        return Request(observation, (), seed, asked)

    def load(self, version: Version) -> None:
        pass

    def decide(self, batch: Sequence[Request], version: Version, ticks: Callable[[], float]) -> Sequence[Decision]:
        return [_scripted(request, version, ticks() - request.asked) for request in batch]


def _scripted(request: Request, version: Version, seconds: float) -> Decision:
    state = request.observation.truth()
    assert state is not None, "virtual phones offer their state"
    action, logprob = ImperfectScript(request.seed).act(request.observation.task, state)
    chosen = (version.version, version.adapter.sha256, seconds)
    return Decision(action, to_text(action), (), (), logprob, *chosen)


class VirtualBatcher:
    """One policy for all phones of a worker. `serve` is an actor of its own; `decide` is called by the phones' actors.

    wait_s: how long the first request of a batch waits for others; the batch starts sooner once every running episode
    has a request in it.
    """

    def __init__(self, time: VirtualTime, costs: CostModel, decider: BatchDecider, wait_s: float) -> None:
        self._time, self._costs, self._decider, self._wait_s = time, costs, decider, wait_s
        self._requests: list[tuple[Request, Actor]] = []
        self._fetched: Version | None = None
        self.loaded: Version | None = None
        """The version of the next decision; None before the first."""
        self._running = 0
        """Episodes that may ask."""
        self._waiting: list[Actor] = []
        self._actor: Actor | None = None

    @property
    def earlier_screens(self) -> int:
        return self._decider.earlier_screens

    @contextmanager
    def episode(self) -> Iterator[None]:
        """Counts a running episode of the calling actor."""
        self._running += 1
        try:
            yield
        finally:
            self._running -= 1
        self._wake()  # a batch may have waited for this episode alone

    def decide(self, observation: Observation) -> Decision:
        request = self._decider.request(observation, self._time.now)
        self._requests.append((request, self._time.current))
        self._wake()
        while not request.decision.done():
            self._time.pause()
        return request.decision.result()

    def wait_loaded(self, version: int) -> None:
        """Wait until `version` or a newer one is loaded."""
        while self.loaded is None or self.loaded.version < version:
            self._waiting.append(self._time.current)
            self._time.pause()

    def see_version(self, version: Version) -> None:
        """A version's record has come. Its adapter is fetched, and swapped in between two batches."""
        self._time.after(self._costs.reload_s, lambda: self._swap_to(version))

    def serve(self) -> None:
        self._actor = self._time.current
        while True:
            self._swap()
            if not self._requests or self.loaded is None:
                self._time.pause()
                continue
            asked = self._requests[0][0].asked
            while self._time.now < asked + self._wait_s and len(self._requests) < self._running:
                self._time.pause(asked + self._wait_s)
            batch, self._requests = self._requests, []
            self._time.sleep(self._costs.decision_s + self._costs.decision_row_s * len(batch))
            self._answer(batch)

    def _answer(self, batch: Sequence[tuple[Request, Actor]]) -> None:
        assert self.loaded is not None
        requests = [request for request, _ in batch]
        decisions = self._decider.decide(requests, self.loaded, lambda: self._time.now)
        for (request, actor), decision in zip(batch, decisions, strict=True):
            request.decision.set_result(decision)
            self._time.wake(actor)

    def _swap_to(self, version: Version) -> None:
        if self._fetched is None or self._fetched.version < version.version:
            self._fetched = version
        self._wake()

    def _swap(self) -> None:
        if self._fetched is None or self._fetched is self.loaded:
            return
        self._decider.load(self._fetched)
        self.loaded = self._fetched
        for actor in self._waiting:
            self._time.wake(actor)
        self._waiting.clear()

    def _wake(self) -> None:
        if self._actor is not None:
            self._time.wake(self._actor)
