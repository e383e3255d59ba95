"""One policy for all phones of a process: decisions requested at about the same time share one forward pass.

Every actor calls `decide` and waits; one thread runs `serve` until `close`; the reloader calls `swap` from its own
thread. Only the serving thread touches the weights, so a swap always falls between two batches, and each decision is
stamped with the version that made it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from distrl.accelerator import deciding
from distrl.errors import ComputeError, PolicyError
from distrl.policy.protocol import SampledAction
from distrl.policy.sampling import Sampling, each_by_episode
from distrl.rollout.decider import PolicyClosedError, PolicyEndedError
from distrl.rollout.episode import Decision, Observation, sampling_seed
from distrl.types import Action, ScreenSize, Version

LOG = logging.getLogger("distrl.rollout.batcher")

MOST_FAILURES = 50
"""After this many failed decisions in a row the policy counts as broken. Each failure ends an episode, whose task is
fed again at once, so otherwise the log would grow by thousands of interrupted trajectories a minute."""

IDLE_WAIT_S = 0.5
"""Longest wait of the serving thread before it checks again for requests and `close`; both wake it at once."""


class Weights(Protocol):
    """What the batcher needs of a policy (`distrl.policy.protocol.Policy`)."""

    @property
    def earlier_screens(self) -> int: ...
    def decide(
        self,
        pngs: Sequence[bytes],
        prompts: Sequence[tuple[int, ...]],
        sampling: Sampling | None,
        seeds: Sequence[int],
        earlier: Sequence[Sequence[bytes]] = ...,
    ) -> Sequence[SampledAction]: ...
    def load(self, adapter: bytes) -> None: ...


class PromptEncoder(Protocol):
    """What the batcher needs of a tokenizer."""

    def encode_prompt(self, instruction: str, earlier: Sequence[Action], screen: ScreenSize) -> tuple[int, ...]: ...


@dataclass(frozen=True, slots=True)
class Request:
    """A decision that an actor waits for. asked: when, by the batcher's clock."""

    observation: Observation
    prompt: tuple[int, ...]
    seed: int
    asked: float
    decision: Future[Decision] = field(default_factory=Future)

    @classmethod
    def of(cls, observation: Observation, encoder: PromptEncoder, asked: float) -> Request:
        prompt = encoder.encode_prompt(observation.task.instruction, observation.previous, observation.screen())
        seed = sampling_seed(observation.task.task_id, observation.attempt_id, observation.step)
        return cls(observation, prompt, seed, asked)


def decided(
    batch: Sequence[Request], weights: Weights, sampling: Sampling | None, version: Version, ticks: Callable[[], float]
) -> list[Decision]:
    """The decisions of one batch under `version`, whose adapter `weights` has loaded. Raises ComputeError where memory
    does not suffice, and PolicyError for a log-probability that is not finite, since the learner skips an episode with
    one (distrl.learner.fold)."""

    def decide(own: Sampling | None, rows: list[int]) -> Sequence[SampledAction]:
        alike = [batch[row] for row in rows]
        with deciding(len(alike)):
            return weights.decide(
                [request.observation.png for request in alike],
                [request.prompt for request in alike],
                own,
                [request.seed for request in alike],
                [request.observation.earlier for request in alike],
            )

    written = each_by_episode(sampling, [request.observation.task.task_id for request in batch], decide)
    for row in written:
        if not math.isfinite(row.logprob):
            raise PolicyError(
                "policy",
                f"gives the action {row.action_text[:40]!r}, which it has chosen, the log-probability {row.logprob}",
                "its logits are not finite, or the policy cannot write this action; try policy.precision=float32 and "
                "policy.image_precision=float32 in a new run, and `distrl policy try`, which asks it for one decision",
            )
    return [
        Decision(
            row.action,
            row.action_text,
            request.prompt,
            row.action_ids,
            row.logprob,
            version.version,
            version.adapter.sha256,
            ticks() - request.asked,
            row.entropy,
        )
        for request, row in zip(batch, written, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Swap:
    version: Version
    adapter: bytes
    done: Future[None] = field(default_factory=Future)


class Batcher:
    """`distrl.rollout.decider.VersionedDecider` over shared weights.

    sampling: None is greedy.
    wait_s: how long the first request of a batch waits for others. The batch starts sooner once every running episode
    has a request in it.
    """

    def __init__(
        self,
        weights: Weights,
        encoder: PromptEncoder,
        *,
        sampling: Sampling | None,
        wait_s: float,
        ticks: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._weights = weights
        self._encoder = encoder
        self._sampling = sampling
        self._wait_s = wait_s
        self._ticks = ticks
        self._changed = threading.Condition()
        self._requests: list[Request] = []
        self._swap: _Swap | None = None
        self._loaded: Version | None = None
        self._active = 0
        self._closed = False
        self._failure: BaseException | None = None
        self._has_warned = False
        """Whether it was logged that memory does not suffice for a whole batch."""
        self._failures = deque[str](maxlen=MOST_FAILURES)
        """The errors of the decisions that failed since the last one that succeeded."""

    @property
    def earlier_screens(self) -> int:
        return self._weights.earlier_screens

    @property
    def loaded(self) -> Version | None:
        """The version of the next decision; None before the first swap."""
        return self._loaded

    def wait_loaded(self, version: int, timeout_s: float) -> bool:
        """Waits up to timeout_s. Returns whether `version` or a newer one is loaded."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._has(version), timeout_s)
            return self._has(version)

    @contextmanager
    def episode(self) -> Iterator[None]:
        """Counts a running episode: a batch waits for no more requests than there are running episodes."""
        self._count(1)
        try:
            yield
        finally:
            self._count(-1)

    def decide(self, observation: Observation) -> Decision:
        """The action for one observation. Raises PolicyClosedError once closed, PolicyEndedError once `serve`
        has failed."""
        request = Request.of(observation, self._encoder, self._ticks())
        with self._changed:
            if self._closed:
                raise self._stopped()
            self._requests.append(request)
            self._changed.notify_all()
        return request.decision.result()

    def swap(self, version: Version, adapter: bytes) -> None:
        """Load an adapter between two batches; returns once it is in use. Raises what loading it raised."""
        swap = _Swap(version, adapter)
        with self._changed:
            if self._closed:
                raise self._stopped()
            assert self._swap is None, "one reloader at a time"
            self._swap = swap
            self._changed.notify_all()
        swap.done.result()

    def close(self) -> None:
        """End `serve`. Callers that still wait get a PolicyClosedError."""
        with self._changed:
            self._closed = True
            for request in self._requests:
                request.decision.set_exception(self._stopped())
            self._requests.clear()
            if self._swap is not None:
                self._swap.done.set_exception(self._stopped())
                self._swap = None
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        """Close after `serve` has failed with `error`: waiting and later callers get a PolicyEndedError."""
        self._failure = error
        self.close()

    def check(self) -> None:
        """Raises PolicyEndedError once `serve` has failed."""
        if self._failure is not None:
            raise self._stopped()

    def serve(self) -> None:
        """Decide batch after batch until `close`. What a batch raises goes to its callers; the next batch runs.

        Raises PolicyError after MOST_FAILURES decisions in a row that failed.
        """
        while True:
            with self._changed:
                self._changed.wait_for(self._something_to_do, IDLE_WAIT_S)
                if self._closed:
                    return
                swap, self._swap = self._swap, None
            if swap is not None:
                self._apply(swap)
                continue
            batch = self._gather()
            if batch:
                try:
                    self._answer(batch)
                except BaseException as error:  # a library's panic ends this thread: its callers must not wait for ever
                    for request in batch:
                        if not request.decision.done():
                            request.decision.set_exception(error)
                    raise
            if len(self._failures) == MOST_FAILURES:  # once each of the batch has its answer
                raise PolicyError(
                    "policy",
                    f"its last {MOST_FAILURES} decisions failed, the last one with {self._failures[-1]}",
                    "correct it; `distrl policy try` asks it for one decision",
                )

    def _stopped(self) -> PolicyError:
        if self._failure is None:
            return PolicyClosedError("worker", "the policy has stopped", "start the worker again")
        why = f"{type(self._failure).__name__}: {self._failure}"
        return PolicyEndedError(
            "worker", f"the policy's thread has ended: {why}", "start the worker again, and report its log"
        )

    def _has(self, version: int) -> bool:
        return self._loaded is not None and self._loaded.version >= version

    def _count(self, change: int) -> None:
        with self._changed:
            self._active += change
            self._changed.notify_all()

    def _something_to_do(self) -> bool:
        return self._closed or self._swap is not None or (bool(self._requests) and self._loaded is not None)

    def _gather(self) -> list[Request]:
        with self._changed:
            if not self._requests or self._loaded is None:
                return []
            left = self._requests[0].asked + self._wait_s - self._ticks()
            if left > 0:
                self._changed.wait_for(lambda: self._closed or len(self._requests) >= self._active, left)
            batch, self._requests = self._requests, []
            return batch

    def _apply(self, swap: _Swap) -> None:
        try:
            self._weights.load(swap.adapter)
        except BaseException as error:
            swap.done.set_exception(error)
            if not isinstance(error, Exception):  # a library's panic ends the thread
                raise
        else:
            with self._changed:
                self._loaded = swap.version
                self._changed.notify_all()
            swap.done.set_result(None)

    def _answer(self, batch: list[Request]) -> None:
        try:
            decisions = self._decided(batch)
        except Exception as error:
            if len(batch) == 1:
                batch[0].decision.set_exception(error)
                self._failures.append(f"{type(error).__name__}: {error}")  # the error object would hold tensors
                return
            if isinstance(error, ComputeError) and not self._has_warned:
                LOG.warning("this batch and others like it are decided one by one: %s", error)
                self._has_warned = True
        else:
            self._failures.clear()
            for request, decision in zip(batch, decisions, strict=True):
                request.decision.set_result(decision)
            return
        # Decide one by one: an unreadable screenshot must not end the episodes of the others. This is done after the
        # except block because the error holds the batch's tensors, and the batch may have failed for lack of memory.
        for request in batch:
            self._answer([request])

    def _decided(self, batch: list[Request]) -> list[Decision]:
        version = self._loaded
        assert version is not None
        return decided(batch, self._weights, self._sampling, version, self._ticks)
