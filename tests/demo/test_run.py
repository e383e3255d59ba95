"""Two demos at once, each of which would stop the other's roles and servers; and what a demo says."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import factories
import pytest
from distrl.cli.main import app
from distrl.config import Config
from distrl.demo import run
from distrl.demo.progress import DemoProgress
from distrl.demo.run import run_demo
from distrl.demo.summary import held_out_success
from distrl.errors import ConfigError, StackError
from distrl.runs.recorded import RecordedSettings
from distrl.stack.local import LocalStack
from distrl.stack.locks import held
from distrl.telemetry.view import RunView
from distrl.train.folder import LOCK, RunFolder
from distrl.train.placement import Placement
from distrl.train.roles import Roles
from distrl.train.watch import progress
from distrl.types import Settings
from rich.console import Console
from typer.testing import CliRunner


@pytest.mark.parametrize("shared", ["out", "stack"])
def test_a_second_demo_in_a_folder_or_on_a_stack_is_refused_and_touches_nothing(
    shared: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalStack, "up", lambda *_, **__: pytest.fail("it went on"))
    config = Config.model_validate({"stack": {"directory": tmp_path / "stack"}})
    with (
        held(tmp_path / shared / LOCK, "distrl demo"),
        pytest.raises(StackError, match=r"train.lock: distrl demo \(process \d+\) holds this lock"),
    ):
        run_demo(config, lambda base: config, 0.1, tmp_path / "out", 0.0, Console())
    assert not list(tmp_path.glob("out/*.json"))


@pytest.mark.parametrize("command", ["train", "demo"])
@pytest.mark.parametrize(
    ("item", "said", "elsewhere"),
    [
        ("algorithm.clip=0.3", "algorithm.clip: no such setting of algorithm.type aride", False),
        ("algorithm.type=r2d3", "r2d3 learns values of actions", False),
        ("algorithm.no_such=1", "algorithm.no_such: no such setting", True),
    ],
)
def test_what_is_wrong_is_refused_before_anything_starts(
    command: str, item: str, said: str, elsewhere: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where there is no log yet. elsewhere: a broker is named, so a run may have begun there; no log makes it right."""
    monkeypatch.setattr(LocalStack, "up", lambda *_, **__: pytest.fail("it went on"))
    monkeypatch.setattr(f"distrl.cli.{command}.ended_as_interrupted", lambda: None)  # this process keeps its signals
    given = [item, f"stack.directory={tmp_path / 'stack'}", *(["kafka.bootstrap=127.0.0.1:1"] if elsewhere else [])]
    line = [command, "--out", str(tmp_path / "out"), *(word for each in given for word in ("--set", each))]
    refused = CliRunner().invoke(app, line).exception
    assert isinstance(refused, ConfigError)
    assert said in str(refused)
    assert list(tmp_path.iterdir()) == []


def test_before_there_is_a_version_the_demo_says_that_it_warms_up() -> None:
    view = RunView()
    assert progress(view.status(0)) == "warming up on demonstrations; no version yet"
    view.feed(factories.version(0, update=9))
    assert progress(view.status(0)) == "0 trajectories, 0 a minute, success –, version 0"


def test_ctrl_c_is_answered_with_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalStack, "up", interrupted)
    monkeypatch.setattr("distrl.cli.demo.ended_as_interrupted", lambda: None)  # this process keeps its signals
    given = ["demo", "--out", str(tmp_path / "out"), "--set", f"stack.directory={tmp_path / 'stack'}"]
    ended = CliRunner().invoke(app, given)
    assert ended.exit_code == 130
    assert "stopped cleanly" in ended.stderr
    assert "the same command continues the run" in ended.stderr
    assert ended.stdout == ""


def test_a_demo_that_is_killed_has_saved_how_long_it_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is in the file while it is watched is what a kill leaves."""
    file, seen, clock = tmp_path / "progress.json", list[float](), SimpleNamespace(now=5_000.0)
    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: clock.now))

    def watched(config: Config, roles: object, console: Console, left: Callable[[], float], footer: str) -> None:
        for _ in range(3):
            clock.now += 7.0
            seen.extend((left(), DemoProgress.load(file).train_seconds))

    monkeypatch.setattr(run, "watch", watched)
    for name in ("placed", "start_all", "stop_in_order"):
        monkeypatch.setattr(run, name, lambda *_, **__: None)
    run._train(Config(), cast(Roles, None), 130.0 / 60, DemoProgress(3.0, 100.0), file, Console())
    left, saved = seen[::2], seen[1::2]
    assert saved == [107.0, 114.0, 121.0]
    assert left == pytest.approx([23.0, 16.0, 9.0])
    assert DemoProgress.load(file).setup_seconds == 3.0


@pytest.mark.parametrize(
    ("workers", "shares", "said"),
    [(None, 2, ""), (1, 1, ""), (4, 3, "3 of 4 workers start: each needs a phone to train on; raise phones.count")],
)
def test_a_demo_has_as_many_workers_as_are_asked_for(
    workers: int | None, shares: int, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `distrl train` has. Of four phones, one evaluates."""
    ports, seen, out = [f"127.0.0.1:{port}" for port in range(1, 5)], list[Placement](), io.StringIO()
    config = Config.model_validate({"phones": {"count": 3}, "devices": {"addresses": ports}})
    monkeypatch.setattr(run, "start_all", lambda roles, placement: seen.append(placement))
    for name in ("watch", "stop_in_order"):
        monkeypatch.setattr(run, name, lambda *_, **__: None)
    console, file = Console(file=out, width=200), tmp_path / "progress.json"
    run._train(config, cast(Roles, None), 1.0, DemoProgress(), file, console, workers)
    assert [len(each.workers) for each in seen] == [shares]
    assert out.getvalue().partition("training time")[0].strip() == said


@pytest.mark.parametrize(("words", "asked"), [((), None), (("--workers", "3"), 3)])
def test_the_command_hands_on_how_many_workers_are_asked_for(
    words: tuple[str, ...], asked: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[object]()

    def run_demo(*arguments: object) -> None:
        seen.append(arguments[-1])
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "run_demo", run_demo)
    monkeypatch.setattr("distrl.cli.demo.ended_as_interrupted", lambda: None)  # this process keeps its signals
    given = ["demo", *words, "--out", str(tmp_path / "out"), "--set", f"stack.directory={tmp_path / 'stack'}"]
    assert CliRunner().invoke(app, given).exit_code == 130
    assert seen == [asked]


@pytest.mark.parametrize(("began", "trained"), [(1_000, 60.0), (2_000, 0.0), (None, 0.0)])
def test_a_demo_goes_on_with_the_time_of_its_own_run_alone(
    began: int | None, trained: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the folder of a run that began at 1,000 ms. began: of the one in the log, if any."""
    config, folder, got = Config(run="demo-0"), RunFolder(tmp_path, "demo-0"), list[DemoProgress]()
    DemoProgress(5.0, 60.0, began=1_000).save(folder.progress)

    @contextmanager
    def prepared(*_: object) -> Iterator[tuple[Config, RunFolder, LocalStack]]:
        yield config, folder, LocalStack(config)

    def train(settings: Config, roles: Roles, minutes: float, progress: DemoProgress, *_: object) -> None:
        got.append(progress)
        raise KeyboardInterrupt

    first = Settings(began or 0, "learner", "p", (), "1", "f", False, {})
    monkeypatch.setattr(run, "prepared", prepared)
    monkeypatch.setattr(run, "recorded", lambda _: None if began is None else RecordedSettings((first,)))
    monkeypatch.setattr(run, "_train", train)
    with pytest.raises(KeyboardInterrupt):
        run_demo(config, lambda base: config, 1.0, tmp_path, 0.0, Console())
    assert [each.train_seconds for each in got] == [trained]
    assert (DemoProgress.load(folder.progress).train_seconds, got[0].began) == (trained, began or 0)


def test_the_end_says_how_far_the_first_and_the_last_version_came() -> None:
    def scored(version: int, success: float | None, episodes: int = 128, others: int = 0) -> dict[str, object]:
        return {
            "policy": f"version {version}",
            "version": version,
            "success": success,
            "episodes": episodes,
            "others": others,
        }

    agent = scored(-1, 0.5) | {"policy": "an agent"}
    rows = [scored(0, 0.25), scored(7, 0.5), scored(40, 0.75, 120, 8), agent]
    assert held_out_success({"success_by_policy": rows}) == (
        "held-out success: version 0 25.0% of 128 tasks, version 40 75.0% of 120 tasks (8 more without an outcome)"
    )
    assert held_out_success({"success_by_policy": [scored(0, None, 0), agent]}).endswith(": version 0 - of 0 tasks")
    assert "no version was evaluated" in held_out_success({"success_by_policy": [agent]})
