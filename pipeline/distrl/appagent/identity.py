"""What an agent without weights is: a description, an object of the store named by its sha256, as weights are. Pure."""

from __future__ import annotations

import json
from typing import Final

from distrl.appagent import prompt
from distrl.appagent.notes import Notes
from distrl.config import AppAgent

FOLDER: Final = "agents"
"""Of the object store."""
SUFFIX: Final = "json"
AGENT: Final = "appagent"
FORM: Final = 2
"""Raised when what it is shown, or what its answers do, changes, so that it counts as another agent."""
LONGEST_NAME: Final = 80


def description(settings: AppAgent, notes: Notes) -> bytes:
    """What decides, as JSON: the model by name, what it is told whatever the task, and the notes. Equal agents have
    equal bytes. Where the model is served is not part of it, and no secret is.
    """
    told = {
        "agent": AGENT,
        "form": FORM,
        "model": settings.model,
        "mode": settings.mode,
        "most_elements": settings.most_elements,
        "prompts_sha256": prompt.FINGERPRINT,
        "notes": notes,
    }
    return json.dumps(told, sort_keys=True, ensure_ascii=False).encode()


def named(data: bytes) -> str:
    """What people call the agent of a description. Raises ValueError for what is none."""
    try:
        told = json.loads(data)
        known = sum(len(gestures) for app in told["notes"].values() for gestures in app.values())
        model, mode = str(told["model"])[:LONGEST_NAME], str(told["mode"])[:LONGEST_NAME]
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"no description of an agent: {error!r}") from None
    return f"AppAgent, {model}, {mode}, {known} notes" if known else f"AppAgent, {model}, {mode}, no notes"
