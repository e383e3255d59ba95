"""Prompts that hold all that was done before, so that a memory can be made again from a recorded step.

    prompt = word* "</s>" (action "</s>")*        the instruction, then each earlier action, oldest first

The words and the actions are a tiny AutoUI's (policy/autoui/tokenizer.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple

from distrl.errors import PolicyError
from distrl.policy.autoui.tokenizer import END, PAD, PREVIOUS_ACTIONS, SPECIALS, WordTokenizer
from distrl.policy.recurrent_q.actions import ActionGrid, Ids
from distrl.types import Action, ScreenSize, Step

NONE, INVALID, PREVIOUS = (SPECIALS.index(token) for token in ("<none>", "<invalid>", "<prev>"))


class Read(NamedTuple):
    """A prompt's parts. actions: the earlier ones, oldest first, each with its end."""

    goal: Ids
    actions: tuple[Ids, ...]


class GridTokenizer:
    """Text and actions to token ids and back, for one vocabulary. Immutable."""

    def __init__(self, words: WordTokenizer) -> None:
        self.words = words
        self.grid = ActionGrid(words)

    def encode_prompt(self, instruction: str, earlier: Sequence[Action], screen: ScreenSize) -> Ids:
        goal = takewhile(lambda token: token != PREVIOUS, self.words.encode_prompt(instruction, (), screen))
        return (*goal, END, *(token for action in earlier for token in self._mention(action, screen)))

    def encode_action(self, action: Action, screen: ScreenSize) -> Ids:
        """As AutoUI would write it. Text has a form here even where no instruction has it: `accepts` knows that."""
        return self.words.encode_action(action, screen)

    def decode_action(self, ids: Sequence[int], screen: ScreenSize) -> Action:
        return self.words.decode_action(ids, screen)

    def text(self, ids: Sequence[int]) -> str:
        return self.words.text(ids)

    def accepts(self, step: Step, index: int = 0) -> bool:
        """Its prompt has `index` earlier actions, and its action is one that the instruction offers."""
        if not all(PAD < token < len(self.words.tokens) for token in step.prompt_ids):
            return False
        read = parts(step.prompt_ids)
        return (
            read is not None
            and len(read.actions) == index
            and len(read.goal) <= self.words.prompt_length
            and all(len(action) <= self.words.action_length for action in read.actions)
            and self.grid.number(read.goal, step.action_ids) is not None
        )

    def unknown_words(self, texts: Iterable[str]) -> tuple[str, ...]:
        return self.words.unknown_words(texts)

    def read_at(self, read: Read, step: int) -> Ids:
        """The prompt that AutoUI itself would read before action number `step`: the goal and the last two actions."""
        before = [(NONE,)] * PREVIOUS_ACTIONS + [action[:-1] for action in read.actions[:step]]
        tail = [token for action in before[-PREVIOUS_ACTIONS:] for token in (PREVIOUS, *action)]
        return (*read.goal[: self.words.prompt_length - len(tail) - 1], *tail, END)

    def _mention(self, action: Action, screen: ScreenSize) -> Ids:
        try:
            return self.words.encode_action(action, screen)
        except PolicyError:
            return INVALID, END


def parts(prompt: Sequence[int]) -> Read | None:
    """None where it is no prompt of this kind."""
    if not prompt or prompt[-1] != END:
        return None
    after = [place + 1 for place, token in enumerate(prompt) if token == END]
    goal, *actions = (tuple(prompt[begin:end]) for begin, end in pairwise([0, *after]))
    return Read(goal[:-1], tuple(actions))
