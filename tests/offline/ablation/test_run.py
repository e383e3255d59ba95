from __future__ import annotations

from pathlib import Path

import brought
import byte_policy
import pytest
from distrl.config import Config, PolicySettings, load
from distrl.errors import BrokerError, ConfigError, DeviceError, PolicyError, StackError
from distrl.offline.ablation import run
from distrl.offline.ablation.arms import plan
from distrl.offline.ablation.log import RunLog, UpdateRange
from distrl.offline.ablation.run import (
    ArmEvaluation,
    Request,
    ablate,
    asked_evaluation,
    warn_of_too_long,
    with_phones,
)
from distrl.policy import registry
from distrl.policy.protocol import Policy
from distrl.types import Split, Update
from learner.world import Screens, logged, q_base, save_tiny_base, trajectory

RUN = load(environ={})


def test_what_is_played_is_what_is_asked_for_or_a_validation_on_simulated_phones() -> None:
    assert asked_evaluation(128, Split.TEST, RUN, own_phones=True) == (ArmEvaluation(128, Split.TEST), "")
    assert asked_evaluation(0, Split.TEST, RUN, own_phones=False) == (None, "as --evaluate 0 asks")
    found, _ = asked_evaluation(None, Split.TEST, RUN, own_phones=False)
    assert found == ArmEvaluation(RUN.evaluate.validation_episodes, Split.TEST, required=False)
    nothing, why = asked_evaluation(None, Split.TEST, RUN, own_phones=True)
    assert nothing is None
    assert "--evaluate N" in why


@pytest.mark.parametrize("case", ["no phone", "no task"])
def test_what_cannot_be_played_is_an_error_if_it_was_asked_for_and_else_a_reason(case: str, tmp_path: Path) -> None:
    config = RUN
    if case == "no task":
        (tasks := tmp_path / "tasks.csv").write_text("nothing that is a task\n")
        config = load(environ={}, sets=[f"feeder.tasks={tasks}"])
    request = Request(plan(config), evaluation=ArmEvaluation(3, Split.TEST, required=False))
    found = with_phones(config, request)
    assert found.evaluation is None
    assert found.unplayed
    asked = Request(plan(config), evaluation=ArmEvaluation(3, Split.TEST))
    with pytest.raises(DeviceError if case == "no phone" else ConfigError) as raised:
        with_phones(config, asked)
    assert raised.value.what in found.unplayed


def test_an_arm_whose_algorithm_cannot_train_the_policy_is_refused_before_the_log_is_read(tmp_path: Path) -> None:
    config = load(sets=["kafka.bootstrap=127.0.0.1:1", "kafka.connect_timeout_s=0.2"], environ={})
    with pytest.raises(ConfigError, match="learns values of actions"):
        ablate(config, Request(plan(config, arms=["algorithm.type=r2d3"]), out=tmp_path))
    with pytest.raises(PolicyError, match="nowhere"):
        ablate(config, Request(plan(config, sets=["policy.lora_targets=[nowhere]"]), out=tmp_path))
    assert not list(tmp_path.iterdir())


def test_two_ablations_in_one_folder_at_once_do_not_delete_each_others_files(tmp_path: Path) -> None:
    with run._alone_in(tmp_path / "out" / "one"):
        with (
            pytest.raises(StackError, match=r"distrl ablate in .*out/one \(process"),
            run._alone_in(tmp_path / "out" / "one"),
        ):
            pass
        with run._alone_in(tmp_path / "out" / "two"):
            pass
    with run._alone_in(tmp_path / "out" / "one"):
        pass
    (tmp_path / "a file").touch()
    with pytest.raises(ConfigError, match="cannot be written"), run._alone_in(tmp_path / "a file" / "one"):
        pass


def test_lora_of_a_policy_that_has_none_cannot_be_ablated(tmp_path: Path) -> None:
    """Each such arm would be the baseline, folded again."""
    away = ["kafka.bootstrap=127.0.0.1:1", "kafka.connect_timeout_s=0.2"]
    whole = load(sets=[*away, "policy.trains=all"], environ={})
    with pytest.raises(
        ConfigError, match=r"changes policy\.lora_alpha, and policy\.trains=all is trained without LoRA"
    ):
        ablate(whole, Request(plan(whole, sets=["lora_alpha=8"]), out=tmp_path))
    with pytest.raises(BrokerError):  # past the refusals
        ablate(whole, Request(plan(whole, arms=["policy.trains=lora,lora_rank=4"]), out=tmp_path))
    (eyes := tmp_path / "eyes").mkdir()
    save_tiny_base(eyes)
    q = load(sets=[*away, f"policy.base_model={q_base(tmp_path / 'q', eyes)}", "algorithm.type=r2d3"], environ={})
    with pytest.raises(ConfigError, match=r"policy\.lora_rank, and a recurrent Q is trained without LoRA"):
        ablate(q, Request(plan(q, sets=["lora_rank=4"]), out=tmp_path))


FIXED = """
from dataclasses import replace
from byte_policy import FAMILY as BYTES


def fixed(directory, chosen, seed):
    own = {"lora_rank": 4, "lora_targets": None, "trains": "lora"}
    return BYTES.policy(directory, chosen.model_copy(update=own), seed)


FAMILY = replace(BYTES, policy=fixed)
"""


def of_another_package(family: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *sets: str) -> Config:
    """The settings of a run whose policy is of `family`, the code of an installed package."""
    site, base = brought.install(folder / "site"), byte_policy.save(folder / "base")
    (site / brought.NAME / "family.py").write_text(family)
    brought.use(site, monkeypatch)
    away = ["kafka.bootstrap=127.0.0.1:1", "kafka.connect_timeout_s=0.2"]
    return load(sets=[*away, f"policy.base_model={base}", *sets], environ={})


@pytest.mark.parametrize("changed", ["policy.lora_rank=4", "policy.lora_targets=[v]", "policy.trains=all"])
def test_settings_that_another_packages_policy_does_not_read_cannot_be_ablated(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = of_another_package(FIXED, tmp_path, monkeypatch)
    path = changed.partition("=")[0]
    with pytest.raises(ConfigError, match=rf"changes {path}, and the policy of {brought.NAME} trains the same weights"):
        ablate(config, Request(plan(config, sets=["algorithm.lr=1e-3", changed]), out=tmp_path / "out"))


EITHER = """
from dataclasses import replace
from byte_policy import FAMILY as BYTES


def either(directory, chosen, seed):
    if chosen.trains == "lora":
        return BYTES.policy(directory, chosen, seed)
    made = BYTES.policy(directory, chosen.model_copy(update={"lora_targets": None}), seed)
    made.parameters = lambda: dict(made.model.reader.named_parameters())
    return made


FAMILY = replace(BYTES, policy=either)
"""


@pytest.mark.parametrize(
    ("family", "sets", "arms"),
    [
        (EITHER, (), ["lora_rank=4", "lora_alpha=8", "lora_targets=[v]", "trains=all"]),
        (EITHER, ("policy.trains=all",), ["trains=lora", "trains=lora,lora_rank=8", "trains=lora,lora_rank=16"]),
        (EITHER, ("policy.trains=all", "policy.lora_targets=[nowhere]"), ["trains=lora,lora_targets=[q]"]),
        # of one rank: alpha may count all the same
        (FIXED, (), ["lora_alpha=8"]),
    ],
)
def test_lora_of_another_packages_policy_can_be_ablated_where_it_may_count(
    family: str, sets: tuple[str, ...], arms: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the arm's own settings: where all is trained, no LoRA counts."""
    config = of_another_package(family, tmp_path, monkeypatch, *sets)
    with pytest.raises(BrokerError):  # past the refusals
        ablate(config, Request(plan(config, arms=arms), out=tmp_path / "out"))


def test_each_policy_of_another_package_is_loaded_once_to_see_what_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, loaded = of_another_package(EITHER, tmp_path, monkeypatch), list[tuple[object, ...]]()

    def policy_of(policy: PolicySettings) -> Policy:
        loaded.append((policy.trains, policy.lora_rank, policy.lora_targets))
        return registry.policy_of(policy)

    monkeypatch.setattr(run, "policy_of", policy_of)
    arms = plan(config, arms=["trains=all"], grids=["lora_rank=4,8", "lora_alpha=2,4", "lora_targets=[v]"])
    with pytest.raises(BrokerError):
        ablate(config, Request(arms, out=tmp_path / "out"))
    ranks = [("lora", rank, targets) for rank in (4, 8) for targets in (("v",), None)]
    run_itself = [("lora", config.policy.lora_rank, targets) for targets in (("v",), None)]
    assert sorted(loaded, key=str) == sorted([*ranks, *run_itself, ("all", config.policy.lora_rank, None)], key=str)


def test_updates_of_the_critics_alone_before_the_range_are_refused_before_the_log_is_read(tmp_path: Path) -> None:
    config = load(sets=["kafka.bootstrap=127.0.0.1:1", "kafka.connect_timeout_s=0.2"], environ={})
    wanted = plan(config, sets=["critic_warmup_updates=2"])
    with pytest.raises(ConfigError, match=r"changes algorithm\.critic_warmup_updates, which .* have used already"):
        ablate(config, Request(wanted, first=16, out=tmp_path))
    with pytest.raises(BrokerError):
        ablate(config, Request(wanted, first=15, out=tmp_path))


def test_an_arm_whose_buffer_is_too_short_for_records_of_the_run_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    run = load(sets=["algorithm.replay.capacity=9"], environ={})
    records = logged([trajectory(Screens(), seed, steps=steps) for seed, steps in enumerate((3, 8, 9, 10))])
    log = RunLog(UpdateRange(0, 1), None, [(Update(0, (), "", 0), records)], [], {}, 0)
    warn_of_too_long(plan(run), log)
    assert warned(caplog) == [], "the run left out the record of ten steps, too"
    warn_of_too_long(plan(run, sets=["algorithm.replay.capacity=7", "algorithm.replay.capacity=20"]), log)
    assert warned(caplog) == [
        "arm algorithm.replay.capacity=7 leaves out 2 of 4 records: longer than its buffer's 7 transitions"
    ]


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    """By ablations, whatever other threads of this process log."""
    return [each.getMessage() for each in caplog.records if each.name == run.LOG.name]
