"""Frozen dataclasses <-> the plain dicts that fastavro writes and reads, field by field.

Written out by hand because it is the hot path: a generic walk over `dataclasses.fields` costs several times as much.
Maps are written in the order of their keys, so that equal records are equal bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from distrl.types import (
    Action,
    ActionKind,
    DeviceHealth,
    Evaluation,
    Heartbeat,
    HeldBack,
    ObjectRef,
    Outcome,
    Point,
    PutAside,
    Skipped,
    Split,
    Step,
    Task,
    Trajectory,
    Update,
    Version,
    Watermark,
)

Datum = dict[str, Any]

_KINDS = {kind.value: kind for kind in ActionKind}
_SPLITS = {split.value: split for split in Split}
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}
_HELD_BACK = {held.value: held for held in HeldBack}


def _sorted(mapping: Mapping[str, Any]) -> dict[str, Any]:
    return dict(sorted(mapping.items()))


def _from_point(point: Point | None) -> Datum | None:
    return None if point is None else {"x": point.x, "y": point.y}


def _to_point(datum: Datum | None) -> Point | None:
    return None if datum is None else Point(datum["x"], datum["y"])


def _from_ref(ref: ObjectRef) -> Datum:
    return {"key": ref.key, "sha256": ref.sha256, "size": ref.size}


def _to_ref(datum: Datum) -> ObjectRef:
    return ObjectRef(datum["key"], datum["sha256"], datum["size"])


def _from_action(action: Action) -> Datum:
    return {
        "kind": action.kind,
        "touch": _from_point(action.touch),
        "lift": _from_point(action.lift),
        "text": action.text,
    }


def _to_action(datum: Datum) -> Action:
    return Action(_KINDS[datum["kind"]], _to_point(datum["touch"]), _to_point(datum["lift"]), datum["text"])


def from_task(task: Task) -> Datum:
    return {
        "task_id": task.task_id,
        "suite": task.suite,
        "family": task.family,
        "split": task.split,
        "instruction": task.instruction,
        "max_steps": task.max_steps,
        "phone_seed": task.phone_seed,
        "params": _sorted(task.params),
        "setup": task.setup,
        "fed_at": task.fed_at,
        "fed_version": task.fed_version,
    }


def to_task(datum: Datum) -> Task:
    return Task(
        task_id=datum["task_id"],
        suite=datum["suite"],
        family=datum["family"],
        split=_SPLITS[datum["split"]],
        instruction=datum["instruction"],
        max_steps=datum["max_steps"],
        phone_seed=datum["phone_seed"],
        params=datum["params"],
        setup=datum["setup"],
        fed_at=datum["fed_at"],
        fed_version=datum["fed_version"],
    )


def _from_step(step: Step) -> Datum:
    return {
        "screenshot": _from_ref(step.screenshot),
        "prompt_ids": step.prompt_ids,
        "action_ids": step.action_ids,
        "action": _from_action(step.action),
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
        "held_back": step.held_back,
        "restless": step.restless,
    }


def _to_step(datum: Datum) -> Step:
    return Step(
        screenshot=_to_ref(datum["screenshot"]),
        prompt_ids=tuple(datum["prompt_ids"]),
        action_ids=tuple(datum["action_ids"]),
        action=_to_action(datum["action"]),
        action_text=datum["action_text"],
        logprob=datum["logprob"],
        version=datum["version"],
        version_sha256=datum["version_sha256"],
        at=datum["at"],
        phone_ms=datum["phone_ms"],
        adb_ms=datum["adb_ms"],
        policy_ms=datum["policy_ms"],
        publish_ms=datum["publish_ms"],
        valid=datum["valid"],
        held_back=_HELD_BACK[datum["held_back"]],
        restless=datum["restless"],
    )


def from_trajectory(trajectory: Trajectory) -> Datum:
    final = trajectory.final_screenshot
    return {
        "task": from_task(trajectory.task),
        "attempt_id": trajectory.attempt_id,
        "worker": trajectory.worker,
        "device": trajectory.device,
        "steps": [_from_step(step) for step in trajectory.steps],
        "final_screenshot": None if final is None else _from_ref(final),
        "outcome": trajectory.outcome,
        "outcome_source": trajectory.outcome_source,
        "note": trajectory.note,
        "is_expert": trajectory.is_expert,
        "started_at": trajectory.started_at,
        "finished_at": trajectory.finished_at,
        "validity_source": trajectory.validity_source,
        "final_restless": trajectory.final_restless,
    }


def to_trajectory(datum: Datum) -> Trajectory:
    final = datum["final_screenshot"]
    return Trajectory(
        task=to_task(datum["task"]),
        attempt_id=datum["attempt_id"],
        worker=datum["worker"],
        device=datum["device"],
        steps=tuple([_to_step(step) for step in datum["steps"]]),
        final_screenshot=None if final is None else _to_ref(final),
        outcome=_OUTCOMES[datum["outcome"]],
        outcome_source=datum["outcome_source"],
        note=datum["note"],
        is_expert=datum["is_expert"],
        started_at=datum["started_at"],
        finished_at=datum["finished_at"],
        validity_source=datum["validity_source"],
        final_restless=datum["final_restless"],
    )


def from_version(version: Version) -> Datum:
    return {
        "version": version.version,
        "parent": version.parent,
        "update": version.update,
        "base_model_sha256": version.base_model_sha256,
        "adapter": _from_ref(version.adapter),
        "config_fingerprint": version.config_fingerprint,
        "published_at": version.published_at,
        "supersedes": version.supersedes,
    }


def to_version(datum: Datum) -> Version:
    return Version(
        version=datum["version"],
        parent=datum["parent"],
        update=datum["update"],
        base_model_sha256=datum["base_model_sha256"],
        adapter=_to_ref(datum["adapter"]),
        config_fingerprint=datum["config_fingerprint"],
        published_at=datum["published_at"],
        supersedes=tuple(datum["supersedes"]),
    )


def from_update(update: Update) -> Datum:
    return {
        "u": update.u,
        "watermarks": [
            {"topic": mark.topic, "partition": mark.partition, "offset": mark.offset} for mark in update.watermarks
        ],
        "config_fingerprint": update.config_fingerprint,
        "journalled_at": update.journalled_at,
        "put_aside": [
            {"topic": aside.topic, "partition": aside.partition, "offsets": aside.offsets} for aside in update.put_aside
        ],
        "window_sha256": update.window_sha256,
        "log_id": update.log_id,
        "version": update.version,
        "void": update.void,
        "skipped": [
            {"topic": s.topic, "partition": s.partition, "offset": s.offset, "sha256": s.sha256, "reason": s.reason}
            for s in update.skipped
        ],
    }


def to_update(datum: Datum) -> Update:
    return Update(
        u=datum["u"],
        watermarks=tuple([Watermark(mark["topic"], mark["partition"], mark["offset"]) for mark in datum["watermarks"]]),
        config_fingerprint=datum["config_fingerprint"],
        journalled_at=datum["journalled_at"],
        put_aside=tuple([PutAside(a["topic"], a["partition"], tuple(a["offsets"])) for a in datum["put_aside"]]),
        window_sha256=datum["window_sha256"],
        log_id=datum["log_id"],
        version=datum["version"],
        void=datum["void"],
        skipped=tuple(
            [Skipped(s["topic"], s["partition"], s["offset"], s["sha256"], s["reason"]) for s in datum["skipped"]]
        ),
    )


def from_evaluation(evaluation: Evaluation) -> Datum:
    return {
        "version": evaluation.version,
        "version_sha256": evaluation.version_sha256,
        "evaluation_id": evaluation.evaluation_id,
        "trajectory": from_trajectory(evaluation.trajectory),
    }


def to_evaluation(datum: Datum) -> Evaluation:
    return Evaluation(
        version=datum["version"],
        version_sha256=datum["version_sha256"],
        evaluation_id=datum["evaluation_id"],
        trajectory=to_trajectory(datum["trajectory"]),
    )


def from_heartbeat(heartbeat: Heartbeat) -> Datum:
    return {
        "process": heartbeat.process,
        "role": heartbeat.role,
        "at": heartbeat.at,
        "version": heartbeat.version,
        "version_sha256": heartbeat.version_sha256,
        "metrics": _sorted(heartbeat.metrics),
        "devices": [
            {"serial": device.serial, "state": device.state, "counters": _sorted(device.counters)}
            for device in heartbeat.devices
        ],
        "partitions": None if heartbeat.partitions is None else list(heartbeat.partitions),
    }


def to_heartbeat(datum: Datum) -> Heartbeat:
    return Heartbeat(
        process=datum["process"],
        role=datum["role"],
        at=datum["at"],
        version=datum["version"],
        version_sha256=datum["version_sha256"],
        metrics=datum["metrics"],
        devices=tuple([DeviceHealth(item["serial"], item["state"], item["counters"]) for item in datum["devices"]]),
        partitions=None if datum["partitions"] is None else tuple(datum["partitions"]),
    )


FROM_RECORD: Mapping[type, tuple[str, Callable[[Any], Datum]]] = {
    Task: ("task", from_task),
    Trajectory: ("trajectory", from_trajectory),
    Version: ("version", from_version),
    Update: ("update", from_update),
    Evaluation: ("evaluation", from_evaluation),
    Heartbeat: ("heartbeat", from_heartbeat),
}
"""For each record type, the folder of its schemas and how it becomes a dict."""

TO_RECORD: Mapping[type, Callable[[Datum], Any]] = {
    Task: to_task,
    Trajectory: to_trajectory,
    Version: to_version,
    Update: to_update,
    Evaluation: to_evaluation,
    Heartbeat: to_heartbeat,
}
