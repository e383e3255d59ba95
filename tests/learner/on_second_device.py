"""Folds on the second device, in a process of its own: torch takes a backend once and for all.

    python -m learner.on_second_device BASE [SETTING=VALUE …]     a vision-language model where a dialect is among them

Prints one JSON object: where the weights were, the digests of a fold in one go and of one that was restored in the
middle, the adapter of the first and of one on the CPU. The tiny AutoUI takes every other algorithm, too.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from unittest import mock

import torch
from distrl.accelerator import CPU
from distrl.algorithms.registry import ALGORITHMS
from distrl.config import Config, load
from distrl.learner.fold import fold
from distrl.learner.state import LearnerState
from distrl.policy.sampling import FULL
from distrl.types import LoggedTrajectory
from second_device import DEVICE, SecondDevice

from learner.test_vision_language import in_its_words
from learner.world import Screens, config, q_base, update_of, windows

UPDATES = 2
"""One of cloning, one of A-RIDE."""
SHORT = ("warmup.updates=1", "algorithm.critic_warmup_updates=0")


def run(state: LearnerState, records: list[list[LoggedTrajectory]], screens: Screens, settings: Config) -> LearnerState:
    for window in records[state.u :]:
        fold(state, window, update_of(state.u, window, state.watermarks, settings), screens, settings)
    return state


def others(base: Path, but: str) -> list[Config]:
    """Small settings of every algorithm but one."""
    small = {"minibatches": "1", "batch_size": "4", "critic_warmup_updates": "0", "group_size": "4"}
    found = []
    for kind in ALGORITHMS:
        sets = [f"algorithm.{name}={value}" for name, value in small.items() if name in kind.model_fields]
        name = kind.model_fields["type"].default
        chosen = load(sets=[f"algorithm.type={name}", "algorithm.replay.capacity=60", *sets], environ={})
        acts = q_base(base.parent / f"{base.name}-q", base) if name == "r2d3" else base
        found.append(config(acts, "warmup.updates=1").model_copy(update={"algorithm": chosen.algorithm}))
    return [each for each in found if each.algorithm.type != but]


def refuses_strangers() -> bool:
    try:
        torch.ones(2, device=DEVICE) + torch.ones(2)
    except RuntimeError:
        return True
    return False


def main(base: Path, *sets: str) -> None:
    settings, screens = config(base, *SHORT, *sets), Screens()
    vlm = any(each.startswith("policy.dialect") for each in sets)
    records = in_its_words(settings, screens, UPDATES) if vlm else windows(screens, settings, UPDATES)
    log = [each for window in records for each in window]

    def state_on(device: torch.device) -> LearnerState:
        with mock.patch("distrl.learner.state.device_of", return_value=device):
            return LearnerState(settings)

    more = [] if vlm else others(base, settings.algorithm.type)
    with SecondDevice():
        for each in more:
            with mock.patch("distrl.learner.state.device_of", return_value=DEVICE):
                run(LearnerState(each), windows(screens, each, UPDATES, episodes=4), screens, each)
        whole = run(state_on(DEVICE), records, screens, settings)
        halted = run(state_on(DEVICE), records[:1], screens, settings)
        with mock.patch("distrl.learner.state.device_of", return_value=DEVICE):
            again = LearnerState.restore(settings, halted.meta(), halted.tensors(), log)
        again = run(again, records, screens, settings)
        steps = [step for entry in whole.entries() for step in entry.steps][:3]
        pngs, prompts = [screens(step.screenshot) for step in steps], [step.prompt_ids for step in steps]
        drawn = [each.action_ids for each in whole.policy.decide(pngs, prompts, FULL, [1, 2, 3])]
        moments = {
            value.device.type
            for each in again.algorithm.optimisers().values()
            for found in each.optimiser.state.values()
            for name, value in found.items()
            if name != "step"
        }
        found = {
            "device": str(whole.policy.device),
            "moments": sorted(moments),
            "refuses strangers": refuses_strangers(),
            "drawn": len(drawn),
            "algorithms": len(more) + 1,
            "whole": whole.digests(),
            "again": again.digests(),
            "tensors": {name: value.tolist() for name, value in whole.tensors().items() if name.startswith("adapter")},
        }
    cpu = run(state_on(CPU), records, screens, settings)
    found["cpu"] = {name: value.tolist() for name, value in cpu.tensors().items() if name.startswith("adapter")}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), *sys.argv[2:])
