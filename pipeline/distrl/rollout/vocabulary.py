"""Whether a base model has the words of a suite: what it lacks is read as <unk> and can be typed by nobody."""

from __future__ import annotations

import logging
from typing import Final

from simphone import lexicon

from distrl.config import Feeder
from distrl.errors import ConfigError
from distrl.policy.protocol import Tokenizer
from distrl.tasks.suite import suite_named, suites

log = logging.getLogger(__name__)

SHOWN: Final = 8
"""Words that a person is told of."""
HINT: Final = (
    "make one that has them with `distrl base-model train --words all --out DIR`, and set policy.base_model=DIR"
)


def refuse_lacking(feeder: Feeder, tokenizer: Tokenizer) -> None:
    """Raises ConfigError where `tokenizer` lacks words of feeder.suite, which demonstrations are of."""
    if missing := tokenizer.unknown_words(suite_named(feeder.suite).texts):
        raise ConfigError("policy.base_model", _told(f"suite {feeder.suite}", missing), HINT)


def refuse_unread(instruction: str, tokenizer: Tokenizer) -> None:
    """Raises ConfigError where the base model of `tokenizer` would read <unk> in an instruction of a person."""
    if missing := tokenizer.unknown_words([instruction]):
        raise ConfigError("policy.base_model", _told("the instruction", missing), HINT)


def warn_lacking(feeder: Feeder, tokenizer: Tokenizer) -> None:
    """Log the same where a policy acts, which may well know enough: its tasks carry all of it, and only where somebody
    has named the suite it is known what they will be of.
    """
    named = "suite" in feeder.model_fields_set and not feeder.tasks
    if named and (missing := tokenizer.unknown_words(suite_named(feeder.suite).texts)):
        log.warning("%s; %s", _told(f"suite {feeder.suite}", missing), HINT)


def words_of_all_suites(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Every word that a suite says or an app shows and that `tokenizer` lacks, in order."""
    texts = [*lexicon.ALL, *(text for suite in suites().values() for text in suite.texts)]
    return tokenizer.unknown_words(texts)


def _told(whose: str, missing: tuple[str, ...]) -> str:
    more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    return f"the base model lacks {len(missing)} words of {whose}: {', '.join(missing[:SHOWN])}{more}"
