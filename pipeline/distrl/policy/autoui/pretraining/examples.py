"""What the base model is pre-trained on: touch the widget that is meant, copy what a marker announces, know the end
(and, in elsewhere.py, look for what is not in sight).

A widget is named after a verb ("tap wifi sync"), or a sentence just mentions it among other words, none of which
names another widget of that screen, but for a tab that is chosen already: whoever reads a goal on a screen looks for
what of it is there. A widget that newer apps call otherwise than people do may be asked for as people call it. Where
the last action touched it already, nothing is left to do. What a marker announces is typed only where a keyboard is
up: the screen decides what of a sentence is to be done now, and not the sentence alone.

None is a task of a suite: no goal is reached, no screen follows another. Pure: every draw comes from the `rng` that
is passed. Pairs of words that the evaluation holds out never stand next to each other in what is asked or written.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from distrl.policy.autoui.tokenizer import SINGLES, WordTokenizer
from distrl.types import Action, ActionKind, Point

Pair = tuple[str, str]
Phrase = tuple[str, ...]

LENGTHS: Final = (2, 6, 3, 1)
"""How often a text of one word, two, three and four is to be typed."""


@dataclass(frozen=True, slots=True)
class Target:
    """A widget on a screen. words: its label; drawn: the words that stand there, mostly the label.

    box: left, top, right, bottom as fractions of the screen. chosen: it is the tab whose content is shown.
    """

    kind: str
    words: tuple[str, ...]
    drawn: tuple[str, ...]
    box: tuple[float, float, float, float]
    chosen: bool = False

    def holds(self, point: Point) -> bool:
        left, top, right, bottom = self.box
        return left <= point.x < right and top <= point.y < bottom

    @property
    def centre(self) -> Point:
        left, top, right, bottom = self.box
        return Point((left + right) / 2, (top + bottom) / 2)


@dataclass(frozen=True, slots=True)
class TrainingScreen:
    """pixels: uint8 (3, H, W). targets: every named widget that a finger can reach. typing: a keyboard is up. scrolls:
    a list has more rows than are in sight.

    letters: int16 (M, 3), each character that is written: its number in the alphabet, x and y in pixels.
    """

    pixels: npt.NDArray[np.uint8]
    targets: tuple[Target, ...]
    typing: bool = False
    letters: npt.NDArray[np.int16] = field(default_factory=lambda: np.zeros((0, 3), np.int16))
    scrolls: bool = False


@dataclass(frozen=True, slots=True)
class Example:
    """Read `prompt` over screen number `screen` of the batch and write `action`.

    kind: that of the widget to be touched; "newer" where it was called by its older name, "use" for an app that was
    asked for by what it does, "done" where it was touched already and `action` says so. Without a widget "copy", or
    "scroll" and "page", where `action` looks elsewhere for what is not in sight. target: the widget that is meant.
    """

    screen: int
    prompt: tuple[int, ...]
    action: tuple[int, ...]
    kind: str
    target: Target | None = None


@dataclass(frozen=True, slots=True)
class Language:
    """The words that sentences are made of. verbs: they ask for a touch; markers: they announce what is to be typed.

    copied: what is typed. fillers: what may stand around. forbidden: pairs that never stand side by side.
    known_as: of a label, how people call the same. uses: of an app's name, phrases that ask for what it does.
    """

    verbs: tuple[str, ...]
    markers: tuple[str, ...]
    copied: tuple[str, ...]
    fillers: tuple[str, ...]
    forbidden: frozenset[Pair]
    known_as: Mapping[Phrase, Phrase] = field(default_factory=dict)
    uses: Mapping[Phrase, tuple[Phrase, ...]] = field(default_factory=dict)

    def allowed(self, words: Sequence[str]) -> bool:
        return not any(pair in self.forbidden for pair in itertools.pairwise(words))


@dataclass(frozen=True, slots=True)
class Asking:
    """What all makers of examples need: how sentences are encoded, their words, and where draws come from.

    clutter: how often other words and earlier actions may stand around, in [0, 1].
    """

    tokenizer: WordTokenizer
    language: Language
    rng: random.Random
    clutter: float = 1.0

    def example(
        self,
        screen: int,
        words: Sequence[str],
        before: Sequence[Action],
        action: Action,
        kind: str,
        target: Target | None = None,
    ) -> Example:
        """`words` after the actions `before`, to be answered with `action`."""
        prompt = self.tokenizer.encode_prompt(" ".join(words), before)
        return Example(screen, prompt, self.tokenizer.encode_action(action), kind, target)


def askable(screen: TrainingScreen, language: Language) -> list[Target]:
    """The targets that can be asked for: their label occurs once on the screen and holds no forbidden pair."""
    labels = [target.words for target in screen.targets]
    return [t for t in screen.targets if t.words and labels.count(t.words) == 1 and language.allowed(t.words)]


def touch_examples(
    asking: Asking, number: int, screen: TrainingScreen, count: int, announced: bool = False
) -> list[Example]:
    """Up to `count` different widgets of screen `number`, to be tapped in the middle; about half are only mentioned.

    announced: half of the sentences announce a text as well.
    """
    targets = askable(screen, asking.language)
    asking.rng.shuffle(targets)
    return [_touch(asking, number, target, screen, announced) for target in targets[:count]]


def copy_example(asking: Asking, number: int, screen: TrainingScreen | None = None) -> Example:
    """A sentence with a marker in it: what follows the marker, one word to four, is to be typed.

    screen: one of its widgets is mentioned as well, half of the time. Where a keyboard is up, the text comes first.
    """
    language, rng = asking.language, asking.rng
    typed = _announced(language, rng)
    action = Action(ActionKind.TYPE, text=" ".join(typed[1:]))
    if rng.random() >= asking.clutter:
        return asking.example(number, typed, [], action, "copy")
    words = among(typed, language.fillers if rng.random() < 0.5 else (), (), language, rng)
    targets = askable(screen, language) if screen is not None else []
    if targets and rng.random() < 0.5:
        target = rng.choice(targets)
        words = draw_allowed(
            lambda: (
                [*target.words, *words] if rng.random() < 0.7 else [*words, rng.choice(language.verbs), *target.words]
            ),
            (),
            language,
        )
    return asking.example(number, words, previous(language, rng), action, "copy")


def _touch(asking: Asking, number: int, target: Target, screen: TrainingScreen, announced: bool) -> Example:
    language, rng = asking.language, asking.rng
    others = [each for each in screen.targets if each is not target]
    chosen = [other.words for other in others if other.chosen]
    labels = [other.words for other in others if not other.chosen]
    name = _called(target, labels, language, rng)
    named = rng.random() < 0.5 or any(mentions(name, label) for label in labels)
    words, before = [*([rng.choice(language.verbs)] if named else []), *name], list[Action]()
    if rng.random() < asking.clutter:
        if announced and rng.random() < 0.5:
            words = draw_allowed(lambda: joined(words, _announced(language, rng), rng), labels, language)
        if chosen and rng.random() < 0.5:
            words = draw_allowed(lambda: joined(words, list(rng.choice(chosen)), rng), (), language)
        around = () if named and rng.random() < 0.5 else (*language.fillers, *(() if named else language.copied))
        words = among(words, around, () if named else labels, language, rng)
        before = _earlier(target, others, language, rng)
    last = before[-1] if before else None
    if last is not None and last.kind is ActionKind.TAP and last.touch is not None and target.holds(last.touch):
        return asking.example(number, words, before, Action(ActionKind.COMPLETE), "done", target)
    kind = target.kind if name == target.words else "newer"
    return asking.example(number, words, before, Action(ActionKind.TAP, touch=target.centre), kind, target)


def _called(target: Target, labels: Sequence[Phrase], language: Language, rng: random.Random) -> Phrase:
    """Its label, or half of the time what people call it, where that names no other widget."""
    known_as = language.known_as.get(target.words)
    if known_as is None or rng.random() < 0.5 or any(mentions(known_as, label) for label in labels):
        return target.words
    return known_as


def _earlier(target: Target, others: Sequence[Target], language: Language, rng: random.Random) -> list[Action]:
    """Earlier actions, of which the last has touched the widget itself or another one of the screen now and then."""
    before, roll = previous(language, rng), rng.random()
    touched = target if roll < 0.3 else rng.choice(others) if roll < 0.5 and others else None
    return before if touched is None else [*before[:1], Action(ActionKind.TAP, touch=touched.centre)]


def _announced(language: Language, rng: random.Random) -> list[str]:
    """A marker and what is to be typed, which words that are never typed end."""
    count = rng.choices(range(1, len(LENGTHS) + 1), LENGTHS)[0]
    while not language.allowed(words := [rng.choice(language.markers), *rng.sample(language.copied, count)]):
        pass
    return words


def joined(one: list[str], other: list[str], rng: random.Random) -> list[str]:
    return [*one, *other] if rng.random() < 0.5 else [*other, *one]


def among(
    words: list[str], around: Sequence[str], labels: Sequence[Sequence[str]], language: Language, rng: random.Random
) -> list[str]:
    """`words` with up to three of `around` on either side, if there are any."""
    if not around:
        return words
    return draw_allowed(
        lambda: [*rng.choices(around, k=rng.randrange(4)), *words, *rng.choices(around, k=rng.randrange(4))],
        labels,
        language,
    )


def draw_allowed(draw: Callable[[], list[str]], labels: Sequence[Sequence[str]], language: Language) -> list[str]:
    """Draw until no forbidden pair arises and no other widget is named; the last draw where that seems impossible."""
    for _ in range(100):
        words = draw()
        if language.allowed(words) and not any(mentions(words, label) for label in labels):
            break
    return words


def mentions(words: Sequence[str], label: Sequence[str]) -> bool:
    return bool(label) and any(
        tuple(words[i : i + len(label)]) == tuple(label) for i in range(len(words) - len(label) + 1)
    )


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
    screens: Sequence[TrainingScreen], ids: Mapping[str, int], grid: tuple[int, int]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
    """Every word that stands on a widget, R in all, as (screen, its widget, id): (R, 3). And the cells of each widget,
    1 or 0: (B, W, N), where W are the most widgets of a screen.

    grid: rows and columns of image tokens, N = rows x columns in reading order. ids: those words that count.
    """
    rows, columns = grid
    words: list[tuple[int, int, int]] = []
    cells = np.zeros((len(screens), max(len(screen.targets) for screen in screens), rows, columns), np.float32)
    for number, screen in enumerate(screens):
        for widget, target in enumerate(screen.targets):
            left, top, right, bottom = target.box
            spanned = slice(int(left * columns), math.ceil(right * columns))
            cells[number, widget, int(top * rows) : math.ceil(bottom * rows), spanned] = 1
            words += [(number, widget, ids[word]) for word in target.drawn if word in ids]
    return np.array(words, dtype=np.int64).reshape(-1, 3), cells.reshape(*cells.shape[:2], -1)
