"""What a dialect is: one way to write an action as text, and to read it."""

from __future__ import annotations

from typing import Final, Protocol

from distrl.types import Action, ScreenSize

INTRODUCTION: Final = (
    "You operate an Android phone by its touch screen. You get an instruction, the actions so far and a screenshot, "
    "and you choose the next action. Write one action and nothing after it."
)
"""How the instructions of every dialect begin."""


class Dialect(Protocol):
    """One text form of actions. Pure and immutable.

    size: of the image as the model sees it, after any resizing, at least 1x1. Dialects with relative coordinates ignore
    it. Text is that of the model's answer without the tokenizer's end and padding tokens.
    """

    def instructions(self, size: ScreenSize) -> str:
        """The system prompt: which actions there are, and how they are written."""
        ...

    def write(self, action: Action, size: ScreenSize) -> str:
        """The text of `action`, with its points at the nearest numbers of the dialect.

        `parse` gives that action again, its text to the letter. Raises PolicyError for what has no such text: an
        INVALID action, a point off the screen, text that no encoder takes.
        """
        ...

    def parse(self, text: str, size: ScreenSize) -> Action:
        """The one action that `text` says. Anything else (none, two, half of one, a place off the screen) is an INVALID
        action that carries `text`. Never raises: a model may write anything."""
        ...
