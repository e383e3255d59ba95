"""What the base model is pre-trained on: touch the named widget, and copy the words after a marker.

Neither is a task of a suite: no goal is reached, no screen follows another. Pure: every draw comes from the `rng` that
is passed. Pairs of words that the evaluation holds out never stand next to each other in what is asked or written.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from distrl.policy.vocabulary import SINGLES, Codec
from distrl.types import Action, ActionKind, Point

Pair = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Target:
    """A widget on a screen. words: its label; drawn: the words that stand there, mostly the label.

    box: left, top, right, bottom as fractions of the screen.
    """

    kind: str
    words: tuple[str, ...]
    drawn: tuple[str, ...]
    box: tuple[float, float, float, float]

    def holds(self, point: Point) -> bool:
        left, top, right, bottom = self.box
        return left <= point.x < right and top <= point.y < bottom

    @property
    def centre(self) -> Point:
        left, top, right, bottom = self.box
        return Point((left + right) / 2, (top + bottom) / 2)


@dataclass(frozen=True, slots=True)
class Screen:
    """pixels: uint8 (3, H, W). targets: every named widget that a finger can reach."""

    pixels: npt.NDArray[np.uint8]
    targets: tuple[Target, ...]


@dataclass(frozen=True, slots=True)
class Example:
    """Read `prompt` over screen number `screen` of the batch and write `action`; `target` is None for a copy."""

    screen: int
    prompt: tuple[int, ...]
    action: tuple[int, ...]
    target: Target | None = None

    @property
    def kind(self) -> str:
        return "copy" if self.target is None else self.target.kind


@dataclass(frozen=True, slots=True)
class Language:
    """The words that sentences are made of. verbs: they ask for a touch; markers: they announce what is to be typed.

    copied: what is typed. fillers: what may stand around. forbidden: pairs that never stand side by side.
    """

    verbs: tuple[str, ...]
    markers: tuple[str, ...]
    copied: tuple[str, ...]
    fillers: tuple[str, ...]
    forbidden: frozenset[Pair]

    def allowed(self, words: Sequence[str]) -> bool:
        return not any(pair in self.forbidden for pair in itertools.pairwise(words))


def askable(screen: Screen, language: Language) -> list[Target]:
    """The targets that can be asked for: their label occurs once on the screen and holds no forbidden pair."""
    labels = [target.words for target in screen.targets]
    return [t for t in screen.targets if t.words and labels.count(t.words) == 1 and language.allowed(t.words)]


def touch_examples(
    number: int, screen: Screen, count: int, codec: Codec, language: Language, rng: random.Random, clutter: float = 1.0
) -> list[Example]:
    """Up to `count` different widgets of one screen: "touch <label>", to be tapped in the middle.

    clutter: how often other words and earlier actions may stand around, in [0, 1].
    """
    targets = askable(screen, language)
    rng.shuffle(targets)
    return [
        Example(
            number,
            _prompt(rng.choice(language.verbs), target.words, codec, language, rng, clutter),
            codec.encode_action(Action(ActionKind.TAP, touch=target.centre)),
            target,
        )
        for target in targets[:count]
    ]


def copy_example(number: int, codec: Codec, language: Language, rng: random.Random, clutter: float = 1.0) -> Example:
    """A sentence with a marker in it: what follows the marker, two words, is to be typed."""
    while not language.allowed(typed := rng.sample(language.copied, 2)):
        pass
    return Example(
        number,
        _prompt(rng.choice(language.markers), typed, codec, language, rng, clutter),
        codec.encode_action(Action(ActionKind.TYPE, text=" ".join(typed))),
    )


def _prompt(
    cue: str, about: Sequence[str], codec: Codec, language: Language, rng: random.Random, clutter: float
) -> tuple[int, ...]:
    if rng.random() >= clutter:
        return codec.encode_prompt(" ".join([cue, *about]), [])
    return codec.encode_prompt(_sentence(cue, about, language, rng), previous(language, rng))


def _sentence(cue: str, about: Sequence[str], language: Language, rng: random.Random) -> str:
    """`about` after its cue, half of the time among other words; no forbidden pair arises."""
    words = [cue, *about]
    if rng.random() < 0.5:
        while True:
            before = rng.choices(language.fillers, k=rng.randrange(4))
            after = rng.choices(language.fillers, k=rng.randrange(4))
            if language.allowed([*before, *words, *after]):
                return " ".join([*before, *words, *after])
    return " ".join(words)


def previous(language: Language, rng: random.Random) -> list[Action]:
    """Random earlier actions, so that the base model learns to look past them."""
    return [_random_action(language, rng) for _ in range(rng.choice((0, 1, 2, 2, 2)))]


def _random_action(language: Language, rng: random.Random) -> Action:
    makers: Sequence[Callable[[], Action]] = (
        lambda: Action(ActionKind.TAP, touch=Point(rng.random(), rng.random())),
        lambda: Action(ActionKind.TAP, touch=Point(rng.random(), rng.random())),
        lambda: rng.choice(list(SINGLES.values())),
        lambda: Action(ActionKind.TYPE, text=" ".join(_allowed_words(language, rng))),
    )
    return rng.choice(makers)()


def _allowed_words(language: Language, rng: random.Random) -> list[str]:
    words = rng.choices(language.copied, k=2)
    return words if language.allowed(words) else words[:1]


def drawn_words(
    screens: Sequence[Screen], ids: Mapping[str, int], grid: tuple[int, int]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.bool_]]:
    """Every word that stands on a widget, R in all: its (screen, id) as (R, 2), and its widget's cells (R, N).

    grid: rows and columns of image tokens, N = rows x columns in reading order. ids: those words that count.
    """
    rows, columns = grid
    words, cells = [], []
    for number, screen in enumerate(screens):
        for target in screen.targets:
            left, top, right, bottom = target.box
            box = np.zeros((rows, columns), dtype=bool)
            box[int(top * rows) : math.ceil(bottom * rows), int(left * columns) : math.ceil(right * columns)] = True
            known = [ids[word] for word in target.drawn if word in ids]
            words += [(number, word) for word in known]
            cells += [box.reshape(-1)] * len(known)
    return np.array(words, dtype=np.int64).reshape(-1, 2), np.array(cells, dtype=bool).reshape(-1, rows * columns)
