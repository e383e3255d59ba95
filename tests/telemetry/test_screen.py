"""The live view on terminals of all sizes, and where there is no terminal."""

from __future__ import annotations

import io
import re

import factories
import pytest
from distrl.telemetry.screen import render
from distrl.telemetry.view import HEARTBEAT_STALE_MS, RunStatus, RunView
from distrl.types import DeviceHealth, Evaluation, Heartbeat, Outcome, Split, Trajectory
from rich.console import Console
from rich.live import Live

NOW_MS = 100_000
FOOTER = "1234 s left; Ctrl-C stops, the same command continues"
PROCESSES = ("evaluator-0", "feeder", "learner", "worker-0", "worker-1")


def trajectory(task_id: str, split: Split, outcome: Outcome) -> Trajectory:
    task, step = factories.task(task_id, split=split), factories.step(version=49, at=500)
    return factories.trajectory(task, (step,), outcome=outcome, finished_at=NOW_MS)


def a_run(phones: int = 4) -> RunStatus:
    """What `make demo` looks like near its end."""
    view = RunView()
    view.feed(factories.version(51, update=62, published_at=900))
    for index in range(816):
        view.feed(trajectory(f"t{index}", Split.TRAIN, Outcome.SUCCESS if index % 2 else Outcome.FAILURE))
    losses = ("clone_loss", "policy_loss", "value_loss", "entropy", "ratio", "update_seconds")
    metrics = {
        "feeder": {"fed": 830.0},
        "learner": {"update": 62.0, "buffer": 10_000.0, "pending": 5.0, **dict.fromkeys(losses, -12.345)},
        "worker": {"episodes": 408.0, "reloads": 51.0, "reload_seconds": 0.31, "policy_ms": 112.4, "adb_ms": 80.2},
        "evaluator": {"evaluated": 48.0},
    }
    for name in PROCESSES:
        role = name.partition("-")[0]
        devices = tuple(DeviceHealth(f"127.0.0.1:{26_000 + index}", "busy") for index in range(phones))
        beat = Heartbeat(
            name, role, NOW_MS, 51, "d" * 64, metrics[role], devices if role in ("worker", "evaluator") else ()
        )
        view.feed(beat, beat.at)
    for version in range(12):
        won = trajectory(f"e{version}", Split.VALIDATION, Outcome.SUCCESS)
        view.feed(Evaluation(version, "c" * 64, f"e{version}", won))
    return view.status(NOW_MS)


def lines(status: RunStatus, width: int, rows: int | None) -> list[str]:
    console = Console(width=width, height=rows or 25, file=io.StringIO(), force_terminal=False)
    with console.capture() as captured:
        console.print(render(status, "DistRL run demo-0", FOOTER, width, rows))
    return captured.get().splitlines()


@pytest.mark.parametrize("rows", [16, 24, 50])
@pytest.mark.parametrize("width", [60, 80, 100, 132, 200])
def test_the_view_fits_the_terminal_and_cuts_nothing_off(width: int, rows: int) -> None:
    shown = lines(a_run(), width, rows)
    text = "\n".join(shown)
    assert len(shown) <= rows, text
    assert all(len(line) <= width for line in shown)
    assert "…" not in text, text
    assert FOOTER in shown[-1], "what is left of the time, and how to stop, is always on the screen"
    assert "trajectories  816" in text
    assert "51 (update 62)" in text
    assert all(re.search(rf"│ {name} +51 ", text) for name in PROCESSES), text
    assert "4 busy" in text
    assert re.search(r"11 +home +validation +1 +100.0%", text), "the newest evaluation has room"


def test_a_wide_terminal_shows_every_phone_and_the_weights() -> None:
    text = "\n".join(lines(a_run(), 200, 50))
    assert "26000:busy 26001:busy 26002:busy 26003:busy" in text
    assert "dddddddd" in text
    assert "112.4" in text


def test_each_worker_is_shown_with_what_it_has_loaded_and_how_far_behind_that_is() -> None:
    view = RunView()
    view.feed(factories.version(51, update=62, published_at=900))
    for name, version, sha256 in (("worker-0", 51, "a" * 64), ("worker-1", 47, "b" * 64), ("worker-2", None, None)):
        view.feed(Heartbeat(name, "worker", NOW_MS, version, sha256, {}), NOW_MS)
    shown = lines(view.status(NOW_MS), 200, 50)
    told = [re.sub(r"[│|]", "", line).split()[:4] for line in shown if "worker-" in line]
    assert told[:2] == [["worker-0", "51", "aaaaaaaa", "0"], ["worker-1", "47", "bbbbbbbb", "4"]]
    assert told[2][:1] == ["worker-2"], "it has loaded nothing yet"


def test_many_phones_are_counted_instead_of_crowding_out_the_rest() -> None:
    text = "\n".join(lines(a_run(phones=64), 132, 24))
    assert "64 busy" in text
    assert "26000:busy" not in text
    assert "112.4" in text


def test_without_a_limit_all_is_shown() -> None:
    text = "\n".join(lines(a_run(), 60, None))
    assert "update seconds" in text
    assert len(re.findall("validation", text)) == 8


@pytest.mark.parametrize(("width", "rows"), [(60, 16), (20, 4), (1, 1), (200, 50)])
def test_a_run_without_anything_and_a_terminal_of_nothing_raise_nothing(width: int, rows: int) -> None:
    assert lines(RunView().status(NOW_MS), width, rows)
    assert lines(a_run(), width, rows)


def test_what_a_record_says_is_no_markup() -> None:
    view = RunView()
    devices = (DeviceHealth("[bold]emulator", "[red]busy"),)
    view.feed(Heartbeat("w-[red]0", "worker", 0, 1, "d" * 64, {}, devices))
    text = "\n".join(lines(view.status(HEARTBEAT_STALE_MS + 1), 200, 50))
    assert "w-[red]0 (silent)" in text
    assert "1 [red]busy" in text
    assert "[bold]emulator:[red]busy" in text


def test_what_a_terminal_would_act_on_is_shown_escaped() -> None:
    view = RunView()
    devices = (DeviceHealth("s\x1b[5m", "id\x1b[7mle", {}),)
    view.feed(Heartbeat("w\x1b]0;mine\x07\u202e", "worker", NOW_MS, 1, "\x1b[31m" + "a" * 64, {}, devices), NOW_MS)
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system=None, width=200)
    console.print(render(view.status(NOW_MS), "run demo", width=200))
    text = re.sub("\x1b\\[[0-2]m", "", out.getvalue())  # dim, bold and their end
    assert all(line.isprintable() for line in text.splitlines())
    assert r"w\x1b]0;mine\x07\u202e" in text
    assert r"s\x1b[5m:id\x1b[7mle" in text
    assert {len(line) for line in text.splitlines()} == {200}, "the frame is whole"


def test_the_live_view_never_scrolls_a_small_terminal() -> None:
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=60, height=16, legacy_windows=False)
    with Live(console=console, auto_refresh=False) as live:
        for _ in range(3):
            live.update(render(a_run(), "DistRL run demo-0", FOOTER, *console.size), refresh=True)
            assert live.get_renderable() is not None
    frames = out.getvalue().split("╭")
    assert len(frames) == 4 + 1, "three frames, and the last one again at the end"
    assert all(frame.count("\n") <= 16 for frame in frames[1:])


def test_where_there_is_no_terminal_no_control_code_is_written() -> None:
    out = io.StringIO()
    console = Console(file=out)
    assert not console.is_terminal
    console.print(render(a_run(), "run demo", width=console.width))
    assert "\x1b" not in out.getvalue()
    assert "816" in out.getvalue()
