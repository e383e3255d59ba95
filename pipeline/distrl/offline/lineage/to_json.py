"""Lineage as JSON, in a stable form for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from distrl.offline.lineage.trace import Attempt, Learned, UpdateAdmission, UpdateInterval, VersionLineage
from distrl.types import LogPosition, Version


def version_json(found: VersionLineage) -> dict[str, Any]:
    """The whole lineage of a version."""
    return {
        "version": _version(found.version),
        "parents": [_version(each) for each in found.parents],
        "updates": [_admission(each) for each in found.updates],
        "trajectories": [_learned(each) for each in found.trajectories],
    }


def attempt_json(found: Attempt) -> dict[str, Any]:
    """The whole lineage of one record of a task id."""
    logged = found.logged
    return {
        "task_id": logged.trajectory.task_id,
        **_place(logged.position),
        "outcome": logged.trajectory.outcome.value,
        "is_expert": logged.trajectory.is_expert,
        "acted": [
            {"step": i, "version": step.version, "version_sha256": step.version_sha256}
            for i, step in enumerate(logged.trajectory.steps)
        ],
        "folded": found.folded,
        "skipped": found.skipped,
        "duplicate": found.is_duplicate,
        "learned": None if found.learned is None else _learned(found.learned),
        "learned_by_versions": list(found.learned_by),
        "in_weights_of_versions": list(found.in_weights_of),
    }


def _version(version: Version) -> dict[str, Any]:
    return {
        "version": version.version,
        "parent": version.parent,
        "update": version.update,
        "adapter_sha256": version.adapter.sha256,
        "base_model_sha256": version.base_model_sha256,
        "config_fingerprint": version.config_fingerprint,
        "published_at": version.published_at,
    }


def _admission(each: UpdateAdmission) -> dict[str, Any]:
    return {
        "u": each.update.u,
        "phase": each.phase,
        "config_fingerprint": each.update.config_fingerprint,
        "journalled_at": each.update.journalled_at,
        "windows": [{"topic": w.topic, "partition": w.partition, "from": w.first, "to": w.to} for w in each.windows],
        "admitted": each.admitted,
        "left_out": each.left_out,
        "resident": each.resident,
        "resident_transitions": each.transitions,
    }


def _learned(each: Learned) -> dict[str, Any]:
    return {
        "task_id": each.task_id,
        **_place(each.position),
        "is_expert": each.is_expert,
        "outcome": each.outcome.value,
        "steps": each.steps,
        "admitted": each.admitted,
        "left_out": each.left_out,
        "cloned": _interval(each.cloned),
        "draws": {str(u): counts for u, counts in each.drawn.items()},
        "resident": _interval(each.resident),
    }


def _place(position: LogPosition) -> dict[str, Any]:
    return {"topic": position.topic, "partition": position.partition, "offset": position.offset}


def _interval(interval: UpdateInterval | None) -> Mapping[str, int] | None:
    return None if interval is None else {"first": interval[0], "last": interval[1]}
