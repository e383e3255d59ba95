"""What worker, demonstrations and evaluator put together alike: the policy's thread, where screenshots go."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from distrl.clock import SYSTEM_CLOCK, Clock
from distrl.config import Config
from distrl.errors import StoreError
from distrl.policy.agent import Agent
from distrl.store.objects import ObjectStore, utc_day
from distrl.tasks.outcome import succeeded
from distrl.types import ObjectRef
from distrl.worker.batcher import Batcher
from distrl.worker.episode import Judge
from distrl.worker.patience import Patience

SCREENSHOTS = "screenshots"
"""The kind of object that screenshots are in the store."""
TRUTH: Judge = succeeded
"""Outcomes come from the phone's own state, where it offers one."""


@dataclass(frozen=True)
class Policy:
    """The batching policy and the identity of its base model; no version is loaded yet."""

    batcher: Batcher
    base_sha256: str


@contextmanager
def serving(config: Config, temperature: float | None) -> Iterator[Policy]:
    """The policy of `config`, decided by one thread that lives as long as the block. temperature None: greedy."""
    torch.set_num_threads(config.worker.torch_threads)
    agent = Agent.open(config.policy)
    batcher = Batcher(agent, agent.codec, temperature=temperature, wait_s=config.worker.batch_wait_ms / 1000)
    thread = threading.Thread(target=batcher.serve, name="policy", daemon=True)
    thread.start()
    try:
        yield Policy(batcher, agent.base_sha256)
    finally:
        batcher.close()
        thread.join()


def keeper(store: ObjectStore, patience: Patience, clock: Clock = SYSTEM_CLOCK) -> Callable[[bytes], ObjectRef]:
    """Puts a screenshot in the store, waiting out a store that is away; returns once the object is there."""

    def keep(png: bytes) -> ObjectRef:
        day = utc_day(clock.now_ms())
        return patience.until_done("keeping a screenshot", lambda: store.put(SCREENSHOTS, png, "png", day), StoreError)

    return keep


class Watched:
    """A thread whose failure is its owner's: `check` raises in the owner what ended the thread.

    target gets the event that `stop` sets, and has to return soon after it.
    """

    def __init__(self, target: Callable[[threading.Event], None], name: str) -> None:
        self._target = target
        self._failure: Exception | None = None
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._target(self._stop)
        except Exception as error:
            self._failure = error
