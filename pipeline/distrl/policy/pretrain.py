"""How the shipped base model is made, once, by `distrl pretrain`: the stand-in for AutoUI's pre-trained weights.

Each update draws screens from a pool of synthetic ones and asks, of each, for two named widgets and for one copied
phrase. Beside the actions, the vision tower learns to read: the content of a cell, against the word embeddings, must
say which words stand there. That second loss makes the tower see words within minutes on a CPU.
"""

from __future__ import annotations

import hashlib
import math
import random
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torch.nn.functional as F
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from torch import Tensor, nn

from distrl.policy.agent import pad, write
from distrl.policy.base import save_base
from distrl.policy.examples import Example, Language, Pair, Screen, copy_example, drawn_words, touch_examples
from distrl.policy.model import AutoUIModel, Shape
from distrl.policy.screens import draw_screens, phone_codec, phone_language
from distrl.policy.vocabulary import PAD, Codec

EVALUATION_SEED: Final = 1_000_003
"""Added to the seed where fresh screens and sentences are drawn to measure on: none of them was trained on."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Everything that decides the weights, beside the sources of the phone's words and screens."""

    seed: int = 0
    updates: int = 1500
    threads: int = 2
    screens: int = 8192
    screens_per_update: int = 64
    touches_per_screen: int = 2
    lr: float = 2e-3
    warmup: int = 40
    final_lr: float = 0.03
    weight_decay: float = 0.01
    grad_norm: float = 1.0
    reading_weight: float = 0.5
    tower: tuple[int, ...] = (32, 64, 96)
    d_model: int = 96
    d_ff: int = 256
    layers: int = 2
    heads: int = 4
    dropout: float = 0.1

    def rate(self, update: int) -> float:
        """Learning rate: a linear warm-up, then a cosine down to `final_lr` of the highest."""
        cosine = 0.5 * (1 + math.cos(math.pi * update / self.updates))
        return self.lr * min(1.0, (update + 1) / self.warmup) * (self.final_lr + (1 - self.final_lr) * cosine)


@dataclass(frozen=True, slots=True)
class Report:
    """What came out. losses: of every 50th update. accuracy: by kind of widget, and "copy", on fresh material."""

    base_sha256: str
    parameters: int
    seconds: float
    losses: tuple[Mapping[str, float], ...]
    accuracy: Mapping[str, float]
    counts: Mapping[str, int] = field(default_factory=dict)


def train_base(out: Path, seed: int, updates: int, forbidden: frozenset[Pair], threads: int) -> Report:
    """Make a base model in the directory `out` with the shipped recipe. Deterministic given the arguments.

    forbidden: pairs of words that the evaluation holds out; they are asked for and typed nowhere.
    """
    return train(out, Recipe(seed=seed, updates=updates, threads=threads), forbidden)


def train(out: Path, recipe: Recipe, forbidden: frozenset[Pair]) -> Report:
    """`train_base` with any recipe."""
    started = time.monotonic()
    torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    codec = phone_codec()
    language = phone_language(forbidden)
    rng = random.Random(recipe.seed)
    pool = draw_screens(recipe.screens, rng, forbidden)
    height, width = pool[0].pixels.shape[1:]
    model = AutoUIModel(
        Shape(
            len(codec.tokens),
            width,
            height,
            recipe.tower,
            recipe.d_model,
            recipe.d_ff,
            recipe.layers,
            recipe.heads,
            recipe.dropout,
        )
    )
    losses = _fit(model, codec, language, pool, recipe, rng)
    fresh = random.Random(recipe.seed + EVALUATION_SEED)
    accuracy = measure(model, codec, language, draw_screens(512, fresh, forbidden), fresh)
    seconds = time.monotonic() - started
    parameters = sum(parameter.numel() for parameter in model.parameters())
    notes = _notes(recipe, codec, forbidden, losses, accuracy, seconds, parameters)
    sha256 = save_base(out, model, codec, notes)
    return Report(sha256, parameters, seconds, tuple(losses), accuracy, {"screens": len(pool)})


def measure(
    model: AutoUIModel, codec: Codec, language: Language, screens: Sequence[Screen], rng: random.Random
) -> dict[str, float]:
    """Greedy accuracy by kind: the share of taps inside the named widget, and of phrases copied without a mistake."""
    right: dict[str, list[bool]] = defaultdict(list)
    model.eval()
    for first in range(0, len(screens), 64):
        batch = screens[first : first + 64]
        examples = _ask(batch, 3, codec, language, rng)
        features = model.features(_images(batch))[[example.screen for example in examples]]
        written = write(model, codec, features, [e.prompt for e in examples], None, [0] * len(examples))
        for example, (ids, _) in zip(examples, written, strict=True):
            touch = codec.decode_action(ids).touch
            hit = example.target is not None and touch is not None and example.target.holds(touch)
            right[example.kind].append(hit if example.target is not None else ids == example.action)
    touches = [hit for kind, hits in right.items() if kind != "copy" for hit in hits]
    return {"touch": float(np.mean(touches)), **{kind: float(np.mean(hits)) for kind, hits in sorted(right.items())}}


def _fit(
    model: AutoUIModel, codec: Codec, language: Language, pool: Sequence[Screen], recipe: Recipe, rng: random.Random
) -> list[dict[str, float]]:
    optimiser = torch.optim.AdamW(model.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    columns = (
        TextColumn("pre-training"),
        BarColumn(),
        TextColumn("{task.completed}/{task.total}  {task.description}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    losses: list[dict[str, float]] = []
    model.train()
    with Progress(*columns) as progress:
        bar = progress.add_task("", total=recipe.updates)
        for update in range(recipe.updates):
            for group in optimiser.param_groups:
                group["lr"] = recipe.rate(update)
            batch = rng.sample(pool, recipe.screens_per_update)
            parts = _losses(model, codec, batch, _ask(batch, recipe.touches_per_screen, codec, language, rng))
            optimiser.zero_grad()
            (parts["touch"] + parts["copy"] + recipe.reading_weight * parts["read"]).backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(model.parameters(), recipe.grad_norm)
            optimiser.step()
            if update % 50 == 49 or update == recipe.updates - 1:
                losses.append({"update": update + 1, **{name: round(part.item(), 4) for name, part in parts.items()}})
            if update % 10 == 9:
                text = "  ".join(f"{name} {part.item():.3f}" for name, part in parts.items())
                progress.update(bar, description=text, completed=update + 1)
    return losses


def _ask(batch: Sequence[Screen], touches: int, codec: Codec, language: Language, rng: random.Random) -> list[Example]:
    asked = [touch_examples(n, screen, touches, codec, language, rng) for n, screen in enumerate(batch)]
    copied = [copy_example(n, codec, language, rng) for n in range(len(batch))]
    return [example for examples in (*asked, copied) for example in examples]


def _losses(
    model: AutoUIModel, codec: Codec, batch: Sequence[Screen], examples: Sequence[Example]
) -> dict[str, Tensor]:
    """−log π of each kind of example per action, and the reading loss per label."""
    content = model.vision.content(_images(batch))
    features = (content + model.vision.row + model.vision.column).flatten(1, 2)
    states, mask = model.encode(features[[example.screen for example in examples]], pad([e.prompt for e in examples]))
    actions = pad([example.action for example in examples])
    tokens = F.cross_entropy(
        model.logits(states, mask, actions).flatten(0, 1), actions.flatten(), ignore_index=PAD, reduction="none"
    )
    per_action = tokens.view(actions.shape).sum(1)
    copied = torch.tensor([example.kind == "copy" for example in examples])
    return {
        "touch": per_action[~copied].mean(),
        "copy": per_action[copied].mean(),
        "read": _reading_loss(model, content, batch, codec),
    }


def _reading_loss(model: AutoUIModel, content: Tensor, batch: Sequence[Screen], codec: Codec) -> Tensor:
    """−log P(word | the cells of its widget), mean over every word on every widget.

    content: (B, rows, columns, d). A widget's scores are the sums over its cells of exp(content · embedding / √d), so
    that the cell where the word stands alone can say it. A label of two words cannot go below log 2.
    """
    ids = {word: i for i, word in enumerate(codec.tokens)}
    owners, cells = (torch.from_numpy(array) for array in drawn_words(batch, ids, model.shape.grid))
    scores = content.flatten(1, 2) @ model.t5.shared.weight.T * model.shape.d_model**-0.5
    on_widget = scores[owners[:, 0]].masked_fill(~cells[..., None], -math.inf).logsumexp(dim=1)
    return F.cross_entropy(on_widget, owners[:, 1])


def _images(batch: Sequence[Screen]) -> Tensor:
    return torch.from_numpy(np.stack([screen.pixels for screen in batch]))


def _notes(
    recipe: Recipe,
    codec: Codec,
    forbidden: frozenset[Pair],
    losses: Sequence[Mapping[str, float]],
    accuracy: Mapping[str, float],
    seconds: float,
    parameters: int,
) -> dict[str, Any]:
    return {
        **asdict(recipe),
        "parameters": parameters,
        "touch_examples": recipe.updates * recipe.screens_per_update * recipe.touches_per_screen,
        "copy_examples": recipe.updates * recipe.screens_per_update,
        "forbidden_pairs": sorted(" ".join(pair) for pair in forbidden),
        "words_sha256": hashlib.sha256("\n".join(codec.words).encode()).hexdigest(),
        "seconds": round(seconds, 1),
        "losses": list(losses),
        "accuracy_on_fresh_material": {kind: round(value, 4) for kind, value in accuracy.items()},
    }
