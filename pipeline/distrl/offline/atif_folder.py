"""A range of trajectories in the Agent Trajectory Interchange Format, ATIF v1.7: a JSON document each, and the screens.

    trajectories/PARTITION-OFFSET.json
    images/SHA256.png         named by the documents as ../images/SHA256.png
    manifest.json

The first step is the user's, with the instruction and the first screen; each further one is the agent's, whose
observation is the screen after it. The package `atif` is not needed to write it; tests validate with it.
Specification: https://github.com/harbor-framework/harbor/blob/main/rfcs/0001-trajectory-format.md
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.metadata import version as installed
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from distrl.broker.topics import TOPICS
from distrl.errors import ConfigError
from distrl.offline.export import Digest
from distrl.offline.new_folder import FolderFormat, NewFolder
from distrl.offline.replay import Item
from distrl.offline.screens import Fetch, Screens
from distrl.offline.topic_range import TopicRange
from distrl.types import SCRIPTED, Action, Evaluation, ObjectRef, Step, Trajectory

FORMAT: Final = FolderFormat("distrl-atif/1", re.compile(r"trajectories/[0-9]+-[0-9]+\.json|images/[0-9a-f]{64}\.png"))
SCHEMA: Final = "ATIF-v1.7"
"""Nothing of later versions is used, so that readers of this one take it."""

Json = dict[str, Any]
Locate = Callable[[ObjectRef], str | None]
"""Where a screen lies, seen from a document; None for one that is absent."""


class AtifFolder:
    """One folder being written. A context manager: without `finish` nothing is left behind. Raises as NewFolder, and
    ConfigError for a topic without trajectories."""

    def __init__(self, topic_range: TopicRange, folder: Path, fetch: Fetch, force: bool = False) -> None:
        if TOPICS[topic_range.topic].record not in (Trajectory, Evaluation):
            raise ConfigError(
                topic_range.topic, "has no screenshots", "name trajectories, demonstrations or evaluations with --topic"
            )
        self._range, self._screens, self._digest, self._documents = topic_range, Screens(fetch), Digest(), 0
        self._folder = NewFolder(folder, FORMAT, force)

    def __enter__(self) -> AtifFolder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.__exit__(kind, error, trace)

    def put(self, item: Item) -> None:
        """Add the next record; one that cannot be decoded goes into the manifest only. Raises StoreError."""
        self._digest.put(item)
        if not isinstance(item.record, Trajectory | Evaluation):
            return
        at = item.raw.position
        try:
            made = document(item.record, self._range.run, f"{at.topic}/{at.partition}/{at.offset}", self._image)
            text = json.dumps(made, indent=1, allow_nan=False) + "\n"
            self._write(f"trajectories/{at.partition}-{at.offset}.json", text.encode())
        except OSError as error:
            raise self._folder.not_written(error) from None
        self._documents += 1

    def finish(self) -> str:
        """Write the manifest, rename the folder; returns a line for people. Raises StoreError where it fails, and
        ConfigError where something has come to be at its place."""
        try:
            self._folder.commit(
                {
                    "run": self._range.run,
                    "topic": self._range.name,
                    "ranges": [{"partition": r.partition, "from": r.first, "to": r.to} for r in self._range.ranges],
                    **self._digest.summary(),
                    "documents": self._documents,
                    "schema_version": SCHEMA,
                    "absent_screenshots": sorted(self._screens.absent),
                    "written_by": {"distrl": installed("distrl")},
                }
            )
        except OSError as error:
            raise self._folder.not_written(error) from None
        return f"{self._folder.place}: {self._documents} documents of {SCHEMA}{self._screens.told}"

    def _image(self, ref: ObjectRef) -> str | None:
        png, name = self._screens.png(ref), f"images/{ref.sha256}.png"
        if png is None:
            return None
        if not (self._folder.partial / name).exists():
            self._write(name, png)
        return f"../{name}"

    def _write(self, name: str, data: bytes) -> None:
        path = self._folder.partial / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)


def document(record: Trajectory | Evaluation, run: str, place: str, image: Locate) -> Json:
    """The ATIF document of an attempt. place: of its record."""
    played = record.trajectory if isinstance(record, Evaluation) else record
    evaluated = {"evaluated_version": record.version} if isinstance(record, Evaluation) else {}
    first = played.steps[0].screenshot if played.steps else played.final_screenshot
    after = [*(step.screenshot for step in played.steps[1:]), played.final_screenshot][: len(played.steps)]
    steps = [
        {
            "step_id": 1,
            "timestamp": _time(played.started_at),
            "source": "user",
            "message": [{"type": "text", "text": played.task.instruction}, *_screen(first, image)],
        },
        *(
            _turn(number, step, seen, image)
            for number, (step, seen) in enumerate(zip(played.steps, after, strict=True))
        ),
    ]
    return {
        "schema_version": SCHEMA,
        "session_id": run,
        "trajectory_id": place,
        "agent": {"name": "distrl", "version": installed("distrl"), "extra": {"worker": played.worker}},
        "steps": steps,
        "final_metrics": {"total_steps": len(steps)},
        "extra": {
            "task_id": played.task_id,
            "suite": played.task.suite,
            "family": played.task.family,
            "split": played.task.split.value,
            "attempt_id": played.attempt_id,
            "device": played.device,
            "outcome": played.outcome.value,
            "outcome_source": played.outcome_source,
            "is_demonstration": played.is_expert,
            **evaluated,
        },
    }


def _turn(number: int, step: Step, seen: ObjectRef | None, image: Locate) -> Json:
    """An agent's step. seen: the screen after it."""
    call = f"step-{number}"
    turn: Json = {
        "step_id": number + 2,
        "timestamp": _time(step.at),
        "source": "agent",
        "message": step.action_text,
        "tool_calls": [
            {"tool_call_id": call, "function_name": step.action.kind.value, "arguments": _arguments(step.action)}
        ],
        "extra": {"version": step.version, "version_sha256": step.version_sha256, "held_back": step.held_back.value},
    }
    if content := _screen(seen, image):
        turn["observation"] = {"results": [{"source_call_id": call, "content": content}]}
    if step.version == SCRIPTED:
        return turn | {"llm_call_count": 0}
    ids = {"prompt_token_ids": list(step.prompt_ids), "completion_token_ids": list(step.action_ids)}
    counts = {"prompt_tokens": len(step.prompt_ids), "completion_tokens": len(step.action_ids)}
    known = counts | ids if step.action_ids else {}  # of a prompted agent none is recorded
    return turn | {"metrics": {**known, "extra": {"logprob_sum": _finite(step.logprob)}}}


def _arguments(action: Action) -> Mapping[str, Any]:
    """Points are shares of the screen, from its upper left corner."""
    points = {"touch": action.touch, "lift": action.lift}
    made: Json = {name: [_finite(at.x), _finite(at.y)] for name, at in points.items() if at is not None}
    return made | ({"text": action.text} if action.text else {})


def _screen(ref: ObjectRef | None, image: Locate) -> list[Json]:
    path = None if ref is None else image(ref)
    return [] if path is None else [{"type": "image", "source": {"media_type": "image/png", "path": path}}]


def _time(at_ms: int) -> str | None:
    """ISO 8601; None for a time that no calendar has: records are untrusted."""
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return None


def _finite(value: float) -> float | None:
    """JSON has no other numbers."""
    return value if math.isfinite(value) else None
