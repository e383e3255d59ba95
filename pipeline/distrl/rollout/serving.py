"""Sets up the policy of a process and the thread that serves it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from distrl.accelerator import device_of
from distrl.config import Config
from distrl.errors import PolicyError
from distrl.policy.registry import policy_of
from distrl.rollout.batcher import Batcher
from distrl.rollout.vocabulary import warn_unknown_words
from distrl.supervised import SupervisedThread
from distrl.types import Version


@dataclass(frozen=True)
class Serving:
    """A served policy; no version is loaded yet."""

    batcher: Batcher
    base_sha256: str


@contextmanager
def serving(config: Config, temperature: float | None) -> Iterator[Serving]:
    """The policy of `config`, served by one thread for the time of the block. temperature None: greedy.

    Where the thread fails, callers of the policy get PolicyEndedError, and so does `batcher.check`.
    """
    torch.set_num_threads(config.worker.torch_threads)
    policy = policy_of(config.policy, device=device_of(config.worker.device, "worker.device"))
    warn_unknown_words(config.feeder, policy.tokenizer)
    batcher = Batcher(policy, policy.tokenizer, temperature=temperature, wait_s=config.worker.batch_wait_ms / 1000)
    thread = SupervisedThread(batcher.serve, "policy", batcher.fail)
    try:
        yield Serving(batcher, policy.base_sha256)
    finally:
        batcher.close()
        thread.join()


def refuse_other_base(version: Version, base_sha256: str) -> None:
    """Raises PolicyError where `version` was trained on another base model than the one here."""
    if version.base_model_sha256 != base_sha256:
        raise PolicyError(
            f"version {version.version}",
            f"belongs to base model {version.base_model_sha256[:12]}; policy.base_model is {base_sha256[:12]}",
            "set policy.base_model to the one the run was trained with",
        )
