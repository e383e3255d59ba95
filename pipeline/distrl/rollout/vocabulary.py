"""Checks that a base model knows the words of a suite: it reads others as <unk> and cannot type them."""

from __future__ import annotations

import logging
from typing import Final

from simphone import lexicon

from distrl.config import FeederSettings
from distrl.errors import ConfigError
from distrl.policy.protocol import Tokenizer
from distrl.tasks.suite import suite_named, suites

log = logging.getLogger(__name__)

SHOWN: Final = 8
"""Most words in a message."""
HINT: Final = (
    "make one that has them with `distrl base-model train --words all --out DIR`, and set policy.base_model=DIR"
)


def refuse_unknown_words(feeder: FeederSettings, tokenizer: Tokenizer) -> None:
    """Raises ConfigError where `tokenizer` lacks words of feeder.suite, the suite of the demonstrations."""
    if missing := tokenizer.unknown_words(suite_named(feeder.suite).texts):
        raise ConfigError("policy.base_model", _message(f"suite {feeder.suite}", missing), HINT)


def refuse_unknown_instruction(instruction: str, tokenizer: Tokenizer) -> None:
    """Raises ConfigError where `tokenizer` would read <unk> in an instruction that a person gave."""
    if missing := tokenizer.unknown_words([instruction]):
        raise ConfigError("policy.base_model", _message("the instruction", missing), HINT)


def warn_unknown_words(feeder: FeederSettings, tokenizer: Tokenizer) -> None:
    """Log the same in a role that acts. No error: tasks come over the log, and may not need these words. Only where
    feeder.suite is set explicitly is it known what they are about.
    """
    named = "suite" in feeder.model_fields_set and not feeder.tasks
    if named and (missing := tokenizer.unknown_words(suite_named(feeder.suite).texts)):
        log.warning("%s; %s", _message(f"suite {feeder.suite}", missing), HINT)


def words_of_all_suites(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Every word of a suite or an app that `tokenizer` lacks, in order."""
    texts = [*lexicon.ALL, *(text for suite in suites().values() for text in suite.texts)]
    return tokenizer.unknown_words(texts)


def _message(whose: str, missing: tuple[str, ...]) -> str:
    more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    return f"the base model lacks {len(missing)} words of {whose}: {', '.join(missing[:SHOWN])}{more}"
