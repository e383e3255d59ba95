from __future__ import annotations

from pathlib import Path

import pytest
from distrl.config import load
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
    assert caplog.messages == [], "the run left out the record of ten steps, too"
    warn_of_too_long(plan(run, sets=["algorithm.replay.capacity=7", "algorithm.replay.capacity=20"]), log)
    assert caplog.messages == [
        "arm algorithm.replay.capacity=7 leaves out 2 of 4 records: longer than its buffer's 7 transitions"
    ]
