"""Arms that are saved: found again to the last bit under the very same circumstances, and under no others."""

from __future__ import annotations

import hashlib
import math
import platform
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import brought_algorithm
import numpy as np
import PIL
import pytest
import torch
from distrl import processor
from distrl.config import Config
from distrl.errors import ConfigError
from distrl.offline.ablation import persisted
from distrl.offline.ablation import run as run_module
from distrl.offline.ablation.arms import Arm, changed, plan
from distrl.offline.ablation.fold import Folded, Identity
from distrl.offline.ablation.log import RunLog, UpdateRange
from distrl.offline.ablation.persisted import PersistedArms, code_digest
from distrl.offline.ablation.report import Evaluated, Result
from distrl.offline.ablation.run import ArmEvaluation, clear, played_on, refuse_foreign
from distrl.offline.estimates import Estimate
from distrl.plugins import files_sha256
from distrl.processor import processor_and_packages
from distrl.types import Outcome, Split
from learner.world import Screens, config, save_tiny_base, update_of, windows

WEIGHTS = b"the weights of an adapter"


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Config:
    directory = tmp_path_factory.mktemp("base")
    save_tiny_base(directory)
    return config(directory)


@pytest.fixture(scope="module")
def log(settings: Config) -> RunLog:
    rows, marks = [], ()
    for u, window in enumerate(windows(Screens(), settings, 4)):
        update = update_of(u, window, marks, settings)
        rows.append((update, window))
        marks = update.watermarks
    return RunLog(UpdateRange(0, 4), None, rows, [], {1: "ab"}, settings.warmup.demonstrations)


def result_of(arm: Arm) -> Result:
    """With numbers that a careless text form would round, lose or refuse."""
    updates = [(0, {"policy_loss": 0.1 + 0.2, "ratio": math.inf}), (1, {"policy_loss": 5e-324, "ratio": -0.0})]
    estimates = {"range": {"weighted": Estimate(1 / 3, -0.0, math.inf, 29.999999999999996, 7)}}
    folded = Folded(arm, updates, 12, {"critic": "c" * 64}, WEIGHTS, "b" * 64, estimates, False, 1.5)
    return Result(folded, identity=Identity({0: True, 3: False}, None))


SUCCESS = Evaluated("test", 7, {f"task-{number}": number < 3 for number in range(7)})


@pytest.fixture
def baseline(settings: Config, log: RunLog, tmp_path: Path) -> Arm:
    """The arm, saved in `tmp_path`."""
    clear(tmp_path, set())
    arm = Arm("baseline", (), settings)
    PersistedArms(tmp_path, log, None).save_fold(result_of(arm))
    return arm


def test_what_was_kept_is_found_to_the_last_bit(log: RunLog, baseline: Arm, tmp_path: Path) -> None:
    found = PersistedArms(tmp_path, log, None).find(baseline)
    assert found == result_of(baseline)
    assert repr(found) == repr(result_of(baseline)), "0.0 and -0.0 are equal, and yet not the same"


CHANGES: dict[str, Callable[[RunLog], RunLog]] = {
    "another outcome": lambda log: with_first(log, outcome=Outcome.UNKNOWN),
    "another attempt": lambda log: with_first(log, attempt_id="another"),
    "a record less": lambda log: replace(log, windows=[(log.windows[0][0], log.windows[0][1][1:]), *log.windows[1:]]),
    "an update less": lambda log: replace(log, range=UpdateRange(0, 3), windows=log.windows[:3]),
    "held out": lambda log: replace(log, held_out=[log.windows[0][1][0]]),
    "other versions": lambda log: replace(log, versions={1: "cd"}),
}


def with_first(log: RunLog, **changes: object) -> RunLog:
    (update, (first, *others)), *rest = log.windows
    changed = replace(first, trajectory=replace(first.trajectory, **changes))
    return replace(log, windows=[(update, [changed, *others]), *rest])


@pytest.mark.parametrize("change", CHANGES)
def test_another_range_is_another_arm(log: RunLog, baseline: Arm, tmp_path: Path, change: str) -> None:
    assert PersistedArms(tmp_path, CHANGES[change](log), None).find(baseline) is None


def test_what_the_run_publishes_after_the_range_leaves_every_arm_kept(
    log: RunLog, baseline: Arm, tmp_path: Path
) -> None:
    later = replace(log, versions=log.versions | {4: "ef", 5: "01"})
    assert PersistedArms(tmp_path, later, None).find(baseline) == result_of(baseline)


def test_an_arm_that_is_not_held_against_the_run_stays_kept_whatever_the_run_has_published(
    settings: Config, log: RunLog, baseline: Arm, tmp_path: Path
) -> None:
    sets = (("algorithm.replay.w1", "0"),)
    arm = Arm("algorithm.replay.w1=0", sets, changed(settings, sets))
    done = replace(result_of(arm), identity=None)
    PersistedArms(tmp_path, log, None).save_fold(done)
    assert PersistedArms(tmp_path, replace(log, versions={}), None, checkpoint=True).find(arm) == done


def test_a_baseline_is_folded_again_once_there_is_a_checkpoint_to_hold_it_against(
    log: RunLog, baseline: Arm, tmp_path: Path
) -> None:
    before, after = (PersistedArms(tmp_path, log, None, checkpoint=there) for there in (False, True))
    assert after.find(baseline) is None
    compared = replace(result_of(baseline), identity=Identity({0: True, 3: False}, checkpoint=True))
    after.save_fold(compared)
    for saved in (before, after):  # the learner deletes old checkpoints, and what was found stays so
        assert saved.find(baseline) == compared


@pytest.mark.parametrize("setting", [("algorithm.replay.w1", "0"), ("learner.seed", "5")])
def test_other_settings_are_another_arm(
    settings: Config, log: RunLog, baseline: Arm, tmp_path: Path, setting: tuple[str, str]
) -> None:
    other = Arm("baseline", (), changed(settings, (setting,)))
    assert PersistedArms(tmp_path, log, None).find(other) is None


MACHINES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "fewer instructions": lambda patch: patch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT"),
    "another kind": lambda patch: patch.setattr(platform, "machine", lambda: "riscv64"),
    "another torch": lambda patch: patch.setattr(torch, "__version__", "0.1"),
    "another NumPy": lambda patch: patch.setattr(np, "__version__", "0.1"),
    "another Pillow": lambda patch: patch.setattr(PIL, "__version__", "0.1"),
    "another transformers": lambda patch: patch.setattr(processor, "version", lambda package: f"0.1 of {package}"),
}


@pytest.mark.parametrize("change", MACHINES)
def test_another_machine_is_another_arm(
    log: RunLog, baseline: Arm, tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    MACHINES[change](monkeypatch)
    assert PersistedArms(tmp_path, log, None).find(baseline) is None


def test_a_gpu_and_a_processor_make_different_arms_and_play_differently(
    log: RunLog, baseline: Arm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cpu = PersistedArms(tmp_path, log, None).file(baseline)
    played = ArmEvaluation(1, Split.TEST)
    asked = played_on(baseline.config, played)
    for module in (persisted, run_module):
        monkeypatch.setattr(module, "gpu", lambda chosen, setting: f"{setting}: a GPU")
    assert PersistedArms(tmp_path, log, None).file(baseline) != on_cpu
    assert played_on(baseline.config, played) != asked


def test_another_model_of_the_same_processor_is_another_arm(
    log: RunLog, baseline: Arm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    monkeypatch.setattr(processor, "CPUINFO", cpuinfo)
    assert "" in processor_and_packages(), "a system that does not say is no error"
    cpuinfo.write_text("processor\t: 0\nmodel name\t: Old 1\nflags\t: fpu\n\nprocessor\t: 1\nmodel name\t: Old 1\n")
    assert "Old 1" in processor_and_packages()
    saved = PersistedArms(tmp_path, log, None)
    saved.save_fold(result_of(baseline))
    assert saved.find(baseline) is not None
    cpuinfo.write_text(cpuinfo.read_text().replace("Old", "New"))
    assert PersistedArms(tmp_path, log, None).find(baseline) is None


PLAYED = {
    "another look": {"phones": {"generation": 2}},
    "more pop-ups": {"phones": {"popup_probability": 0.5}},
    "other kinds": {"phones": {"profiles": ["torn"]}},
    "slower ones": {"phones": {"latency_median_ms": 500.0}},
    "fewer ones": {"phones": {"evaluation_count": 1}},
    "less patience": {"devices": {"settle_unchanged_s": 0.0}},
    "a phone elsewhere": {"devices": {"addresses": ["10.0.0.1:5555"]}},
    "a real one": {"devices": {"serials": ["R58M"]}},
    "emulators": {"devices": {"emulators": {"avd": "pixel", "count": 1}}},
    "other tasks": {"feeder": {"suite": "general"}},
}


def test_success_is_found_again_on_the_same_phones_wherever_they_are_reached(
    settings: Config, log: RunLog, baseline: Arm, tmp_path: Path
) -> None:
    def saved(changes: dict[str, Any]) -> PersistedArms:
        read = Config.model_validate(settings.model_dump(mode="json", exclude_defaults=True) | changes)
        return PersistedArms(tmp_path, log, played_on(read, ArmEvaluation(7, Split.TEST)))

    first = {"devices": {"addresses": ["127.0.0.1:26000"], "directory": "here"}, "phones": {"base_port": 26000}}
    later = {"devices": {"addresses": ["127.0.0.1:27000"], "directory": "there"}, "phones": {"base_port": 27000}}
    folded = result_of(baseline)
    saved(first).save_success(folded.folded, SUCCESS)
    assert saved(later).find(baseline) == replace(folded, evaluated=SUCCESS)
    for name, changes in PLAYED.items():
        assert saved(changes).find(baseline) == folded, f"{name}: played again, not folded again"


def test_success_that_counts_episodes_without_an_outcome_is_not_kept_and_the_fold_is(
    log: RunLog, baseline: Arm, tmp_path: Path
) -> None:
    saved, folded = PersistedArms(tmp_path, log, ["a task"]), result_of(baseline)
    saved.save_success(folded.folded, replace(SUCCESS, tasks=8, others=1))
    assert saved.find(baseline) == folded
    saved.save_success(folded.folded, SUCCESS)
    assert saved.find(baseline) == replace(folded, evaluated=SUCCESS)


def test_success_is_of_what_was_asked_and_of_the_adapter_that_was_played(
    log: RunLog, baseline: Arm, tmp_path: Path
) -> None:
    folded = result_of(baseline)
    asked, unasked = PersistedArms(tmp_path, log, ["a task"]), PersistedArms(tmp_path, log, None)
    asked.save_success(folded.folded, SUCCESS)
    assert unasked.find(baseline) == folded
    other = replace(folded, folded=replace(folded.folded, adapter=b"other weights"))
    asked.save_fold(other)
    assert asked.find(baseline) == other


@pytest.mark.parametrize("cut_at", [0, 40, 64, 65, 70, -1])
def test_success_that_is_damaged_is_played_again(log: RunLog, baseline: Arm, tmp_path: Path, cut_at: int) -> None:
    saved, folded = PersistedArms(tmp_path, log, ["a task"]), result_of(baseline)
    saved.save_success(folded.folded, SUCCESS)
    file = saved.success_file(folded.folded)
    file.write_bytes(file.read_bytes()[:cut_at])
    assert saved.find(baseline) == folded


def test_clearing_leaves_all_that_is_kept_of_an_arm_and_nothing_of_another(
    settings: Config, log: RunLog, baseline: Arm, tmp_path: Path
) -> None:
    sets = (("algorithm.replay.w1", "0"),)
    other = result_of(Arm("algorithm.replay.w1=0", sets, changed(settings, sets)))
    saved = [PersistedArms(tmp_path, log, asked) for asked in (["a task"], ["another"])]
    for each in saved:
        for result in (result_of(baseline), other):
            each.save_fold(result)
            each.save_success(result.folded, SUCCESS)
    assert len(list(tmp_path.glob("arms/*"))) == 6
    clear(tmp_path, saved[0].files(baseline))
    left = {saved[0].file(baseline), *(each.success_file(result_of(baseline).folded) for each in saved)}
    assert {*tmp_path.glob("arms/*")} == left
    assert {*tmp_path.glob("adapters/*")} == {tmp_path / saved[0].adapter(baseline)}


def test_an_arm_is_found_wherever_another_plan_has_it(settings: Config, log: RunLog, tmp_path: Path) -> None:
    before = plan(settings, sets=["algorithm.replay.w1=0", "algorithm.gamma=0.5"]).arms
    after = plan(settings, sets=["algorithm.lr=0.5", "algorithm.gamma=0.5"], arms=["algorithm.replay.w1=0"]).arms
    saved = PersistedArms(tmp_path, log, None)
    clear(tmp_path, set())
    for arm in before:
        saved.save_fold(result_of(arm))
    found = {arm.name: saved.find(arm) for arm in after}
    assert [name for name, result in found.items() if result is None] == ["algorithm.lr=0.5"]
    kept = {path for arm in after if found[arm.name] for path in saved.files(arm)}
    clear(tmp_path, kept)
    assert {*tmp_path.glob("arms/*"), *tmp_path.glob("adapters/*")} == kept
    assert [saved.find(arm) for arm in before] == [result_of(arm) for arm in before]


def test_the_adapters_of_a_folder_that_names_them_by_number_are_cleared(baseline: Arm, tmp_path: Path) -> None:
    older = tmp_path / "adapters" / "000-baseline.safetensors"
    older.write_bytes(WEIGHTS)
    clear(tmp_path, set())
    assert [*tmp_path.glob("adapters/*"), *tmp_path.glob("arms/*")] == []


@pytest.mark.parametrize("name", ["report.json", "adapters/mine.safetensors"])
def test_files_that_no_ablation_has_made_are_left_alone(tmp_path: Path, name: str) -> None:
    """As of a demo's or an experiment's folder, named by --out and --name."""
    file = tmp_path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("mine")
    with pytest.raises(ConfigError, match=f"holds .*{name}, which no ablation has made"):
        refuse_foreign(tmp_path)
    assert file.read_text() == "mine"


def test_other_code_or_another_run_is_another_arm(
    settings: Config, log: RunLog, baseline: Arm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    renamed = replace(baseline, config=settings.model_copy(update={"run": "another"}))
    assert PersistedArms(tmp_path, log, None).find(renamed) is None
    monkeypatch.setattr(persisted, "code_digest", lambda policy: hashlib.sha256(b"newer").hexdigest())
    assert PersistedArms(tmp_path, log, None).find(baseline) is None


def test_code_of_the_package_that_brings_the_policy_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    ours, package = code_digest([]), tmp_path / "brings_policies"
    package.mkdir()
    (package / "__init__.py").touch()
    found = set()
    for source in ("x = 1", "x = 2"):
        (package / "model.py").write_text(source)
        (tmp_path / "brings_one.py").write_text(source)
        found |= {code_digest(["brings_policies"]), code_digest(["brings_one"])}
        files_sha256.cache_clear()  # as in the next process
    assert len(found | {ours}) == 5
    assert code_digest([]) == ours


def test_an_arm_of_another_packages_algorithm_is_folded_again_once_its_code_is_another(
    settings: Config, log: RunLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = brought_algorithm.install(tmp_path / "site")
    brought_algorithm.use(site, monkeypatch)
    (baseline, arm) = plan(settings, [f"algorithm.type={brought_algorithm.TYPE}"]).arms
    clear(tmp_path, set())
    saved = PersistedArms(tmp_path, log, None)
    saved.save_fold(result_of(arm))
    saved.save_fold(result_of(baseline))
    assert saved.find(arm) == result_of(arm)
    brought_algorithm.edit(site, "np.minimum", "np.fmin")
    brought_algorithm.use(site, monkeypatch)
    assert saved.find(arm) is None
    assert saved.find(baseline) == result_of(baseline)


@pytest.mark.parametrize("cut_at", [0, 1, 40, 64, 65, 66, 200, -1])
def test_a_damaged_file_is_folded_anew(log: RunLog, baseline: Arm, tmp_path: Path, cut_at: int) -> None:
    saved = PersistedArms(tmp_path, log, None)
    whole = saved.file(baseline).read_bytes()
    for damaged in (whole[:cut_at], whole[:cut_at] + b"\0" + whole[cut_at:]):
        saved.file(baseline).write_bytes(damaged)
        assert saved.find(baseline) is None
    saved.file(baseline).write_bytes(whole)
    assert saved.find(baseline) is not None


def test_an_adapter_that_is_missing_or_another_is_folded_anew(log: RunLog, baseline: Arm, tmp_path: Path) -> None:
    saved = PersistedArms(tmp_path, log, None)
    adapter = tmp_path / saved.adapter(baseline)
    adapter.write_bytes(WEIGHTS[:-1])
    assert saved.find(baseline) is None
    adapter.unlink()
    assert saved.find(baseline) is None


def test_processors_that_have_no_name_are_told_apart_by_their_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Linux describes those of ARM."""
    cpuinfo = tmp_path / "cpuinfo"
    monkeypatch.setattr(processor, "CPUINFO", cpuinfo)
    cpuinfo.write_text(
        "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\n"
    )
    assert "0x41 0xd0c 0x3" in processor_and_packages()
