"""A record as one line of text: JSON for programs, a summary for people. Untrusted text is escaped in both."""

from __future__ import annotations

import base64
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from distrl.offline.replay import Item
from distrl.text import printable, ranges
from distrl.types import (
    Draws,
    Evaluation,
    Figures,
    Heartbeat,
    HeldBack,
    Record,
    Settings,
    Snapshot,
    Step,
    Task,
    Trajectory,
    Update,
    Version,
)
from distrl.wire.convert import to_datum

LONGEST_TEXT = 160
"""Most characters of one text in a summary."""
REMARKS = ("invalid", "unsent", "undone", "refused", "restless")


def json_line(item: Item) -> str:
    """One JSON object in printable ASCII; NaN and infinities are text, bytes are base64.

    It has `record`; `error` where the record cannot be decoded; `value_base64` where the topic has no schema.
    """
    raw, at = item.raw, item.raw.position
    made: dict[str, Any] = {
        "topic": at.topic,
        "partition": at.partition,
        "offset": at.offset,
        "timestamp": raw.timestamp,
        "key": None if raw.key is None else raw.key.decode(errors="backslashreplace"),
    }
    if item.error is not None:
        made |= {"error": item.error.what}
    elif item.record is not None:
        made |= {"record": as_json(to_datum(item.record))}
    else:
        headers = [[name, None if value is None else value.decode(errors="replace")] for name, value in raw.headers]
        value = None if raw.value is None else base64.b64encode(raw.value).decode()
        made |= {"headers": headers, "value_base64": value}
    return json.dumps(made, allow_nan=False).replace("\x7f", "\\u007f")


def summary_line(item: Item) -> str:
    """Position, time, key and gist of one record."""
    raw, at = item.raw, item.raw.position
    key = "-" if raw.key is None else raw.key.decode(errors="backslashreplace")
    if item.error is not None:
        gist = f"cannot be decoded: {item.error.what}"
    elif item.record is None:
        gist = f"{len(raw.value or b'')} bytes"
    else:
        gist = gist_of(item.record)
    return f"{at.partition}:{at.offset:<7} {utc_text(raw.timestamp)}  {escaped(key):<16} {escaped(gist)}"


def remarks_of(steps: Sequence[Step]) -> str:
    """Counts of invalid and held-back actions and of restless screens, each after a comma; empty where there are
    none."""
    counts = Counter(step.held_back.value for step in steps if step.held_back is not HeldBack.NO)
    counts["invalid"] = sum(step.valid is False for step in steps)
    counts["restless"] = sum(step.restless for step in steps)
    return "".join(f", {counts[name]} {name}" for name in REMARKS if counts[name])


def gist_of(record: Record) -> str:
    """A record in a few words."""
    match record:
        case Trajectory():
            versions = ranges(sorted({step.version for step in record.steps})) or "none"
            return (
                f"{record.outcome.value:<11} {len(record.steps):>2} steps{remarks_of(record.steps)}  "
                f"versions {versions}  {record.task.instruction}"
            )
        case Evaluation():
            inner = record.trajectory
            who = f"version {record.version}" if record.version >= 0 else f"agent {record.version_sha256[:12]}"
            return f"{who}  {inner.outcome.value}  {inner.task_id}  {inner.task.instruction}"
        case Task():
            return f"{record.split.value}  {record.family}  {record.instruction}"
        case Version():
            return f"after update {record.update}  {record.adapter.sha256[:12]}  from {record.parent}"
        case Update():
            marks = ", ".join(f"{m.topic.rpartition('.')[2]}[{m.partition}] {m.offset}" for m in record.watermarks)
            return f"update {record.u}  up to {marks}"
        case Heartbeat():
            return f"{record.role}  version {record.version}"
        case Settings():
            what = "a change of" if record.is_change else "all"
            return f"{record.role}  {what} {len(record.settings)} settings  fingerprint {record.fingerprint[:12]}"
        case Snapshot():
            covered = ", ".join(f"{each.topic}[{each.partition}] {each.last + 1}" for each in record.covered)
            return f"{len(record.feeder) + len(record.view)} bytes  up to {covered}"
        case Draws():
            steps = sum(step.times for each in record.trajectories for step in each.steps)
            return f"update {record.u}  {record.phase}  {steps} draws of {len(record.trajectories)} trajectories"
        case Figures():
            losses = [f"{name} {value:.4g}" for name, value in sorted(record.metrics.items()) if name.endswith("_loss")]
            return "  ".join([f"update {record.u}", f"{len(record.metrics)} figures", *losses])


def escaped(text: str) -> str:
    """`text`, cut at LONGEST_TEXT, with everything escaped that a terminal would act on."""
    return printable(text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…")


def utc_text(ms: int) -> str:
    """A time in UTC, to the second; `?` for an impossible one."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ") if ms >= 0 else "?"
    except (ValueError, OverflowError, OSError):
        return "?"


def as_json(value: Any) -> Any:
    """`value` with tuples as lists, NaN and infinities as text, and bytes as base64."""
    if isinstance(value, Mapping):
        return {key: as_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)
    return value
