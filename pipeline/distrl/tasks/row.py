"""One row of a list of tasks: names and bounds of its fields, in our own format and in those of AitW and AndroidWorld.
Pure. All fields are untrusted: they give a valid row, or the reason why not.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from simphone.machine import fresh

from distrl.names import PACKAGE
from distrl.tasks.check import parse_check
from distrl.tasks.outcome import CHECK
from distrl.tasks.suite import suites
from distrl.text import fields_once
from distrl.types import Split

Fields = Mapping[str, Any]

INSTRUCTION: Final = ("instruction", "goal_info", "goal")
"""goal_info: as Android in the Wild names it; goal: AndroidWorld."""
TEMPLATE: Final = ("template", "task_template")
SUITE: Final = ("suite", "dataset", "dataset_name")
FAMILY: Final = ("family", "task", "task_name")
STEPS: Final = ("steps", "max_steps", "complexity")
EPISODE: Final = "episode_id"
"""The recorded episode that a row comes from. It is stored as a parameter of the task, and is no part of what the task
asks."""
KNOWN: Final = (*INSTRUCTION, *TEMPLATE, *SUITE, *FAMILY, *STEPS, "split", "params", "check", "setup", EPISODE)
IGNORED: Final = (
    "episode_length", "step_id", "android_api_level", "current_activity", "device_type", "difficulty", "tags",
    "optimal_steps",
)  # fmt: skip
"""Further fields of AitW's episodes and AndroidWorld's task_metadata.json. Other names are refused: with a misspelt
`check` the judge would decide, unnoticed."""

STEPS_OF_COMPLEXITY: Final = 10
"""AndroidWorld allows int(10 * complexity) steps."""
MAX_STEPS: Final = 200
MAX_INSTRUCTION: Final = 2_000
MAX_SETUP: Final = 4_000
MAX_PARAMS: Final = 32
SPLITS: Final = {**{split.value: split for split in Split}, "val": Split.VALIDATION}
LISTED: Final = "-list"
"""Suffix of a list's suite with the name of a built-in one, as those of AitW, to distinguish them."""
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
PARAMETER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_PLACE: Final = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Row:
    """One task of a list.

    file, line: where it was read. template: of its instruction, or "". params: further values, by name.
    check, setup: JSON; check is "" if the task has none. copy: number of equal rows before it.
    """

    file: str
    line: int
    instruction: str
    suite: str
    family: str
    split: Split
    steps: int
    template: str = ""
    params: tuple[tuple[str, str], ...] = ()
    check: str = ""
    setup: str = "{}"
    copy: int = 0

    @property
    def digest(self) -> str:
        """Identifies the content, independent of the file: equal rows have equal digests. 16 hex digits."""
        return hashlib.sha256(json.dumps(self._content(self.params)).encode()).hexdigest()[:16]

    @property
    def asked(self) -> tuple[object, ...]:
        """What the row asks: its content without the episode that it comes from."""
        return self._content(tuple(each for each in self.params if each[0] != EPISODE))

    def _content(self, params: tuple[tuple[str, str], ...]) -> tuple[object, ...]:
        return (
            self.instruction,
            self.suite,
            self.family,
            self.split.value,
            self.steps,
            params,
            self.check,
            self.setup,
        )


@dataclass(frozen=True, slots=True)
class Defaults:
    """Defaults for missing fields. split None: the row must have one."""

    suite: str
    split: Split | None
    steps: int


def row_of(file: str, line: int, fields: Fields, defaults: Defaults) -> Row:
    """The row of `fields`. Raises ValueError with what is wrong with it.

    A field that is missing, null or an empty text takes its default.
    """
    stated = {name: value for name, value in fields.items() if value is not None and value != ""}
    strange = [name for name in stated if name not in KNOWN and name not in IGNORED]
    if strange:
        raise ValueError(f"no field {strange[0][:40]!r}; a row has {', '.join(KNOWN)}")
    suite = _name(_one(stated, SUITE), defaults.suite, "suite")
    if suite in suites():
        suite += LISTED
    params = _params(stated)
    template, instruction = _instruction(stated, params)
    check = _json(stated["check"], "check") if "check" in stated else None
    if check is not None:
        parse_check(check)
    return Row(
        file,
        line,
        instruction,
        suite,
        family=_name(_one(stated, FAMILY), suite, "family"),
        split=_split(stated, defaults.split),
        steps=_steps(stated, defaults.steps),
        template=template,
        params=tuple(sorted(params.items())),
        check="" if check is None else _canonical(check),
        setup=_setup(stated),
    )


def plain_text(value: Any, name: str, longest: int) -> str:
    """A text on one line, its white space folded. Raises ValueError for a wrong type or length, or unprintable text."""
    if not isinstance(value, str):
        raise ValueError(f"`{name}` is no text")
    text = " ".join(value.split())
    if not 1 <= len(text) <= longest:
        raise ValueError(f"`{name}` has {len(text)} characters, not 1 to {longest}")
    bad = next((c for c in text if not c.isprintable()), None)
    if bad is not None:
        raise ValueError(f"`{name}` holds the control or invisible character U+{ord(bad):04X}")
    return text


def _one(stated: Fields, names: tuple[str, ...]) -> tuple[str, Any] | None:
    """Which of several names for the same field is present, with its value."""
    found = [(name, stated[name]) for name in names if name in stated]
    if len(found) > 1:
        raise ValueError(f"`{found[0][0]}` and `{found[1][0]}` say the same thing; keep one")
    return found[0] if found else None


def _instruction(stated: Fields, params: Mapping[str, str]) -> tuple[str, str]:
    """Template ("" if there is none) and instruction: the given one, else the template filled in."""
    pattern, said = _one(stated, TEMPLATE), _one(stated, INSTRUCTION)
    if pattern is None and said is None:
        raise ValueError(f"no instruction: state one of {', '.join((*INSTRUCTION, *TEMPLATE))}")
    template = "" if pattern is None else plain_text(pattern[1], pattern[0], MAX_INSTRUCTION)
    if said is not None:
        return template, plain_text(said[1], said[0], MAX_INSTRUCTION)
    missing = [name for name in _PLACE.findall(template) if name not in params]
    if missing:
        raise ValueError(f"`params` has nothing for {{{missing[0][:40]}}} of the template")
    filled = _PLACE.sub(lambda found: params[found[1]], template)
    return template, plain_text(filled, "instruction", MAX_INSTRUCTION)


def _params(stated: Fields) -> dict[str, str]:
    given = _json(stated.get("params", {}), "params")
    if not isinstance(given, Mapping) or len(given) > MAX_PARAMS:
        raise ValueError(f"`params` is no object of at most {MAX_PARAMS} values")
    found: dict[str, str] = {}
    for name, value in given.items():
        if not PARAMETER.fullmatch(name) or name == CHECK:
            raise ValueError(f"{name[:40]!r} is no name of a parameter")
        found[name] = _parameter(value, name)
    if EPISODE in stated:
        found[EPISODE] = _parameter(stated[EPISODE], EPISODE)
    return found


def _parameter(value: Any, name: str) -> str:
    """As text; other types as JSON: AndroidWorld has numbers and whole database rows among its parameters."""
    return plain_text(value if isinstance(value, str) else _canonical(value), name, MAX_INSTRUCTION)


def _name(said: tuple[str, Any] | None, default: str, field: str) -> str:
    if said is None:
        return default
    if not isinstance(said[1], str) or not NAME.fullmatch(said[1]):
        raise ValueError(f"`{said[0]}` is no name of a {field}: 1 to 63 of letters, digits, '.', '_' and '-'")
    return said[1]


def _split(stated: Fields, default: Split | None) -> Split:
    said = stated.get("split")
    if said is None and default is not None:
        return default
    if said is None:
        raise ValueError("no split: state `split`, or name the file like general_train.txt")
    if not isinstance(said, str) or said.lower() not in SPLITS:
        raise ValueError(f"`split` is none of {', '.join(SPLITS)}")
    return SPLITS[said.lower()]


def _steps(stated: Fields, default: int) -> int:
    said = _one(stated, STEPS)
    if said is None:
        return default
    name, value = said
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else 0.0
        steps = int(STEPS_OF_COMPLEXITY * number) if name == "complexity" else int(number)
    except (ValueError, OverflowError):  # no number, nan, or an infinite one
        steps = 0
    if not 1 <= steps <= MAX_STEPS or (name != "complexity" and steps != number):
        raise ValueError(f"`{name}` is no number that gives 1 to {MAX_STEPS} steps")
    return steps


def _setup(stated: Fields) -> str:
    """The phone's initial state: of a simulated phone's apps, or the packages of a real one to clear."""
    setup = _json(stated.get("setup", {}), "setup")
    text = _canonical(setup)
    if not isinstance(setup, Mapping) or len(text) > MAX_SETUP:
        raise ValueError(f"`setup` is no object of at most {MAX_SETUP} characters")
    if set(setup) == {"packages"}:
        named = setup["packages"]
        if not isinstance(named, list) or not all(isinstance(each, str) and PACKAGE.fullmatch(each) for each in named):
            raise ValueError("`packages` of `setup` lists no names of Android packages")
        return text
    try:
        if setup:  # to make a phone takes half a millisecond, and a list may have 100,000 rows
            fresh(0, setup, 0.0)
    except (ValueError, TypeError) as error:
        raise ValueError(f"`setup`: {str(error)[:200]}") from None
    return text


def _json(value: Any, name: str) -> Any:
    """A value that may be JSON in a text, as in a CSV file."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value, object_pairs_hook=fields_once)
    except (json.JSONDecodeError, RecursionError):
        raise ValueError(f"`{name}` is a text that is no JSON") from None
    except ValueError as error:
        raise ValueError(f"`{name}`: {error}") from None


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=True)
