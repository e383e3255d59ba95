"""What every algorithm of the registry holds, by the real fold: same log, same bits, whatever happens in between. And
what one of another package does."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import brought_algorithm
import numpy as np
import pytest
import torch
from distrl.algorithms.registry import ALGORITHMS, memory_of
from distrl.config import Config, load
from distrl.learner.draws import COLUMNS, draws_of
from distrl.learner.fold import fold
from distrl.learner.state import LearnerState
from distrl.policy.protocol import trajectory_steps
from distrl.telemetry.metrics import METRICS
from distrl.types import LoggedTrajectory, Outcome
from learner.world import Screens, config, folded, q_base, save_tiny_base, update_of, windows

UPDATES = 7
SMALL = {"minibatches": "2", "batch_size": "8", "critic_warmup_updates": "1", "group_size": "3", "target_updates": "2"}
EPISODES_PER_TASK = 3
TYPES = [*sorted(str(each.model_fields["type"].default) for each in ALGORITHMS), brought_algorithm.TYPE]

GIVEN: dict[str, set[str]] = {
    "aride": set(COLUMNS),
    "cloning": set(),
    "digirl": {"value", "advantage"},
    "filtered_bc": set(),
    "grpo": {"advantage"},
    "r2d3": {"priority"},
    brought_algorithm.TYPE: {"value", "advantage"},
    "vtrace": {"value", "advantage", "ratio"},
}
"""What each algorithm holds of the steps that it draws; none is made up for the others."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The package of docs/learning.md is there."""
    with pytest.MonkeyPatch.context() as patch:
        brought_algorithm.use(brought_algorithm.install(tmp_path_factory.mktemp("site")), patch)
        yield


@pytest.fixture(scope="module", params=TYPES)
def settings(request: pytest.FixtureRequest, installed: None, tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Small settings of each algorithm; of those in `SMALL` the ones that it has."""
    directory = tmp_path_factory.mktemp("base")
    save_tiny_base(directory)
    kind = type(load(sets=[f"algorithm.type={request.param}"], environ={}).algorithm)
    sets = [f"algorithm.{name}={value}" for name, value in SMALL.items() if name in kind.model_fields]
    chosen = load(sets=[f"algorithm.type={request.param}", "algorithm.replay.capacity=60", *sets], environ={})
    base = q_base(directory / "q", directory) if request.param == "r2d3" else directory
    return config(base).model_copy(update={"algorithm": chosen.algorithm})


@pytest.fixture(scope="module")
def screens() -> Screens:
    return Screens()


@pytest.fixture(scope="module")
def records(settings: Config, screens: Screens) -> list[list[LoggedTrajectory]]:
    return windows(screens, settings, UPDATES, EPISODES_PER_TASK)


@pytest.fixture(scope="module")
def whole(settings: Config, records: list[list[LoggedTrajectory]], screens: Screens) -> LearnerState:
    """The state after all updates, folded without a break. Not to be changed."""
    torch.manual_seed(1)
    return folded(LearnerState(settings), records, screens, settings)


def test_restored_after_each_update_it_ends_with_the_same_bits_whatever_the_callers_random_state(
    settings: Config, records: list[list[LoggedTrajectory]], screens: Screens, whole: LearnerState
) -> None:
    """Every metric on the way is a number and has a name in the list."""
    torch.manual_seed(2)
    np.random.seed(5)
    state, log = LearnerState(settings), [item for window in records for item in window]
    for window in records:
        state = LearnerState.restore(settings, state.meta(), state.tensors(), log) if state.u else state
        found = fold(state, window, update_of(state.u, window, state.watermarks, settings), screens, settings)
        assert set(found) <= set(METRICS)
        assert all(np.isfinite(value) for value in found.values())
    assert state.digests() == whole.digests()


def test_it_learns_from_this_log(
    settings: Config, records: list[list[LoggedTrajectory]], screens: Screens, whole: LearnerState
) -> None:
    """What is compared here changes, so that equal bits say something."""
    warm = folded(LearnerState(settings), records[: settings.warmup.updates], screens, settings)
    assert whole.digests()["adapter"] != warm.digests()["adapter"]
    assert whole.algorithm.memory.uses(UPDATES)


def test_its_memory_alone_keeps_what_the_learner_keeps(
    settings: Config, records: list[list[LoggedTrajectory]], whole: LearnerState
) -> None:
    """The lineage of a version asks a memory without networks."""
    alone, learners = memory_of(settings), whole.algorithm.memory
    for logged in (item for window in records for item in window):
        alone.admit(logged)
    assert list(alone.uses(UPDATES)) == list(learners.uses(UPDATES))
    assert alone.phase(UPDATES) == learners.phase(UPDATES)
    assert {name: each.bounds() for name, each in alone.buffers.items()} == {
        name: each.bounds() for name, each in learners.buffers.items()
    }


def test_updates_of_nothing_change_nothing(settings: Config, screens: Screens) -> None:
    bare = settings.model_copy(update={"warmup": settings.warmup.model_copy(update={"updates": 0})})
    state = LearnerState(bare)
    before = state.digests()["adapter"]
    folded(state, [[], []], screens, bare)
    assert state.digests()["adapter"] == before


@pytest.mark.parametrize("outcome", [Outcome.SUCCESS, Outcome.FAILURE])
def test_successes_or_failures_alone_are_no_fault(
    settings: Config, records: list[list[LoggedTrajectory]], screens: Screens, outcome: Outcome
) -> None:
    alike = [
        [replace(item, trajectory=replace(item.trajectory, outcome=outcome)) for item in window] for window in records
    ]
    state = folded(LearnerState(settings), [*alike[:5], []], screens, settings)
    assert all(bool(torch.isfinite(each).all()) for each in state.policy.parameters().values())


def test_values_are_probabilities_or_none(records: list[list[LoggedTrajectory]], whole: LearnerState) -> None:
    steps = [step for item in records[-1] for step in trajectory_steps(item.trajectory)]
    found = whole.algorithm.values(steps)
    assert found is None or (found.shape == (len(steps),) and ((found >= 0) & (found <= 1)).all())


def test_it_says_what_it_drew_and_a_restored_one_says_the_same(
    settings: Config, records: list[list[LoggedTrajectory]], screens: Screens
) -> None:
    """Rows are of its buffers, and what it held of them are numbers; neither depends on a break before the update."""
    state, log = LearnerState(settings), [item for window in records for item in window]
    assert state.learning.drawn.rows == ()
    drawn, before = 0, None
    for window in records:
        one, other = state, LearnerState.restore(settings, state.meta(), state.tensors(), log) if state.u else state
        for each in {id(one): one, id(other): other}.values():
            fold(each, window, update_of(each.u, window, each.watermarks, settings), screens, settings)
        update = update_of(state.u - 1, window, state.watermarks, settings)
        before = draws_of(update, "", one.learning.drawn)
        assert draws_of(update, "", other.learning.drawn) == before
        held = {each.logged.position.offset for each in one.entries()}
        assert {each.offset for each in before.trajectories} <= held
        drawn += sum(step.times for each in before.trajectories for step in each.steps)
        state = other
    assert drawn >= settings.algorithm.batch_size
    assert before is not None
    given = {name for each in before.trajectories for step in each.steps for name in COLUMNS if getattr(step, name)}
    assert given == GIVEN[settings.algorithm.type]
