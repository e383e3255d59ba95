"""The whole state of a phone as a frozen value, its JSON, and the transitions common to all apps."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

Value = str | int | bool | tuple[str, ...]
AppData = Mapping[str, Value]

HOME = "launcher/home"
ADVERT = "advert/page"
LOADS = (0, 0, 0, 1, 1, 2)
"""Possible durations of loading, in events, equally likely."""


@dataclass(frozen=True, slots=True)
class State:
    """seed and clock (events so far) determine all randomness. screen is "app/name"; back: the screens before it.

    generation: of the UI (generations.py). dialog: in front: a pop-up by its name, a dialog of an app as "app/name"
    (overlays.py), or "". focused: a text field has the focus and the soft keyboard is up. typed: its text.
    data: each app's state. toast: a message at the bottom, until the next event. loading: events until the screen
    appears; until then a loading screen is shown.
    """

    seed: int
    popup_probability: float
    generation: int = 0
    clock: int = 0
    screen: str = HOME
    back: tuple[str, ...] = ()
    dialog: str = ""
    focused: bool = False
    typed: str = ""
    data: Mapping[str, AppData] = field(default_factory=dict)
    toast: str = ""
    loading: int = 0

    @property
    def app(self) -> str:
        return self.screen.partition("/")[0]

    def of(self, app: str) -> AppData:
        return self.data[app]

    def remember(self, app: str, **values: Value) -> State:
        """The state with these values in the data of `app`."""
        return replace(self, data={**self.data, app: {**self.data[app], **values}})

    def goto(self, screen: str) -> State:
        return replace(self, screen=screen, back=(*self.back, self.screen), focused=False)

    def focus(self, text: str = "") -> State:
        """The state with the text field focused, holding `text`."""
        return replace(self, focused=True, typed=text)

    def ask(self, question: str) -> State:
        """The state with a question of an app in front, by "app/name"."""
        return replace(self, dialog=question)

    def say(self, text: str) -> State:
        """The state with a toast."""
        return replace(self, toast=text)

    def load(self) -> State:
        """The state whose screen may take an event or two to load; the randomness depends only on seed and clock."""
        return replace(self, loading=chance(self.seed, "load", self.clock).choice(LOADS))

    def home(self) -> State:
        return replace(self, screen=HOME, back=(), dialog="", focused=False, typed="", loading=0)

    def leave(self) -> State:
        """The effect of BACK: close the dialog in front, else go to the previous screen."""
        if self.dialog:
            return replace(self, dialog="")
        if self.focused:
            return replace(self, focused=False)
        if not self.back:
            return self.home()
        return replace(self, screen=self.back[-1], back=self.back[:-1], typed="", loading=0)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, tree: Mapping[str, Any]) -> State:
        data = {app: {name: _value(value) for name, value in values.items()} for app, values in tree["data"].items()}
        return cls(**{**tree, "back": tuple(tree["back"]), "data": data})


def chance(*of: object) -> random.Random:
    """A generator that depends only on `of`, in every process."""
    return random.Random(hashlib.sha256("\n".join(map(str, of)).encode()).digest())


def words_of(value: Value) -> tuple[str, ...]:
    """A list of strings in an app's data. Raises TypeError for anything else, which is a bug of the app."""
    if not isinstance(value, tuple):
        raise TypeError(f"{value!r} is no list of strings")
    return value


def _value(value: Any) -> Value:
    return tuple(value) if isinstance(value, list) else value
