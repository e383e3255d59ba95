"""The findings of exploration: for each app, what each of its elements does. Pure, except `load` and `save`.

Written by a model about apps' screens, they are untrusted text: bounded in number and length, and in a prompt only
data.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from distrl.errors import ConfigError

Notes = Mapping[str, Mapping[str, Mapping[str, str]]]
"""Package -> element -> gesture -> note."""

FORMAT: Final = "distrl appagent notes 1"
GESTURES: Final = ("tap", "swipe vertically", "swipe horizontally")
LONGEST_NOTE: Final = 300
LONGEST_NAME: Final = 160
MOST_APPS: Final = 40
MOST_ELEMENTS: Final = 150
"""Most elements with notes, per app; further ones are not noted."""
LARGEST: Final = 32 * 2**20
"""Bytes of a file: room for the most and longest notes."""


def with_note(notes: Notes, package: str, element: str, gesture: str, text: str) -> Notes:
    """`notes` with one more, which replaces the note of that gesture; unchanged if it does not fit."""
    note = " ".join(text.split())[:LONGEST_NOTE]
    app = notes.get(package, {})
    full = (package not in notes and len(notes) >= MOST_APPS) or (element not in app and len(app) >= MOST_ELEMENTS)
    if full or not note or not _is_name(package) or not _is_name(element):
        return notes
    return {**notes, package: {**app, element: {**app.get(element, {}), gesture: note}}}


def count(notes: Notes) -> int:
    return sum(len(gestures) for app in notes.values() for gestures in app.values())


def to_bytes(notes: Notes) -> bytes:
    return (json.dumps({"format": FORMAT, "apps": notes}, sort_keys=True, indent=1, ensure_ascii=False) + "\n").encode()


def load(path: Path) -> Notes:
    """Raises ConfigError for a file that cannot be read or is not a file of notes."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
        parsed = json.loads(data) if len(data) <= LARGEST else None
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read ({error.strerror})", "name a file of notes") from None
    except (ValueError, RecursionError):
        parsed = None
    apps = parsed.get("apps") if isinstance(parsed, dict) and parsed.get("format") == FORMAT else None
    if not isinstance(apps, dict) or len(apps) > MOST_APPS or not all(map(_is_app, apps.items())):
        raise ConfigError(
            str(path), f"holds no notes of the form '{FORMAT}'", "name a file that `distrl appagent explore` wrote"
        )
    return apps


def save(path: Path, notes: Notes) -> None:
    """Write the file atomically. Raises ConfigError if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(to_bytes(notes))
            os.replace(name, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        raise ConfigError(str(path), f"cannot be written ({error.strerror})", "name another file") from None


def _is_app(item: tuple[object, object]) -> bool:
    package, app = item
    return (
        _is_name(package) and isinstance(app, dict) and len(app) <= MOST_ELEMENTS and all(map(_is_noted, app.items()))
    )


def _is_noted(item: tuple[object, object]) -> bool:
    element, gestures = item
    return (
        _is_name(element)
        and isinstance(gestures, dict)
        and all(
            gesture in GESTURES and isinstance(text, str) and 0 < len(text) <= LONGEST_NOTE
            for gesture, text in gestures.items()
        )
    )


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= LONGEST_NAME
