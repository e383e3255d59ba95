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
"""Raise it when the prompts, or the effect of the answers, change, so that it counts as another agent."""
LONGEST_NAME: Final = 80
DEFAULTS: Final = AppAgentSettings()
LATER: Final = ("dump_timeout_s", "temperature")
"""Settings that were added later. A description names one only if it differs from its default, so that earlier agents
keep their identity. (dump_timeout_s counts because a slower dump leads to the grid.)"""


def description(settings: AppAgentSettings, notes: Notes) -> bytes:
    """What determines its actions, as JSON: the model's name, the task-independent prompts, the notes, and of the
    settings in `LATER` those that are not the default. Equal agents have equal bytes. The endpoint's address and
    secrets are not part of it.
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
    fields |= {name: value for name in LATER if (value := getattr(settings, name)) != getattr(DEFAULTS, name)}
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
