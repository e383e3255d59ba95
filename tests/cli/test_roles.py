"""What the commands of roles end with."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from distrl.chat.endpoint import Counted
from distrl.cli import recorded, roles
from distrl.cli.main import app
from distrl.config import Config
from distrl.demonstrations.recorded import Published
from distrl.errors import ConfigError
from recording_files import android_control, example, write
from typer.testing import CliRunner


@pytest.mark.parametrize(
    ("command", "work"),
    [
        (["demonstrate"], "distrl.demonstrations.scripted.run_demonstrations"),
        (["evaluate", "--versions", "last"], "distrl.evaluate.run.evaluate_versions"),
    ],
)
@pytest.mark.parametrize("asked", [True, False])
def test_who_is_asked_to_stop_before_all_is_done_does_not_end_as_if_it_were(
    monkeypatch: pytest.MonkeyPatch, command: list[str], work: str, asked: bool
) -> None:
    """Else nobody would start it again: a training's parent, a Job."""
    stop = threading.Event()

    def stopped(*_: object) -> list[object]:
        if asked:
            stop.set()
        return []

    monkeypatch.setattr(roles, "started", lambda *_: (Config(), stop))
    monkeypatch.setattr(work, stopped)
    assert CliRunner().invoke(app, command).exit_code == (130 if asked else 0)


@pytest.mark.parametrize(
    ("command", "work"),
    [
        (["appagent", "explore"], "distrl.rollout.explore.explore"),
        (["appagent", "evaluate"], "distrl.evaluate.prompted.evaluate_agent"),
        (["tasks", "oracle", "--profile", "plain"], "distrl.rollout.oracle_smoke_test.oracle_smoke_test"),
    ],
)
@pytest.mark.parametrize("asked", [True, False])
def test_nor_does_who_is_asked_to_stop_before_a_model_or_a_script_has_played_all(
    monkeypatch: pytest.MonkeyPatch, command: list[str], work: str, asked: bool
) -> None:
    stop = threading.Event()
    counts = dict.fromkeys(("notes", "before", "tasks", "interrupted", "steps", "ended", "seconds"), 0)

    def stopped(*_: object) -> SimpleNamespace:
        if asked:
            stop.set()
        return SimpleNamespace(**counts, counters={}, outcomes={}, spent=Counted())

    for module in ("appagent", "oracle"):
        monkeypatch.setattr(f"distrl.cli.{module}.start_role", lambda *_, **__: stop)
    for settings in ("connected", "run_settings"):
        monkeypatch.setattr(f"distrl.cli.appagent.{settings}", lambda *_, **__: Config())
    monkeypatch.setattr(work, stopped)
    assert CliRunner().invoke(app, command).exit_code == (130 if asked else 0)


def test_a_suite_that_does_not_exist_is_refused_before_the_broker_is_asked() -> None:
    refused = (
        CliRunner().invoke(app, ["feed", "-s", "feeder.suite=shop", "-s", "kafka.bootstrap=127.0.0.1:1"]).exception
    )
    assert isinstance(refused, ConfigError)
    assert (refused.where, "general, webshop" in refused.hint) == ("feeder.suite", True)


@pytest.mark.parametrize("asked", [True, False])
def test_who_is_asked_to_stop_while_it_publishes_recorded_episodes_does_not_end_as_if_it_were_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    stop = threading.Event()

    def stopped(*_: object) -> Published:
        if asked:
            stop.set()
        return Published(written=1, in_topic=1)

    write(tmp_path / "episodes", [example(android_control(1, [{"action_type": "click", "x": 1, "y": 1}]))])
    monkeypatch.setattr(recorded, "started", lambda *_: (Config(), stop))
    monkeypatch.setattr("distrl.demonstrations.recorded.run_recorded", stopped)
    done = CliRunner().invoke(app, ["demonstrate", "--episodes", str(tmp_path), "--count", "2"])
    assert "1 demonstrations published" in done.stdout
    assert done.exit_code == (130 if asked else 0)


@pytest.mark.parametrize(("words", "code"), [(["--no-follow"], 130), ([], 0)])
def test_a_tracker_that_is_stopped_before_all_is_logged_says_so(
    monkeypatch: pytest.MonkeyPatch, words: list[str], code: int
) -> None:
    """One that follows is stopped by nothing else."""
    stop = threading.Event()
    stop.set()
    monkeypatch.setattr("distrl.cli.track.start_role", lambda *_, **__: stop)
    monkeypatch.setattr("distrl.cli.track.run_settings", lambda *_: Config())
    monkeypatch.setattr("distrl.trackers.follow.tracked_run", lambda *_, **__: SimpleNamespace(id="r", name="r"))
    monkeypatch.setattr("distrl.trackers.follow.track", lambda *_, **__: 3)
    assert CliRunner().invoke(app, ["track", "--to", "files", *words]).exit_code == code
