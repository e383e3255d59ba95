"""Scripts for rows of a list: a row is played by the built-in family whose phrase its instruction matches. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

from simphone.screens import SCREENS
from simphone.state import State

from distrl.tasks.check import MAX_TEXT
from distrl.tasks.family import Params, TaskFamily, family
from distrl.tasks.list_report import folded
from distrl.tasks.lists import task_of
from distrl.tasks.oracle import as_family
from distrl.tasks.rollout import play
from distrl.tasks.row import Row
from distrl.tasks.scripted_actions import BACK, COMPLETE
from distrl.tasks.suite import EVALUATION_SEED, suites
from distrl.types import Action, Task

PHONES_TRIED: Final = 4
"""Phones on which a row is tried until its check holds on one: their contents are mostly random."""
MOST_WORDS: Final = 4
"""Not in a free-text parameter: "search for red lamp and open the second result" is more than a search."""
OPEN: Final = "open"
"""The script that only opens an app, which belongs to no suite."""
_OPEN: Final = re.compile(r"(?:open|start|go to) (?:the )?(\w+)(?: app)?")
_ENDS: Final = ".?!"
_FIELD: Final = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class ListScript:
    """A script for tasks of a list. name: of its suite and family. params: of the task."""

    name: str
    family: TaskFamily
    params: Params

    def __call__(self, task: Task, now: State) -> Action:
        """The next action; COMPLETE, to give up, if the phone lacks something that the task names."""
        try:
            return as_family(self.family, self.params, task, now)
        except (LookupError, ValueError):
            return COMPLETE


@dataclass(frozen=True, slots=True)
class Played:
    """The result of a row. script: that has played it, or would; "" if there is none.

    done: whether its check held at the end on some phone; None if it was not played. steps: actions until then,
    including the last COMPLETE. why: it was not played, or not done; "" if it was done.
    """

    row: Row
    script: str
    done: bool | None
    steps: int | None
    why: str


def played(row: Row) -> Played:
    """Let the matching scripts play a row on phones without pop-ups, until one has done it."""
    known = scripts(row.instruction)
    names = ", ".join(dict.fromkeys(script.name for script in known))
    if not row.check:
        return Played(row, names, None, None, "no check: a judge says")
    if set(json.loads(row.setup)) == {"packages"}:
        return Played(row, names, None, None, "its setup is for a real phone")
    if not known:
        return Played(row, "", None, None, "no script")
    for turn in range(PHONES_TRIED):
        task = task_of(row, EVALUATION_SEED, turn)
        for script in known:
            trial = play(task, script=script)
            if trial.done:
                return Played(row, script.name, True, trial.steps, "")
    return Played(row, names, False, None, f"its check does not hold within {row.steps} steps")


def scripts(instruction: str) -> tuple[ListScript, ...]:
    """Every script that matches an instruction, ignoring case, white space and a final full stop.

    A phrase may match in several ways: in "tell anna lee red lamp" only the phone shows where the name ends.
    """
    said = folded(instruction).rstrip(_ENDS)
    found = [
        ListScript(name, kind, kind.filled(params))
        for name, kind, parts in _phrases()
        for params in _read(parts, said)
        if all(_fits(kind, key, value) for key, value in params.items())
    ]
    opened = _OPEN.fullmatch(said)
    if opened and opened[1] in SCREENS:
        found.append(ListScript(OPEN, _opening(opened[1]), {}))
    return tuple(found)


def _fits(kind: TaskFamily, name: str, value: str) -> bool:
    """Whether a parameter of a family can have this value, ignoring case."""
    choices = kind.choices.get(name)
    return len(value.split()) <= MOST_WORDS if choices is None else value in map(str.casefold, choices)


@cache
def _phrases() -> tuple[tuple[str, TaskFamily, tuple[str, ...]], ...]:
    """Every phrase of every family: text, name of a parameter, text, …, text."""
    return tuple(
        (f"{suite.name} {kind.name}", kind, tuple(_FIELD.split(folded(phrase).rstrip(_ENDS))))
        for suite in suites().values()
        for kind in suite.kinds
        for phrase in kind.phrases
    )


def _read(parts: Sequence[str], said: str) -> Iterator[Params]:
    """Every way to match `said` with a phrase."""
    text, *more = parts
    if not said.startswith(text):
        return
    rest = said[len(text) :]
    if not more:
        if not rest:
            yield {}
        return
    name, *others = more
    for end in range(min(len(rest), MAX_TEXT) + 1):
        for params in _read(others, rest[end:]):
            yield {name: rest[:end], **params}


def _opening(app: str) -> TaskFamily:
    """Done once the app is open."""

    return family(OPEN, app, (), {}, lambda now, params: BACK)
