"""What R2D3 requires of a policy; it can be checked before any weights are loaded."""

from __future__ import annotations

from distrl.errors import ConfigError
from distrl.policy.protocol import Tokenizer
from distrl.policy.recurrent_q.tokenizer import GridTokenizer


def refuse_other(tokenizer: Tokenizer) -> None:
    """Raises ConfigError for the tokenizer of a policy that is no recurrent Q."""
    if not isinstance(tokenizer, GridTokenizer):
        raise ConfigError(
            "algorithm.type",
            "r2d3 learns values of actions, and this policy has none",
            "make a recurrent Q (`distrl base-model recurrent-q --out DIRECTORY`) and name it in policy.base_model",
        )
