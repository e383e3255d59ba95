"""Requests to a chat model: parts of a message, and the body of a question. Pure."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

Part = dict[str, Any]


def text(words: str) -> Part:
    return {"type": "text", "text": words}


def image(png: bytes) -> Part:
    """png: PNG bytes."""
    return {"type": "image_url", "image_url": {"url": "data:image/png;base64," + base64.b64encode(png).decode()}}


def request_for_json(
    model: str, system: str, content: Sequence[Part], name: str, answer: Mapping[str, Any]
) -> dict[str, Any]:
    """A chat completion's body that asks for one JSON object. answer: its schema, called `name`."""
    return {
        "model": model,
        "messages": [{"role": "system", "content": system}, {"role": "user", "content": list(content)}],
        "response_format": {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": answer}},
    }
