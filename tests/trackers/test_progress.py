"""A follower that starts again, after any point, gives its tracker nothing twice and leaves nothing out."""

from __future__ import annotations

from pathlib import Path

import pytest
from distrl.errors import ConfigError
from distrl.trackers.progress import Progress, load
from distrl.trackers.protocol import Axis, Point
from hypothesis import given
from hypothesis import strategies as st

from tests.trackers.runs import all_points


@given(st.lists(st.integers(0, 20), max_size=4))
def test_starts_again_and_again_give_each_point_once(stops: list[int]) -> None:
    given_, progress = list[Point](), Progress("r-1")
    for stop in [*stops, len(all_points())]:
        new = progress.new(all_points())[:stop]  # killed after so many
        progress = progress.given(new)
        given_ += new
    assert given_ == all_points()
    assert progress.points == len(given_)


def point(axis: Axis, step: int, source: str = "a") -> Point:
    return Point(source, axis, step, 0, {})


some = st.lists(st.builds(point, st.sampled_from(Axis), st.integers(0, 6), st.sampled_from(["a", "b"])), max_size=20)


@given(st.lists(some, max_size=4))
def test_a_point_is_new_after_those_of_earlier_updates_and_of_other_versions(batches: list[list[Point]]) -> None:
    progress, before = Progress("r-1"), list[Point]()
    for batch in batches:
        new = list[Point]()
        for each in batch:
            like = [one.step for one in [*before, *new] if (one.source, one.axis) == (each.source, each.axis)]
            if each.step > max(like, default=-1) or (each.axis is Axis.VERSION and each.step not in like):
                new.append(each)
        assert progress.new(batch) == new
        progress, before = progress.given(new), [*before, *new]
        assert progress.points == len(before)


def test_a_version_is_not_compared_with_each_that_was_evaluated_before() -> None:
    compared = 0

    class Number(int):
        __hash__ = int.__hash__

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return int(self) == other

    points = [point(Axis.VERSION, Number(step)) for step in range(300)]
    progress = Progress("r-1").given(points[:200])
    assert progress.new(points) == points[200:]
    assert compared < 10 * len(points)


def test_an_update_that_is_computed_again_is_no_second_point_and_versions_come_in_any_order() -> None:
    progress = Progress("r-1").given([point(Axis.UPDATE, 7), point(Axis.VERSION, 7)])
    asked = [point(axis, step) for axis in Axis for step in (6, 7, 8, 8)]
    assert [(each.axis, each.step) for each in progress.new(asked)] == [
        (Axis.UPDATE, 8),
        (Axis.VERSION, 6),
        (Axis.VERSION, 8),
    ]


def test_it_is_what_it_was_when_it_is_read_again(tmp_path: Path) -> None:
    progress = Progress("r-1").given(all_points())
    progress.save(tmp_path / "p.json")
    found = load(tmp_path / "p.json", "r-1")
    assert found.new(all_points()) == []
    assert found.points == progress.points
    assert load(tmp_path / "none.json", "r-1") == Progress("r-1")


def test_a_file_that_is_none_or_another_runs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text("{")
    with pytest.raises(ConfigError, match="is not a tracker's progress"):
        load(tmp_path / "p.json", "r-1")
    Progress("r-1").save(tmp_path / "p.json")
    with pytest.raises(ConfigError, match=r"is that of run 'r-1', and this one is 'r-2'"):
        load(tmp_path / "p.json", "r-2")
