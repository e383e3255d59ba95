"""GRPO: its equation against the printed sums, its groups by hand, and what its updates do by the real fold."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import factories
import numpy as np
import pytest
import torch
from distrl.algorithms.grpo import GroupMemory, advantages, asked, shares
from distrl.algorithms.losses import DEVIATION_FLOOR, clipped_loss
from distrl.config import Config, load
from distrl.errors import ConfigError
from distrl.learner.state import LearnerState
from distrl.policy.protocol import trajectory_steps
from distrl.types import LoggedTrajectory, LogPosition, Outcome, Task
from hypothesis import given
from hypothesis import strategies as st
from learner.world import Screens, config, folded, save_tiny_base, windows

CLIP = 0.2
episode = st.tuples(st.booleans(), st.lists(st.tuples(st.floats(-6, 0), st.floats(-6, 0)), min_size=1, max_size=4))
"""Whether it succeeded, and log π and log μ of each step."""
several_groups = st.lists(st.lists(episode, min_size=2, max_size=5), min_size=1, max_size=3)
Groups = Sequence[Sequence[tuple[bool, Sequence[tuple[float, float]]]]]


def as_printed(groups: Groups, form: str) -> float:
    """DeepSeekMath, equation 3 without its KL term, mean over the questions; or Dr. GRPO's, whose constant is what lets
    the weights of all steps add up to 1."""
    total, constant = 0.0, sum(len(steps) / len(group) for group in groups for _, steps in group)
    for group in groups:
        rewards = [float(won) for won, _ in group]
        for reward, (_, steps) in zip(rewards, group, strict=True):
            advantage = reward - statistics.fmean(rewards)
            if form == "grpo":
                advantage /= statistics.pstdev(rewards) + DEVIATION_FLOOR
            for logprob, behaviour in steps:
                ratio = math.exp(min(max(logprob - behaviour, -10.0), 5.0))
                clipped = min(max(ratio, 1 - CLIP), 1 + CLIP)
                whole = len(groups) * len(steps) if form == "grpo" else constant
                weight = 1 / (len(group) * whole)
                total -= weight * min(ratio * advantage, clipped * advantage)
    return total


@given(several_groups, st.sampled_from(["grpo", "dr_grpo"]))
def test_the_mean_loss_of_what_is_drawn_is_the_printed_one(groups: Groups, form: str) -> None:
    lengths = [np.array([len(steps) for _, steps in group]) for group in groups]
    chances = shares(lengths, form == "grpo")
    of_episode = np.concatenate(
        [advantages(np.array([float(won) for won, _ in group]), form == "grpo") for group in groups]
    )
    total = 0.0
    every = [steps for group in groups for _, steps in group]
    for steps, chance, advantage in zip(every, chances, of_episode, strict=True):
        for logprob, behaviour in steps:
            one, other, worth = (
                torch.tensor([value], dtype=torch.float64) for value in (logprob, behaviour, advantage)
            )
            total += chance / len(steps) * float(clipped_loss(one, other, worth, CLIP))
    assert chances.sum() == pytest.approx(1.0)
    assert total == pytest.approx(as_printed(groups, form), abs=1e-9)


@pytest.mark.parametrize(
    ("ratio", "advantage", "slope"),
    [
        (1.0, 2.0, -2.0),
        (1.1, 2.0, -2.2),
        (1.3, 2.0, 0.0),
        (0.5, 2.0, -1.0),
        (0.9, -2.0, 1.8),
        (0.7, -2.0, 0.0),
        (3.0, -2.0, 6.0),
        (math.exp(6), -1.0, math.exp(5)),  # beyond the bound of log ρ
        (math.exp(9), 1.0, 0.0),
        (math.exp(-11), 1.0, 0.0),
    ],
)
def test_the_gradient_ends_where_the_ratio_has_gone_far_enough(ratio: float, advantage: float, slope: float) -> None:
    """d L / d log π = −ρ A, and 0 where a better action is already likelier by more than the clip, or a worse one
    less likely."""
    logprob = torch.tensor([-1.0], requires_grad=True)
    clipped_loss(logprob, torch.tensor([-1.0 - math.log(ratio)]), torch.tensor([advantage]), CLIP).backward()
    assert logprob.grad is not None
    assert float(logprob.grad) == pytest.approx(slope, rel=1e-5, abs=1e-12)


@pytest.mark.parametrize(("advantage", "slope"), [(1.0, 0.0), (-1.0, math.exp(5))])
def test_a_recorded_probability_below_what_a_float32_holds_is_one_beyond_the_bound(
    advantage: float, slope: float
) -> None:
    """A record may hold any finite number; as a float32 this one is −∞."""
    logprob = torch.tensor([-1.0], requires_grad=True)
    loss = clipped_loss(logprob, torch.tensor([-1e300]), torch.tensor([advantage]), CLIP)
    loss.backward()
    assert math.isfinite(float(loss.detach()))
    assert logprob.grad is not None
    assert float(logprob.grad) == pytest.approx(slope)


def test_advantages_by_hand() -> None:
    rewards = np.array([1.0, 0.0, 0.0, 0.0])
    assert advantages(rewards, divided=False).tolist() == [0.75, -0.25, -0.25, -0.25]
    assert advantages(rewards, divided=True)[0] == pytest.approx(math.sqrt(3), rel=0.01)
    assert advantages(np.ones(3), divided=True).tolist() == [0.0] * 3


def settings_of(*sets: str) -> Config:
    small = ("type=grpo", "group_size=3", "minibatches=50", "batch_size=40", "replay.capacity=30")
    return load(sets=["warmup.updates=0", *(f"algorithm.{each}" for each in (*small, *sets))], environ={})


def filled(settings: Config, *given_episodes: tuple[str, bool, int], **task: object) -> GroupMemory:
    """A memory of episodes: of which phone and id, whether it succeeded, and how many steps, in the log's order."""
    memory = GroupMemory(settings)
    for offset, (name, won, steps) in enumerate(given_episodes):
        of = factories.task(f"{name}.e{offset}", phone_seed=ord(name[0]), **task)
        made = [factories.step(logprob=-1.0, version=offset % 2) for _ in range(steps)]
        outcome = Outcome.SUCCESS if won else Outcome.FAILURE
        memory.admit(LoggedTrajectory(LogPosition("t", 0, offset), factories.trajectory(of, made, outcome=outcome)))
    return memory


def ids(memory: GroupMemory) -> list[str]:
    return [entry.logged.trajectory.task_id for entry in memory.uses(0)]


def test_a_group_is_learned_from_once_it_is_whole_whatever_comes_between() -> None:
    settings = settings_of()
    log = [("a", True, 2), ("b", False, 1), ("a", False, 3), ("b", True, 1), ("a", False, 1), ("c", True, 2)]
    assert ids(filled(settings, *log[:4])) == []
    assert filled(settings, *log[:4]).draws(0) is None
    assert ids(filled(settings, *log)) == ["a.e0", "a.e2", "a.e4"]
    assert ids(filled(settings, *log, ("b", True, 1))) == ["a.e0", "a.e2", "a.e4", "b.e1", "b.e3", "b.e6"]


def test_a_group_that_ended_alike_tells_nothing_and_is_left_out() -> None:
    memory = filled(settings_of(), *[("a", True, 2)] * 3, *[("b", False, 2)] * 3)
    assert (len(memory.whole()), ids(memory)) == (2, [])
    assert memory.draws(0) is None


def test_a_group_leaves_as_a_whole_with_its_first_episode() -> None:
    settings = settings_of()
    log = [("a", True, 4), ("a", False, 4), ("a", False, 4)]
    assert len(ids(filled(settings, *log, ("c", True, 18)))) == 3
    assert ids(filled(settings, *log, ("c", True, 19))) == []


def test_an_episode_beyond_the_least_number_is_compared_too_and_takes_the_place_of_one_that_left() -> None:
    log = [("a", True, 4), ("a", False, 4), ("a", False, 4), ("a", True, 4)]
    assert len(ids(filled(settings_of(), *log))) == 4
    assert ids(filled(settings_of(), *log, ("c", True, 15))) == ["a.e1", "a.e2", "a.e3"]


def test_demonstrations_are_in_no_group() -> None:
    memory = filled(settings_of(), ("a", True, 1), ("a", False, 1))
    task = factories.task("a.demo", phone_seed=ord("a"))
    memory.admit(LoggedTrajectory(LogPosition("d", 0, 0), factories.trajectory(task, is_expert=True)))
    assert memory.whole() == []


def test_what_is_asked_is_the_task_without_the_id_and_the_version_that_it_was_fed_under() -> None:
    task = factories.task("a", params={"x": "1", "y": "2"}, setup='{"wifi": true}')
    again = replace(task, task_id="a.e2.r1", fed_at=9, fed_version=4, params={"y": "2", "x": "1"})
    assert asked(task) == asked(again)
    others: list[Task] = [
        replace(task, **{name: value})
        for name, value in {
            "suite": "other", "family": "other", "split": "test", "instruction": "other", "max_steps": 1,
            "phone_seed": 2, "params": {"x": "2", "y": "2"}, "setup": "{}",
        }.items()
    ]  # fmt: skip
    assert len({asked(each) for each in (task, *others)}) == 9


@pytest.mark.parametrize("form", ["grpo", "dr_grpo"])
def test_steps_are_drawn_as_often_as_the_form_says(form: str) -> None:
    """Two groups: one of three episodes of 1, 2 and 5 steps, one of four of one step each. 6,000 draws."""
    memory = filled(
        settings_of(f"form={form}"),
        ("a", True, 1),
        ("a", False, 2),
        ("a", False, 5),
        ("b", True, 1),
        *[("b", False, 1)] * 3,
    )
    drawn = np.concatenate([np.ravel(memory.draws(u)) for u in range(3)])
    found = np.bincount(drawn, minlength=12) / drawn.size
    expected = {
        "grpo": [1 / 6, *[1 / 12] * 2, *[1 / 30] * 5, *[1 / 8] * 4],
        "dr_grpo": [1 / 12] * 12,
    }[form]
    assert found == pytest.approx(expected, abs=5 * math.sqrt(0.17 * 0.83 / drawn.size))


def test_fewer_episodes_of_a_task_than_a_group_needs_are_refused() -> None:
    sets = ["algorithm.type=grpo", "algorithm.group_size=6"]
    assert load(sets=sets, environ={}).episodes_per_task == 6
    assert load(sets=[*sets, "feeder.episodes_per_task=8"], environ={}).episodes_per_task == 8
    assert load(environ={}).episodes_per_task == 1
    with pytest.raises(
        ConfigError, match=r"algorithm\.group_size \(6\) must be at most feeder\.episodes_per_task \(5\)"
    ):
        load(sets=[*sets, "feeder.episodes_per_task=5"], environ={})
    with pytest.raises(
        ConfigError, match=r"algorithm\.group_size \(6\) must be at most algorithm\.replay\.capacity \(5 "
    ):
        load(sets=[*sets, "algorithm.replay.capacity=5"], environ={})


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    save_tiny_base(tmp_path)
    sets = ["type=grpo", "group_size=4", "batch_size=16", "minibatches=8", "lr=0.01"]
    algorithm = load(sets=[f"algorithm.{each}" for each in sets], environ={}).algorithm
    return config(tmp_path).model_copy(update={"algorithm": algorithm})


def acted_by(state: LearnerState, logged: LoggedTrajectory, screens: Screens) -> LoggedTrajectory:
    """The trajectory with the probabilities that the state's policy gives its actions."""
    steps = logged.trajectory.steps
    state.features.load((step.screenshot for step in steps), screens)
    with torch.no_grad():
        found = state.context.score(trajectory_steps(logged.trajectory)).logprob.tolist()
    acted = tuple(replace(step, logprob=logprob) for step, logprob in zip(steps, found, strict=True))
    return replace(logged, trajectory=replace(logged.trajectory, steps=acted))


def test_within_a_group_what_succeeded_becomes_likelier_than_what_failed(settings: Config) -> None:
    screens = Screens()
    records = windows(screens, settings, 9, episodes=4)
    state = folded(LearnerState(settings), records[:3], screens, settings)
    records[3:] = [[acted_by(state, each, screens) for each in window] for window in records[3:]]

    def gap() -> float:
        """Mean log π of the steps of successes, less that of failures, in the groups that tell them apart."""
        mean = []
        for outcome in (Outcome.SUCCESS, Outcome.FAILURE):
            mixed = [w for w in records[3:] if len({e.trajectory.outcome for e in w}) > 1]
            chosen = [e.trajectory for w in mixed for e in w if e.trajectory.outcome is outcome]
            steps = [step for trajectory in chosen for step in trajectory_steps(trajectory)]
            state.features.load((each.step.screenshot for each in steps), screens)
            with torch.no_grad():
                mean.append(float(state.context.score(steps).logprob.mean()))
        return mean[0] - mean[1]

    first = gap()
    folded(state, records, screens, settings)
    assert gap() > first + 0.05


def test_where_nothing_can_be_compared_the_weights_stay_and_the_metrics_say_so(settings: Config) -> None:
    screens = Screens()

    def won(logged: LoggedTrajectory) -> LoggedTrajectory:
        return replace(logged, trajectory=replace(logged.trajectory, outcome=Outcome.SUCCESS))

    alike = [[won(each) for each in window] for window in windows(screens, settings, 5, episodes=4)]
    adapters = [
        folded(LearnerState(settings), alike[:count], screens, settings).digests()["adapter"] for count in (3, 5)
    ]
    assert adapters[0] == adapters[1]
    state = folded(LearnerState(settings), alike, screens, settings)
    assert state.algorithm.update(5) == {"groups": 0.0, "groups_alike": 1.0}
    single = folded(LearnerState(settings), windows(screens, settings, 5), screens, settings)
    assert single.algorithm.update(5) == {}
