"""The phone as a reducer: `state' = reduce(state, event)`, drawn by a pure function. No clock, no device, no server."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

from PIL import Image

from simphone import overlays, popups
from simphone.apps import REGISTRY, app_named, has
from simphone.apps.app import ignore
from simphone.apps.store import installed
from simphone.canvas import draw as draw_elements
from simphone.cursor import cursor
from simphone.element import HEIGHT, LIGHT, WIDTH, Colour, Element, Elements
from simphone.generations import redrawn
from simphone.state import ADVERT, HOME, State, chance

PACKAGE: Final = "com.sim."
"""Prefix of package names."""
LAUNCHER: Final = HOME.partition("/")[0]
SWIPE_PX: Final = 16
"""A shorter movement is a tap."""
FIELD_CHARACTERS: Final = 200
"""Longest text of a field: typed text is untrusted, and a state is sent and drawn whole."""
TICKING: Final = tuple(app for app in REGISTRY.values() if app.tick is not ignore)
DRAWN: Final = 1_024
"""Cached PNG screens of all phones of the process, about 5 kB each with its elements: phones show the same few screens
repeatedly. A larger cache is hit hardly more often, by 64 phones in 78 of 100 cases."""


@dataclass(frozen=True, slots=True)
class Tap:
    """A finger at (x, y) px."""

    x: int
    y: int


@dataclass(frozen=True, slots=True)
class Swipe:
    """A finger from (x0, y0) to (x1, y1), px."""

    x0: int
    y0: int
    x1: int
    y1: int


@dataclass(frozen=True, slots=True)
class Text:
    """Text typed into the focused field."""

    text: str


@dataclass(frozen=True, slots=True)
class Key:
    """A key by its Android name without KEYCODE_: BACK, HOME, ENTER, DEL; others do nothing."""

    name: str


@dataclass(frozen=True, slots=True)
class Open:
    """The system opens an app, as its icon would; no effect if the phone does not have it."""

    app: str


Event = Tap | Swipe | Text | Key | Open


def fresh(seed: int, setup: Mapping[str, Any], popup_probability: float, generation: int = 0) -> State:
    """A phone after a reset. setup: app name -> the app's required state; the rest is random, from `seed`.

    Raises ValueError for an unknown app, or a setting or name that the app does not know.
    """
    for name, asked in setup.items():
        if name not in REGISTRY:
            raise ValueError(f"no such app: {name}; the phone has {', '.join(REGISTRY)}")
        takes = REGISTRY[name].takes
        if not isinstance(asked, Mapping) or not set(asked) <= set(takes):
            raise ValueError(f"{name} is set up with an object of {', '.join(takes) or 'nothing'}, not with {asked!r}")
    data = {name: app.fresh(chance(seed, name), setup.get(name, {})) for name, app in REGISTRY.items()}
    return State(seed, popup_probability, generation, data=data)


def reduce(state: State, event: Event) -> State:
    """The phone after `event`: its effect, background activity, and perhaps a pop-up."""
    before = replace(state, toast="") if state.toast else state
    after = replace(_effect(before, event), clock=state.clock + 1)
    for app in TICKING:
        after = app.tick(after)
    return after if state.dialog else popups.maybe(after)


def in_front(state: State) -> Elements:
    """What the topmost window shows, the topmost element last."""
    return _dialog(state) or _screen(state)


def widgets(state: State) -> Elements:
    """The elements that can be tapped, the topmost last."""
    return tuple(element for element in in_front(state) if element.target)


def draw(state: State, over: Elements = ()) -> Image.Image:
    """The screen, RGB 128x256. over: drawn over the app, behind a dialog."""
    return _drawn(_screen(state) + over, _dialog(state), _background(state))


def _drawn(behind: Elements, dialog: Elements, background: Colour) -> Image.Image:
    return draw_elements(behind + dialog, background, len(behind) if dialog else 0)


@lru_cache(maxsize=DRAWN)
def _png(behind: Elements, dialog: Elements, background: Colour) -> bytes:
    out = io.BytesIO()
    _drawn(behind, dialog, background).save(out, "PNG", compress_level=1)
    return out.getvalue()


def moving(state: State, seconds: float) -> Elements:
    """The animations of the app in front at that time; none behind a dialog or while it loads."""
    if state.dialog or state.loading or state.screen == ADVERT:
        return ()
    return redrawn(app_named(state.app).moves(state, seconds), state.generation)


def _background(state: State) -> Colour:
    return LIGHT if state.loading or state.screen == ADVERT else app_named(state.app).background


def touched(state: State, x: int, y: int) -> Element | None:
    """The widget under the finger."""
    return next((element for element in reversed(widgets(state)) if element.holds(x, y)), None)


def _screen(state: State) -> Elements:
    if state.loading:
        shown = overlays.LOADING
    elif state.screen == ADVERT:
        shown = popups.ADVERT_ELEMENTS
    else:
        shown = app_named(state.app).elements(state)
    return redrawn((*shown, overlays.toast(state.toast)) if state.toast else shown, state.generation)


def _dialog(state: State) -> Elements:
    """The pop-up or the question in front, if there is one."""
    if not state.dialog:
        return ()
    question = _question(state)
    return redrawn(question.elements() if question else popups.POPUPS[state.dialog], state.generation)


def _question(state: State) -> overlays.Dialog | None:
    app, _, name = state.dialog.partition("/")
    return REGISTRY[app].questions[name] if name else None


def _effect(state: State, event: Event) -> State:
    match event:
        case Key("HOME"):
            return state.home()
        case Key("BACK"):
            return state.leave()
        case Open(name):
            return _opened(state.home(), name) if has(state, name) else state
        case _ if state.loading and not state.dialog:
            return replace(state, loading=state.loading - 1)
        case Tap(x, y):
            return _tap(state, x, y)
        case Swipe(x0, y0, x1, y1) if max(abs(x1 - x0), abs(y1 - y0)) < SWIPE_PX:
            return _tap(state, x0, y0)
    if state.dialog or state.screen == ADVERT:
        return state
    app = app_named(state.app)
    match event:
        case Swipe(x0, y0, x1, y1):
            return app.swipe(state, _direction(x1 - x0, y1 - y0))
        case Text(text) if state.focused:
            # For agents: typed text replaces the field's content, so that a mistake can be corrected.
            return replace(state, typed=" ".join(text.split())[:FIELD_CHARACTERS])
        case Key("ENTER") if state.focused:
            return app.submit(state)
        case Key("DEL") if state.focused:
            return replace(state, typed=state.typed[:-1])
    return state


def _tap(state: State, x: int, y: int) -> State:
    element = touched(state, x, y)
    if element is None:
        return state
    if state.dialog:
        return _answered(state, element.target)
    if state.app == LAUNCHER and has(state, element.target):
        return _opened(state, element.target)
    return app_named(state.app).tap(state, element.target)


def _answered(state: State, target: str) -> State:
    """What a button of the dialog in front does."""
    question = _question(state)
    if question is None:
        return popups.tap(state, target)
    closed = replace(state, dialog="")
    return question.then(closed) if target == question.yes else question.otherwise(closed)


def _opened(state: State, name: str) -> State:
    """An app at its start."""
    app = app_named(name)
    return app.opened(replace(state, typed="").goto(app.start.format(name=name)))


def _direction(dx: int, dy: int) -> str:
    if abs(dx) > abs(dy):
        return "right" if dx > 0 else "left"
    return "down" if dy > 0 else "up"


def package_of(app: str) -> str:
    """The package of an app: its name without blanks, which names of store apps have."""
    return PACKAGE + app.replace(" ", "")


class PhoneMachine:
    """A phone with its state, which the device side of adb acts on. Owned by one thread."""

    size: Final = (WIDTH, HEIGHT)

    def __init__(self, seed: int, popup_probability: float, generation: int = 0) -> None:
        self._popup_probability = popup_probability
        self._generation = generation
        self._now = fresh(seed, {}, popup_probability, generation)

    def reset(self, seed: int, setup: Mapping[str, Any]) -> None:
        """Like loading a snapshot. Raises ValueError for an invalid setup; the state then does not change."""
        self._now = fresh(seed, setup, self._popup_probability, self._generation)

    def apply(self, event: Event) -> None:
        self._now = reduce(self._now, event)

    def state(self) -> dict[str, Any]:
        """The whole state, JSON-able: the ground truth of a task's outcome."""
        return self._now.to_json()

    def focus(self) -> str:
        """The focused window as Android prints it: package/.Activity."""
        app, _, screen = self._now.screen.partition("/")
        if app == LAUNCHER:
            screen = HOME.partition("/")[2]  # its pages are one window
        return f"{package_of(app)}/.{screen.capitalize()}"

    def apps(self) -> tuple[str, ...]:
        """Every app of the phone by name, those from the store included."""
        return (*REGISTRY, *installed(self._now))

    def elements(self) -> Elements:
        """What the topmost window shows, the topmost element last."""
        return in_front(self._now)

    def typing(self) -> bool:
        """Whether a text field is focused and the soft keyboard is up."""
        return self._now.focused

    def picture(self, seconds: float | None = None) -> Image.Image:
        """The screen, RGB. seconds: the time, for animations; None: no animations."""
        if seconds is None:
            return draw(self._now)
        blinking = () if self._now.dialog else cursor(_screen(self._now), seconds)
        return draw(self._now, (*moving(self._now, seconds), *blinking))

    def animated(self) -> bool:
        """Whether the app in front never stops drawing, on a phone with animations."""
        return bool(moving(self._now, 0.0))

    def png(self) -> bytes:
        """The screen as PNG; equal screens are equal bytes."""
        return _png(_screen(self._now), _dialog(self._now), _background(self._now))
