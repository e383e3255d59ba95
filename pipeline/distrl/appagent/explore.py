"""Exploration (AppAgent, section 3.2): the agent tries to do a task, reflects on each touch's effect, and notes for
each app what its elements are for. Elements without effect are not offered again in the same episode.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from distrl.appagent import answer, prompt, tags
from distrl.appagent.agent import Agent, AgentEpisode, Dump
from distrl.appagent.answer import ActionCall, ActionEffect, Reflection, UnreadError
from distrl.appagent.elements import ElementTree, NumberedElement
from distrl.appagent.notes import Notes, with_note
from distrl.types import Action, ActionKind, HeldBack


class Notebook:
    """The growing notes of all phones together. keep: called with each new state, one call at a time."""

    def __init__(self, notes: Notes, keep: Callable[[Notes], None]) -> None:
        self._notes = notes
        self._keep = keep
        self._lock = threading.Lock()

    @property
    def notes(self) -> Notes:
        return self._notes

    def add(self, package: str, element: str, gesture: str, text: str) -> None:
        with self._lock:
            found = with_note(self._notes, package, element, gesture, text)
            if found != self._notes:
                self._notes = found
                self._keep(found)

    def known(self, package: str, element: str, gesture: str) -> str:
        return self._notes.get(package, {}).get(element, {}).get(gesture, "")


@dataclass(frozen=True, slots=True)
class _Tried:
    """A touch whose effect is not known yet."""

    screen: ElementTree
    number: int
    call: ActionCall
    png: bytes

    @property
    def element(self) -> NumberedElement:
        return self.screen.elements[self.number - 1]

    @property
    def gesture(self) -> str:
        if self.call.name == "tap":
            return "tap"
        return f"swipe {'vertically' if self.call.arguments[1] in ('up', 'down') else 'horizontally'}"

    @property
    def words(self) -> str:
        name, rest = self.call.name, self.call.arguments[1:]
        return f"{name} {rest[0]} on element {self.number}" if rest else f"{name} element {self.number}"


class Exploring:
    """One episode of exploration on one phone. agent: asked without notes, as the paper does."""

    def __init__(self, agent: Agent, dump: Dump, notebook: Notebook) -> None:
        self._agent = agent
        self._episode = AgentEpisode(agent, dump)
        self._notebook = notebook
        self._useless: set[str] = set()
        self._tried: _Tried | None = None

    def held_back(self, why: HeldBack) -> None:
        """The screen that follows does not show what the touch does: it teaches nothing."""
        self._episode.held_back(why)
        self._tried = None

    def act(self, task: str, png: bytes) -> Action:
        """The action for one screen, after noting the effect of the last one. Raises as `AgentEpisode.act`."""
        tried, self._tried = self._tried, None
        if tried is not None and self._effect(task, tried, png) is ActionEffect.BACK:
            return Action(ActionKind.BACK)
        screen = self._episode.look(png, frozenset(self._useless))
        action, call = self._episode.act_on(task, png, screen)
        if screen is not None and call is not None and call.name in ("tap", "swipe"):
            self._tried = _Tried(screen, call.arguments[0], call, png)
        return action

    def _effect(self, task: str, tried: _Tried, after: bytes) -> ActionEffect | None:
        """The effect of a touch; None if the model's answer is not a reflection. An unchanged screen needs no
        question."""
        try:
            found = (
                Reflection(ActionEffect.INEFFECTIVE, "") if after == tried.png else self._reflected(task, tried, after)
            )
        except UnreadError:
            self._agent.count("invalid_reflections")
            return None
        if found.verdict is not ActionEffect.SUCCESS:
            self._useless.add(tried.element.name)
            self._episode.past = prompt.Past()
        if found.documentation:
            self._notebook.add(tried.screen.package, tried.element.name, tried.gesture, found.documentation)
        return found.verdict

    def _reflected(self, task: str, tried: _Tried, after: bytes) -> Reflection:
        self._agent.count("reflections")
        known = self._notebook.known(tried.screen.package, tried.element.name, tried.gesture)
        before = tags.tagged(tried.png, (element.box for element in tried.screen.elements))
        asked = prompt.reflect(
            self._agent.settings.model,
            task,
            tried.words,
            tried.element,
            tried.number,
            known,
            before,
            tags.tagged(after, ()),
        )
        return answer.read_reflection(self._agent.ask(asked))
