"""How the shipped base model is made, by `distrl base-model train`: the stand-in for AutoUI's pre-trained weights.

Two stages, as AutoUI has them, both on synthetic screens. First the vision tower alone learns to read: the content of
a widget's cells, against a fixed table of words, must say which words stand there. Then it is frozen, its tokens of
every screen are computed once, and the encoder-decoder learns to touch what is meant, to copy phrases and to say when
it is done (examples.py). Trained together, the tower's gradients drown in the others' and it reads nothing within
minutes; apart, it does in two.
"""

from __future__ import annotations

import hashlib
import logging
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torch.nn.functional as F
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from simphone.canvas import ALPHABET
from simphone.element import HEIGHT, WIDTH
from torch import Tensor, nn

from distrl.policy.autoui.base import save_base
from distrl.policy.autoui.model import STROKE, AutoUIModel, Shape
from distrl.policy.autoui.policy import pad, write
from distrl.policy.autoui.pretraining.elsewhere import elsewhere_examples
from distrl.policy.autoui.pretraining.examples import (
    Asking,
    Example,
    Language,
    Pair,
    TrainingScreen,
    copy_example,
    drawn_words,
    touch_examples,
)
from distrl.policy.autoui.pretraining.recipe import Recipe, Stage
from distrl.policy.autoui.pretraining.screens import draw_screens, phone_language, phone_tokenizer
from distrl.policy.autoui.pretraining.stream import fresh_screens
from distrl.policy.autoui.t5 import ActingT5
from distrl.policy.autoui.tokenizer import PAD, WordTokenizer
from distrl.policy.files import make_empty
from distrl.policy.sampling import drawing

EVALUATION_SEED: Final = 1_000_003
"""Added to the seed where fresh screens and sentences are drawn to measure on: none of them was trained on."""


OTHERS: Final = ("copy", "done", "scroll", "page")
"""Kinds of examples that are right as a whole, and not where they touch."""
NAMELESS: Final = ("use", "newer")
"""Kinds that touch a widget which no word of theirs names; they are counted apart."""
COLUMNS: Final = (
    TextColumn("{task.fields[stage]:<8}"), BarColumn(), TextColumn("{task.completed}/{task.total}  {task.description}"),
    TimeElapsedColumn(), TimeRemainingColumn(),
)  # fmt: skip

Show = Callable[[int, int, str], None]
"""Called with the updates done, all updates, and the losses as text."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Report:
    """What came out.

    losses: of every 50th update of each stage. accuracy: by kind of widget, "copy" and "done", on fresh material.
    """

    base_sha256: str
    parameters: int
    seconds: float
    losses: tuple[Mapping[str, float], ...]
    accuracy: Mapping[str, float]
    counts: Mapping[str, int] = field(default_factory=dict)


def train(
    out: Path, recipe: Recipe, forbidden: frozenset[Pair], more: Sequence[str] = (), typed: Sequence[str] = ()
) -> Report:
    """Make a base model in the directory `out`. Deterministic given the arguments.

    forbidden: pairs of words that the evaluation holds out; they are asked for and typed nowhere. more: words that it
    learns to read besides those of the phone and the home suite. typed: words that tasks have people type.
    """
    extra = tuple(more)
    make_empty(out)
    started = time.monotonic()
    torch.set_num_threads(recipe.threads)
    torch.manual_seed(recipe.seed)
    tokenizer = phone_tokenizer(extra)
    language = phone_language(forbidden, tuple(typed), extra)
    rng, drawn = random.Random(recipe.seed), recipe.reading.updates * recipe.reading.batch
    to_read = fresh_screens(f"{recipe.seed} read", drawn, forbidden, recipe.free_to_read, extra)
    to_touch = fresh_screens(f"{recipe.seed} touch", recipe.screens_to_touch, forbidden, recipe.free_to_touch, extra)
    model = AutoUIModel(
        Shape(
            len(tokenizer.tokens),
            WIDTH,
            HEIGHT,
            recipe.tower,
            recipe.d_model,
            recipe.d_ff,
            recipe.layers,
            recipe.heads,
            recipe.d_kv,
            recipe.dropout,
            recipe.beside,
            recipe.sharpness,
            recipe.seeks,
        )
    )
    model.vision.to(memory_format=torch.channels_last)  # updates take less than two thirds of the time
    model.eval()  # without dropout, with which copying takes ten times as long to begin
    with Progress(*COLUMNS) as progress:
        losses = [
            *_read(model, tokenizer, to_read, recipe, _shown(progress, "reading")),
            *_act(model, tokenizer, language, to_touch, recipe, rng, _shown(progress, "acting")),
        ]
    fresh = random.Random(recipe.seed + EVALUATION_SEED)
    screens = draw_screens(512, fresh, forbidden, recipe.free_to_touch, extra)
    accuracy = measure(model, tokenizer, language, screens, fresh)
    seconds = time.monotonic() - started
    parameters = sum(parameter.numel() for parameter in model.parameters())
    notes = _notes(recipe, tokenizer, forbidden, losses, accuracy, seconds, parameters)
    sha256 = save_base(out, model, tokenizer, notes)
    return Report(
        sha256,
        parameters,
        seconds,
        tuple(losses),
        accuracy,
        {"screens": drawn + recipe.screens_to_touch},
    )


def measure(
    model: AutoUIModel,
    tokenizer: WordTokenizer,
    language: Language,
    screens: Sequence[TrainingScreen],
    rng: random.Random,
) -> dict[str, float]:
    """Greedy accuracy by kind: the share of taps inside the right widget, of phrases copied without a mistake, of ends
    that were recognised and of lists that were turned."""
    right: dict[str, list[bool]] = defaultdict(list)
    model.eval()
    for first in range(0, len(screens), 64):
        batch = screens[first : first + 64]
        examples = _ask(Asking(tokenizer, language, rng), batch, 3)
        features = model.features(_images(batch))[[example.screen for example in examples]]
        greedy = drawing(None, range(len(examples)))
        written = write(model, ActingT5(model.t5), tokenizer, features, [e.prompt for e in examples], None, greedy)
        for example, row in zip(examples, written, strict=True):
            touch = tokenizer.decode_action(row.ids).touch
            hit = example.target is not None and touch is not None and example.target.holds(touch)
            right[example.kind].append(row.ids == example.action if example.kind in OTHERS else hit)
    touches = [hit for kind, hits in right.items() if kind not in (*OTHERS, *NAMELESS) for hit in hits]
    return {"touch": float(np.mean(touches)), **{kind: float(np.mean(hits)) for kind, hits in sorted(right.items())}}


def _read(
    model: AutoUIModel, tokenizer: WordTokenizer, fresh: Iterator[TrainingScreen], recipe: Recipe, show: Show
) -> list[dict[str, float]]:
    """Stage one: the tower, against the fusion's table of words, and its middle against single letters.

    Words alone are learned as shapes: of a pair that it had never seen the tower then read one word. What tells the
    letters apart reads any pair.
    """
    spelling = nn.Conv2d(model.shape.tower[2], len(ALPHABET), 1)

    def loss(update: int) -> dict[str, Tensor]:
        batch = list(islice(fresh, recipe.reading.batch))
        strokes = model.vision.strokes(_images(batch))
        return {
            "read": _reading_loss(model, model.vision.content_of(strokes), batch, tokenizer),
            "spell": _spelling_loss(spelling(strokes), batch),
        }

    return _descend([*model.vision.parameters(), *spelling.parameters()], loss, recipe.reading, recipe, show)


def _act(
    model: AutoUIModel,
    tokenizer: WordTokenizer,
    language: Language,
    fresh: Iterator[TrainingScreen],
    recipe: Recipe,
    rng: random.Random,
    show: Show,
) -> list[dict[str, float]]:
    """Stage two: the encoder-decoder and the tokens' places, on contents that the frozen tower has seen once."""
    pool: list[TrainingScreen] = []
    seen = torch.empty(recipe.screens_to_touch, *model.shape.grid, model.shape.d_model)
    while batch := list(islice(fresh, 64)):
        with torch.no_grad():
            seen[len(pool) : len(pool) + len(batch)] = model.vision.content(_images(batch))
        pool += [replace(screen, pixels=screen.pixels[:, :0]) for screen in batch]

    typing = [n for n, screen in enumerate(pool) if screen.typing] or range(len(pool))

    def loss(update: int) -> dict[str, Tensor]:
        by_screen = update >= recipe.by_words
        typists = recipe.acting.batch // 3 if by_screen else 0
        numbers = [*rng.choices(typing, k=typists), *rng.choices(range(len(pool)), k=recipe.acting.batch - typists)]
        asking = Asking(tokenizer, language, rng, update / recipe.uncluttered)
        examples = _ask(asking, [pool[n] for n in numbers], recipe.touches_per_screen, by_screen)
        tokens = (seen[numbers] + model.vision.row + model.vision.column).flatten(1, 2)
        return _acting_losses(model, tokens, examples)

    fused = [parameter for parameter in model.fusion.parameters() if parameter.requires_grad]
    learned = [*model.t5.parameters(), *fused, model.vision.row, model.vision.column]
    return _descend(learned, loss, recipe.acting, recipe, show)


def _descend(
    parameters: list[nn.Parameter], loss: Callable[[int], dict[str, Tensor]], stage: Stage, recipe: Recipe, show: Show
) -> list[dict[str, float]]:
    """Train `parameters` on the sum of what `loss` gives; every 50th update's parts, for the recipe."""
    optimiser = torch.optim.AdamW(parameters, lr=stage.lr, weight_decay=recipe.weight_decay)
    losses: list[dict[str, float]] = []
    for update in range(stage.updates):
        for group in optimiser.param_groups:
            group["lr"] = stage.rate(update)
        parts = loss(update)
        optimiser.zero_grad()
        torch.stack(list(parts.values())).sum().backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters, recipe.grad_norm)
        optimiser.step()
        if update % 50 == 49 or update == stage.updates - 1:
            losses.append({"update": update + 1, **{name: round(part.item(), 4) for name, part in parts.items()}})
            log.info("%s", losses[-1])
        show(update + 1, stage.updates, "  ".join(f"{name} {part.item():.2f}" for name, part in parts.items()))
    return losses


def _ask(asking: Asking, batch: Sequence[TrainingScreen], touches: int, by_screen: bool = True) -> list[Example]:
    """by_screen: text is typed where a keyboard is up and nowhere else, and a sentence may announce it anywhere; what
    is not in sight is looked for."""
    asked = [
        touch_examples(asking, n, screen, touches, by_screen and not screen.typing) for n, screen in enumerate(batch)
    ]
    typing = [n for n, screen in enumerate(batch) if screen.typing] if by_screen else range(len(batch))
    copied = [
        copy_example(asking, n, batch[n] if by_screen else None) for n in typing for _ in range(2 if by_screen else 1)
    ]
    elsewhere = [elsewhere_examples(asking, n, screen, by_screen) for n, screen in enumerate(batch)]
    return [*chain(*asked), *copied, *chain(*elsewhere)]


def _acting_losses(model: AutoUIModel, tokens: Tensor, examples: Sequence[Example]) -> dict[str, Tensor]:
    """−log π of each kind of example, per action. tokens: (B, N, d), those of the batch's screens."""
    states, mask = model.encode(tokens[[example.screen for example in examples]], pad([e.prompt for e in examples]))
    actions = pad([example.action for example in examples])
    each = F.cross_entropy(
        model.logits(states, mask, actions).flatten(0, 1), actions.flatten(), ignore_index=PAD, reduction="none"
    )
    per_action = each.view(actions.shape).sum(1)
    copied = torch.tensor([example.kind == "copy" for example in examples])
    return {"touch": per_action[~copied].mean(), "copy": per_action[copied].mean()}


def _reading_loss(
    model: AutoUIModel, content: Tensor, batch: Sequence[TrainingScreen], tokenizer: WordTokenizer
) -> Tensor:
    """−log P(word | the cells of its widget), mean over every word on every widget.

    content: (B, rows, columns, d). A widget's scores are the sums over its cells of exp(content · word / √d), so
    that the cell where the word stands alone can say it. A label of two words cannot go below log 2.
    """
    ids = {word: i for i, word in enumerate(tokenizer.tokens)}  # of a word that is spelled as a coordinate, the word's
    words, cells = (torch.from_numpy(array) for array in drawn_words(batch, ids, model.shape.grid))
    screen, widget, word = words.unbind(1)
    scores = model.fusion.read(content.flatten(1, 2))
    # One product sums over the cells of all widgets. No score is far enough below the highest to vanish
    highest = scores.detach().amax((1, 2), keepdim=True)
    on_widget = (cells @ (scores - highest).exp()).clamp_min(1e-30).log()
    return (on_widget.logsumexp(2)[screen, widget] - on_widget[screen, widget, word]).mean()


def _spelling_loss(scores: Tensor, batch: Sequence[TrainingScreen]) -> Tensor:
    """Cross-entropy of "this letter stands in this cell", sum over cells and letters, for each letter that is written.

    scores: (B, 36, rows, columns), logits.
    """
    written = torch.zeros_like(scores)
    for number, screen in enumerate(batch):
        letter, x, y = torch.from_numpy(screen.letters.astype(np.int64)).unbind(1)
        written[number, letter, y // STROKE, x // STROKE] = 1
    return F.binary_cross_entropy_with_logits(scores, written, reduction="sum") / written.sum().clamp(min=1)


def _shown(progress: Progress, stage: str) -> Show:
    bar = progress.add_task("", total=None, stage=stage)
    return lambda done, total, text: progress.update(bar, completed=done, total=total, description=text)


def _images(batch: Sequence[TrainingScreen]) -> Tensor:
    return torch.from_numpy(np.stack([screen.pixels for screen in batch]))


def _notes(
    recipe: Recipe,
    tokenizer: WordTokenizer,
    forbidden: frozenset[Pair],
    losses: Sequence[Mapping[str, float]],
    accuracy: Mapping[str, float],
    seconds: float,
    parameters: int,
) -> dict[str, Any]:
    return {
        **asdict(recipe),
        "parameters": parameters,
        "forbidden_pairs": sorted(" ".join(pair) for pair in forbidden),
        "words_sha256": hashlib.sha256("\n".join(tokenizer.words).encode()).hexdigest(),
        "seconds": round(seconds, 1),
        "losses": list(losses),
        "accuracy_on_fresh_material": {kind: round(value, 4) for kind, value in accuracy.items()},
    }
