"""What the index keeps of a record: one row each. Pure: a record and its place in, a row out.

Texts are those of the record, so untrusted; the long ones are shortened here and are whole where the episode is opened.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from distrl.evaluate.failures import conditions_of, mode_of
from distrl.types import Evaluation, LogPosition, Outcome, Trajectory

TEXT_CHARACTERS: Final = 1_000
"""Most characters of an instruction in a row. A page of 500 rows must not become as large as 500 records."""
NAME_CHARACTERS: Final = 200
"""Most characters of every other text in a row."""
CONDITIONS: Final = 32
"""Most failed conditions kept of one episode."""


@dataclass(frozen=True, slots=True)
class EpisodeRow:
    """An episode in the index; the columns of the table `episodes`, in their order."""

    topic: str
    """A key of TOPICS."""
    partition: int
    offset: int
    task_id: str
    """Whole: episodes of a task are found by it."""
    suite: str
    family: str
    split: str
    instruction: str
    outcome: str
    outcome_source: str
    steps: int
    version_first: int | None
    """The oldest version that chose a step; None without steps. Below 0: a script or an agent without weights."""
    version_last: int | None
    lag: int | None
    """Versions between the oldest that acted and the newest published when it ended; the index fills it in."""
    device: str
    worker: str
    started_at: int
    finished_at: int
    expert: bool
    evaluated: int | None
    """Of an evaluation, the version that it counts for."""
    evaluated_sha256: str | None
    mode: str | None
    """How it failed (`distrl.evaluate.failures`)."""
    conditions: str
    """JSON: the conditions that it did not meet."""
    step_ms: float | None
    """Mean time of a step: policy, phone, adb and store."""


def episode_row(topic: str, at: LogPosition, record: Trajectory | Evaluation) -> EpisodeRow:
    evaluation = record if isinstance(record, Evaluation) else None
    played = record.trajectory if isinstance(record, Evaluation) else record
    task, versions = played.task, [step.version for step in played.steps]
    mode = mode_of(played)
    failed = conditions_of(played) if played.outcome is Outcome.FAILURE else []
    return EpisodeRow(
        topic=topic,
        partition=at.partition,
        offset=at.offset,
        task_id=task.task_id,
        suite=shortened(task.suite, NAME_CHARACTERS),
        family=shortened(task.family, NAME_CHARACTERS),
        split=task.split.value,
        instruction=shortened(task.instruction, TEXT_CHARACTERS),
        outcome=played.outcome.value,
        outcome_source=shortened(played.outcome_source, NAME_CHARACTERS),
        steps=len(versions),
        version_first=min(versions, default=None),
        version_last=max(versions, default=None),
        lag=None,
        device=shortened(played.device, NAME_CHARACTERS),
        worker=shortened(played.worker, NAME_CHARACTERS),
        started_at=played.started_at,
        finished_at=played.finished_at,
        expert=played.is_expert,
        evaluated=evaluation.version if evaluation else None,
        evaluated_sha256=evaluation.version_sha256 if evaluation else None,
        mode=mode.value if mode else None,
        conditions=json.dumps(_each_once(shortened(each, NAME_CHARACTERS) for each in failed)[:CONDITIONS]),
        step_ms=_step_ms(played),
    )


def first_uses(played: Trajectory) -> list[tuple[str, int, int]]:
    """(worker, version, when it chose the first step) for each published version that acted."""
    first: dict[int, int] = {}
    for step in played.steps:
        if step.version >= 0:
            first[step.version] = min(first.get(step.version, step.at), step.at)
    worker = shortened(played.worker, NAME_CHARACTERS)
    return [(worker, version, at) for version, at in first.items()]


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _step_ms(played: Trajectory) -> float | None:
    spent = [step.policy_ms + step.phone_ms + step.adb_ms + step.publish_ms for step in played.steps]
    mean = sum(spent) / len(spent) if spent else 0.0
    return mean if mean > 0.0 and math.isfinite(mean) else None


def _each_once(texts: Iterable[str]) -> list[str]:
    """Two that are equal once they are shortened are one: an episode is counted once for each."""
    return list(dict.fromkeys(texts))
