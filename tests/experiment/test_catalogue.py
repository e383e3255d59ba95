"""What the declared experiments are made of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from distrl.config import Config
from distrl.experiment.catalogue import EXPERIMENTS
from distrl.experiment.plan import PRESETS
from distrl.experiment.warmup import adapter_file, shared

LEARNING = [each for each in EXPERIMENTS.values() if any(arm.learns for arm in each.arms("quick"))]
SHARING = (
    "learning-curves",
    "components",
    "components-general",
    "components-lag",
    "dper-weights",
    "checkpoints",
    "v-trace",
    "failure-modes",
    "generalisation",
)
"""Whose arms all learn the same suite on phones of the same look."""


@pytest.mark.parametrize("name", SHARING)
def test_the_arms_of_a_seed_share_one_warm_up_and_seeds_do_not(name: str) -> None:
    for preset in PRESETS:
        files = {cell.seed: set[Path]() for cell in EXPERIMENTS[name].cells(preset, (0, 1))}
        for cell in EXPERIMENTS[name].cells(preset, (0, 1)):
            files[cell.seed].add(adapter_file(cell, Path()))
        assert [len(each) for each in files.values()] == [1, 1]
        assert not files[0] & files[1]


@pytest.mark.parametrize("name", ["components", "components-general", "components-lag", "dper-weights"])
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


def test_arms_of_a_suite_and_a_look_share_their_warm_up_and_others_do_not() -> None:
    for name, warmups in (("methods", 2), ("drift", 2)):
        cells = EXPERIMENTS[name].cells("quick", (0,))
        assert all(shared(cell) for cell in cells)
        assert len({adapter_file(cell, Path()) for cell in cells}) == warmups


def test_the_warm_up_of_r2d3_is_its_own() -> None:
    assert not any(shared(cell) for cell in EXPERIMENTS["r2d3"].cells("full", (0,)))


def test_r2d3_changes_one_thing_at_a_time() -> None:
    first, *others = EXPERIMENTS["r2d3"].arms("full")
    assert [each.name for each in others][-1] == "r2d2"
    whole = first.config(0)
    assert (whole.warmup.updates * whole.warmup.minibatches, whole.warmup.demonstrations) == (100, 128)
    for each in others[:-1]:
        config = each.config(0)
        before = flat(whole.model_dump())
        changed = [path for path, value in flat(config.model_dump()).items() if value != before[path]]
        assert len(changed) == 1, each.name
    assert others[-1].config(0).warmup.demonstrations == 0


def test_every_arm_plays_figures_of_other_names_than_those_of_each_cell() -> None:
    for each in LEARNING:
        for preset in PRESETS:
            for arm in each.arms(preset):
                names = [play.name for play in arm.plays]
                assert len(set(names)) == len(names)
                assert not {"success", "success_last", "success_first"} & set(names)
                assert names == [play.name for play in each.arms(preset)[0].plays], "a report has a column for each"


def test_drift_is_decided_on_a_generation_that_no_arm_learns() -> None:
    for preset in PRESETS:
        for arm in EXPERIMENTS["drift"].arms(preset):
            assert arm.held_out.generation not in arm.config(0).phones.generations


def flat(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in content.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {f"{prefix}{name}": value}
    return found


def test_a_full_curve_has_a_point_every_thousand_virtual_seconds_and_a_cell_of_other_points_is_another() -> None:
    experiment = EXPERIMENTS["learning-curves"]
    first = experiment.cells("full", (0,))[0]
    assert first.until / first.arm.points <= 1000
    assert replace(first, arm=replace(first.arm, points=6)).fingerprint != first.fingerprint
