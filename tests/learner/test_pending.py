from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
from distrl.broker.reader import RawRecord
from distrl.config import load
from distrl.learner.adapters import BLOCK
from distrl.learner.pending import PendingLog
from distrl.learner.reading import take
from distrl.learner.skipped import SkippedRecords
from distrl.types import LoggedTrajectory, LogPosition, Outcome, Skipped, Watermark
from distrl.wire.codec import encode
from hypothesis import given
from hypothesis import strategies as st

from learner.world import DEMONSTRATIONS, TRAJECTORIES, Screens, logged, trajectory

SCREENS = Screens()
RUN = load(sets=["warmup.demonstrations=3", "warmup.updates=2", "learner.trajectories_per_update=2"], environ={})
MADE = trajectory(SCREENS, 1, steps=1)


def item(offset: int, name: str, outcome: Outcome = Outcome.FAILURE, topic: str = TRAJECTORIES) -> LoggedTrajectory:
    made = replace(MADE, task=replace(MADE.task, task_id=name), outcome=outcome)
    return LoggedTrajectory(LogPosition(topic, 0, offset), made)


def pending_log(*items: LoggedTrajectory) -> PendingLog:
    made = PendingLog(DEMONSTRATIONS, TRAJECTORIES)
    for each in items:
        made.push(each)
    return made


def offsets(watermarks: tuple[Watermark, ...] | None) -> dict[str, int]:
    return {mark.topic.rpartition(".")[2]: mark.offset for mark in watermarks or ()}


def test_update_0_waits_for_its_demonstrations_and_takes_no_more() -> None:
    box = pending_log(*(item(i, f"d{i}", topic=DEMONSTRATIONS) for i in range(2)))
    assert box.due(0, RUN) is None
    box.push(item(2, "d2", topic=DEMONSTRATIONS))
    box.push(item(3, "d3", topic=DEMONSTRATIONS))
    assert offsets(box.due(0, RUN)) == {"demonstrations": 3}


@pytest.mark.parametrize("left_out", [0, 1, 2])
def test_update_0_does_not_wait_for_a_demonstration_that_a_person_left_out(left_out: int) -> None:
    """Where there are no more of them than it waits for, nothing would end the wait."""
    box, made = pending_log(), [item(offset, f"d{offset}", topic=DEMONSTRATIONS) for offset in range(4)]
    raws = [RawRecord(each.position, b"", encode(each.trajectory), 0) for each in made]
    sha256 = hashlib.sha256(raws[left_out].value or b"").hexdigest()
    skipped = SkippedRecords([], [Skipped(DEMONSTRATIONS, 0, left_out, sha256, "lost")])
    for raw in raws[:3]:
        assert box.due(0, RUN) is None
        take(raw, box, skipped)
    assert box.due(0, RUN) is not None
    take(raws[3], box, skipped)
    box.leave_out(LogPosition(TRAJECTORIES, 0, 0))
    due = box.due(0, RUN)
    assert offsets(due) == {"demonstrations": 3}
    window = [each.trajectory.task_id for each in box.window(due or ())]
    assert window == [f"d{offset}" for offset in range(3) if offset != left_out]
    box.folded(due or ())
    assert offsets(box.due(1, RUN)) == {"demonstrations": 4}, "as without it, the next update takes the others"


def test_update_0_waits_for_another_where_a_demonstration_cannot_be_decoded() -> None:
    """It may come back, as a new record at the end of the topic: `distrl dlq retry`."""
    box = pending_log(*(item(i, f"d{i}", topic=DEMONSTRATIONS) for i in range(2)))
    box.passed(LogPosition(DEMONSTRATIONS, 0, 2))
    assert (box.due(0, RUN), box.missing_demonstrations(0, RUN)) == (None, 1)
    assert box.missing_demonstrations(1, RUN) == 0
    box.push(item(3, "d2", topic=DEMONSTRATIONS))
    assert offsets(box.due(0, RUN)) == {"demonstrations": 4}


def test_the_rest_of_the_warm_up_waits_for_nothing() -> None:
    assert pending_log().due(1, RUN) == ()
    assert pending_log().due(2, RUN) is None


def test_a_later_update_takes_exactly_as_many_as_count() -> None:
    box = pending_log(
        item(0, "a", Outcome.INTERRUPTED), item(1, "b"), item(2, "b"), item(3, "c", Outcome.UNKNOWN), item(4, "d")
    )
    due = box.due(2, RUN)
    assert offsets(due) == {"trajectories": 4}
    assert [each.trajectory.task_id for each in box.window(due or ())] == ["a", "b", "c"]
    assert box.duplicates == 1


def test_versions_are_noted_that_any_record_of_the_trajectories_names() -> None:
    def of(version: int, each: LoggedTrajectory) -> LoggedTrajectory:
        steps = tuple(replace(step, version=version) for step in each.trajectory.steps)
        return replace(each, trajectory=replace(each.trajectory, steps=steps))

    box = pending_log(of(0, item(0, "a")), of(BLOCK, item(1, "a")), of(3 * BLOCK, item(0, "d0", topic=DEMONSTRATIONS)))
    assert box.named.named_from({0: 0}) == {0, 1}, "a repeated id is not learned, and names a version all the same"
    assert box.trajectories_read() == {0: 2}


def test_without_a_warm_up_update_0_waits_for_both() -> None:
    run = RUN.model_copy(update={"warmup": RUN.warmup.model_copy(update={"updates": 0})})
    box = pending_log(*(item(i, f"d{i}", topic=DEMONSTRATIONS) for i in range(3)))
    assert box.due(0, run) is None
    box.push(item(0, "a"))
    box.push(item(1, "b"))
    assert offsets(box.due(0, run)) == {"demonstrations": 3, "trajectories": 2}


def test_what_is_folded_is_gone_and_its_ids_stay() -> None:
    box = pending_log(item(0, "a"), item(1, "b"), item(2, "c"))
    due = box.due(2, RUN)
    assert due is not None
    box.folded(due)
    assert [each.trajectory.task_id for each in box.pending] == ["c"]
    assert box.pending_ids == pending_log(item(2, "c")).pending_ids > 0
    assert not box.push(item(3, "a"))
    assert box.due(3, RUN) is None


def test_demonstration_and_trajectory_may_share_an_id() -> None:
    box = pending_log(item(0, "a", topic=DEMONSTRATIONS))
    assert box.push(item(0, "a"))


def test_a_record_that_cannot_be_decoded_is_skipped() -> None:
    box = pending_log(item(0, "a"))
    assert box.passed(LogPosition(TRAJECTORIES, 0, 1))
    assert box.reaches([Watermark(TRAJECTORIES, 0, 2)])
    assert not box.reaches([Watermark(TRAJECTORIES, 0, 3)])
    assert not box.passed(LogPosition(TRAJECTORIES, 0, 1))
    box.push(item(2, "b"))
    assert offsets(box.due(2, RUN)) == {"trajectories": 3}


@given(st.lists(st.tuples(st.integers(0, 8), st.sampled_from(Outcome)), max_size=30), st.data())
def test_started_again_anywhere_it_hands_out_the_same_windows(
    rows: list[tuple[int, Outcome]], data: st.DataObject
) -> None:
    log = [item(offset, f"t{name}", outcome) for offset, (name, outcome) in enumerate(rows)]

    def drain(
        box: PendingLog, records: list[LoggedTrajectory], u: int
    ) -> list[tuple[list[LoggedTrajectory], tuple[str, ...]]]:
        found = []
        for each in records:
            box.push(each)
            while (due := box.due(u + len(found), RUN)) is not None:
                window = box.window(due)
                box.folded(due)
                found.append((window, tuple(box.folded_ids), due))
        return found  # type: ignore[return-value]

    whole = drain(pending_log(), log, 2)
    if not whole:
        return
    cut = data.draw(st.integers(0, len(whole) - 1))
    _, seen, marks = whole[cut]  # type: ignore[misc]
    again = PendingLog(DEMONSTRATIONS, TRAJECTORIES, marks, seen)
    begin = next(mark.offset for mark in marks if mark.topic == TRAJECTORIES)
    assert drain(again, log[begin:], 3 + cut) == whole[cut + 1 :]


def test_windows_are_in_the_order_of_the_log_however_the_topics_came() -> None:
    made = [trajectory(SCREENS, seed, expert=seed < 3, steps=1) for seed in range(5)]
    demos, others = logged(made[:3]), logged(made[3:])
    box = pending_log(*others, *demos)
    window = box.window([Watermark(DEMONSTRATIONS, 0, 3), Watermark(TRAJECTORIES, 0, 2)])
    assert window == [*demos, *others]


@pytest.mark.parametrize("u", [0, 2])
def test_nothing_is_due_of_an_empty_log(u: int) -> None:
    assert pending_log().due(u, RUN) is None
