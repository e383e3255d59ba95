"""What the warm-up clones: all demonstrations, whatever algorithm follows."""

from __future__ import annotations

from pathlib import Path

from distrl.algorithms.cloning import warmup_memory
from distrl.config import Config, load
from distrl.learner.state import LearnerState
from learner.world import Screens, config, folded, logged, save_tiny_base, trajectory, windows


def test_the_warm_up_holds_every_demonstration_although_the_algorithm_s_own_buffer_is_short() -> None:
    settings = load(sets=["algorithm.type=grpo", "algorithm.replay.capacity=8", "warmup.demonstrations=40"], environ={})
    screens, memory = Screens(), warmup_memory(settings)
    demonstrations = logged([trajectory(screens, seed, steps=6, expert=True) for seed in range(40)])
    for each in demonstrations:
        assert memory.refuses(each.trajectory) is None
        memory.admit(each)
    assert [entry.logged for entry in memory.uses(0)] == demonstrations


def test_version_0_is_the_same_whatever_the_algorithm_s_buffer_holds(tmp_path: Path) -> None:
    save_tiny_base(tmp_path)
    screens = Screens()

    def warmed_up(settings: Config) -> str:
        records = windows(screens, settings, settings.warmup.updates)
        return folded(LearnerState(settings), records, screens, settings).digests()["adapter"]

    assert warmed_up(config(tmp_path, "algorithm.replay.capacity=9")) == warmed_up(config(tmp_path))
