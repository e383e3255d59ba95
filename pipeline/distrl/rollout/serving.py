"""Sets up the policy of a process: in its own memory, with the thread that serves it, or at a model server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from distrl.accelerator import device_of
from distrl.config import Config, PolicySettings
from distrl.errors import ConfigError, PolicyError
from distrl.policy.protocol import Tokenizer
from distrl.policy.recurrent_q.tokenizer import GridTokenizer
from distrl.policy.registry import base_sha256, policy_of, tokenizer_of
from distrl.policy.sampling import Sampling
from distrl.rollout.batcher import Batcher
from distrl.rollout.decider import VersionedDecider
from distrl.rollout.served.policy import ServedPolicy
from distrl.rollout.vocabulary import warn_unknown_words
from distrl.supervised import SupervisedThread
from distrl.types import Version

if TYPE_CHECKING:
    from distrl.policy.vlm.tokenizer import VlmTokenizer


@dataclass(frozen=True)
class Serving:
    """A policy that decides; no version is loaded yet."""

    decider: VersionedDecider
    base_sha256: str


@contextmanager
def serving(config: Config, sampling: Sampling | None) -> Iterator[Serving]:
    """The policy of `config` for the time of the block. sampling None: greedy.

    If the policy fails for good, its callers get PolicyEndedError, and `decider.check` raises it.
    """
    torch.set_num_threads(config.worker.torch_threads)
    with _local(config, sampling) if config.policy.server.endpoint is None else served(config, sampling) as made:
        yield made


@contextmanager
def _local(config: Config, sampling: Sampling | None) -> Iterator[Serving]:
    policy = policy_of(config.policy, device=device_of(config.worker.device, "worker.device"))
    refuse_ladder(sampling, policy.tokenizer)
    warn_unknown_words(config.feeder, policy.tokenizer)
    batcher = Batcher(policy, policy.tokenizer, sampling=sampling, wait_s=config.worker.batch_wait_ms / 1000)
    thread = SupervisedThread(batcher.serve, "policy", batcher.fail)
    try:
        yield Serving(batcher, policy.base_sha256)
    finally:
        batcher.close()
        thread.join()


@contextmanager
def served(config: Config, sampling: Sampling | None) -> Iterator[Serving]:
    """The policy of `config` at its model server, for the time of the block. sampling None: greedy.

    No weights are loaded in this process; the base model's files are read for the tokenizer and their sha256. Raises
    ConfigError for a server that cannot load adapters.
    """
    from distrl.policy.vlm.chat import ChatForm

    tokenizer = served_tokenizer(config.policy, tokenizer_of(config.policy))
    refuse_ladder(sampling, tokenizer)
    base = base_sha256(config.policy)
    policy = ServedPolicy(ChatForm(tokenizer), config.policy, base, config.run, sampling=sampling)
    try:
        policy.refuse_unable()
        yield Serving(policy, base)
    finally:
        policy.leave()


def served_tokenizer(policy: PolicySettings, tokenizer: Tokenizer) -> VlmTokenizer:
    """`tokenizer`, which is that of the base model. Raises ConfigError for a model that no server can serve."""
    from distrl.policy.vlm.tokenizer import VlmTokenizer

    if not isinstance(tokenizer, VlmTokenizer):
        raise ConfigError(
            "policy.server.endpoint",
            f"{policy.base_model} is no vision-language model, which alone are served",
            "unset it, or name one in policy.base_model",
        )
    return tokenizer


def refuse_ladder(sampling: Sampling | None, tokenizer: Tokenizer) -> None:
    """Raises ConfigError for a ladder of ε with any policy but a recurrent Q: no other has an ε."""
    if sampling is not None and sampling.epsilon is not None and not isinstance(tokenizer, GridTokenizer):
        raise ConfigError(
            "worker.ladder.rungs",
            "is set, and policy.base_model is no recurrent Q, so there is no ε",
            "unset it, or name a recurrent Q (`distrl base-model recurrent-q --out DIRECTORY`) in policy.base_model",
        )


def refuse_other_base(version: Version, base_sha256: str) -> None:
    """Raises PolicyError where `version` was trained on another base model than the one here."""
    if version.base_model_sha256 != base_sha256:
        raise PolicyError(
            f"version {version.version}",
            f"belongs to base model {version.base_model_sha256[:12]}; policy.base_model is {base_sha256[:12]}",
            "set policy.base_model to the one the run was trained with",
        )
