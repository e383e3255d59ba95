"""Which adapters go: none that a setting, a trajectory of the log or a rollback keeps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import factories
import pytest
from distrl.broker.reader import RawRecord
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.learner.adapters import BLOCK, NamedVersions, prunable
from distrl.learner.reading import pending_log_at, take
from distrl.learner.skipped import SkippedRecords
from distrl.types import (
    LoggedTrajectory,
    LogPosition,
    ObjectRef,
    PutAside,
    Skipped,
    Trajectory,
    Update,
    Version,
    Watermark,
)
from distrl.wire.codec import encode
from hypothesis import given
from hypothesis import strategies as st

NUMBERS = st.integers(0, 5 * BLOCK)


def version(number: int, weights: int | None = None) -> Version:
    name = f"{number if weights is None else weights:064x}"
    return factories.version(number, adapter=ObjectRef(f"adapters/demo/{name}.safetensors", name, 1))


def played(*versions: int) -> Trajectory:
    return factories.trajectory(steps=tuple(factories.step(version=each) for each in versions))


def at(offset: int, partition: int = 0) -> LogPosition:
    return LogPosition("trajectories", partition, offset)


def gone(versions: Sequence[Version], keep: int, every: int | None = None, named: Sequence[int] = ()) -> list[int]:
    return [each.version for each in prunable(versions, keep, every, lambda number: number in named)]


def test_the_newest_and_every_kth_before_and_what_is_named_stay() -> None:
    versions = [version(number) for number in range(10)]
    assert gone(versions, 3) == [0, 1, 2, 3, 4, 5, 6]
    assert gone(versions, 3, every=3) == [1, 2, 4, 5]
    assert gone(versions, 3, every=3, named=[2, 4]) == [1, 5]
    assert gone(versions, 10) == gone(versions, 11) == []


def test_the_weights_that_a_rollback_points_at_stay() -> None:
    assert gone([version(0), version(1), version(2), version(3, weights=0)], 1) == [1, 2]


@given(
    st.dictionaries(NUMBERS, st.integers(0, 30), max_size=40),
    st.integers(1, 10),
    st.none() | st.integers(1, 10),
    st.sets(NUMBERS),
)
def test_no_adapter_that_is_kept_goes_and_no_other_stays(
    weights: dict[int, int], keep: int, every: int | None, named: set[int]
) -> None:
    versions = [version(number, weights[number]) for number in weights]
    newest = sorted(weights)[-keep:]
    kept = {n for n in weights if n in newest or n in named or (every is not None and n % every == 0)}
    stored = {weights[number] for number in kept}
    found = prunable(versions, keep, every, lambda number: number in named)
    assert [each.version for each in found] == sorted(n for n in weights if weights[n] not in stored)


@given(
    st.lists(st.tuples(st.integers(0, 1), st.lists(st.integers(-2, 5 * BLOCK), max_size=3)), max_size=30),
    st.integers(0, 30),
    st.integers(0, 30),
)
def test_versions_that_a_retained_trajectory_names_are_known_across_a_restart(
    records: list[tuple[int, list[int]]], cut: int, first: int
) -> None:
    named = NamedVersions()
    for offset, (partition, versions) in enumerate(records):
        if offset == cut:
            named = NamedVersions.of(json.loads(json.dumps(named.to_json())))
        named.see(at(offset, partition), played(*versions))
    retained = {v // BLOCK for _, versions in records[first:] for v in versions if v >= 0}
    assert named.named_from({0: first, 1: first}) == retained


def test_what_was_named_before_it_was_noted_is_unknown_until_that_is_deleted() -> None:
    named = NamedVersions({0: 5})
    named.see(at(7), played(3))
    assert named.named_from({0: 4}) is None
    assert named.named_from({0: 5}) == {0}
    assert named.named_from({0: 8}) == frozenset()


def test_a_record_that_is_read_again_changes_nothing() -> None:
    named = NamedVersions()
    named.see(at(9), played(3))
    named.see(at(2), played(3))
    assert named.named_from({0: 5}) == {0}


@pytest.mark.parametrize("how", ["put aside", "left out"])
def test_what_a_record_names_that_is_not_learned_from_is_kept_as_well(settings: Config, how: str) -> None:
    """It is in the log all the same, and whoever looks at it asks for its weights."""
    topic = topic_name(settings.run, "trajectories")
    logged = LoggedTrajectory(LogPosition(topic, 0, 0), played(BLOCK + 1))
    raw = RawRecord(logged.position, b"t", encode(logged.trajectory), 0)
    sha256 = hashlib.sha256(raw.value or b"").hexdigest()
    marks = (Watermark(topic, 0, 1),)
    aside = Update(0, marks, "f", 0, (PutAside(topic, 0, (0,)),))
    left_out = Skipped(topic, 0, 0, sha256, "lost")
    skipped = SkippedRecords([], [left_out]) if how == "left out" else SkippedRecords([aside])
    pending_log = pending_log_at(settings, ())
    assert take(raw, pending_log, skipped) is None
    assert pending_log.named.named_from({0: 0}) == {1}
