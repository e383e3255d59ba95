from __future__ import annotations

from pathlib import Path

import pytest
from distrl.config import load
from distrl.errors import ConfigError, DeviceError, PolicyError
from distrl.offline.ablation.arms import plan
from distrl.offline.ablation.run import ArmEvaluation, Request, ablate, asked_evaluation, with_phones
from distrl.types import Split

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
