"""Version numbers that were given, kept in the store: the number of a record that is lost goes to no other weights.

One object for each, named by the number, the update and the sha256 of the weights, so that none is ever written again
with another content: a learner that was replaced, whose request arrives late, lowers no number and changes no meaning.
A run that was begun by earlier software may have one more, which nothing writes any more (EARLIER).
"""

from __future__ import annotations

import json
import logging
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from distrl.errors import StoreError
from distrl.store.folders import RUNS
from distrl.store.objects import SHA256, ObjectStore

LOG = logging.getLogger("distrl.learner.reservations")

DIGITS: Final = 12
"""Of a number in a name, so that names are in the order of the numbers."""

NAME: Final = re.compile(rf"([0-9]{{{DIGITS}}})-(-?[0-9]{{{DIGITS - 1},{DIGITS}}})-({SHA256.pattern})")
"""Without a warm-up version 0 is made after update -1."""

EARLIER: Final = "newest-version.json"
"""Object under runs/<run>/ in which earlier software kept the highest number, with its update and sha256."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """version: the number. update, sha256: after which it is published, and of which weights."""

    version: int
    update: int
    sha256: str


def highest(store: ObjectStore, run: str) -> list[Reservation]:
    """Those with the highest number: one, or several where a learner that was replaced had given it, too; none before
    the first. Raises StoreError."""
    found = [each for key in store.list(_folder(run)) if (each := _of(key)) is not None]
    found += _of_earlier_software(store, run)
    most = max((each.version for each in found), default=-1)
    return [each for each in found if each.version == most]


def highest_number(store: ObjectStore, run: str) -> int:
    """-1 before the first. Raises StoreError."""
    return max((each.version for each in highest(store, run)), default=-1)


def reserve(store: ObjectStore, run: str, made: Reservation) -> None:
    """Keep `made`; those of lower numbers, which nobody reads any more, go. Raises StoreError."""
    name = f"{made.version:0{DIGITS}d}-{made.update:0{DIGITS}d}-{made.sha256}"
    store.put_named(_folder(run) + name, b"")
    with suppress(StoreError):  # one too many costs nothing, and goes with the next
        for key in list(store.list(_folder(run))):
            each = _of(key)
            if each is not None and each.version < made.version:
                store.delete(key)


def _folder(run: str) -> str:
    return f"{RUNS.of(run)}/reserved-versions/"


def _of(key: str) -> Reservation | None:
    """None, with a warning, for a name that no reservation has."""
    found = NAME.fullmatch(key.rsplit("/", 1)[-1])
    if found is None:
        LOG.warning("%s is the name of no reserved version; it is skipped", key)
        return None
    version, update, sha256 = found.groups()
    return Reservation(int(version), int(update), sha256)


def _of_earlier_software(store: ObjectStore, run: str) -> list[Reservation]:
    """None, with a warning, where its object cannot be read."""
    key = f"{RUNS.of(run)}/{EARLIER}"
    data = store.get_named(key)
    if data is None:
        return []
    try:
        found = json.loads(data)
        return [Reservation(int(found["version"]), int(found["update"]), str(found["sha256"]))]
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        LOG.warning("%s holds no reserved version; it is skipped", key)
        return []
