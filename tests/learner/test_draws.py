"""The record of what an update drew: rows to steps, and what it says against the memory that they were drawn from."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from distrl.algorithms.losses import LOG_RATIO_BOUNDS
from distrl.algorithms.protocol import NOTHING_DRAWN, DrawnSteps
from distrl.learner.draws import COLUMNS, draws_of
from distrl.learner.fold import fold
from distrl.learner.state import LearnerState
from distrl.policy.protocol import TrajectoryStep
from distrl.replay.circular import Entry
from distrl.types import DrawnStep, Outcome, Update
from distrl.wire.codec import decode, encode
from hypothesis import given
from hypothesis import strategies as st

from learner.world import Screens, config, folded, logged, trajectory, update_of, windows

UPDATE = Update(7, (), "f", 1_760_000_000_000)
SCREENS = Screens()
ENTRIES = [
    Entry(each, 4 * number) for number, each in enumerate(logged([trajectory(SCREENS, n, steps=4) for n in range(3)]))
]
NUMBERS = st.one_of(st.floats(), st.floats(width=32))


@st.composite
def drawn(draw: st.DrawFn) -> DrawnSteps:
    rows = draw(st.lists(st.tuples(st.sampled_from(ENTRIES), st.integers(0, 3)), max_size=12))
    columns = {
        name: np.array(draw(st.lists(NUMBERS, min_size=len(rows), max_size=len(rows))))
        for name in draw(st.sets(st.sampled_from(COLUMNS)))
    }
    return DrawnSteps(rows, **columns)


@given(drawn())
def test_each_draw_is_counted_and_no_number_is_made_up(rows: DrawnSteps) -> None:
    """Whatever the columns hold: the record can be written and read, and has only finite numbers that were there."""
    made = draws_of(UPDATE, "a-ride", rows)
    assert decode(encode(made), type(made)) == made
    steps = {(each.offset, step.step): step for each in made.trajectories for step in each.steps}
    places = [(entry.logged.position.offset, step) for entry, step in rows.rows]
    assert {place: step.times for place, step in steps.items()} == {place: places.count(place) for place in places}
    for name in COLUMNS:
        column = getattr(rows, name)
        for place, step in steps.items():
            found = getattr(step, name)
            with np.errstate(over="ignore"):
                cells = (
                    []
                    if column is None
                    else [float(np.float32(value)) for value, at in zip(column, places, strict=True) if at == place]
                )
            finite = [value for value in cells if math.isfinite(value)]
            assert found == (finite[-1] if finite else None)


def test_trajectories_and_steps_are_in_order_and_named_by_their_place() -> None:
    rows = DrawnSteps([(ENTRIES[2], 1), (ENTRIES[0], 3), (ENTRIES[2], 0), (ENTRIES[2], 1)], value=np.arange(4.0))
    made = draws_of(UPDATE, "a-ride", rows)
    assert (made.u, made.journalled_at) == (7, UPDATE.journalled_at)
    assert [(each.topic, each.partition, each.offset) for each in made.trajectories] == [
        ("trajectories", 0, 0),
        ("trajectories", 0, 2),
    ]
    assert made.trajectories[1].steps == (DrawnStep(0, 1, 2.0), DrawnStep(1, 2, 3.0))
    assert draws_of(UPDATE, "a-ride", NOTHING_DRAWN).trajectories == ()


def test_aride_says_what_its_networks_held_before_the_update(base_directory: Path, screens: Screens) -> None:
    """All is scored anew at each update here, so it is what a copy of the state from before the update computes."""
    scored = "algorithm.replay.refresh_within=1", "algorithm.replay.refresh_share=1000"
    settings = config(base_directory, *scored, "algorithm.invalid_reward=0", "algorithm.repetition_penalty=0")
    records = windows(screens, settings, 6)
    state = folded(LearnerState(settings), records[:-1], screens, settings)
    log = [item for window in records for item in window]
    before = LearnerState.restore(settings, state.meta(), state.tensors(), log)
    update = update_of(state.u, records[-1], state.watermarks, settings)
    fold(state, records[-1], update, screens, settings)
    before.features = state.features
    by_place = {(item.position.topic.rpartition(".")[2], item.position.offset): item.trajectory for item in log}

    made = draws_of(update, "a-ride", state.learning.drawn)
    assert sum(step.times for each in made.trajectories for step in each.steps) == 16
    for each in made.trajectories:
        played = by_place[each.topic, each.offset]
        steps = [TrajectoryStep(played.steps, step.step) for step in each.steps]
        values, logprobs = before.algorithm.values(steps), before.context.score(steps).logprob
        assert values is not None
        assert len({step.priority for step in each.steps}) == 1
        for step, value, logprob in zip(each.steps, values, logprobs.tolist(), strict=True):
            assert step.value == pytest.approx(value, abs=1e-5)
            distance = np.clip(logprob - played.steps[step.step].logprob, *LOG_RATIO_BOUNDS)
            assert step.ratio == pytest.approx(math.exp(distance), rel=1e-4)
            assert step.td_error is not None
            assert step.priority is not None
            assert step.priority > 0
            if step.step == len(played.steps) - 1:
                assert step.td_error == step.advantage
                assert step.advantage == pytest.approx(float(played.outcome is Outcome.SUCCESS) - value, abs=1e-5)
