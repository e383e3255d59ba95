"""How attempts fail (DistRL, A.6.1 and figure 11): stuck midway, at a wrong goal, or not recovered from a mistake.

The paper does not say how it tells the three apart. Here they are read from the recorded steps, in this order, so that
each failure has one mode and no judge is needed:

    wrong goal          the agent said that the task was done, and it was not
    stuck midway        it ran out of steps, the last half of which showed two screens or fewer
    failed to recover   it ran out of steps while it still moved from screen to screen
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Final

from distrl.types import ActionKind, LogPosition, Outcome, Trajectory

FEWEST_LAST: Final = 3
"""Fewest last steps that decide whether it was stuck."""
SCREENS_STUCK: Final = 2
"""Most distinct screens of a stuck agent: one that moves to and fro between two gets no further either."""


NOT_RECORDED: Final = "not recorded"
"""In place of a condition: a judge decided, or the record is of version 3 or older."""


class Mode(Enum):
    WRONG_GOAL = "wrong goal"
    STUCK = "stuck midway"
    NOT_RECOVERED = "failed to recover"


@dataclass(frozen=True, slots=True)
class JudgedAttempt:
    """An attempt at a task, for the statistics."""

    trajectory: Trajectory
    version: int
    """The version that it counts for."""
    position: LogPosition
    """Of its record."""
    agent: str = ""
    """Label of the agent without weights that acted in place of a version; else empty."""

    @property
    def mode(self) -> Mode | None:
        return mode_of(self.trajectory)


@dataclass(frozen=True, slots=True)
class Modes:
    """Failure modes of one suite under versions `first` to `last`, or of `agent`."""

    suite: str
    first: int
    last: int
    attempts: int
    """Judged attempts."""
    counts: Mapping[Mode, int]
    """How many of them failed in each mode."""
    agent: str = ""

    @property
    def who(self) -> str:
        """The versions or the agent, for people."""
        if self.agent:
            return f"agent {self.agent}"
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"

    @property
    def failures(self) -> int:
        return sum(self.counts.values())

    def share(self, mode: Mode) -> float:
        """Share of all attempts, as in figure 11 of the paper."""
        return self.counts[mode] / self.attempts


def lean(trajectory: Trajectory) -> Trajectory:
    """`trajectory` without what no statistic and no page here reads and most of its memory is: what its steps read and
    wrote."""
    steps = tuple(replace(step, prompt_ids=(), action_ids=(), action_text="") for step in trajectory.steps)
    return replace(trajectory, steps=steps)


def mode_of(trajectory: Trajectory) -> Mode | None:
    """How `trajectory` failed; None where it did not, was interrupted, was not judged, or has no steps."""
    steps = trajectory.steps
    if trajectory.outcome is not Outcome.FAILURE or not steps:
        return None
    if steps[-1].action.kind is ActionKind.COMPLETE:
        return Mode.WRONG_GOAL
    last = steps[-max(FEWEST_LAST, len(steps) // 2) :]
    stuck = len({step.screenshot.sha256 for step in last}) <= SCREENS_STUCK
    return Mode.STUCK if stuck else Mode.NOT_RECOVERED


@dataclass(frozen=True, slots=True)
class FailedCondition:
    """A condition of a family's check, and the failed attempts that did not meet it."""

    suite: str
    family: str
    condition: str
    """Path and rule, as `clock.alarms equals`; NOT_RECORDED where the record has no reason."""
    attempts: tuple[JudgedAttempt, ...]
    failures: int
    """Of the family: an attempt may fail in several conditions."""

    def to_json(self) -> dict[str, Any]:
        return {
            "suite": self.suite,
            "family": self.family,
            "condition": self.condition,
            "attempts": len(self.attempts),
            "failures_of_family": self.failures,
        }


def by_condition(attempts: Iterable[JudgedAttempt]) -> list[FailedCondition]:
    """What failed, the most frequent first. Attempts that ground truth did not judge are `NOT_RECORDED`."""
    failed: dict[tuple[str, str], list[JudgedAttempt]] = defaultdict(list)
    for each in attempts:
        if each.trajectory.outcome is Outcome.FAILURE:
            failed[each.trajectory.task.suite, each.trajectory.task.family].append(each)
    found = []
    for (suite, family), group in failed.items():
        conditions: dict[str, list[JudgedAttempt]] = defaultdict(list)
        for each in group:
            for condition in conditions_of(each.trajectory):
                conditions[condition].append(each)
        found += [FailedCondition(suite, family, name, tuple(of), len(group)) for name, of in conditions.items()]
    return sorted(found, key=lambda one: (-len(one.attempts), one.suite, one.family, one.condition))


def conditions_of(failed: Trajectory) -> list[str]:
    """The conditions that a failed attempt did not meet, each once. Untrusted text."""
    return list(dict.fromkeys(f"{each.path} {each.rule}" for each in failed.unmet)) or [NOT_RECORDED]


def by_suite_and_version(attempts: Iterable[JudgedAttempt], together: int) -> list[Modes]:
    """Rows for each suite: one per `together` (1 or more) consecutive versions, and one per agent, sorted. Only judged
    attempts count.
    """
    modes: dict[tuple[str, str, int], list[Mode | None]] = defaultdict(list)
    for each in attempts:
        if each.trajectory.outcome.is_known and each.trajectory.steps:
            first = each.version if each.agent else each.version // together * together
            modes[each.trajectory.task.suite, each.agent, first].append(each.mode)
    return [
        Modes(suite, first, first if agent else first + together - 1, len(found), _counted(found), agent)
        for (suite, agent, first), found in sorted(modes.items())
    ]


def _counted(found: Iterable[Mode | None]) -> dict[Mode, int]:
    counts = Counter(found)
    return {mode: counts[mode] for mode in Mode}
