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
from typing import Any, Final

from distrl.offline.episode_folder import EpisodeFolder
from distrl.offline.new_folder import FolderFormat
from distrl.offline.replay import Item
from distrl.types import PROMPTED, SCRIPTED, Action, Evaluation, ObjectRef, Step, Trajectory

FORMAT: Final = FolderFormat("distrl-atif/1", re.compile(r"trajectories/[0-9]+-[0-9]+\.json|images/[0-9a-f]{64}\.png"))
SCHEMA: Final = "ATIF-v1.7"
"""Nothing of later versions is used, so that readers of this one take it."""

Json = dict[str, Any]
Locate = Callable[[ObjectRef], str | None]
"""Where a screen lies, seen from a document; None for one that is absent."""


class AtifFolder(EpisodeFolder):
    """See the module."""

    form = FORMAT
    _documents = 0

    def _put(self, item: Item) -> None:
        if not isinstance(item.record, Trajectory | Evaluation):
            return
        at = item.raw.position
        made = document(item.record, self._range.run, f"{at.topic}/{at.partition}/{at.offset}", self._image)
        text = json.dumps(made, indent=1, allow_nan=False) + "\n"
        self._write(f"trajectories/{at.partition}-{at.offset}.json", text.encode())
        self._documents += 1

    def _finish(self) -> dict[str, Any]:
        return {
            "documents": self._documents,
            "schema_version": SCHEMA,
            "written_by": {"distrl": installed("distrl")},
        }

    def _summary(self) -> str:
        return f"{self._documents} documents of {SCHEMA}"

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
    known = counts | ids if step.action_ids else {}  # a prompted agent records none
    extra = {} if step.version == PROMPTED else {"logprob_sum": _finite(step.logprob)}  # nor a probability
    if step.entropy is not None:
        extra["entropy_mean"] = _finite(step.entropy)
    return turn | {"metrics": {**known, "extra": extra}}


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
    """None for NaN and infinities, which JSON does not have."""
    return value if math.isfinite(value) else None
