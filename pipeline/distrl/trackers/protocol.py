"""What a tracker is, and what it is given.

Who drives it: `follow.py`, from one thread: `start` once, `log` for each batch, `finish` at the end. Any of them may
wait or raise; that holds up nobody but the process that tracks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Protocol


class Axis(StrEnum):
    """What a step counts."""

    UPDATE = "update"
    VERSION = "version"


GROUPS: Final[Mapping[str, Axis]] = MappingProxyType(
    {
        "collection": Axis.UPDATE,
        "lag": Axis.UPDATE,
        "learner": Axis.UPDATE,
        "update": Axis.UPDATE,
        "evaluation": Axis.VERSION,
    }
)
"""The first part of every figure's name, and what its steps are."""


@dataclass(frozen=True, slots=True)
class Point:
    """Some figures at one step. A point of an update follows from the log alone, so making it again gives an equal one.
    So does a point of a version, where its evaluator played as many tasks as the tracker's settings say
    (`RunPoints.evaluation`)."""

    source: str
    """What it was made from. A source has one point at each step."""
    axis: Axis
    step: int
    """Number of the update or of the version."""
    at: int
    """When it happened, ms since the epoch."""
    values: Mapping[str, float]
    """By names of letters, digits and `_`, in groups that `/` separates; all finite."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """The run that is tracked."""

    name: str
    began: int
    """When its first settings were recorded, ms since the epoch. Tells it from one of the same name that was
    removed."""
    settings: Mapping[str, Any]
    """Path -> JSON-able value; no credentials, and no addresses or places of a machine."""

    @property
    def id(self) -> str:
        """The same at every start; of a-z, 0-9 and `-`."""
        return f"{self.name}-{self.began}"


class Tracker(Protocol):
    """Errors are the library's own; the caller explains them."""

    def start(self, run: TrackedRun, logged: int) -> None:
        """Begin, or go on with what was begun for this run. logged: how many points `log` has been given in all, and
        are known to have arrived. A tracker may hold more, if it was killed in between; those come again."""

    def log(self, points: Sequence[Point]) -> None:
        """Returns once the points survive the end of this process."""

    def finish(self) -> None:
        """Called also after an error of `log`."""
