"""Base models of arms that learn: refused where they lack words, and made where there is none yet."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from distrl.errors import ConfigError
from distrl.experiment import base_models, plan, warmup
from distrl.experiment.base_models import FOLDER, grounded, refuse_unknown_words
from distrl.experiment.catalogue import EXPERIMENTS
from distrl.experiment.run import run_experiment
from distrl.experiment.warmup import adapter_file
from distrl.policy.files import CONFIG
from distrl.policy.recurrent_q.directory import Described, described, make
from distrl.policy.registry import SHIPPED, base_sha256


def test_a_base_model_that_lacks_words_is_refused_before_anything_starts(tmp_path: Path) -> None:
    lacking = tmp_path / "lacking"
    shutil.copytree(SHIPPED, lacking)
    config = json.loads((lacking / CONFIG).read_text())
    config["words"] = [word if word != "alarm" else "zyzzyva" for word in config["words"]]
    (lacking / CONFIG).write_text(json.dumps(config))
    cells = EXPERIMENTS["drift"].cells("quick", (0,), lacking)
    with pytest.raises(ConfigError, match=r"(?s)lacks 1 words of suite home, such as alarm.*--base-model DIR"):
        refuse_unknown_words(cells)
    refuse_unknown_words(EXPERIMENTS["collection"].cells("quick", (0,)))
    refuse_unknown_words(EXPERIMENTS["drift"].cells("quick", (0,)))


def test_the_recurrent_q_is_made_once_over_the_base_model_also_by_two_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cell, *_) = EXPERIMENTS["r2d3"].cells("quick", (0,))
    made = grounded(cell, tmp_path)
    assert made.base_model is not None
    identity = base_sha256(made.config.policy)
    assert identity != base_sha256(cell.config.policy)
    assert grounded(cell, tmp_path) == made
    shutil.rmtree(made.base_model)

    def beside(directory: Path, eyes: Path, about: Described) -> str:
        """Another command with the same OUT begins later and is done earlier."""
        with monkeypatch.context() as patch:
            patch.setattr(base_models, "make", make)
            assert grounded(cell, tmp_path) == made
        return make(directory, eyes, about)

    monkeypatch.setattr(base_models, "make", beside)
    assert base_sha256(grounded(cell, tmp_path).config.policy) == identity
    assert [each.name for each in (tmp_path / FOLDER).iterdir()] == [made.base_model.name]
    (plain, *_) = EXPERIMENTS["drift"].cells("quick", (0,))
    assert grounded(plain, tmp_path) is plain


def test_the_recurrent_q_that_code_of_another_format_has_made_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cell that is computed again must not act by what the code of before has made."""
    (cell, *_) = EXPERIMENTS["r2d3"].cells("quick", (0,))
    before = grounded(cell, tmp_path)
    for change in (
        lambda: monkeypatch.setattr(base_models, "FORMAT", plan.FORMAT + 1),
        lambda: monkeypatch.setattr(base_models, "Described", lambda: Described(width=256)),
    ):
        change()
        after = grounded(cell, tmp_path)
        assert after.base_model != before.base_model
        before = after
    assert after.base_model is not None
    assert described(after.base_model).width == 256
    assert len(list((tmp_path / FOLDER).iterdir())) == 3


def test_cells_of_another_base_model_are_other_cells(tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(SHIPPED, other)
    moved = EXPERIMENTS["drift"].cells("quick", (0,), other)
    here = EXPERIMENTS["drift"].cells("quick", (0,))
    assert [cell.fingerprint for cell in moved] == [cell.fingerprint for cell in here], "a path is no content"
    (other / CONFIG).write_text((other / CONFIG).read_text() + "\n")
    assert all(one.fingerprint != two.fingerprint for one, two in zip(moved, here, strict=True))


def test_cells_that_learn_on_another_processor_are_other_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights of two processors must not stand in one report."""
    (learns, *_), (acts, *_) = (EXPERIMENTS[name].cells("quick", (0,)) for name in ("drift", "collection"))
    before = learns.fingerprint, adapter_file(learns, tmp_path), acts.fingerprint
    for module in (plan, warmup):
        monkeypatch.setattr(module, "processor_and_packages", lambda: ("another",))
    after = learns.fingerprint, adapter_file(learns, tmp_path), acts.fingerprint
    assert [one == other for one, other in zip(before, after, strict=True)] == [False, False, True]


def test_a_base_model_that_no_arm_would_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nothing learns in collection"):
        run_experiment(EXPERIMENTS["collection"], "quick", (0,), tmp_path / "out", base_model=SHIPPED)
    assert not (tmp_path / "out").exists()
