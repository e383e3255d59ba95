"""What the registry needs of this family."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from distrl import config as settings
from distrl.policy.autoui.directory import FILES, described, tokenizer
from distrl.policy.files import CONFIG, identity_of, read
from distrl.policy.protocol import Policy, Tokenizer
from distrl.policy.registry import PolicyFamily


def _tokenizer(directory: Path, policy: settings.PolicySettings) -> Tokenizer:
    return tokenizer(described(read(directory / CONFIG), directory), directory)


def _policy(directory: Path, policy: settings.PolicySettings, seed: int) -> Policy:
    from distrl.policy.autoui.policy import AutoUIPolicy  # brings torch, which a tokenizer does without

    return AutoUIPolicy.open(directory, policy, seed)


def _identity(directory: Path) -> str:
    return identity_of([directory / name for name in FILES])


AUTOUI: Final = PolicyFamily(_tokenizer, _policy, _identity)
