"""The columns of an exported Parquet file: typed, and for what holds a trajectory a row per step.

Every row begins with its record's place in the log. A trajectory without steps has no row. Records that hold no
trajectory are a row each, their fields as columns, what is nested as structs, lists and maps.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any, Final

import pyarrow as pa

from distrl.offline.replay import Item
from distrl.types import Evaluation, Point, Record, Step, Trajectory
from distrl.wire.convert import to_datum

Row = Mapping[str, Any]

TIME: Final = pa.timestamp("ms", tz="UTC")
INTEGERS: Final = pa.list_(pa.int64())

PLACE: Final = {
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIME,
    "key": pa.binary(),
}

EVALUATION: Final = {
    "evaluation_id": pa.string(),
    "evaluated_version": pa.int64(),
    "evaluated_sha256": pa.string(),
}

TRAJECTORY: Final = {
    "task_id": pa.string(),
    "suite": pa.string(),
    "family": pa.string(),
    "split": pa.string(),
    "instruction": pa.string(),
    "params": pa.map_(pa.string(), pa.string()),
    "phone_seed": pa.int64(),
    "max_steps": pa.int64(),
    "fed_at": TIME,
    "fed_version": pa.int64(),
    "attempt_id": pa.string(),
    "worker": pa.string(),
    "device": pa.string(),
    "outcome": pa.string(),
    "outcome_source": pa.string(),
    "note": pa.string(),
    "is_expert": pa.bool_(),
    "started_at": TIME,
    "finished_at": TIME,
    "validity_source": pa.string(),
    "final_restless": pa.bool_(),
    "steps": pa.int32(),
    "final_screenshot_key": pa.string(),
    "final_screenshot_sha256": pa.string(),
}

STEP: Final = {
    "step": pa.int32(),
    "screenshot_key": pa.string(),
    "screenshot_sha256": pa.string(),
    "screenshot_size": pa.int64(),
    "prompt_ids": INTEGERS,
    "action_ids": INTEGERS,
    "action": pa.string(),
    "touch_x": pa.float64(),
    "touch_y": pa.float64(),
    "lift_x": pa.float64(),
    "lift_y": pa.float64(),
    "typed": pa.string(),
    "action_text": pa.string(),
    "logprob": pa.float64(),
    "version": pa.int64(),
    "version_sha256": pa.string(),
    "at": TIME,
    "phone_ms": pa.float64(),
    "adb_ms": pa.float64(),
    "policy_ms": pa.float64(),
    "publish_ms": pa.float64(),
    "valid": pa.bool_(),
    "held_back": pa.string(),
    "restless": pa.bool_(),
}


def schema_of(kind: type[Record] | None) -> pa.Schema:
    """The columns of records of `kind`; None: of records whose bytes nothing is known of."""
    if kind is Trajectory:
        return pa.schema(PLACE | TRAJECTORY | STEP)
    if kind is Evaluation:
        return pa.schema(PLACE | EVALUATION | TRAJECTORY | STEP)
    if kind is None:
        headers = pa.list_(pa.struct({"name": pa.string(), "value": pa.binary()}))
        return pa.schema(PLACE | {"headers": headers, "value": pa.binary()})
    return pa.schema(PLACE | _fields(kind))


def rows_of(item: Item) -> Iterable[Row]:
    """The rows of one readable record, as `schema_of` its kind says."""
    raw, record = item.raw, item.record
    at = raw.position
    place = {
        "topic": at.topic,
        "partition": at.partition,
        "offset": at.offset,
        "timestamp": None if raw.timestamp < 0 else raw.timestamp,
        "key": raw.key,
    }
    if isinstance(record, Trajectory):
        return [place | row for row in _step_rows(record)]
    if isinstance(record, Evaluation):
        about = {
            "evaluation_id": record.evaluation_id,
            "evaluated_version": record.version,
            "evaluated_sha256": record.version_sha256,
        }
        return [place | about | row for row in _step_rows(record.trajectory)]
    if record is None:
        return [place | {"headers": [{"name": n, "value": v} for n, v in raw.headers], "value": raw.value}]
    return [place | to_datum(record)]


def _step_rows(trajectory: Trajectory) -> list[dict[str, Any]]:
    task, final = trajectory.task, trajectory.final_screenshot
    same = {
        "task_id": task.task_id,
        "suite": task.suite,
        "family": task.family,
        "split": task.split.value,
        "instruction": task.instruction,
        "params": list(task.params.items()),
        "phone_seed": task.phone_seed,
        "max_steps": task.max_steps,
        "fed_at": task.fed_at or None,
        "fed_version": task.fed_version,
        "attempt_id": trajectory.attempt_id,
        "worker": trajectory.worker,
        "device": trajectory.device,
        "outcome": trajectory.outcome.value,
        "outcome_source": trajectory.outcome_source,
        "note": trajectory.note,
        "is_expert": trajectory.is_expert,
        "started_at": trajectory.started_at,
        "finished_at": trajectory.finished_at,
        "validity_source": trajectory.validity_source,
        "final_restless": trajectory.final_restless,
        "steps": len(trajectory.steps),
        "final_screenshot_key": None if final is None else final.key,
        "final_screenshot_sha256": None if final is None else final.sha256,
    }
    return [same | {"step": index} | _of_step(step) for index, step in enumerate(trajectory.steps)]


def _of_step(step: Step) -> dict[str, Any]:
    action = step.action
    (touch_x, touch_y), (lift_x, lift_y) = _both(action.touch), _both(action.lift)
    return {
        "screenshot_key": step.screenshot.key,
        "screenshot_sha256": step.screenshot.sha256,
        "screenshot_size": step.screenshot.size,
        "prompt_ids": step.prompt_ids,
        "action_ids": step.action_ids,
        "action": action.kind.value,
        "touch_x": touch_x,
        "touch_y": touch_y,
        "lift_x": lift_x,
        "lift_y": lift_y,
        "typed": action.text,
        "action_text": step.action_text,
        "logprob": step.logprob,
        "version": step.version,
        "version_sha256": step.version_sha256,
        "at": step.at,
        "phone_ms": step.phone_ms,
        "adb_ms": step.adb_ms,
        "policy_ms": step.policy_ms,
        "publish_ms": step.publish_ms,
        "valid": step.valid,
        "held_back": step.held_back.value,
        "restless": step.restless,
    }


def _both(point: Point | None) -> tuple[float | None, float | None]:
    return (None, None) if point is None else (point.x, point.y)


def _fields(kind: type) -> dict[str, pa.DataType]:
    """The columns of a record whose fields are written as they are."""
    hints = typing.get_type_hints(kind)
    return {field.name: _type(hints[field.name]) for field in dataclasses.fields(kind)}


def _type(kind: Any) -> pa.DataType:
    """The Arrow type of a field of `types.py`."""
    scalars = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string()}
    if kind in scalars:
        return scalars[kind]
    arguments = typing.get_args(kind)
    if isinstance(kind, types.UnionType):
        return _type(next(each for each in arguments if each is not types.NoneType))
    origin = typing.get_origin(kind)
    if origin is tuple:
        return pa.list_(_type(arguments[0]))
    if origin is not None:  # the only other generic of types.py is a mapping with text as keys
        return pa.map_(pa.string(), _type(arguments[1]))
    return pa.string() if issubclass(kind, Enum) else pa.struct(_fields(kind))
