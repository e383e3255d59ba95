"""The fold with a large model for a policy: A-RIDE on it restarts with equal digests, and it can learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from distrl.config import Config
from distrl.images import size
from distrl.learner.fold import fold
from distrl.learner.state import LearnerState
from distrl.policy.registry import tokenizer_of
from distrl.types import Action, ActionKind, LoggedTrajectory, Point, Step
from policy.autoui_t5.parts import base_model
from policy.vlm.models import FAMILIES

from learner.world import Screens, config, update_of, windows

UPDATES = 6
Made = Callable[..., Config]


@pytest.fixture(params=["qwen25", "gemma3"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    """Settings with a base model of a family."""
    FAMILIES[request.param](tmp_path)

    def settings(*sets: str) -> Config:
        return config(tmp_path, "policy.dialect=json", "policy.system_prompt=Act.", "policy.action_tokens=48", *sets)

    return settings


def in_its_words(settings: Config, screens: Screens, updates: int, episodes: int = 1) -> list[list[LoggedTrajectory]]:
    """`windows` as a policy of this base model would have recorded them."""
    tokenizer = tokenizer_of(settings.policy)

    def step(each: Step) -> Step:
        screen = size(screens(each.screenshot))
        return replace(
            each,
            prompt_ids=tokenizer.encode_prompt("search for red shoes", [], screen),
            action_ids=tokenizer.encode_action(each.action, screen),
            logprob=-20.0,
        )

    return [
        [replace(it, trajectory=replace(it.trajectory, steps=tuple(map(step, it.trajectory.steps)))) for it in window]
        for window in windows(screens, settings, updates, episodes)
    ]


def run(state: LearnerState, records: list[list[LoggedTrajectory]], screens: Screens, settings: Config) -> LearnerState:
    for window in records[state.u :]:
        fold(state, window, update_of(state.u, window, state.watermarks, settings), screens, settings)
    return state


@pytest.mark.parametrize("trains", ["lora", "all"])
def test_restarted_it_ends_with_the_same_weights(made: Made, trains: str) -> None:
    restarted_it_ends_with_the_same_weights(made(f"policy.trains={trains}"))


@pytest.mark.parametrize("trains", ["lora", "all"])
def test_the_papers_model_restarted_ends_with_the_same_weights(tmp_path: Path, trains: str) -> None:
    settings = config(base_model(tmp_path), "policy.action_tokens=128", f"policy.trains={trains}")
    restarted_it_ends_with_the_same_weights(settings)


def restarted_it_ends_with_the_same_weights(settings: Config) -> None:
    screens = Screens()
    records = in_its_words(settings, screens, UPDATES)
    whole = run(LearnerState(settings), records, screens, settings)
    fresh = LearnerState(settings)
    assert whole.policy.adapter() != fresh.policy.adapter()
    halted = run(fresh, records[:4], screens, settings)
    log = [item for window in records for item in window]
    again = LearnerState.restore(settings, halted.meta(), halted.tensors(), log)
    assert run(again, records, screens, settings).digests() == whole.digests()
    assert again.policy.adapter() == whole.policy.adapter()


def test_it_clones_demonstrations_to_the_letter(made: Made) -> None:
    """The warm-up alone, on 8 screens with an action each: the greedy action on each is the demonstrated one."""
    settings = made(
        "policy.trains=all",
        "warmup.demonstrations=8",
        "warmup.updates=80",
        "warmup.minibatches=4",
        "warmup.lr=0.003",
    )
    screens = Screens()
    actions = [Action(ActionKind.BACK), Action(ActionKind.COMPLETE)] + [
        Action(ActionKind.TAP, touch=Point(0.125 * column, 0.25)) for column in range(6)
    ]
    (demonstrations, *rest) = windows(screens, settings, 80)
    tokenizer = tokenizer_of(settings.policy)
    steps, shots = [], []
    for place, action in enumerate(actions):
        ref = screens.make(place)
        shots.append(screens(ref))
        screen = size(shots[-1])
        like = demonstrations[0].trajectory.steps[0]
        steps.append(
            replace(
                like,
                screenshot=ref,
                action=action,
                prompt_ids=tokenizer.encode_prompt("search for red shoes", [], screen),
                action_ids=tokenizer.encode_action(action, screen),
                logprob=0.0,
            )
        )
    first = [
        replace(it, trajectory=replace(it.trajectory, steps=(step,)))
        for it, step in zip(demonstrations, steps, strict=True)
    ]
    state = run(LearnerState(settings), [first, *rest], screens, settings)
    with torch.no_grad():
        drawn = state.policy.decide(shots, [step.prompt_ids for step in steps], None, [0] * len(steps))
    exact = sum(each.action_ids == step.action_ids for each, step in zip(drawn, steps, strict=True))
    assert exact / len(steps) >= 0.95, [each.action_text for each in drawn]
