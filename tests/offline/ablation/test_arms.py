from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from distrl.config import LEARNING, Config, load
from distrl.errors import ConfigError
from distrl.offline.ablation.arms import (
    BASELINE,
    SWEEPS,
    Arm,
    allowed,
    changed,
    plan,
    refuse_elsewhere,
    resolve,
    split,
)
from distrl.policy.registry import SHIPPED

RUN = Config()


def names(**arguments: list[str]) -> list[str]:
    return [arm.name for arm in plan(RUN, **arguments).arms]


def test_each_set_is_an_arm_of_its_own_after_the_baseline() -> None:
    found = plan(RUN, sets=["retrace=false", "algorithm.replay.w1=0"]).arms
    assert [arm.name for arm in found] == [BASELINE, "algorithm.retrace=false", "algorithm.replay.w1=0"]
    assert found[0].config == RUN
    assert (found[1].config.algorithm.retrace, found[1].config.algorithm.replay.w1) == (False, 1.0)
    assert (found[2].config.algorithm.retrace, found[2].config.algorithm.replay.w1) == (True, 0.0)


def test_an_arm_sets_several_and_a_grid_is_the_product() -> None:
    assert names(arms=["w1=0,w2=1"]) == [BASELINE, "algorithm.replay.w1=0,algorithm.replay.w2=1"]
    assert names(grids=["w1=0,2", "w2=0,3"]) == [
        BASELINE,
        "algorithm.replay.w1=0,algorithm.replay.w2=0",
        "algorithm.replay.w1=0,algorithm.replay.w2=3",
        "algorithm.replay.w1=2,algorithm.replay.w2=0",
        "algorithm.replay.w1=2,algorithm.replay.w2=3",
    ]


def test_a_value_may_be_a_list() -> None:
    (_, arm) = plan(RUN, arms=["lora_targets=[q, k],lora_rank=4"]).arms
    assert (arm.config.policy.lora_targets, arm.config.policy.lora_rank) == (("q", "k"), 4)
    assert split("a=[1,2],b={x: [1, 2], y: 3},c") == ["a=[1,2]", "b={x: [1, 2], y: 3}", "c"]


def test_arms_of_equal_settings_are_folded_once_and_said() -> None:
    found = plan(RUN, sets=[f"w1={RUN.algorithm.replay.w1}", "w1=0", "algorithm.replay.w1=0.0", "w1=0"])
    assert [arm.name for arm in found.arms] == [BASELINE, "algorithm.replay.w1=0"]
    assert dict(found.same) == {
        f"algorithm.replay.w1={RUN.algorithm.replay.w1}": BASELINE,
        "algorithm.replay.w1=0.0": "algorithm.replay.w1=0",
    }


def test_the_papers_grid_is_one_sweep() -> None:
    grid = SWEEPS["dper-weights"]
    assert [len(grid[f"algorithm.replay.w{n}"]) for n in (1, 2, 3)] == [7, 6, 6]
    other = load(sets=["algorithm.replay.w1=3"], environ={})  # no point of the grid
    assert len(plan(other, sweeps=["dper-weights"]).arms) == 1 + 252
    assert len(plan(other, sweeps=["dper-weights-axes"]).arms) == 1 + 7 + 6 + 6 - 2  # w2 and w3 of the run are on them


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ("retrac=false", "algorithm.retrace"),
        ("kafka.bootstrap=x:1", "algorithm.retrace"),
        ("demonstrations=4", "whole path"),
        ("base_model=/tmp", "recorded token ids"),
        ("learner.publish_every=2", "publishes none"),
        ("torch_threads=2", "by the bit"),
        ("retrace", "path.to.setting=value"),
        ("retrace=", "path.to.setting=value"),
        ("w1=-1", "algorithm.replay.w1"),
        ("algorithm.advantage=magic", "algorithm.advantage"),
        ("w1=.inf", "algorithm.replay.w1"),
    ],
)
def test_what_cannot_be_ablated_is_refused_with_what_can(item: str, said: str) -> None:
    for arguments in ({"sets": [item]}, {"arms": [item]}, {"grids": [item]}):
        with pytest.raises(ConfigError) as refusal:
            plan(RUN, **arguments)
        assert said in str(refusal.value)


def test_a_setting_twice_in_an_arm_and_an_unknown_sweep_are_refused() -> None:
    with pytest.raises(ConfigError, match="twice"):
        plan(RUN, arms=["w1=0,algorithm.replay.w1=1"])
    with pytest.raises(ConfigError, match=r"algorithm\.replay\.w1 has a grid already\n  hint: write all of its values"):
        plan(RUN, grids=["w1=0,2", "w2=1", "algorithm.replay.w1=3"])
    with pytest.raises(ConfigError, match="dper-weights-axes"):
        plan(RUN, sweeps=["everything"])


def test_every_learning_setting_may_be_changed_or_says_why_not() -> None:
    """A setting that is added has an effect, of its own or its section's, or it would be in no fingerprint."""
    effects = RUN.effects()
    leaves = set(_leaves(RUN.model_dump(include={*LEARNING})))
    assert effects.keys() == leaves
    assert {*allowed(RUN)} == {path for path, effect in effects.items() if not effect.fixed}
    assert {path for path, effect in effects.items() if not effect.learned} == {
        f"learner.{name}"
        for name in (
            "checkpoint_every",
            "keep_checkpoints",
            "keep_adapters",
            "keep_adapters_every",
            "rebuild_window",
            "record_draws",
            "ranks",
            "features_mb",
            "features_directory",
            "features_kept",
            "device",
            "gradient_checkpointing",
        )
    } | {f"policy.server.{name}" for name in type(RUN.policy.server).model_fields}
    assert {path for path, effect in effects.items() if effect.windows} == {
        "warmup.demonstrations",
        "warmup.updates",
        "learner.trajectories_per_update",
    }
    assert resolve("critic_lr", "here", RUN) == "algorithm.critic_lr"


def _leaves(tree: Mapping[str, object], above: str = "") -> Iterator[str]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{above}{name}.")
        else:
            yield f"{above}{name}"


def test_an_arm_may_be_of_another_algorithm_with_settings_of_its_own() -> None:
    (_, arm) = plan(RUN, arms=["algorithm.type=cloning,algorithm.lr=0.5"]).arms
    assert (arm.config.algorithm.type, arm.config.algorithm.lr) == ("cloning", 0.5)
    assert arm.early == ["algorithm.type"]
    assert not arm.shares_warmup
    with pytest.raises(ConfigError, match=r"no setting 'algorithm\.gamma'"):
        plan(RUN, arms=["algorithm.type=cloning,algorithm.gamma=0.5"])


def test_an_arm_of_another_algorithm_names_what_it_does_not_share_with_the_run() -> None:
    run = load(sets=["algorithm.lr=4e-3", "algorithm.minibatches=64", "algorithm.entropy=0.5"], environ={})
    (baseline, defaults, given, same) = plan(
        run,
        arms=[
            "algorithm.type=cloning",
            "algorithm.type=cloning,algorithm.lr=0.5,algorithm.minibatches=64",
            "algorithm.lr=0.5",
        ],
    ).arms
    assert defaults.unshared(run) == {"algorithm.lr": (1e-3, 4e-3), "algorithm.minibatches": (16, 64)}
    assert [each.unshared(run) for each in (baseline, given, same)] == [{}, {}, {}]


@pytest.mark.parametrize(
    ("run", "items", "fed"),
    [
        (RUN, ["algorithm.type=grpo"], "once"),
        (Config.model_validate({"feeder": {"episodes_per_task": 4}}), ["algorithm.type=grpo"], "4 times"),
        (Config.model_validate({"algorithm": {"type": "grpo"}}), ["algorithm.group_size=16"], "8 times"),
    ],
)
def test_an_arm_whose_groups_would_never_be_whole_is_refused(run: Config, items: list[str], fed: str) -> None:
    with pytest.raises(ConfigError, match=f"the run fed each task {fed}: no group of episodes is ever whole"):
        plan(run, arms=items)
    fed_more = run.model_copy(update={"feeder": run.feeder.model_copy(update={"episodes_per_task": 16})})
    assert len(plan(fed_more, arms=items).arms) == 2


@pytest.mark.parametrize(
    ("item", "shares", "anew", "early"),
    [
        ("algorithm.gamma=0.5", True, False, False),
        ("warmup.lr=0.1", False, False, True),
        ("learner.seed=3", False, False, False),
        ("learner.trajectories_per_update=2", False, True, False),
        ("warmup.updates=2", False, True, True),
        ("policy.lora_rank=2", False, False, True),
    ],
)
def test_what_an_arm_shares_follows_from_what_it_changes(item: str, shares: bool, anew: bool, early: bool) -> None:
    sets = (tuple(item.split("=")),)
    arm = Arm(item, sets, changed(RUN, sets))
    assert (arm.shares_warmup, arm.other_windows, bool(arm.early)) == (shares, anew, early)


@pytest.mark.parametrize(
    "item", ["algorithm.replay.capacity=50000", "trajectories_per_update=30000", "algorithm.type=cloning"]
)
def test_what_bounds_a_restart_of_the_learner_bounds_no_arm(item: str) -> None:
    """learner.rebuild_window, which no arm may change, of a run whose buffer is short."""
    run = load(sets=["learner.rebuild_window=2000", "algorithm.replay.capacity=2000"], environ={})
    (_, arm) = plan(run, arms=[item]).arms
    ((path, value),) = arm.sets
    assert str(arm.config.shared()[path]) == value


@pytest.mark.parametrize(
    ("value", "first", "used_up"),
    [("0", 15, False), ("0", 16, True), ("6", 17, False), ("6", 18, True), ("2", 16, True)],
)
def test_updates_of_the_critics_alone_that_are_over_cannot_be_ablated(value: str, first: int, used_up: bool) -> None:
    """The run's are updates 12 to 15; an arm of six has 16 and 17, too."""
    (_, arm) = plan(RUN, sets=[f"algorithm.critic_warmup_updates={value}"]).arms
    assert arm.used_up(RUN, first) == ["algorithm.critic_warmup_updates"] * used_up
    (_, other) = plan(RUN, sets=["algorithm.gamma=0.5"]).arms
    assert other.used_up(RUN, first) == []


def test_a_label_has_the_last_part_of_a_path_where_that_is_enough() -> None:
    (baseline, arm) = plan(RUN, arms=["algorithm.replay.w1=0.1,algorithm.lr=0.5,learner.seed=3"]).arms
    assert baseline.label == "baseline"
    assert arm.label == "w1=0.1,algorithm.lr=0.5,seed=3"
    for part in arm.label.split(","):
        assert resolve(part.partition("=")[0], "here", RUN) in arm.paths


@pytest.mark.parametrize(
    ("kind", "given", "why"),
    [
        ("sets", "kafka.bootstrap=h:9092", "kafka cannot be ablated"),
        ("arms", "algorithm.gamma=0.5,feeder.max_lag=2", "feeder cannot be ablated"),
        ("grids", "worker.temperature=0,1", "worker cannot be ablated"),
        ("sweeps", "nope", "no sweep of that name"),
    ],
)
def test_what_is_no_arm_of_any_run_is_refused_before_a_server_is_asked(kind: str, given: str, why: str) -> None:
    asked = {"sets": ["retrace=false"], "arms": ["algorithm.gamma=0.5"], "grids": [], "sweeps": ["dper-weights-axes"]}
    refuse_elsewhere(**asked)
    with pytest.raises(ConfigError, match=why):
        refuse_elsewhere(**{**asked, kind: [given]})


def test_an_arm_is_asked_at_the_same_server_by_the_same_key() -> None:
    """Of which JSON holds a mask."""
    sets = {"endpoint": "http://127.0.0.1:1/v1", "adapters": "/shared", "api_key": "sesame"}
    own = [f"policy.server.{name}={value}" for name, value in sets.items()]
    served = load(sets=[*own, f"policy.base_model={SHIPPED}"], environ={})
    made = changed(served, (("algorithm.retrace", "false"),))
    assert made.policy.server == served.policy.server
    assert made.policy.server.api_key is not None
    assert made.policy.server.api_key.get_secret_value() == "sesame"
