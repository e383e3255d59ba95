"""What the declared experiments are made of."""

from __future__ import annotations

from pathlib import Path

import pytest
from distrl.config import Config
from distrl.experiment.catalogue import EXPERIMENTS
from distrl.experiment.plan import Preset
from distrl.experiment.warmup import adapter_file

PRESETS: tuple[Preset, ...] = ("quick", "full")
LEARNING = [each for each in EXPERIMENTS.values() if any(arm.learns for arm in each.arms("quick"))]


@pytest.mark.parametrize("name", [each.name for each in LEARNING])
def test_the_arms_of_a_seed_share_one_warm_up_and_seeds_do_not(name: str) -> None:
    for preset in PRESETS:
        files = {cell.seed: set[Path]() for cell in EXPERIMENTS[name].cells(preset, (0, 1))}
        for cell in EXPERIMENTS[name].cells(preset, (0, 1)):
            files[cell.seed].add(adapter_file(cell, Path()))
        assert [len(each) for each in files.values()] == [1, 1]
        assert not files[0] & files[1]


@pytest.mark.parametrize("name", ["components", "dper-weights"])
def test_an_ablation_changes_one_setting_of_the_first_arm(name: str) -> None:
    def settings(config: Config) -> dict[str, object]:
        found = config.algorithm.model_dump()
        return {**found.pop("replay"), **found}

    for preset in PRESETS:
        first, *others = (arm.config(0) for arm in EXPERIMENTS[name].arms(preset))
        for each in others:
            assert each.model_dump(exclude={"algorithm"}) == first.model_dump(exclude={"algorithm"})
            assert len(settings(each).items() - settings(first).items()) == 1


def test_dper_weights_hold_every_value_of_the_papers_ranges_once() -> None:
    names = [arm.name for arm in EXPERIMENTS["dper-weights"].arms("full")]
    assert len(set(names)) == len(names) == 1 + (7 + 6 + 6) - 3 + 3
    assert {"w1=10.0", "w2=0.3", "w3=0.01", "w1=0", "w2=0", "w3=0"} <= set(names)
