"""Which report of an update makes its point: the record that lasts, and a heartbeat only where there is none."""

from __future__ import annotations

import math
from collections.abc import Sequence

from distrl.trackers.protocol import Axis, Point
from distrl.trackers.reports import MOST_AHEAD
from distrl.types import Record
from hypothesis import given
from hypothesis import strategies as st

from tests.trackers.runs import beat, figures, line, points, take

UPDATES = 4
LINES = [line(u, 0) for u in range(UPDATES)]
BEATS = [each for u in range(UPDATES) for each in (beat(u, policy_loss=9.0), beat(u, policy_loss=9.0, entropy=1.0))]
FIGURES = [figures(u, policy_loss=1.0 / (u + 1)) for u in range(UPDATES)]


def reported(records: Sequence[Record], *, recorded: bool = True) -> list[tuple[int, float]]:
    """Update and loss of each point, in their order, once nothing more is read."""
    run = points(recorded=recorded)
    take(run, records)
    run.ended()
    return losses(run.ready())


def losses(found: Sequence[Point]) -> list[tuple[int, float]]:
    return [(each.step, each.values["learner/policy_loss"]) for each in found if each.source == "learner"]


def test_a_point_has_the_figures_of_the_record_and_its_time() -> None:
    run = points(recorded=True)
    odd = {"../../etc": 1.0, "value_loss": math.nan, "update": 3.0}
    take(run, [line(0, 0), figures(0, policy_loss=0.5, entropy=1.5, **odd)])
    (found,) = [each for each in run.ready() if each.source == "learner"]
    assert found == Point("learner", Axis.UPDATE, 0, 400, {"learner/policy_loss": 0.5, "learner/entropy": 1.5})


@given(st.data())
def test_each_update_has_one_point_of_its_record_whichever_topic_is_read_first(data: st.DataObject) -> None:
    left, run, found = [list(LINES), list(BEATS), list(FIGURES)], points(recorded=True), []
    while any(left):
        take(run, [data.draw(st.sampled_from([each for each in left if each])).pop(0)])
        found += losses(run.ready())
    run.ended()
    assert found + losses(run.ready()) == [(u, 1.0 / (u + 1)) for u in range(UPDATES)]


def test_heartbeats_stand_in_where_no_record_was_made() -> None:
    """As before an upgrade, and where one was left out."""
    by_time = [*LINES, *BEATS[:3], *BEATS[4:6], FIGURES[2], *BEATS[6:]]
    assert reported(by_time) == [(0, 9.0), (1, 9.0), (2, 1.0 / 3), (3, 9.0)]
    assert reported([*LINES, *BEATS], recorded=False) == [(u, 9.0) for u in range(UPDATES)]


def test_a_heartbeat_waits_for_a_record_until_the_topic_was_read_once_more_and_had_none() -> None:
    run = points(recorded=True)
    take(run, [*LINES, BEATS[0]])
    run.quiet()
    assert losses(run.ready()) == []
    take(run, [FIGURES[0], BEATS[2]])
    run.quiet()
    assert losses(run.ready()) == [(0, 1.0)]
    run.quiet()
    assert losses(run.ready()) == [(1, 9.0)]


def test_no_more_than_so_many_heartbeats_wait() -> None:
    run = points(recorded=True)
    take(run, [line(u, 0) for u in range(MOST_AHEAD + 2)])
    take(run, [beat(u, policy_loss=9.0) for u in range(MOST_AHEAD + 2)])
    assert losses(run.ready()) == [(0, 9.0), (1, 9.0)]


def test_of_two_records_of_one_update_the_first_counts() -> None:
    """A learner that redoes an update after a kill writes it again."""
    assert reported([*LINES[:2], FIGURES[0], FIGURES[1], figures(0, policy_loss=7.0)]) == [(0, 1.0), (1, 0.5)]


def test_the_record_of_an_update_that_the_log_lost_is_not_that_of_the_one_in_its_place() -> None:
    lost, real = figures(1, 1_500, policy_loss=7.0), figures(1, policy_loss=0.5)
    for records in ([lost, *LINES[:2], real], [*LINES[:2], lost, real], [lost, real, *LINES[:2]]):
        assert reported(records) == [(1, 0.5)]


def test_strange_records_block_no_other_and_one_without_a_loss_makes_no_point() -> None:
    strange = [figures(u, 5, policy_loss=1.0) for u in range(2 * MOST_AHEAD)]
    assert reported([*strange, figures(0, buffer=4.0), *LINES, FIGURES[1]]) == [(1, 0.5)]
