"""Episodes that the step limit cut off, under both settings of algorithm.truncation, by the real fold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from distrl.algorithms.aride.truncation import cut_off, screen_after, step_after
from distrl.config import Config
from distrl.errors import PolicyError, StoreError
from distrl.learner.fold import fold
from distrl.learner.state import LearnerState
from distrl.policy.protocol import TrajectoryStep, trajectory_steps
from distrl.types import Action, ActionKind, ObjectRef, Outcome, ScreenSize, Step, Trajectory

from learner.world import CODEC, Screens, config, logged, trajectory, update_of

BACK, COMPLETE = Action(ActionKind.BACK), Action(ActionKind.COMPLETE)
TOLERANCE = 0.1


def step(like: Step, screen: ObjectRef, action: Action = BACK, previous: tuple[Action, ...] = ()) -> Step:
    """A step on `screen` after `previous`, as a worker records it."""
    prompt = CODEC.encode_prompt("search for red shoes", previous)
    return replace(like, screenshot=screen, prompt_ids=prompt, action_ids=CODEC.encode_action(action), action=action)


def episode(
    screens: Screens,
    seed: int,
    seen: int,
    *,
    outcome: Outcome = Outcome.FAILURE,
    limit: int = 0,
    last: Action = BACK,
    left_on: int | None = None,
) -> Trajectory:
    """`seen` steps on screens of their own shades, as many as the limit unless one is given. left_on: a shade."""
    made = trajectory(screens, seed, steps=1, outcome=outcome)
    actions = [BACK] * (seen - 1) + [last]
    steps = [step(made.steps[0], screens.plain(60 * t), action, tuple(actions[:t])) for t, action in enumerate(actions)]
    final = None if left_on is None else screens.plain(left_on)
    task = replace(made.task, max_steps=limit or seen)
    return replace(made, task=task, steps=tuple(steps), final_screenshot=final)


def with_truncation(settings: Config, truncation: str) -> Config:
    return settings.model_copy(update={"algorithm": settings.algorithm.model_copy(update={"truncation": truncation})})


def folded(state: LearnerState, records: list[Trajectory], screens: Screens, settings: Config) -> LearnerState:
    window = logged(records) if state.u == 0 else []
    fold(state, window, update_of(state.u, window, state.watermarks, settings), screens, settings)
    return state


@pytest.fixture
def critics_alone(base_directory: Path) -> Config:
    return config(
        base_directory,
        "warmup.updates=0",
        "algorithm.critic_warmup_updates=100",
        "algorithm.gamma=0.9",
        "algorithm.minibatches=4",
        "algorithm.batch_size=32",
        "algorithm.replay.capacity=100",
        "algorithm.critic_lr=0.01",
    )


def test_only_a_failure_that_used_up_its_steps_without_an_end_was_cut_off(screens: Screens) -> None:
    assert cut_off(episode(screens, 1, 3))
    assert not cut_off(episode(screens, 1, 3, limit=4))
    assert not cut_off(episode(screens, 1, 3, last=COMPLETE))
    assert not cut_off(episode(screens, 1, 3, outcome=Outcome.SUCCESS))
    assert not cut_off(replace(episode(screens, 1, 3), outcome=Outcome.INTERRUPTED))


def test_state_after_the_last_step_is_what_the_policy_would_have_read(screens: Screens) -> None:
    cut = episode(screens, 1, 3, left_on=200)
    screen = screen_after(cut)
    assert screen is not None
    asked = []

    def encode_prompt(instruction: str, earlier: Sequence[Action], size: ScreenSize) -> tuple[int, ...]:
        asked.append(size)
        return CODEC.encode_prompt(instruction, earlier, size)

    after = step_after(cut, screen, ScreenSize(108, 240), encode_prompt)
    assert after.screenshot == cut.final_screenshot
    assert after.prompt_ids == CODEC.encode_prompt("search for red shoes", [BACK] * 3)
    assert asked == [(108, 240)]
    assert screen_after(replace(cut, final_screenshot=None)) is None
    unnamed = replace(screens.plain(200), key="../../etc/passwd")
    assert screen_after(replace(cut, final_screenshot=unnamed)) is None
    assert screen_after(episode(screens, 1, 3, limit=9, left_on=200)) is None


@pytest.mark.parametrize("truncation", ["terminal", "bootstrap"])
def test_target_of_the_last_step_under_each_setting(critics_alone: Config, screens: Screens, truncation: str) -> None:
    settings = with_truncation(critics_alone, truncation)
    torn = replace(episode(screens, 6, 2), final_screenshot=screens.keep(b"no image at all"))
    records = [
        episode(screens, 1, 3, left_on=200),
        episode(screens, 2, 3, limit=4, left_on=200),
        episode(screens, 3, 3, last=COMPLETE, left_on=200),
        episode(screens, 4, 3, outcome=Outcome.SUCCESS, left_on=200),
        episode(screens, 5, 3),
        torn,
    ]
    state = folded(LearnerState(settings), records, screens, settings)
    before = LearnerState(settings)
    before.features = state.features
    buffer = state.algorithm.memory.buffer
    targets = [buffer.columns["target"][buffer.slots(entry)[-1]] for entry in buffer.entries]
    cut = 0.0
    if truncation == "bootstrap":
        screen = screen_after(records[0])
        assert screen is not None
        after = step_after(records[0], screen, state.features.size(screen), CODEC.encode_prompt)
        cut = 0.9 * before.algorithm.values([TrajectoryStep((after,), 0)]).item()
        assert cut > 0.1
    assert targets == pytest.approx([cut, 0.0, 0.0, 1.0, 0.0, 0.0], abs=1e-5)


def test_an_instruction_that_no_prompt_takes_is_no_reason_to_end(
    critics_alone: Config, screens: Screens, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record may hold any; the learner would end again at every start."""
    settings = with_truncation(critics_alone, "bootstrap")
    records, state = [episode(screens, 1, 3, left_on=200)], LearnerState(settings)

    def refuse(*asked: object) -> tuple[int, ...]:
        raise PolicyError("instruction", "is too long", "shorten it")

    monkeypatch.setattr(type(state.policy.tokenizer), "encode_prompt", refuse)
    buffer = folded(state, records, screens, settings).algorithm.memory.buffer
    assert [buffer.columns["target"][buffer.slots(entry)[-1]] for entry in buffer.entries] == [0.0]


@pytest.mark.parametrize(("truncation", "expected"), [("terminal", 0.45), ("bootstrap", 0.9)])
def test_what_v_comes_to_where_half_of_the_episodes_are_cut_off_one_step_before_success(
    critics_alone: Config, screens: Screens, truncation: str, expected: float
) -> None:
    """All would succeed with one more step: the limit halves V(s_0) = γ · 1/2 as an end, and not where bootstrapped."""
    settings = with_truncation(critics_alone, truncation)
    records = [
        episode(screens, seed, 1, left_on=60) if seed % 2 else episode(screens, seed, 2, outcome=Outcome.SUCCESS)
        for seed in range(10)
    ]
    state, seen = LearnerState(settings), []
    for _ in range(15):
        folded(state, records, screens, settings)
        seen.append(state.algorithm.values(trajectory_steps(records[0])[:1]).item())
    assert np.mean(seen[-6:]) == pytest.approx(expected, abs=TOLERANCE)


def test_last_screen_is_asked_for_and_kept_only_where_it_is_read(critics_alone: Config, screens: Screens) -> None:
    records = [episode(screens, 1, 2, left_on=200)]
    last = screens.plain(200)
    screens.gone = {last.sha256}
    folded(LearnerState(critics_alone), records, screens, critics_alone)
    settings = with_truncation(critics_alone, "bootstrap")
    state = LearnerState(settings)
    before = state.digests()
    with pytest.raises(StoreError, match="not in the store"):
        folded(state, records, screens, settings)
    assert (state.digests(), state.u) == (before, 0)
    screens.gone = set()
    folded(state, records, screens, settings)
    state.forget_screens()
    assert state.features.shows(last)


def test_bootstrapped_run_goes_on_from_a_checkpoint_as_if_it_had_not_stopped(
    critics_alone: Config, screens: Screens
) -> None:
    settings = with_truncation(critics_alone, "bootstrap")
    records = [episode(screens, seed, 2, left_on=200) for seed in range(3)]
    halted = folded(LearnerState(settings), records, screens, settings)
    again = LearnerState.restore(settings, halted.meta(), halted.tensors(), logged(records))
    one, two = (folded(state, records, screens, settings).digests() for state in (halted, again))
    assert one == two
