"""Parses the answers of the model, strictly: any other form is refused with the reason. Pure.

Two forms of a decision are accepted: AppAgent's

    Observation: …
    Thought: …
    Action: tap(3)
    Summary: …

and a JSON object with those four texts. Of a reflection, in place of Action and Summary: Decision and Documentation.
A code fence around it is removed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from distrl.chat.answer import Message
from distrl.text import encodable, fields_once

LONGEST: Final = 20_000
"""Characters of an answer; a longer one is not read."""
LONGEST_SUMMARY: Final = 500
LONGEST_TYPED: Final = 500
SHOWN: Final = 300

DIRECTIONS: Final = ("up", "down", "left", "right")
DISTANCES: Final = ("short", "medium", "long")
ANYWHERE: Final[Mapping[str, tuple[type, ...]]] = {"text": (str,), "back": (), "home": (), "enter": ()}
ON_ELEMENTS: Final[Mapping[str, tuple[type, ...]]] = {
    "tap": (int,), "swipe": (int, str, str), "grid": (), **ANYWHERE,
}  # fmt: skip
ON_GRID: Final[Mapping[str, tuple[type, ...]]] = {"tap": (int, str), "swipe": (int, str, int, str), **ANYWHERE}
FINISH: Final = "FINISH"
_CALL: Final = re.compile(r"([a-z_]{1,20})\((.*)\)", re.DOTALL)
_FENCE: Final = re.compile(r"```[a-z]*\n(.*)\n```", re.DOTALL)


class UnreadError(ValueError):
    """An answer in another form than requested. str: why; raw: the answer, truncated."""

    def __init__(self, why: str, raw: object) -> None:
        super().__init__(why)
        self.raw = encodable(str(raw)[:SHOWN])


@dataclass(frozen=True, slots=True)
class ActionCall:
    """One of the prompt's actions, with arguments of the right types; FINISH has none."""

    name: str
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentAnswer:
    """call: what to do. summary: of all actions so far, in the model's words."""

    call: ActionCall
    summary: str


class ActionEffect(StrEnum):
    """What an action did for the task (AppAgent, section 3.2)."""

    BACK = "BACK"
    INEFFECTIVE = "INEFFECTIVE"
    CONTINUE = "CONTINUE"
    SUCCESS = "SUCCESS"


@dataclass(frozen=True, slots=True)
class Reflection:
    """documentation: what the element is for; "" if the action had no effect."""

    verdict: ActionEffect
    documentation: str


def read(message: Message, forms: Mapping[str, tuple[type, ...]]) -> AgentAnswer:
    """The decision in a chat message. forms: the available actions. Raises UnreadError."""
    parts = _parts(message, ("observation", "thought", "action"), ("summary",))
    call = _call(parts["action"], forms)
    if "summary" not in parts and call.name != FINISH:
        raise UnreadError("it has no Summary", message.content)
    return AgentAnswer(call, parts.get("summary", "")[:LONGEST_SUMMARY])


def read_reflection(message: Message) -> Reflection:
    """Raises UnreadError."""
    parts = _parts(message, ("decision", "thought"), ("documentation",))
    if parts["decision"] not in list(ActionEffect):
        raise UnreadError(f"Decision is none of {', '.join(ActionEffect)}", parts["decision"])
    verdict = ActionEffect(parts["decision"])
    if verdict is ActionEffect.INEFFECTIVE:
        return Reflection(verdict, "")
    if not parts.get("documentation"):
        raise UnreadError("it has no Documentation", message.content)
    return Reflection(verdict, parts["documentation"])


def _call(text: str, forms: Mapping[str, tuple[type, ...]]) -> ActionCall:
    """`name(arguments)`, the arguments as JSON has them."""
    if text in (FINISH, f"{FINISH}()"):
        return ActionCall(FINISH)
    found = _CALL.fullmatch(text)
    if found is None or found[1] not in forms:
        raise UnreadError(f"Action is none of {', '.join(forms)}, {FINISH}", text)
    try:
        arguments = json.loads(f"[{found[2]}]")
    except (ValueError, RecursionError):
        raise UnreadError(f"the arguments of {found[1]} cannot be read", text) from None
    if tuple(type(each) for each in arguments) != forms[found[1]]:
        raise UnreadError(f"{found[1]} takes other arguments", text)
    if found[1] == "text" and not (len(arguments[0]) <= LONGEST_TYPED and arguments[0].isprintable()):
        raise UnreadError(f"text takes up to {LONGEST_TYPED} printable characters", text)
    return ActionCall(found[1], tuple(arguments))


def _parts(message: Message, needed: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, str]:
    """The named parts of an answer, stripped, in either form."""
    if message.refusal:
        raise UnreadError("the model refused", message.refusal)
    content = message.content
    if not isinstance(content, str) or len(content) > LONGEST:
        raise UnreadError("it is no text, or too long", content)
    text = encodable(content).strip()
    fenced = _FENCE.fullmatch(text)
    text = fenced[1].strip() if fenced else text
    found = _from_json(text) if text.startswith("{") else _from_lines(text, (*needed, *optional))
    names = list(found)
    if names not in ([*needed], [*needed, *optional]):
        named = (*needed, *optional)
        raise UnreadError(f"its parts are not {', '.join(each.capitalize() for each in named)}", content)
    return found


def _from_json(text: str) -> dict[str, str]:
    try:
        parts = json.loads(text, object_pairs_hook=fields_once)
    except (ValueError, RecursionError):
        raise UnreadError("it begins like JSON and is none, or names a part twice", text) from None
    if not isinstance(parts, dict) or not all(isinstance(value, str) for value in parts.values()):
        raise UnreadError("it is no JSON object of texts", text)
    found = {name.casefold(): encodable(value).strip() for name, value in parts.items()}
    if len(found) != len(parts):
        raise UnreadError("it names a part twice", text)
    return found


def _from_lines(text: str, names: tuple[str, ...]) -> dict[str, str]:
    """Parts that begin with their name at the start of a line, each once."""
    found: dict[str, list[str]] = {}
    now: list[str] | None = None
    for line in text.split("\n"):
        label, colon, rest = line.partition(":")
        name = label.casefold()
        if colon and name in names:
            if name in found:
                raise UnreadError(f"it has two parts {label}", text)
            now = found[name] = [rest]
        elif now is None:
            raise UnreadError(f"it does not begin with {names[0].capitalize()}", text)
        else:
            now.append(line)
    return {name: "\n".join(lines).strip() for name, lines in found.items()}
