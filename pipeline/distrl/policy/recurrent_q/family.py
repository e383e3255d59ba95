"""What the registry needs of this family."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from distrl import config as settings
from distrl.policy.protocol import Policy, Tokenizer
from distrl.policy.recurrent_q.directory import identity, tokenizer
from distrl.policy.registry import PolicyFamily


def _tokenizer(directory: Path, policy: settings.PolicySettings) -> Tokenizer:
    return tokenizer(directory)


def _policy(directory: Path, policy: settings.PolicySettings, seed: int) -> Policy:
    from distrl.policy.recurrent_q.policy import RecurrentQPolicy  # brings torch, which a tokenizer does without

    return RecurrentQPolicy(directory, policy, seed)


RECURRENT_Q: Final = PolicyFamily(_tokenizer, _policy, identity)
