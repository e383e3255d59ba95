"""What a recorded episode is, whichever data set it is from."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from distrl.types import Action

MOST_STEPS: Final = 200
"""Of an episode. The longest published ones have about a hundred; a file may claim any number."""
MOST_CHARACTERS: Final = 2_000
"""Of a goal and of a typed text."""

EPISODES: Final = "episodes"
RECORDS: Final = "records"
RESTS: Final = "rests of files"
"""What is skipped, in counts. A record may be a step or an episode, the rest of a file any number of them."""

EPISODE_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
"""Of every data set; AndroidControl's are numbers."""

Box = tuple[float, float, float, float]
"""An annotated element as (y, x, height, width), shares of the screen."""


class Dataset(StrEnum):
    ANDROID_CONTROL = "android-control"
    AITW = "aitw"


@dataclass(frozen=True, slots=True)
class RecordedStep:
    """One action of a person, and the screen that it was done on."""

    png: bytes
    type: str
    """The action's type as the data set calls it; of AitW's DUAL_POINT, `tap` or `swipe`."""
    action: Action | None
    """None where the action space has no counterpart (docs/episodes.md)."""
    boxes: tuple[Box, ...] = ()
    """The annotated elements of the screen; AndroidControl's are not read."""


@dataclass(frozen=True, slots=True)
class RecordedEpisode:
    dataset: Dataset
    episode_id: str
    """As EPISODE_ID."""
    goal: str
    """Printable, on one line."""
    steps: tuple[RecordedStep, ...]
    """One or more."""
    final: bytes | None
    """The screen after the last action, where the data set has it (PNG)."""
    where: str
    """File and record, for people."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A part of a folder that is skipped, as it is no readable episode, and why; for people."""

    where: str
    why: str
    what: str = EPISODES

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


def plain_goal(text: str) -> str:
    """`text` on one line. Raises ValueError where it is empty, too long or unprintable."""
    goal = " ".join(text.split())
    if not 1 <= len(goal) <= MOST_CHARACTERS:
        raise ValueError(f"its goal has {len(goal)} characters, not 1 to {MOST_CHARACTERS}")
    if not goal.isprintable():
        raise ValueError("its goal holds control or invisible characters")
    return goal


def typed_text(text: object) -> str:
    """Raises ValueError for what is no text, or too long."""
    if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
        raise ValueError(f"what it types is no text of at most {MOST_CHARACTERS} characters")
    text.encode()  # half a surrogate pair, which JSON can spell, is no text
    return text
