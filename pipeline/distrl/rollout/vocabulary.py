"""Checks that a base model knows the words of a suite: it reads others as <unk> and cannot type them."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Final

from simphone import lexicon

from distrl.config import FeederSettings
from distrl.errors import ConfigError
from distrl.policy.protocol import Tokenizer
from distrl.tasks.suite import suite_named, suites
from distrl.text import plain_words

log = logging.getLogger(__name__)

_PARAMETER: Final = re.compile(r"\{\w+\}")
SHOWN: Final = 8
"""Most words listed in a message."""
HINT: Final = (
    "make one that has them with `distrl base-model train --out DIR`, with --words FILE for those of a text of yours, "
    "and set policy.base_model=DIR"
)
MOST: Final = 4096
"""Most words that a file may add to those of the suites: with more it is probably the wrong file."""


def refuse_unknown_words(feeder: FeederSettings, tokenizer: Tokenizer) -> None:
    """Raises ConfigError where `tokenizer` lacks words of feeder.suite, the suite of the demonstrations."""
    if missing := tokenizer.unknown_words(suite_named(feeder.suite).texts):
        raise ConfigError("policy.base_model", _message(f"suite {feeder.suite}", missing), HINT)


def refuse_unknown_instruction(instruction: str, tokenizer: Tokenizer) -> None:
    """Raises ConfigError where `tokenizer` would read <unk> in an instruction that a person gave."""
    if missing := tokenizer.unknown_words([instruction]):
        raise ConfigError("policy.base_model", _message("the instruction", missing), HINT)


def warn_unknown_words(feeder: FeederSettings, tokenizer: Tokenizer) -> None:
    """Log the same as a warning, in a role that acts. It is no error, as tasks come from the log and may not need these
    words. It is checked only if feeder.suite is set explicitly, since otherwise the suite of the tasks is not known.
    """
    named = "suite" in feeder.model_fields_set and not feeder.tasks
    if named and (missing := tokenizer.unknown_words(suite_named(feeder.suite).texts)):
        log.warning("%s; %s", _message(f"suite {feeder.suite}", missing), HINT)


def words_of_all_suites(tokenizer: Tokenizer) -> tuple[str, ...]:
    """Every word of a suite or an app that `tokenizer` lacks, in order."""
    texts = [*lexicon.ALL, *(text for suite in suites().values() for text in suite.texts)]
    return tokenizer.unknown_words(texts)


def words_to_type() -> tuple[str, ...]:
    """The words that the suites' tasks have as content or to be typed: all their words except those of the instruction
    templates, plus those template words that training tasks type."""
    every = list(suites().values())
    templates = [phrase for suite in every for kind in suite.kinds for phrase in kind.phrases]
    said = {word for phrase in templates for word in plain_words(_PARAMETER.sub(" ", phrase))}
    about = [word for suite in every for text in suite.texts for word in plain_words(text) if word not in said]
    typed = [word for suite in every for text in suite.typed for word in plain_words(text)]
    return tuple(dict.fromkeys((*about, *typed)))


def words_of_file(path: Path, tokenizer: Tokenizer) -> tuple[str, ...]:
    """The words of a text that `tokenizer` lacks, in order. Raises ConfigError for what is no text, or has too many."""
    try:
        found = tokenizer.unknown_words([path.read_text(encoding="utf-8")])
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("--words", f"{path}: {error}", "name a text in UTF-8") from error
    if len(found) > MOST:
        raise ConfigError("--words", f"{path} has {len(found)} more words", f"name a text of at most {MOST}")
    return found


def _message(whose: str, missing: tuple[str, ...]) -> str:
    more = f" and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    return f"the base model lacks {len(missing)} words of {whose}: {', '.join(missing[:SHOWN])}{more}"
