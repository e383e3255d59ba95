"""Lineage from the journal and the log, held against the learner's own fold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import factories
import pytest
from distrl.algorithms.protocol import Context
from distrl.cli.lineage import fate, is_version
from distrl.config import Config, load
from distrl.learner.fold import fold
from distrl.learner.state import LearnerState
from distrl.offline.lineage.read import left_out
from distrl.offline.lineage.to_json import attempt_json, version_json
from distrl.offline.lineage.trace import (
    Learned,
    Trace,
    of_trajectory,
    of_version,
    trace,
)
from distrl.policy.protocol import Score, TrajectoryStep
from distrl.types import LoggedTrajectory, ObjectRef, Outcome, Update, Version, Watermark
from hypothesis import given, settings
from hypothesis import strategies as st
from learner import world
from learner.world import CODEC, DEMONSTRATIONS, TRAJECTORIES, Screens, logged, trajectory

UPDATES = 8
SCREENS = Screens()


@pytest.fixture(scope="module")
def base_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("base")
    world.save_tiny_base(directory)
    return directory


def journal(windows: Sequence[Sequence[LoggedTrajectory]]) -> list[tuple[Update, Sequence[LoggedTrajectory]]]:
    """Each window with the update that folds it."""
    marks: dict[str, int] = {}
    found = []
    for u, window in enumerate(windows):
        for item in window:
            marks[item.position.topic] = item.position.offset + 1
        watermarks = tuple(Watermark(topic, 0, offset) for topic, offset in sorted(marks.items()))
        found.append((Update(u, watermarks, "config", 0), window))
    return found


def names(found: Sequence[Learned]) -> list[str]:
    return [each.task_id for each in found]


def resident_at(followed: Trace, u: int) -> list[str]:
    return names(
        [each for each in followed.trajectories if each.resident and each.resident[0] <= u <= each.resident[1]]
    )


def cloned_at(followed: Trace, u: int) -> list[str]:
    return names([each for each in followed.trajectories if each.cloned and each.cloned[0] <= u <= each.cloned[1]])


@pytest.mark.parametrize("capacity", [60, 12])
def test_every_update_of_the_real_fold_finds_what_the_lineage_names(
    base_directory: Path, capacity: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with a buffer so small that demonstrations leave it in the warm-up; and the warm-up's draws, one by one."""
    config = world.config(base_directory, f"algorithm.replay.capacity={capacity}")
    screens = Screens()
    windows = world.windows(screens, config, UPDATES)
    windows[4][1] = LoggedTrajectory(windows[4][1].position, replace(windows[4][1].trajectory, outcome=Outcome.UNKNOWN))
    windows[5][2] = LoggedTrajectory(windows[5][2].position, replace(windows[5][2].trajectory, steps=()))

    scored: dict[int, list[Any]] = defaultdict(list)
    state, real = LearnerState(config), Context.score

    def score(self: Context, steps: Sequence[TrajectoryStep], *screens: Any) -> Score:
        scored[state.u].extend(each.step for each in steps)
        return real(self, steps, *screens)

    monkeypatch.setattr(Context, "score", score)
    followed = trace(journal(windows), config, lambda record: left_out(record, CODEC, None))
    for u, window in enumerate(windows):
        update = world.update_of(u, window, state.watermarks, config)
        assert update.watermarks == followed.updates[u].update.watermarks
        fold(state, window, update, screens, config)
        if u < config.warmup.updates:
            held = state.warmup.memory.buffer.entries
            assert cloned_at(followed, u) == [entry.logged.trajectory.task_id for entry in held]
            steps = {id(step): (e.logged.trajectory.task_id, i) for e in held for i, step in enumerate(e.steps)}
            drawn = {
                each.task_id: [0] * each.steps
                for each in followed.trajectories
                if each.task_id in cloned_at(followed, u)
            }
            for step in scored[u]:
                name, index = steps[id(step)]
                drawn[name][index] += 1
            assert {e.task_id: e.drawn[u] for e in followed.trajectories if u in e.drawn} == drawn
        else:
            held = state.algorithm.memory.buffer.entries
            assert resident_at(followed, u) == [entry.logged.trajectory.task_id for entry in held]
        assert followed.updates[u].resident == len(held)
        assert followed.updates[u].transitions == sum(map(len, held))
    assert sum(each.left_out is not None for each in followed.trajectories) == 2


def ruled(*sets: str) -> Config:
    sets = ("warmup.updates=2", "algorithm.critic_warmup_updates=1", "algorithm.replay.capacity=20", *sets)
    return load(sets=sets, environ={})


RULES = ruled()


@st.composite
def histories(draw: st.DrawFn) -> list[list[LoggedTrajectory]]:
    """Windows of records of any length, some of them demonstrations, some not usable."""
    shape = draw(st.lists(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=5), max_size=8))
    offsets, found, seed = {DEMONSTRATIONS: 0, TRAJECTORIES: 0}, [], 0
    for window in shape:
        made = []
        for steps, expert in window:
            seed += 1
            record = trajectory(SCREENS, seed, steps=steps, expert=expert)
            topic = DEMONSTRATIONS if expert else TRAJECTORIES
            made += logged([record], offsets[topic])
            offsets[topic] += 1
        found.append(sorted(made, key=lambda item: (item.position.topic, item.position.offset)))
    return found


@settings(deadline=None, max_examples=60)
@given(histories(), st.booleans())
def test_a_trajectory_is_resident_while_its_first_step_is_not_overwritten(
    windows: list[list[LoggedTrajectory]], keeps: bool
) -> None:
    """The same from the definition: start of the trajectory against transitions written, in one pass."""
    rules = ruled(f"algorithm.replay.demonstrations={keeps}")
    followed = trace(journal(windows), rules, lambda record: None if record.steps else "no steps")
    written, starts, ends = 0, {}, []
    for window in windows:
        for item in window:
            record = item.trajectory
            if record.steps and (keeps or not record.is_expert):
                starts[item.position] = written
                written += len(record.steps)
        ends.append(written)
    for each in followed.trajectories:
        expected = [
            u
            for u, total in enumerate(ends)
            if each.position in starts
            and each.admitted <= u
            and u >= rules.warmup.updates
            and starts[each.position] >= total - rules.algorithm.replay.capacity
        ]
        assert each.resident == ((expected[0], expected[-1]) if expected else None)
        assert each.cloned is None or each.is_expert
    assert len(followed.trajectories) == sum(map(len, windows))


@settings(deadline=None, max_examples=30)
@given(histories())
def test_the_windows_of_all_updates_are_the_log_without_gap_or_overlap(windows: list[list[LoggedTrajectory]]) -> None:
    followed = trace(journal(windows), RULES, lambda record: None if record.steps else "no steps")
    reached: dict[str, int] = {}
    for each in followed.updates:
        for window in each.windows:
            assert window.first == reached.get(window.topic, 0)
            reached[window.topic] = window.to
    assert sum(reached.values()) == len(followed.trajectories)


def version(number: int, update: int, parent: int | None) -> Version:
    adapter = ObjectRef(f"adapters/{number}", f"{number:064d}", 1)
    return factories.version(number, parent=parent, update=update, adapter=adapter)


VERSIONS = [version(0, 1, None), version(1, 2, 0), version(2, 3, 1), version(3, 4, 2)]


def small_trace() -> tuple[Trace, list[list[LoggedTrajectory]]]:
    """Capacity 20: a demonstration of 6, then 8 + 8 + 8 + 8 steps, an update each; the last record has none."""
    records = [trajectory(SCREENS, 1, steps=6, expert=True)]
    records += [trajectory(SCREENS, seed, steps=8) for seed in range(2, 5)]
    records += [trajectory(SCREENS, 5, steps=8), trajectory(SCREENS, 6, steps=0)]
    windows = [
        logged(records[:1]),
        [],
        logged(records[1:2]),
        logged(records[2:3], 1),
        [*logged(records[3:], 2)],
    ]
    return trace(journal(windows), RULES, lambda record: None if record.steps else "no steps"), windows


def test_a_version_is_the_updates_until_it_and_what_they_took_in() -> None:
    followed, _ = small_trace()
    found = of_version(2, VERSIONS, followed)
    assert found is not None
    assert [each.version for each in found.parents] == [1, 0]
    assert [each.update.u for each in found.updates] == [0, 1, 2, 3]
    assert [each.phase for each in found.updates] == ["cloning", "cloning", "critics", "a-ride"]
    assert names(found.trajectories) == ["demo-1", "task-2", "task-3"]
    assert of_version(9, VERSIONS, followed) is None
    told = version_json(found)
    assert told["updates"][0]["windows"] == [{"topic": DEMONSTRATIONS, "partition": 0, "from": 0, "to": 1}]
    assert told["trajectories"][0]["cloned"] == {"first": 0, "last": 1}
    assert told["trajectories"][0]["resident"] == {"first": 2, "last": 2}, "the third record overwrites its first step"


def test_while_the_critics_learn_alone_nothing_new_is_in_the_weights_of_a_version() -> None:
    followed, windows = small_trace()
    before, after = (of_version(number, VERSIONS, followed) for number in (1, 2))
    assert before is not None
    assert after is not None
    assert (names(before.used), names(before.critics_alone)) == (["demo-1"], ["task-2"])
    assert (names(after.used), names(after.critics_alone)) == (["demo-1", "task-2", "task-3"], [])
    demo, task = of_trajectory([windows[0][0], windows[2][0]], VERSIONS, followed)
    assert (list(demo.in_weights_of), list(task.in_weights_of)) == ([0, 1, 2, 3], [2, 3])
    only_critics = Trace(followed.updates[:3], followed.trajectories[:2])
    (early,) = of_trajectory(windows[2], VERSIONS[:2], only_critics)
    assert (list(early.learned_by), list(early.in_weights_of)) == ([1], [])


def test_parents_that_name_each_other_in_a_circle_end() -> None:
    followed, _ = small_trace()
    found = of_version(1, [version(0, 1, 1), version(1, 2, 0)], followed)
    assert found is not None
    assert [each.version for each in found.parents] == [0, 1]


def test_a_trajectory_names_the_versions_that_acted_and_those_that_learned_from_it() -> None:
    followed, windows = small_trace()
    (found,) = of_trajectory(windows[2], VERSIONS, followed)
    assert found.learned is not None
    assert (found.learned.resident, found.folded) == ((2, 3), True)
    assert list(found.learned_by) == [1, 2]
    assert list(found.in_weights_of) == [2, 3], "of update 2 the critics alone learned; what was learned stays"
    told = attempt_json(found)
    assert [each["step"] for each in told["acted"]] == list(range(8))
    assert (told["duplicate"], told["folded"]) == (False, True)


def test_what_is_left_out_twice_or_ahead_is_learned_by_no_version() -> None:
    followed, windows = small_trace()
    empty, last = windows[4][2], windows[4][2].position
    twice = LoggedTrajectory(replace(windows[2][0].position, topic=DEMONSTRATIONS, offset=0), windows[2][0].trajectory)
    shorter = Trace(followed.updates, [each for each in followed.trajectories if each.position != twice.position])
    ahead = LoggedTrajectory(replace(last, offset=last.offset + 1), trajectory(SCREENS, 99))
    found = of_trajectory([empty, twice, ahead], VERSIONS, shorter)
    assert [list(each.in_weights_of) for each in found] == [[], [], []]
    assert [each.folded for each in found] == [True, True, False]
    assert [attempt_json(each)["duplicate"] for each in found] == [False, True, False]
    assert found[0].learned is not None
    assert found[0].learned.left_out == "no steps"


def test_a_record_that_the_journal_skips_is_no_duplicate() -> None:
    followed, windows = small_trace()
    first, last = windows[2][0], windows[4][2]
    shorter = Trace(followed.updates, [each for each in followed.trajectories if each.position != first.position])
    ahead = LoggedTrajectory(replace(last.position, offset=last.position.offset + 1), trajectory(SCREENS, 99))
    found = of_trajectory([first, last, ahead], VERSIONS, shorter, {first.position, ahead.position})
    printed = [attempt_json(each) for each in found]
    assert [(each["skipped"], each["duplicate"]) for each in printed] == [(True, False), (False, False), (True, False)]
    assert [fate(each).partition(":")[0] for each in found] == ["no", "no", "no"]
    assert "the journal skips it" in fate(found[0])
    (twice,) = of_trajectory([first], VERSIONS, shorter)
    assert fate(twice) == "no: an earlier record of its id counts"


def test_what_is_gone_before_any_update_could_draw_it_was_learned_from_by_none() -> None:
    """Three long records in one window: the first leaves before the update draws."""
    records = logged([trajectory(SCREENS, seed, steps=9) for seed in range(3)])
    followed = trace(journal([[], [], records]), RULES, lambda record: None)
    assert [each.resident for each in followed.trajectories] == [None, (2, 2), (2, 2)]
    (found,) = of_trajectory(records[:1], [version(0, 2, None)], followed)
    assert list(found.in_weights_of) == []
    behind = of_version(0, [version(0, 2, None)], followed)
    assert behind is not None
    assert (names(behind.critics_alone), names(behind.gone)) == (["task-1", "task-2"], ["task-0"])
    assert behind.used == []


@pytest.mark.parametrize(
    ("subject", "is_one"), [("0", True), (str(2**63 - 1), True), ("1" * 5_000, False), ("task-1", False), ("٣", False)]
)
def test_a_subject_is_a_version_where_one_can_have_that_number(subject: str, is_one: bool) -> None:
    assert is_version(subject) == is_one
