"""The agent: a screen in, an action out, by asking the model; and the state of an episode between screens.

An `Agent` serves all phones of a process; an `AgentEpisode` is one episode, in one thread. An answer that is not an
action becomes an INVALID one. Only a missing answer is an error: the phone's episode is then interrupted, since an
endpoint's failure is not an action of the agent.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from distrl.appagent import answer, prompt, tags
from distrl.appagent.answer import FINISH, ActionCall, AgentAnswer, UnreadError
from distrl.appagent.elements import ElementTree, NumberedElement, UnreadableError, screen_of
from distrl.appagent.grid import Grid
from distrl.appagent.notes import Notes
from distrl.chat.answer import Message
from distrl.chat.endpoint import LONGEST_PAUSES_S, Endpoint, NoAnswerError, NoTurnError, QuestionRefusedError
from distrl.config import AppAgentSettings
from distrl.errors import ChatError
from distrl.types import Action, ActionKind, HeldBack, Point

log = logging.getLogger(__name__)

SILENT: Final = 5
"""So many questions in a row without an answer, each retried until its deadline, end the command."""
REFUSED: Final = "the phone cannot do that: most type the printable characters of ASCII alone"
NOT_TAKEN: Final = "the endpoint does not take the question"
UNITS: Final[Mapping[str, float]] = {"short": 0.15, "medium": 0.25, "long": 0.35}
"""Lengths of a swipe, of the screen's width; upwards and downwards twice that. AppAgent's controller has 0.1, 0.2 and
0.3; less than an eighth is a tap to the simulated phone."""
_KEYS: Final = {"back": ActionKind.BACK, "home": ActionKind.HOME, "enter": ActionKind.ENTER}

Dump = Callable[[], bytes | None]
"""The hierarchy of the window in front, None if the phone makes none in time. Raises DeviceError."""


class Agent:
    """Thread-safe. notes: for the prompts. Counts the kinds of its answers in `counters`."""

    def __init__(self, settings: AppAgentSettings, endpoint: Endpoint, notes: Notes) -> None:
        self.settings = settings
        self.notes = notes
        self.counters: Counter[str] = Counter()
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._silent = 0
        self._failure: ChatError | None = None

    @property
    def failure(self) -> ChatError | None:
        """Why further questions are useless; None while they are not."""
        return self._failure

    def ask(self, body: Mapping[str, Any]) -> Message:
        """The answer's message. Raises UnreadError if the endpoint refuses this question, ChatError if there is no
        answer; `failure` tells whether it is permanent.
        """
        if self._failure is not None:
            raise self._failure
        try:
            message = self._endpoint.ask(body, pauses_s=LONGEST_PAUSES_S)
        except QuestionRefusedError as error:
            log.warning("a question counts as answered with no action: %s", error.what)
            raise UnreadError(NOT_TAKEN, NOT_TAKEN) from None  # records need not contain the endpoint's address
        except NoAnswerError as error:
            raise self._unanswered(error) from None
        except ChatError as error:
            self._failure = error
            raise
        with self._lock:
            self._silent = 0
        return message

    def count(self, counter: str) -> None:
        with self._lock:
            self.counters[counter] += 1

    def _unanswered(self, error: NoAnswerError) -> ChatError:
        failure = unanswered(error)
        with self._lock:
            self.counters["unanswered"] += 1
            self._silent += 1
            if self._silent >= SILENT:
                self._failure = failure
        return failure


def unanswered(error: NoAnswerError) -> ChatError:
    """The error of a question without an answer, with what helps."""
    if isinstance(error, NoTurnError):
        hint = "raise appagent.requests_per_minute, if the endpoint allows more, or use fewer phones, then run it again"
    else:
        hint = "see to the endpoint, raise appagent.timeout_s or lower appagent.requests_per_minute, then run it again"
    return ChatError("appagent.endpoint", f"no answer: {error}", hint)


class AgentEpisode:
    """One episode. dump: of the phone on which it is played."""

    def __init__(self, agent: Agent, dump: Dump) -> None:
        self._agent = agent
        self._dump = dump
        self.past = prompt.Past()

    def held_back(self, why: HeldBack) -> None:
        """The last action was not done, or undone; where the phone cannot do it, the next prompt reports that."""
        if why is HeldBack.REFUSED:
            self.past = prompt.Past(self.past.summary, REFUSED)

    def act(self, task: str, png: bytes) -> Action:
        """The action for one screen. Raises ChatError if the model does not answer, DeviceError from `dump`."""
        screen = self.look(png)
        return self.act_on(task, png, screen)[0]

    def look(self, png: bytes, without: frozenset[str] = frozenset()) -> ElementTree | None:
        """The elements in front except those named in `without`; None if the grid has to be used."""
        settings = self._agent.settings
        if settings.mode == "grid":
            return None
        xml = self._dump()
        try:
            screen = None if xml is None else screen_of(xml, tags.size_of(png), settings.most_elements, without)
        except UnreadableError:
            screen = None
        if screen is None or not screen.elements:
            self._agent.count("grid_instead")
            return None
        return screen

    def act_on(self, task: str, png: bytes, screen: ElementTree | None) -> tuple[Action, ActionCall | None]:
        """The action and the model's call; None if it is not an action, and on the grid."""
        self._agent.count("decisions")
        try:
            if screen is not None:
                found = self._on_elements(task, png, screen)
                if found.call.name != "grid":
                    return self._done(found, on_elements(found.call, screen.elements, tags.size_of(png))), found.call
            grid = Grid.over(tags.size_of(png))
            found = self._on_grid(task, png, grid)
            return self._done(found, on_grid(found.call, grid)), None
        except UnreadError as error:
            self._agent.count("invalid")
            self.past = prompt.Past(self.past.summary, str(error))
            return Action(ActionKind.INVALID, text=error.raw), None

    def _done(self, found: AgentAnswer, action: Action) -> Action:
        self.past = prompt.Past(found.summary)
        return action

    def _on_elements(self, task: str, png: bytes, screen: ElementTree) -> AgentAnswer:
        picture = tags.tagged(png, (element.box for element in screen.elements))
        known = self._agent.notes.get(screen.package, {})
        model = self._agent.settings.model
        asked = prompt.on_elements(model, task, self.past, screen.package, screen.elements, known, picture)
        return answer.read(self._agent.ask(asked), answer.ON_ELEMENTS)

    def _on_grid(self, task: str, png: bytes, grid: Grid) -> AgentAnswer:
        self._agent.count("on_grid")
        asked = prompt.on_grid(self._agent.settings.model, task, self.past, grid, tags.gridded(png, grid))
        return answer.read(self._agent.ask(asked), answer.ON_GRID)


def on_elements(call: ActionCall, elements: Sequence[NumberedElement], size: tuple[int, int]) -> Action:
    """The action on a screen of numbered elements. size: of the screen, px. Raises UnreadError for an unknown element,
    direction or distance.
    """
    if call.name not in ("tap", "swipe"):
        return _anywhere(call)
    number = call.arguments[0]
    if not 1 <= number <= len(elements):
        raise UnreadError(f"there is no element {number}", f"{call.name}{call.arguments}")
    x, y = elements[number - 1].middle
    middle = Point(x / size[0], y / size[1])
    if call.name == "tap":
        return Action(ActionKind.TAP, touch=middle)
    _, direction, distance = call.arguments
    if direction not in answer.DIRECTIONS or distance not in answer.DISTANCES:
        raise UnreadError(f"there is no swipe {direction!r} of {distance!r} length"[: answer.SHOWN], call.arguments)
    return _swipe(middle, direction, UNITS[distance], size)


def on_grid(call: ActionCall, grid: Grid) -> Action:
    """The action on a screen of numbered cells. Raises UnreadError for an unknown cell or place."""
    if call.name not in ("tap", "swipe"):
        return _anywhere(call)
    points = [grid.point(call.arguments[at], call.arguments[at + 1]) for at in range(0, len(call.arguments), 2)]
    touch, lift = points[0], points[-1]
    if touch is None or lift is None:
        raise UnreadError("there is no such cell, or no such place in it", f"{call.name}{call.arguments}")
    if call.name == "tap":
        return Action(ActionKind.TAP, touch=touch)
    if touch == lift:
        raise UnreadError("a swipe needs two places", f"{call.name}{call.arguments}")
    return Action(ActionKind.SWIPE, touch=touch, lift=lift)


def _anywhere(call: ActionCall) -> Action:
    if call.name == FINISH:
        return Action(ActionKind.COMPLETE)
    if call.name == "text":
        return Action(ActionKind.TYPE, text=call.arguments[0])
    return Action(_KEYS[call.name])


def _swipe(middle: Point, direction: str, length: float, size: tuple[int, int]) -> Action:
    """A swipe of that length, relative to the screen's width, from `middle`; it starts further in if it would leave the
    screen, since a shortened swipe would be a tap.
    """
    along = min(0.9, 2 * length * size[0] / size[1])
    dx, dy = {"up": (0.0, -along), "down": (0.0, along), "left": (-length, 0.0), "right": (length, 0.0)}[direction]
    x, y = (min(max(at, -by, 0.0), 1.0 - by, 1.0) for at, by in ((middle.x, dx), (middle.y, dy)))
    touch, lift = Point(x, y), Point(min(1.0, max(0.0, x + dx)), min(1.0, max(0.0, y + dy)))
    return Action(ActionKind.SWIPE, touch=touch, lift=lift)
