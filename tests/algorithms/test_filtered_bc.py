"""Filtered behaviour cloning by the real fold."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from distrl.config import Config, load
from distrl.learner.fold import fold
from distrl.learner.state import LearnerState
from distrl.policy.protocol import trajectory_steps
from distrl.types import LoggedTrajectory, Outcome
from learner.world import Screens, config, save_tiny_base, update_of, windows

UPDATES = 6
SETTINGS = ("algorithm.type=filtered_bc", "algorithm.minibatches=4", "algorithm.batch_size=8", "algorithm.lr=0.01")


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Config:
    directory = tmp_path_factory.mktemp("base")
    save_tiny_base(directory)
    algorithm = load(sets=SETTINGS, environ={}).algorithm
    return config(directory).model_copy(update={"algorithm": algorithm})


@pytest.fixture
def screens() -> Screens:
    return Screens()


def folded(settings: Config, records: list[list[LoggedTrajectory]], screens: Screens) -> LearnerState:
    state = LearnerState(settings)
    for window in records:
        fold(state, window, update_of(state.u, window, state.watermarks, settings), screens, settings)
    return state


def outcomes(records: list[list[LoggedTrajectory]]) -> list[Outcome]:
    return [each.trajectory.outcome for window in records for each in window if not each.trajectory.is_expert]


def test_failures_change_nothing_and_successes_do(settings: Config, screens: Screens) -> None:
    records = windows(screens, settings, UPDATES)
    assert {Outcome.SUCCESS, Outcome.FAILURE} <= set(outcomes(records))

    def shorter(logged: LoggedTrajectory, outcome: Outcome) -> LoggedTrajectory:
        record = logged.trajectory
        if record.is_expert or record.outcome is not outcome:
            return logged
        return replace(logged, trajectory=replace(record, steps=record.steps[:1]))

    whole = folded(settings, records, screens).digests()["adapter"]
    without_failures = [[shorter(each, Outcome.FAILURE) for each in window] for window in records]
    without_successes = [[shorter(each, Outcome.SUCCESS) for each in window] for window in records]
    assert folded(settings, without_failures, screens).digests()["adapter"] == whole
    assert folded(settings, without_successes, screens).digests()["adapter"] != whole


def test_what_succeeded_becomes_likelier(settings: Config, screens: Screens) -> None:
    records = windows(screens, settings, UPDATES)
    before, after = (folded(settings, records[:count], screens) for count in (3, UPDATES))
    won = [e.trajectory for window in records[3:] for e in window if e.trajectory.outcome is Outcome.SUCCESS]
    steps = [step for trajectory in won for step in trajectory_steps(trajectory)]
    with torch.no_grad():
        for state in (before, after):
            state.features.load((each.step.screenshot for each in steps), screens)
        assert after.context.score(steps).logprob.mean() > before.context.score(steps).logprob.mean() + 0.1


def test_restored_from_a_checkpoint_it_goes_on_as_if_it_had_not_stopped(settings: Config, screens: Screens) -> None:
    records = windows(screens, settings, UPDATES)
    halted = folded(settings, records[:4], screens)
    log = [item for window in records for item in window]
    again = LearnerState.restore(settings, halted.meta(), halted.tensors(), log)
    for window in records[4:]:
        fold(again, window, update_of(again.u, window, again.watermarks, settings), screens, settings)
    assert again.digests() == folded(settings, records, screens).digests()


@pytest.mark.parametrize("asked", [True, False])
def test_demonstrations_are_imitated_further_only_where_asked(settings: Config, screens: Screens, asked: bool) -> None:
    replay = settings.algorithm.replay.model_copy(update={"demonstrations": asked})
    wanted = settings.model_copy(update={"algorithm": settings.algorithm.model_copy(update={"replay": replay})})
    (buffer,) = folded(wanted, windows(screens, wanted, 5), screens).algorithm.memory.buffers.values()
    held = [entry.logged.trajectory for entry in buffer.entries]
    assert all(each.outcome is Outcome.SUCCESS for each in held)
    assert any(each.is_expert for each in held) is asked


def test_nothing_to_imitate_leaves_the_weights_as_they_were(settings: Config, screens: Screens) -> None:
    records = windows(screens, settings, 4)

    def lost(logged: LoggedTrajectory) -> LoggedTrajectory:
        return replace(logged, trajectory=replace(logged.trajectory, outcome=Outcome.FAILURE))

    beaten = [[lost(each) for each in window] for window in records]
    adapters = [folded(settings, beaten[:count], screens).digests()["adapter"] for count in (3, 4)]
    assert adapters[0] == adapters[1]
