"""What a base model's vision tower reads on the phone's own screens, in each generation of the UI.

    python bench/reading.py
    python bench/reading.py --base-model DIR

Of every word on a widget of the gallery's screens (`simphone.gallery.walk`): whether it is the likeliest word in one of
the widget's cells. Words that only later generations show are counted apart.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from distrl.errors import DistrlError
from distrl.policy.autoui.base import Base, load_base
from distrl.policy.autoui.model import AutoUIModel
from distrl.policy.autoui.pretraining.examples import TrainingScreen, drawn_words
from distrl.policy.autoui.pretraining.screens import target_of
from distrl.policy.autoui.tokenizer import WordTokenizer
from distrl.policy.registry import SHIPPED
from rich.console import Console
from rich.table import Table
from simphone.gallery import walk
from simphone.generations import NEWEST
from simphone.machine import draw, widgets
from simphone.synthetic_labels import NEWER

console = Console()
ALWAYS, ONLY_LATER = "words of generation 0", "words of later ones alone"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base-model", type=Path, default=SHIPPED, help="directory of an AutoUI; the shipped one")
    parser.add_argument("--json", type=Path, help="write the shares there")
    given = parser.parse_args()
    try:
        base = load_base(given.base_model)
    except DistrlError as error:
        raise SystemExit(str(error)) from None
    found = {generation: shares(base, generation) for generation in range(NEWEST + 1)}
    table = Table("generation", ALWAYS, ONLY_LATER, title="words that are read")
    for generation, each in found.items():
        table.add_row(
            str(generation),
            *(f"{each[kind][0]:.1%} of {each[kind][1]}" if kind in each else "" for kind in (ALWAYS, ONLY_LATER)),
        )
    console.print(table)
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(found, indent=1))


def shares(base: Base, generation: int) -> Mapping[str, tuple[float, int]]:
    """Of each kind of word: the share that is read, and how many there are."""
    read: dict[str, list[bool]] = defaultdict(list)
    for word, is_read in words(base, generation):
        read[ONLY_LATER if word in NEWER else ALWAYS].append(is_read)
    return {kind: (float(np.mean(each)), len(each)) for kind, each in read.items()}


def words(base: Base, generation: int) -> Iterator[tuple[str, bool]]:
    """Every word of the model's that stands on a widget, each screen once, and whether it is read."""
    model, tokenizer = base.model, base.tokenizer
    assert isinstance(model, AutoUIModel)
    assert isinstance(tokenizer, WordTokenizer)
    ids, seen = {word: number for number, word in enumerate(tokenizer.tokens)}, set[bytes]()
    for state in walk(generation):
        image = draw(state).convert("RGB")
        if image.tobytes() in seen:
            continue
        seen.add(image.tobytes())
        pixels = np.array(image).transpose(2, 0, 1)
        with torch.no_grad():
            likeliest = model.fusion.read(model.vision.content(torch.from_numpy(pixels)[None])).argmax(-1).flatten()
        targets = tuple(target_of(widget) for widget in widgets(state) if widget.target)
        if not targets:
            continue
        stands, cells = drawn_words([TrainingScreen(pixels, targets)], ids, model.shape.grid)
        for _, widget, number in stands.tolist():
            yield tokenizer.tokens[number], number in likeliest[torch.from_numpy(cells[0, widget] > 0)]


if __name__ == "__main__":
    main()
