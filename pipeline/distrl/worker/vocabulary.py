"""Whether a base model has the words of a suite: what it lacks is read as <unk> and can be typed by nobody."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from simphone import lexicon, words

from distrl.config import Feeder
from distrl.errors import ConfigError
from distrl.policy.vocabulary import Codec, plain_words
from distrl.tasks.suite import suite_named, suites

log = logging.getLogger(__name__)

SHOWN: Final = 8
"""Words that a person is told of."""
MEND: Final = (
    "make one that has them with `distrl base-model train --words all --out DIR`, and set policy.base_model=DIR"
)


def lacking(texts: Iterable[str], codec: Codec) -> tuple[str, ...]:
    """The words of `texts` that the base model has not, in order, numbers last."""
    missing = {word for text in texts for word in plain_words(text)} - frozenset(codec.words)
    return tuple(sorted(missing, key=lambda word: (not word.isalpha(), word)))


def refuse_lacking(feeder: Feeder, codec: Codec) -> None:
    """Raises ConfigError where the base model of `codec` lacks words of feeder.suite, which demonstrations are of."""
    if missing := lacking(suite_named(feeder.suite).texts, codec):
        raise ConfigError("policy.base_model", _told(f"suite {feeder.suite}", missing), MEND)


def refuse_unread(instruction: str, codec: Codec) -> None:
    """Raises ConfigError where the base model of `codec` would read <unk> in an instruction of a person."""
    if missing := lacking([instruction], codec):
        raise ConfigError("policy.base_model", _told("the instruction", missing), MEND)


def warn_lacking(feeder: Feeder, codec: Codec) -> None:
    """Log the same where a policy acts, which may well know enough: its tasks carry all of it, and only where somebody
    has named the suite it is known what they will be of.
    """
    named = "suite" in feeder.model_fields_set and not feeder.tasks
    if named and (missing := lacking(suite_named(feeder.suite).texts, codec)):
        log.warning("%s; %s", _told(f"suite {feeder.suite}", missing), MEND)


def words_of_all_suites() -> tuple[str, ...]:
    """Every word that a suite says or an app shows and the shipped base model lacks, in order."""
    texts = [*lexicon.ALL, *(text for suite in suites().values() for text in suite.texts)]
    return lacking(texts, Codec(words.ALL))


def _told(whose: str, missing: tuple[str, ...]) -> str:
    more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    return f"the base model lacks {len(missing)} words of {whose}: {', '.join(missing[:SHOWN])}{more}"
