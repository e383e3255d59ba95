"""The command: names, refusals. What an experiment computes is tested in tests/experiment."""

from __future__ import annotations

from pathlib import Path

import pytest
from distrl.cli.main import app
from distrl.errors import ConfigError
from distrl.experiment.catalogue import EXPERIMENTS
from distrl.experiment.plan import Preset
from typer.testing import CliRunner


@pytest.mark.parametrize("arguments", [["--list"], []])
def test_it_lists_the_experiments(arguments: list[str]) -> None:
    shown = CliRunner().invoke(app, ["experiment", *arguments])
    assert shown.exit_code == 0
    assert [line.split()[0] for line in shown.output.splitlines()] == list(EXPERIMENTS)


@pytest.mark.parametrize("preset", ["quick", "full"])
def test_it_lists_the_arms_of_the_experiment_that_is_named(preset: Preset) -> None:
    shown = CliRunner().invoke(app, ["experiment", "dper-weights", "--preset", preset, "--list"])
    assert shown.exit_code == 0
    assert shown.output.splitlines() == [arm.name for arm in EXPERIMENTS["dper-weights"].arms(preset)]


@pytest.mark.parametrize("arguments", [["none"], ["collection", "--seeds", "x"], ["collection", "--arm", "steady"]])
def test_what_is_none_is_refused_before_anything_is_written(arguments: list[str], tmp_path: Path) -> None:
    out = tmp_path / "never"
    found = CliRunner().invoke(app, ["experiment", *arguments, "--out", str(out)])
    assert isinstance(found.exception, ConfigError)
    assert not out.exists()
