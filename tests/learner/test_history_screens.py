"""Earlier screenshots, from phone to gradient: what a worker reads in an episode, a learner reads of its record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import factories
import numpy as np
import pytest
import torch
from distrl.config import Config
from distrl.images import size
from distrl.learner.fold import is_usable
from distrl.learner.state import LearnerState
from distrl.policy.protocol import Policy, trajectory_steps
from distrl.policy.registry import policy_of, tokenizer_of
from distrl.policy.sampling import FULL, Sampling
from distrl.rollout.batcher import Request, decided
from distrl.rollout.episode import Decision, Episode, Observation, Screen
from distrl.tasks.outcome import StateCheck
from distrl.types import (
    Action,
    ActionKind,
    HeldBack,
    LoggedTrajectory,
    LogPosition,
    ObjectRef,
    Point,
    Step,
    Task,
    Trajectory,
    Unmet,
    Version,
)
from distrl.wire.codec import decode, encode
from policy.autoui_t5.parts import base_model
from policy.vlm.models import FAMILIES

from learner.world import DEMONSTRATIONS, TRAJECTORIES, Screens, config, folded, windows

BEFORE, STEPS = 2, 4
BACK = Action(ActionKind.BACK)
Made = Callable[..., Config]


VISION_LANGUAGE = ("qwen25", "smolvlm")


def made_of(family: str, folder: Path) -> Made:
    if family == "autoui":
        model = base_model(folder)
        return lambda *sets: config(model, "policy.action_tokens=24", *sets)
    FAMILIES[family](folder)
    short = ("policy.dialect=json", "policy.system_prompt=Act.", "policy.action_tokens=24")
    return lambda *sets: config(folder, *short, *sets)


@pytest.fixture(params=[*VISION_LANGUAGE, "autoui"])
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    """Settings with a base model of a family."""
    return made_of(request.param, tmp_path)


@dataclass
class Noise:
    """A phone that shows another screen at each look, and on which nothing is ever done."""

    screens: Screens
    seed: int
    serial: str = "phone-0"
    looks: int = 0

    def reset(self, task: Task) -> None: ...
    def settle(self) -> Screen:
        self.looks += 1
        return Screen(self.screens(self.screens.make(100 * self.seed + self.looks)))

    def perform(self, action: Action) -> HeldBack:
        return HeldBack.NO

    def left_apps(self) -> Sequence[str]:
        return ()

    def truth(self) -> Mapping[str, Any]:
        return {}

    def hierarchy(self, timeout_s: float) -> bytes | None:
        return None


@dataclass
class Acting:
    """Decides by a policy's weights, as a worker that plays one episode."""

    policy: Policy
    version: Version
    sampling: Sampling = FULL

    @property
    def earlier_screens(self) -> int:
        return self.policy.earlier_screens

    def decide(self, observation: Observation) -> Decision:
        request = Request.of(observation, self.policy.tokenizer, 0.0)
        return decided([request], self.policy, self.sampling, self.version, lambda: 0.0)[0]


def failed(task: Task, state: Mapping[str, Any]) -> StateCheck:
    return StateCheck((Unmet("screen", "equals", '"done"', '"home"'),), "")


def played(policy: Policy, screens: Screens, count: int, sampling: Sampling = FULL) -> list[LoggedTrajectory]:
    """Episodes that the step limit ends, as the log has them."""
    episode, decider = Episode("w", screens.keep, failed), Acting(policy, factories.version(1), sampling)
    found = []
    for number in range(count):
        task = factories.task(f"task-{number}", instruction="open it", max_steps=STEPS)
        record = decode(encode(episode.run(task, "a", Noise(screens, number), decider)), Trajectory)
        found.append(LoggedTrajectory(LogPosition(TRAJECTORIES, 0, number), record))
    return found


def test_ratio_is_one_at_each_step_of_what_was_played(made: Made) -> None:
    """At equal weights, of episodes scored all at once, and each step alone: within 1e-4."""
    settings, screens = made(f"policy.history_screens={BEFORE}"), Screens()
    state, worker = LearnerState(settings), policy_of(settings.policy)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in state.policy.parameters().values():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    worker.load(state.policy.adapter())
    records = played(worker, screens, 3)
    state.features.load(state.screens(records), screens)
    steps = [step for logged in records for step in trajectory_steps(logged.trajectory)]
    assert [step.index for step in steps] == [*range(STEPS)] * 3
    recorded = np.array([each.step.logprob for each in steps])
    with torch.no_grad():
        together = state.context.score(steps).logprob.numpy()
        alone = np.array([state.context.score([step]).logprob.item() for step in steps])
    assert np.abs(np.exp(together - recorded) - 1).max() < 1e-4
    assert np.abs(np.exp(alone - recorded) - 1).max() < 1e-4
    shots = {step.screenshot.sha256 for logged in records for step in logged.trajectory.steps}
    assert len(state.features) == len(shots) == 3 * STEPS, "each screenshot once, however many decisions read it"


def test_restarted_it_ends_with_the_same_weights(made: Made) -> None:
    """Also where V is asked of the screen after an episode, which is read with the last ones of it."""
    sets = (f"policy.history_screens={BEFORE}", "warmup.updates=1", "algorithm.truncation=bootstrap")
    settings, screens = made(*sets), Screens()
    records = played(policy_of(settings.policy), screens, 4)
    shown = LogPosition(DEMONSTRATIONS, 0, 0)
    expert = replace(records[0], position=shown, trajectory=replace(records[0].trajectory, is_expert=True))
    log = [[expert], *([each] for each in records[1:])]

    whole = folded(LearnerState(settings), log, screens, settings)
    buffer = whole.algorithm.memory.buffers["buffer"]
    assert len(buffer) == STEPS * len(records), "nothing is refused"
    assert np.count_nonzero(buffer.columns["after"]) == len(records), "each ended at its limit"
    half = folded(LearnerState(settings), log[:3], screens, settings)
    again = LearnerState.restore(settings, half.meta(), half.tensors(), [each for window in log for each in window])
    assert folded(again, log, screens, settings).digests() == whole.digests()
    assert whole.policy.adapter() != LearnerState(settings).policy.adapter()


@pytest.mark.parametrize("family", VISION_LANGUAGE)
def test_a_record_whose_prompts_have_other_screenshots_is_not_learned_from(family: str, tmp_path: Path) -> None:
    """AutoUI's prompts hold no place of a screenshot."""
    made = made_of(family, tmp_path)
    with_screens, without = made(f"policy.history_screens={BEFORE}"), made()
    (logged,) = played(policy_of(with_screens.policy), Screens(), 1)
    assert is_usable(logged.trajectory, tokenizer_of(with_screens.policy))
    assert not is_usable(logged.trajectory, tokenizer_of(without.policy))
    late = replace(logged.trajectory, steps=logged.trajectory.steps[1:])
    assert not is_usable(late, tokenizer_of(with_screens.policy)), "its first step reads what is not there"


@pytest.mark.parametrize(("history", "exact"), [(1, True), (0, False)])
@pytest.mark.parametrize("family", VISION_LANGUAGE)
def test_it_clones_what_only_an_earlier_screenshot_tells(
    family: str, history: int, exact: bool, tmp_path: Path
) -> None:
    """Demonstrations of two steps. The second screen is the same in all of them, and so is the first action: what is to
    be done on it was on the first screen."""
    settings = made_of(family, tmp_path)(
        f"policy.history_screens={history}",
        "policy.trains=all",
        "policy.action_tokens=48",
        "warmup.demonstrations=6",
        "warmup.updates=60",
        "warmup.minibatches=4",
        "warmup.lr=0.003",
    )
    screens, tokenizer = Screens(), tokenizer_of(settings.policy)
    firsts, second = [screens.make(place) for place in range(6)], screens.make(99)
    (given, *rest) = windows(screens, settings, 60)

    def step(like: Step, screenshot: ObjectRef, earlier: Sequence[Action], action: Action) -> Step:
        screen = size(screens(screenshot))
        return replace(
            like,
            screenshot=screenshot,
            action=action,
            prompt_ids=tokenizer.encode_prompt("open it", earlier, screen),
            action_ids=tokenizer.encode_action(action, screen),
            logprob=0.0,
        )

    demonstrations = [
        replace(
            it,
            trajectory=replace(
                it.trajectory,
                steps=(
                    step(it.trajectory.steps[0], first, [], BACK),
                    step(it.trajectory.steps[0], second, [BACK], Action(ActionKind.TAP, touch=Point(place / 8, 0.25))),
                ),
            ),
        )
        for place, (it, first) in enumerate(zip(given, firsts, strict=False))
    ]
    state = folded(LearnerState(settings), [demonstrations, *rest], screens, settings)
    wanted = [each.trajectory.steps[1] for each in demonstrations]
    drawn = state.policy.decide(
        [screens(second)] * len(wanted),
        [each.prompt_ids for each in wanted],
        None,
        [0] * len(wanted),
        [[screens(first)] for first in firsts] if history else (),
    )
    letters = [each.action_ids == step.action_ids for each, step in zip(drawn, wanted, strict=True)]
    assert all(letters) if exact else sum(letters) <= 1, [each.action_text for each in drawn]
