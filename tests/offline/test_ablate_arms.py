from __future__ import annotations

import pytest
from distrl.config import Config
from distrl.errors import ConfigError
from distrl.offline.ablate_arms import (
    AFTER_WARMUP,
    BASELINE,
    BEFORE_A_RANGE,
    CUTS,
    REFUSED,
    SWEEPS,
    allowed,
    plan,
    resolve,
    split,
)

RUN = Config()


def names(**arguments: list[str]) -> list[str]:
    return [arm.name for arm in plan(RUN, **arguments).arms]


def test_each_set_is_an_arm_of_its_own_after_the_baseline() -> None:
    found = plan(RUN, sets=["retrace=false", "replay.w1=0"]).arms
    assert [arm.name for arm in found] == [BASELINE, "aride.retrace=false", "replay.w1=0"]
    assert found[0].config == RUN
    assert (found[1].config.aride.retrace, found[1].config.replay.w1) == (False, RUN.replay.w1)
    assert (found[2].config.aride.retrace, found[2].config.replay.w1) == (True, 0.0)


def test_an_arm_sets_several_and_a_grid_is_the_product() -> None:
    assert names(arms=["w1=0,w2=1"]) == [BASELINE, "replay.w1=0,replay.w2=1"]
    assert names(grids=["w1=0,2", "w2=0,3"]) == [
        BASELINE, "replay.w1=0,replay.w2=0", "replay.w1=0,replay.w2=3", "replay.w1=2,replay.w2=0",
        "replay.w1=2,replay.w2=3",
    ]  # fmt: skip


def test_a_value_may_be_a_list() -> None:
    (_, arm) = plan(RUN, arms=["lora_targets=[q, k],lora_rank=4"]).arms
    assert (arm.config.policy.lora_targets, arm.config.policy.lora_rank) == (("q", "k"), 4)
    assert split("a=[1,2],b={x: [1, 2], y: 3},c") == ["a=[1,2]", "b={x: [1, 2], y: 3}", "c"]


def test_arms_of_equal_settings_are_folded_once_and_said() -> None:
    found = plan(RUN, sets=[f"w1={RUN.replay.w1}", "w1=0", "replay.w1=0.0", "w1=0"])
    assert [arm.name for arm in found.arms] == [BASELINE, "replay.w1=0"]
    assert dict(found.same) == {f"replay.w1={RUN.replay.w1}": BASELINE, "replay.w1=0.0": "replay.w1=0"}


def test_the_papers_grid_is_one_sweep() -> None:
    grid = SWEEPS["dper-weights"]
    assert [len(grid[f"replay.w{n}"]) for n in (1, 2, 3)] == [7, 6, 6]
    other = Config.model_validate({"replay": {"w1": 3.0}})  # no point of the grid
    assert len(plan(other, sweeps=["dper-weights"]).arms) == 1 + 252
    assert len(plan(other, sweeps=["dper-weights-axes"]).arms) == 1 + 7 + 6 + 6 - 2  # w2 and w3 of the run are on them


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ("retrac=false", "aride.retrace"),
        ("kafka.bootstrap=x:1", "aride.retrace"),
        ("demonstrations=4", "whole path"),
        ("base_model=/tmp", "recorded token ids"),
        ("learner.publish_every=2", "publishes none"),
        ("torch_threads=2", "by the bit"),
        ("retrace", "path.to.setting=value"),
        ("retrace=", "path.to.setting=value"),
        ("w1=-1", "replay.w1"),
        ("aride.advantage=magic", "aride.advantage"),
        ("w1=.inf", "replay.w1"),
    ],
)
def test_what_cannot_be_ablated_is_refused_with_what_can(item: str, said: str) -> None:
    for arguments in ({"sets": [item]}, {"arms": [item]}, {"grids": [item]}):
        with pytest.raises(ConfigError) as refusal:
            plan(RUN, **arguments)
        assert said in str(refusal.value)


def test_a_setting_twice_in_an_arm_and_an_unknown_sweep_are_refused() -> None:
    with pytest.raises(ConfigError, match="twice"):
        plan(RUN, arms=["w1=0,replay.w1=1"])
    with pytest.raises(ConfigError, match="dper-weights-axes"):
        plan(RUN, sweeps=["everything"])


def test_every_list_of_settings_names_real_ones() -> None:
    """A setting that is renamed or added must be put in its list here, or it would be shared where it must not be."""
    fields = {f"{s}.{n}" for s in ("aride", "replay", "learner", "policy") for n in type(getattr(RUN, s)).model_fields}
    assert {*REFUSED} | {*allowed()} == fields
    assert {*REFUSED} & {*allowed()} == set()
    assert fields >= AFTER_WARMUP | CUTS
    assert fields >= BEFORE_A_RANGE
    assert not AFTER_WARMUP & (CUTS | BEFORE_A_RANGE)
    assert resolve("lr", "here") == "learner.lr"
