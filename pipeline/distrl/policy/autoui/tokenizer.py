"""Tokens: what the policy reads and writes, and the strict grammar of an action.

    action  = "<tap>" column row "</s>" | "<type>" word+ "</s>" | single "</s>"
    single  = "<swipe_up>" | "<swipe_down>" | "<swipe_left>" | "<swipe_right>"
            | "<back>" | "<home>" | "<enter>" | "<complete>"
    column  = "x0" .. "x7"      row = "y0" .. "y15"      (a tap lands in the middle of its cell)
    prompt  = word* ("<prev>" (action without "</s>" | "<none>")){2} "</s>"

The vocabulary is SPECIALS, then the columns, then the rows, then plain words; it is part of the base model. Only plain
words are ever looked up for text, so an instruction that says "<tap>" or "x3" cannot smuggle in a token of the grammar.
A plain word may be spelled like a column or a row: it has an id of its own.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from distrl.errors import PolicyError
from distrl.policy.protocol import Tokenizer
from distrl.text import plain_words
from distrl.types import Action, ActionKind, Point, ScreenSize, Step

PAD, END, UNKNOWN = 0, 1, 2
SINGLES: Final = {
    "<swipe_up>": Action(ActionKind.SWIPE, touch=Point(0.5, 0.8), lift=Point(0.5, 0.2)),
    "<swipe_down>": Action(ActionKind.SWIPE, touch=Point(0.5, 0.2), lift=Point(0.5, 0.8)),
    "<swipe_left>": Action(ActionKind.SWIPE, touch=Point(0.8, 0.5), lift=Point(0.2, 0.5)),
    "<swipe_right>": Action(ActionKind.SWIPE, touch=Point(0.2, 0.5), lift=Point(0.8, 0.5)),
    "<back>": Action(ActionKind.BACK),
    "<home>": Action(ActionKind.HOME),
    "<enter>": Action(ActionKind.ENTER),
    "<complete>": Action(ActionKind.COMPLETE),
}
"""Actions of one token. The four swipes are the canonical ones that AutoUI reduces every scroll to."""

SPECIALS: Final = ("<pad>", "</s>", "<unk>", "<none>", "<invalid>", "<prev>", "<tap>", "<type>", *SINGLES)
PREVIOUS_ACTIONS: Final = 2
"""How many of the last actions the prompt repeats."""


class AutoUITokenizer(Tokenizer, Protocol):
    """Of any model of the family: PAD fills up rows, END ends an action."""

    @property
    def action_length(self) -> int:
        """The most ids of an action, its end included."""
        ...


class WordTokenizer:
    """Text and actions to token ids and back, for one vocabulary. Immutable.

    Cells are shares of the screen: its size in pixels, `screen`, plays no part.

    words: the plain words, in the order of their ids. columns, rows: cells that a tap can land in.
    prompt_length, action_length: the most tokens of a prompt and of an action, each with its end token.
    """

    def __init__(
        self, words: Sequence[str], *, columns: int = 8, rows: int = 16, prompt_length: int = 32, action_length: int = 6
    ) -> None:
        coordinates = [f"x{i}" for i in range(columns)] + [f"y{i}" for i in range(rows)]
        tokens = (*SPECIALS, *coordinates, *words)
        if len({*SPECIALS, *words}) != len(SPECIALS) + len(words) or any(plain_words(word) != [word] for word in words):
            raise PolicyError(
                "vocabulary",
                f"a word occurs twice, is one of {', '.join(SPECIALS)}, or is not one lower-case word",
                "name each plain word once",
            )
        if action_length < 4 or prompt_length < PREVIOUS_ACTIONS * (action_length + 1) + 2:
            raise PolicyError(
                "vocabulary", "the prompt or the action is too short", "give an action 4 tokens or more, a prompt 24"
            )
        self.tokens = tokens
        self.columns, self.rows = columns, rows
        self.prompt_length, self.action_length = prompt_length, action_length
        self._first_word = len(tokens) - len(words)
        self.grammar = {token: i for i, token in enumerate(tokens[: self._first_word])}
        """The ids of the tokens that are no words."""
        self._words = {word: self._first_word + i for i, word in enumerate(words)}

    @property
    def words(self) -> tuple[str, ...]:
        return self.tokens[self._first_word :]

    def encode_prompt(
        self, instruction: str, previous: Sequence[Action], screen: ScreenSize | None = None
    ) -> tuple[int, ...]:
        """What the policy reads beside the screen: the instruction and the last two of `previous` (oldest first).

        Unknown words read <unk>; an instruction that is too long loses its last words. At most `prompt_length` ids.
        Raises PolicyError for a tap with a coordinate that is no number.
        """
        recent = [None] * PREVIOUS_ACTIONS + list(previous)
        tail = [i for action in recent[-PREVIOUS_ACTIONS:] for i in (self.grammar["<prev>"], *self._mention(action))]
        goal = [self._words.get(word, UNKNOWN) for word in plain_words(instruction)]
        return (*goal[: self.prompt_length - len(tail) - 1], *tail, END)

    def encode_action(self, action: Action, screen: ScreenSize | None = None) -> tuple[int, ...]:
        """The ids of `action`, ending with </s>. A point is rounded to its cell, a swipe to its main direction.

        Raises PolicyError for what the grammar cannot say: an unknown or too long text, an INVALID action.
        """
        ids = self._body(action)
        if ids is None or UNKNOWN in ids or len(ids) >= self.action_length:
            raise PolicyError(
                "policy.base_model",
                f"{action} cannot be written with this base model's words",
                "use words of the base model, or pre-train one with more words (`distrl base-model train`)",
            )
        return (*ids, END)

    def decode_action(self, ids: Sequence[int], screen: ScreenSize | None = None) -> Action:
        """The action that `ids` spell, or an INVALID one that carries their text. The grammar is strict."""
        texts = self._texts(ids)
        match texts:
            case [single, "</s>"] if single in SINGLES:
                return SINGLES[single]
            case ["<tap>", x, y, "</s>"] if self._is_column(ids[1]) and self._is_row(ids[2]):
                return Action(
                    ActionKind.TAP,
                    touch=Point((int(x[1:]) + 0.5) / self.columns, (int(y[1:]) + 0.5) / self.rows),
                )
            case ["<type>", *typed, "</s>"] if typed and all(i >= self._first_word for i in ids[1:-1]):
                return Action(ActionKind.TYPE, text=" ".join(typed))
            case _:
                return Action(ActionKind.INVALID, text=" ".join(texts).removesuffix(" </s>"))

    def text(self, ids: Sequence[int]) -> str:
        return " ".join(self._texts(ids))

    def accepts(self, step: Step, index: int = 0) -> bool:
        """Its ids are those of this vocabulary, and no more of them than a prompt or an action can have."""
        fits = 0 < len(step.prompt_ids) <= self.prompt_length and 0 < len(step.action_ids) <= self.action_length
        return fits and all(PAD < token < len(self.tokens) for token in (*step.prompt_ids, *step.action_ids))

    def unknown_words(self, texts: Iterable[str]) -> tuple[str, ...]:
        """The words of `texts` that are read as <unk> and cannot be typed, each once, in order, numbers last."""
        unknown = {word for text in texts for word in plain_words(text) if word not in self._words}
        return tuple(sorted(unknown, key=lambda word: (not word.isalpha(), word)))

    def _texts(self, ids: Sequence[int]) -> list[str]:
        return [self.tokens[i] if 0 <= i < len(self.tokens) else "<unk>" for i in ids]

    def _body(self, action: Action) -> list[int] | None:
        """The ids of `action` without </s>, unknown words as <unk>; None where the grammar has no form."""
        match action:
            case Action(kind=ActionKind.TAP, touch=Point() as touch):
                return [self.grammar["<tap>"], *self._cell(touch)]
            case Action(kind=ActionKind.SWIPE, touch=Point() as touch, lift=Point() as lift):
                return [self.grammar[_direction(touch, lift)]]
            case Action(kind=ActionKind.TYPE) if typed := plain_words(action.text):
                return [self.grammar["<type>"], *(self._words.get(word, UNKNOWN) for word in typed)]
            case Action(kind=ActionKind.BACK | ActionKind.HOME | ActionKind.ENTER | ActionKind.COMPLETE):
                return [self.grammar[f"<{action.kind.value}>"]]
        return None

    def _mention(self, action: Action | None) -> list[int]:
        if action is None:
            return [self.grammar["<none>"]]
        body = self._body(action)
        return [self.grammar["<invalid>"]] if body is None else body[: self.action_length]

    def _cell(self, point: Point) -> tuple[int, int]:
        """Raises PolicyError for a point that is none, which a record can hold."""
        if not (math.isfinite(point.x) and math.isfinite(point.y)):
            raise PolicyError("an action", f"has the point ({point.x}, {point.y})", "use coordinates from 0 to 1")
        column = min(max(int(point.x * self.columns), 0), self.columns - 1)
        row = min(max(int(point.y * self.rows), 0), self.rows - 1)
        return self.grammar[f"x{column}"], self.grammar[f"y{row}"]

    def _is_column(self, token: int) -> bool:
        return len(SPECIALS) <= token < len(SPECIALS) + self.columns

    def _is_row(self, token: int) -> bool:
        return len(SPECIALS) + self.columns <= token < self._first_word


def _direction(touch: Point, lift: Point) -> str:
    across, down = lift.x - touch.x, lift.y - touch.y
    if abs(across) > abs(down):
        return "<swipe_right>" if across > 0 else "<swipe_left>"
    return "<swipe_down>" if down > 0 else "<swipe_up>"
