"""The base models of arms that learn: checked before anything is computed, and made in OUT where there is none yet."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from distrl.errors import ConfigError
from distrl.experiment.plan import FORMAT, Cell
from distrl.files import make_folder, unwritable
from distrl.policy.recurrent_q.directory import Described, make
from distrl.policy.registry import SHIPPED, base_sha256, tokenizer_of
from distrl.store.directory import sync, sync_all
from distrl.tasks.suite import suite_named

FOLDER: Final = "base-models"
HINT: Final = "make one that has them with `distrl base-model train --out DIR`, and give --base-model DIR"
SHOWN: Final = 8
"""Most words in a message."""


def refuse_unknown_words(cells: Sequence[Cell]) -> None:
    """Raises ConfigError where the base model lacks words of a suite that an arm learns or plays: it would read them as
    one and the same, and could not type them. Raises PolicyError where the base model cannot be read."""
    asked = {
        (cell.base_model, suite)
        for cell in cells
        if cell.arm.learns
        for play in (cell.arm.held_out, *cell.arm.plays)
        for suite in (cell.config.feeder.suite, *play.suites)
    }
    for base_model, suite in sorted(asked, key=str):
        policy = next(cell for cell in cells if cell.arm.learns and cell.base_model == base_model).config.policy
        missing = tokenizer_of(policy).unknown_words(suite_named(suite).texts)
        if missing:
            shown = ", ".join(missing[:SHOWN])
            raise ConfigError(
                "policy.base_model", f"lacks {len(missing)} words of suite {suite}, such as {shown}", HINT
            )


def grounded(cell: Cell, out: Path) -> Cell:
    """The cell with the recurrent Q over its base model, where its arm acts by one. Its weights begin by the seed.

    Its folder is named by all that it follows from: one that code of another FORMAT has made is left alone.
    Raises PolicyError or ConfigError where it cannot be written.
    """
    if not cell.arm.recurrent:
        return cell
    about = Described()
    content = json.dumps([FORMAT, base_sha256(cell.config.policy), asdict(about)], sort_keys=True)
    directory = out / FOLDER / f"recurrent-q-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
    if not directory.exists():
        make_folder(directory.parent)
        with tempfile.TemporaryDirectory(prefix="new-", dir=directory.parent) as new:
            made = Path(new) / directory.name
            make(made, cell.base_model or SHIPPED, about)
            try:
                sync_all(made)
                made.rename(directory)
                sync(directory.parent)
            except OSError as error:
                if not directory.exists():  # else another command with the same OUT has made it meanwhile
                    raise unwritable(directory, error) from None
    return replace(cell, base_model=directory)
