"""The identity of an agent without weights: a description, stored and named by its sha256 like weights. Pure."""

from __future__ import annotations

import json
from typing import Final

from distrl.appagent import prompt
from distrl.appagent.notes import Notes
from distrl.config import AppAgentSettings

FOLDER: Final = "agents"
"""In the object store."""
SUFFIX: Final = "json"
AGENT: Final = "appagent"
FORM: Final = 2
"""To be raised when its prompts, or the effect of its answers, change, so that it counts as another agent."""
LONGEST_NAME: Final = 80
DUMP_TIMEOUT_S: Final = AppAgentSettings().dump_timeout_s
"""The default, which the descriptions of earlier agents do not name."""


def description(settings: AppAgentSettings, notes: Notes) -> bytes:
    """What determines its actions, as JSON: the model's name, the task-independent prompts, the notes, and how long it
    waits for a phone's elements where that is not the default. Equal agents have equal bytes. The endpoint's address
    and secrets are not part of it.
    """
    fields = {
        "agent": AGENT,
        "form": FORM,
        "model": settings.model,
        "mode": settings.mode,
        "most_elements": settings.most_elements,
        "prompts_sha256": prompt.FINGERPRINT,
        "notes": notes,
    }
    if settings.dump_timeout_s != DUMP_TIMEOUT_S:  # a dump that takes longer is answered on the grid
        fields["dump_timeout_s"] = settings.dump_timeout_s
    return json.dumps(fields, sort_keys=True, ensure_ascii=False).encode()


def key(sha256: str) -> str:
    """Where the store has the description with this hash."""
    return f"{FOLDER}/{sha256}.{SUFFIX}"


def named(data: bytes) -> str:
    """The agent's name for people. Raises ValueError for an invalid description."""
    try:
        fields = json.loads(data)
        known = sum(len(gestures) for app in fields["notes"].values() for gestures in app.values())
        model, mode = str(fields["model"])[:LONGEST_NAME], str(fields["mode"])[:LONGEST_NAME]
    except (TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"no description of an agent: {error!r}") from None
    return f"AppAgent, {model}, {mode}, {known} notes" if known else f"AppAgent, {model}, {mode}, no notes"
