"""What `distrl doctor` prints of what servers and phones sent, and what `distrl down` needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from distrl.broker.connect import RefusedError
from distrl.cli import stack
from distrl.cli.main import app
from distrl.config import Config, load
from distrl.stack.doctor import Finding
from typer.testing import CliRunner

from .conftest import Cli


def test_a_finding_is_printed_with_its_lines_and_with_controls_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = "one\x1b]0;mine\x07\ntwo"
    monkeypatch.setattr("distrl.stack.doctor.examine", lambda _: [Finding("phones", False, sent, f"see {sent}")])
    done = CliRunner().invoke(app, ["doctor", "--no-fleet"], env={"COLUMNS": "200"})
    assert done.exit_code == 1
    assert "\x1b" not in done.output
    assert "\x07" not in done.output
    (first,) = [line for line in done.output.splitlines() if "phones" in line]
    assert first.count(r"one\x1b]0;mine\x07") == 2
    assert "two" not in first
    assert "two" in done.output


def test_what_these_settings_may_not_read_of_the_run_is_a_finding_beside_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As where they are a worker's."""

    def refused(settings: Config) -> None:
        raise RefusedError("distrl.main.evaluations", "user 'worker' may not read it", "grant it")

    monkeypatch.setattr("distrl.stack.doctor.examine", lambda _: [Finding("broker", True, "of three", "")])
    monkeypatch.setattr(stack, "run_settings", lambda file, sets: load(environ={}))
    monkeypatch.setattr(stack, "_opened", refused)
    done = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "200"})
    assert done.exit_code == 1
    assert "of three" in done.output
    (line,) = [each for each in done.output.splitlines() if "distrl.main.evaluations" in each]
    assert "may not read it" in line
    assert "--no-fleet" in line


def test_down_stops_a_stack_whatever_the_other_settings_are(cli: Cli, tmp_path: Path) -> None:
    """As a file of a run whose algorithm is not installed here; a section that there is not is a mistake still."""
    (tmp_path / "run.yaml").write_text("stack: {directory: mine}\nalgorithm: {type: of-a-fork}\n")
    done = cli("down", "-c", "run.yaml")
    assert (done.returncode, done.stdout) == (0, "nothing was running\n")
    refused = cli("down", "-s", "stak.directory=mine")
    assert refused.returncode == 1
    assert "stak: no such setting" in refused.stderr
