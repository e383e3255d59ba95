"""Parses the answers of a model server, as far as they are used. Answers are untrusted."""

from __future__ import annotations

import json
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from distrl.policy.vlm.chat import Written
from distrl.text import printable

SHOWN = 300
"""Most characters of a refusal that are shown."""


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True)


class _Token(_Read):
    token: str
    logprob: float


class _Logprobs(_Read):
    content: tuple[_Token, ...]


class _Choice(_Read):
    finish_reason: str
    token_ids: tuple[int, ...]
    logprobs: _Logprobs


class _Chat(_Read):
    model: str
    prompt_token_ids: tuple[int, ...]
    choices: tuple[_Choice] = Field(description="one, as one is asked for")


class _Card(_Read):
    id: str
    root: str | None = None
    parent: str | None = None


class _Models(_Read):
    data: tuple[_Card, ...]


def written_of(body: bytes) -> Written:
    """A chat completion with token ids and log-probabilities. Raises ValueError for anything else."""
    found = _Chat.model_validate(_parsed(body))
    (choice,) = found.choices
    tokens = choice.logprobs.content
    return Written(
        found.model,
        found.prompt_token_ids,
        choice.token_ids,
        tuple(each.token for each in tokens),
        tuple(each.logprob for each in tokens),
        choice.finish_reason,
    )


def adapters_of(body: bytes) -> dict[str, str]:
    """Name -> path, on the server's machine, of each adapter that a server lists; those without a parent are base
    models. Raises ValueError for what is no list of models."""
    cards = _Models.model_validate(_parsed(body)).data
    return {each.id: each.root or "" for each in cards if each.parent is not None}


def reason_of(body: bytes) -> str:
    """The reason that a refusal states, as one printable line."""
    try:
        found: Any = _parsed(body)
    except ValueError:
        found = None
    if isinstance(found, dict):
        inner = found.get("error")
        found = inner.get("message") if isinstance(inner, dict) else found.get("message") or found.get("detail")
    text = found if isinstance(found, str) else body.decode("utf-8", "replace")
    return printable(" ".join(text.split()))[:SHOWN]


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except RecursionError:
        raise ValueError("nested too deeply") from None
