"""What the registry needs of this family."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from distrl import config as settings
from distrl.policy.autoui_t5.directory import files, identity
from distrl.policy.protocol import Policy, Tokenizer
from distrl.policy.registry import PolicyFamily


def _tokenizer(directory: Path, policy: settings.PolicySettings) -> Tokenizer:
    from distrl.policy.autoui_t5.tokenizer import T5Tokenizer  # brings the library

    files(directory)
    return T5Tokenizer(directory, policy)


def _policy(directory: Path, policy: settings.PolicySettings, seed: int) -> Policy:
    from distrl.policy.autoui.policy import AutoUIPolicy
    from distrl.policy.autoui_t5.base import load_base

    return AutoUIPolicy(load_base(directory, policy), policy, seed)


AUTOUI_T5: Final = PolicyFamily(_tokenizer, _policy, identity, reads_earlier_screens=True)
