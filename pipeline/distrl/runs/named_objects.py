"""Which content-addressed objects a record of a run names. Pure."""

from __future__ import annotations

from distrl.broker.reader import RawRecord, decoded
from distrl.broker.topics import TOPICS
from distrl.errors import WireError
from distrl.store.folders import ADAPTERS, SCREENSHOTS, Folder
from distrl.store.objects import is_reference
from distrl.types import Evaluation, ObjectRef, Record, Trajectory, Version

NAMING = ("trajectories", "demonstrations", "evaluations", "versions")
"""The topics whose records name objects."""

Naming = Trajectory | Evaluation | Version


def read(topic: str, raw: RawRecord) -> Naming | None:
    """The record in `raw` of `topic`; None where it cannot name an object, or cannot be decoded."""
    if topic not in NAMING:
        return None
    kind = TOPICS[topic].record
    assert kind is not None, "every topic of NAMING has records"
    try:
        record: Record = decoded(raw, kind)
    except WireError:
        return None
    return record if isinstance(record, Naming) else None


def screens_of(trajectory: Trajectory) -> list[ObjectRef]:
    """Every screenshot of an episode, in order."""
    last = trajectory.final_screenshot
    return [*(step.screenshot for step in trajectory.steps), *([] if last is None else [last])]


def objects_of(record: Naming) -> list[ObjectRef]:
    """The content-addressed screenshots or adapter that `record` names.

    Records are untrusted, and callers delete and overwrite these objects, so references to any other folder are left
    out.
    """
    match record:
        case Version():
            folder, found = ADAPTERS, [record.adapter]
        case Evaluation():
            folder, found = SCREENSHOTS, screens_of(record.trajectory)
        case Trajectory():
            folder, found = SCREENSHOTS, screens_of(record)
    return [ref for ref in found if is_reference(ref) and _is_by_content(ref, folder)]


def _is_by_content(ref: ObjectRef, folder: Folder) -> bool:
    path, _, name = ref.key.rpartition("/")
    return path.partition("/")[0] == folder.name and name.partition(".")[0] == ref.sha256
