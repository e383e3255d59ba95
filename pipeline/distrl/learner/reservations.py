"""Version numbers that were assigned, persisted in the store, so that no number is ever reused for other weights, even
if the version's record is lost.

Each reservation is an empty object whose name holds the number, the update and the sha256 of the weights. No object is
ever overwritten with other content, so a late request of a replaced learner does no harm. Runs that were begun by
earlier software may have one more object, which is read but no longer written (EARLIER).
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
"""Digits of a number in a name: with leading zeros, names sort in the order of the numbers."""

NAME: Final = re.compile(rf"([0-9]{{{DIGITS}}})-(-?[0-9]{{{DIGITS - 1},{DIGITS}}})-({SHA256.pattern})")
"""<version>-<update>-<sha256>. The update may be -1: without a warm-up, version 0 is made before any update."""

EARLIER: Final = "newest-version.json"
"""Object under runs/<run>/ in which earlier software kept the highest number, with its update and sha256."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """version: the number. update: the one after which it is published. sha256: of its weights."""

    version: int
    update: int
    sha256: str


def highest(store: ObjectStore, run: str) -> list[Reservation]:
    """The reservations with the highest number: several where a learner that was replaced had reserved it too; none
    before the first. Raises StoreError."""
    found = [each for key in store.list(_folder(run)) if (each := _of(key)) is not None]
    found += _of_earlier_software(store, run)
    most = max((each.version for each in found), default=-1)
    return [each for each in found if each.version == most]


def highest_number(store: ObjectStore, run: str) -> int:
    """The highest reserved number; -1 before the first. Raises StoreError."""
    return max((each.version for each in highest(store, run)), default=-1)


def reserve(store: ObjectStore, run: str, made: Reservation) -> None:
    """Persist `made`, and delete those with lower numbers, which nobody reads any more. Raises StoreError."""
    name = f"{made.version:0{DIGITS}d}-{made.update:0{DIGITS}d}-{made.sha256}"
    store.put_named(_folder(run) + name, b"")
    with suppress(StoreError):  # what is left does no harm, and is deleted at the next reservation
        for key in list(store.list(_folder(run))):
            each = _of(key)
            if each is not None and each.version < made.version:
                store.delete(key)


def _folder(run: str) -> str:
    return f"{RUNS.of(run)}/reserved-versions/"


def _of(key: str) -> Reservation | None:
    """The reservation that an object's key names; None, with a warning, for any other key."""
    found = NAME.fullmatch(key.rsplit("/", 1)[-1])
    if found is None:
        LOG.warning("%s is the name of no reserved version; it is skipped", key)
        return None
    version, update, sha256 = found.groups()
    return Reservation(int(version), int(update), sha256)


def _of_earlier_software(store: ObjectStore, run: str) -> list[Reservation]:
    """The reservation in the object EARLIER, if there is one; none, with a warning, where it cannot be read."""
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
