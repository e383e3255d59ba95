"""Each tracker holds what it was given, read back by its own library."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from distrl.cli.main import app
from distrl.errors import ConfigError
from distrl.trackers.protocol import Axis, Point, Tracker
from distrl.trackers.registry import TRACKERS, open_tracker
from typer.testing import CliRunner

from tests.trackers.runs import all_points
from trackers.killed import RUN
from trackers.trackio_apart import Apart, logs
from trackers.trackio_apart import environment as trackio_environment

PROJECT = "a-project"
Values = Counter[tuple[str, int, float]]
"""(name, step, value) -> how often it is there."""
KILLED_S = 120.0
"""A process that logs and is killed ends far sooner."""
WHOLE, FIRST, LAST = 1, 2, 4
"""Types of a piece of a record in LevelDB's log format."""


def from_files(folder: Path) -> tuple[Values, object]:
    lines = [json.loads(line) for line in (folder / "points.jsonl").read_text().splitlines()]
    about = {"axis", "step", "at", "source"}
    found = Counter((name, each["step"], each[name]) for each in lines for name in each.keys() - about)
    return found, json.loads((folder / "settings.json").read_text())["settings"]


def from_tensorboard(folder: Path) -> tuple[Values, object]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    tags = events.Tags()
    found: Values = Counter()
    for name in tags["scalars"]:
        found.update((name, each.step, each.value) for each in events.Scalars(name))
    (told,) = tags["tensors"]
    (text,) = events.Tensors(told)
    shown = text.tensor_proto.string_val[0].decode()
    return found, json.loads("\n".join(line[4:] for line in shown.splitlines()))


def wandb_records(data: bytes) -> Iterator[bytes]:
    """The records of a .wandb file: LevelDB's log format (blocks of 32 KiB; each piece with a checksum, a length and a
    type) behind a header of 7 bytes. The package writes it and no longer reads it in Python."""
    at, block, record = 7, 32_768, b""
    while at + 7 <= len(data):
        if block - at % block < 7:  # no room for another piece: the rest of the block is empty
            at += block - at % block
            continue
        size, kind = int.from_bytes(data[at + 4 : at + 6], "little"), data[at + 6]
        piece, at = data[at + 7 : at + 7 + size], at + 7 + size
        record = piece if kind in (WHOLE, FIRST) else record + piece
        if kind in (WHOLE, LAST):
            yield record


def from_wandb(folder: Path) -> tuple[Values, object]:
    from wandb.proto.wandb_internal_pb2 import Record

    by_step: dict[int, dict[str, float]] = {}
    config: dict[str, object] = {}
    for path in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        for data in wandb_records(path.read_bytes()):
            record = Record()
            record.ParseFromString(data)
            for each in record.run.config.update:
                config[each.key or "/".join(each.nested_key)] = json.loads(each.value_json)
            if record.HasField("history"):
                values = {item.key or item.nested_key[0]: json.loads(item.value_json) for item in record.history.item}
                by_step.setdefault(int(values["_step"]), values)  # a server keeps what it has of a step
    found: Values = Counter()
    for values in by_step.values():
        step = values.get("update", values.get("version"))
        assert step is not None
        found.update((name, int(step), value) for name, value in values.items() if "/" in name)
    return found, {name: value for name, value in config.items() if name != "_wandb"}


def from_mlflow(folder: Path) -> tuple[Values, object]:
    from mlflow import MlflowClient

    client = MlflowClient()
    experiment = client.get_experiment_by_name(PROJECT)
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id])
    found: Values = Counter()
    for name in run.data.metrics:
        found.update((name, each.step, each.value) for each in client.get_metric_history(run.info.run_id, name))
    told = {name: text if name == "feeder.suite" else json.loads(text) for name, text in run.data.params.items()}
    return found, told


def from_trackio(folder: Path) -> tuple[Values, object]:
    ((name, run_id, rows),), settings = logs(folder, PROJECT)
    assert (name, run_id) == (RUN.name, RUN.id)
    about = {"step", "timestamp"}
    return Counter((name, each["step"], each[name]) for each in rows for name in each.keys() - about), settings


READ: dict[str, Callable[[Path], tuple[Values, object]]] = {
    "files": from_files,
    "tensorboard": from_tensorboard,
    "wandb": from_wandb,
    "mlflow": from_mlflow,
    "trackio": from_trackio,
}


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WANDB_MODE", "WANDB_DIR", "WANDB_PROJECT", "TRACKIO_DIR", "TRACKIO_STORAGE_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"file://{tmp_path}/mlruns")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")


def values(points: list[Point]) -> Values:
    return Counter((name, each.step, value) for each in points for name, value in each.values.items())


def as_single(found: Values) -> Values:
    """TensorBoard keeps 32 bits of a figure."""
    import numpy as np

    return Counter({(name, step, float(np.float32(value))): count for (name, step, value), count in found.items()})


def made(name: str, folder: Path) -> Tracker:
    folder.mkdir(exist_ok=True)
    return Apart(folder, PROJECT) if name == "trackio" else open_tracker(name, folder, PROJECT)


@pytest.mark.parametrize("name", TRACKERS)
def test_what_is_logged_is_there_once_though_the_follower_stopped_and_started_again(name: str, tmp_path: Path) -> None:
    points, half = all_points(), len(all_points()) // 2
    for part, logged in ((points[:half], 0), (points[half:], half)):
        tracker = made(name, tmp_path / "own")
        tracker.start(RUN, logged)
        tracker.log(part)
        tracker.finish()
    found, settings = READ[name](tmp_path / "own")
    assert as_single(found) == as_single(values(points))
    assert settings == dict(RUN.settings)


ENDS = [(name, (signal.SIGKILL,)) for name in TRACKERS] + [("wandb", (signal.SIGINT, signal.SIGINT))]
"""Of two signals the second one ends the process at once, as it ends `distrl track`."""


@pytest.mark.parametrize(("name", "signals"), ENDS, ids=lambda each: each if isinstance(each, str) else len(each))
def test_what_was_logged_outlives_the_process_that_is_killed(
    name: str, signals: tuple[signal.Signals, ...], tmp_path: Path
) -> None:
    (tmp_path / "own").mkdir()
    child = subprocess.run(
        [sys.executable, "-m", "trackers.killed", name, str(tmp_path / "own"), PROJECT, *map(str, map(int, signals))],
        env=environment(apart=name == "trackio"),
        capture_output=True,
        text=True,
        timeout=KILLED_S,
    )
    assert child.returncode == -signals[-1], child.stderr
    assert as_single(READ[name](tmp_path / "own")[0]) == as_single(values(all_points()))


def test_wandb_waits_for_rows_that_cross_the_blocks_of_its_file(tmp_path: Path) -> None:
    points = [Point("journal", Axis.UPDATE, n, n, {"update/seconds": float(n)}) for n in range(400)]
    tracker = made("wandb", tmp_path / "own")
    tracker.start(RUN, 0)
    for at in range(0, len(points), 100):
        tracker.log(points[at : at + 100])
        assert from_wandb(tmp_path / "own")[0] == values(points[: at + 100])
    tracker.finish()
    (path,) = (tmp_path / "own").glob("wandb/offline-run-*/*.wandb")
    assert path.stat().st_size > 3 * 32_768


def environment(apart: bool) -> dict[str, str]:
    """Of a process that finds the tests' modules, and Trackio where it runs `apart`."""
    return trackio_environment() if apart else os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}


def test_a_run_there_has_ended_when_the_tracker_has(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    tracker = made("mlflow", tmp_path / "own")
    client, seen = MlflowClient(), []
    for after in (lambda: tracker.start(RUN, 0), tracker.finish):
        after()
        (run,) = client.search_runs([each.experiment_id for each in client.search_experiments()])
        seen.append(run.info.status)
    assert seen == ["RUNNING", "FINISHED"]


def test_a_run_whose_settings_were_changed_goes_on_there(tmp_path: Path) -> None:
    """MLflow refuses another value of a parameter; what it lacks, as after a kill, is added."""
    first = made("mlflow", tmp_path / "own")
    first.start(replace(RUN, settings={"feeder.max_lag": 4}), 0)
    first.finish()
    again = made("mlflow", tmp_path / "own")
    again.start(replace(RUN, settings={"feeder.max_lag": 9, "learner.seed": 3}), 0)
    again.finish()
    assert from_mlflow(tmp_path / "own")[1] == {"feeder.max_lag": 4, "learner.seed": 3}


@pytest.mark.parametrize("name", ["files", "wandb", "mlflow", "trackio"])
def test_a_point_that_arrived_and_was_not_counted_is_the_same_one_when_it_comes_again(
    name: str, tmp_path: Path
) -> None:
    points = all_points()
    killed = made(name, tmp_path / "own")
    killed.start(RUN, 0)
    killed.log(points[:3])
    if isinstance(killed, Apart):
        killed.kill()
    elif name != "files":  # which is left as a kill leaves it; a process cannot leave the others' threads so
        killed.finish()
    again = made(name, tmp_path / "own")
    again.start(RUN, 1)
    again.log(points[1:])
    again.finish()
    assert READ[name](tmp_path / "own")[0] == values(points)


@pytest.mark.parametrize("name", TRACKERS)
def test_no_tracker_writes_the_command_line_where_a_secret_may_be_given(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["distrl", "track", "--set", "store.secret_key=hush-hush"])
    tracker = made(name, tmp_path / "own")
    tracker.start(RUN, 0)
    tracker.log(all_points())
    tracker.finish()
    written = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert any(b"home" in data for data in written.values())
    assert [path for path, data in written.items() if b"hush-hush" in data] == []


def test_a_line_of_a_file_that_a_kill_cut_is_written_again(tmp_path: Path) -> None:
    tracker = made("files", tmp_path)
    tracker.start(RUN, 0)
    tracker.log(all_points())
    tracker.finish()
    whole = (tmp_path / "points.jsonl").read_bytes()
    (tmp_path / "points.jsonl").write_bytes(whole[:-7])
    again = made("files", tmp_path)
    again.start(RUN, len(all_points()) - 1)
    again.log(all_points()[-1:])
    again.finish()
    assert (tmp_path / "points.jsonl").read_bytes() == whole


def test_a_file_that_has_lost_points_is_not_gone_on_with(tmp_path: Path) -> None:
    tracker = made("files", tmp_path)
    tracker.start(RUN, 0)
    tracker.log(all_points())
    tracker.finish()
    (tmp_path / "points.jsonl").unlink()
    with pytest.raises(ConfigError, match=rf"has 0 lines, and {len(all_points())} points were logged before"):
        made("files", tmp_path).start(RUN, len(all_points()))


def test_a_library_that_is_missing_is_named_with_what_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, hint in (
        ("wandb", r"pip install -e '\.\[wandb\]'"),
        ("tensorboard", r"pip install -e '\.\[tensorboard\]'"),
        ("mlflow", r"pip install -e '\.\[mlflow\]'"),
        ("trackio", r"in an environment of its own, as docs/trackers\.md says"),  # it wants an older Pillow
    ):
        for loaded in [each for each in sys.modules if each.split(".")[0] == name or each.endswith(f".to_{name}")]:
            monkeypatch.delitem(sys.modules, loaded)
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(ConfigError, match=rf"{name}.* is not installed\n  hint: .*{hint}"):
            open_tracker(name, tmp_path, "p")


def test_a_tracker_that_there_is_not_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no tracker 'excel'\n  hint: use one of: files, tensorboard"):
        open_tracker("excel", tmp_path, "p")
    nowhere = CliRunner().invoke(app, ["track", "--to", "excel", "--set", "kafka.bootstrap=127.0.0.1:1"])
    assert "there is no tracker 'excel'" in str(nowhere.exception), "before any broker is asked"


class Away(BaseHTTPRequestHandler):
    """A server that is not ready."""

    asked = 0

    def do_GET(self) -> None:
        Away.asked += 1
        self.send_error(503)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.mark.parametrize(("told", "requests"), [(None, 4), ("1", 2)])
def test_mlflow_gives_a_server_that_is_away_up_soon_unless_told_otherwise(
    told: str | None, requests: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Away.asked, retries = 0, "MLFLOW_HTTP_REQUEST_MAX_RETRIES"
    for name in (retries, "MLFLOW_HTTP_REQUEST_TIMEOUT"):
        monkeypatch.setenv(name, "1")  # so that what is there before is restored
        monkeypatch.delenv(name)
    if told is not None:
        monkeypatch.setenv(retries, told)
    for name in ("BACKOFF_FACTOR", "BACKOFF_JITTER"):
        monkeypatch.setenv(f"MLFLOW_HTTP_REQUEST_{name}", "0")
    with HTTPServer(("127.0.0.1", 0), Away) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://127.0.0.1:{server.server_port}")
        with pytest.raises(Exception, match="503"):
            made("mlflow", tmp_path / "own").start(RUN, 0)
        server.shutdown()
    assert Away.asked == requests


def test_mlflow_begins_no_run_in_its_middle(tmp_path: Path) -> None:
    """As where the points went to another server before, to another project, or the run was deleted there."""
    with pytest.raises(ConfigError, match=r"has no run demo-0, of which 3 points were logged before\n  hint: .*--out"):
        made("mlflow", tmp_path / "own").start(RUN, 3)


def test_mlflow_without_a_place_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    with pytest.raises(ConfigError, match="MLFLOW_TRACKING_URI: is not set"):
        open_tracker("mlflow", tmp_path, "p")


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_library_is_told_not_to_report_to_its_makers_before_it_is_imported(name: str, tmp_path: Path) -> None:
    """In a process of its own: what a library has read at its import stays."""
    asked = {
        "mlflow": "import mlflow.telemetry.utils as found; print(found.is_telemetry_disabled())",
        "wandb": "import wandb.env as found; print(not found.error_reporting_enabled())",
    }
    program = (
        "import sys; from pathlib import Path; from distrl.trackers.registry import open_tracker\n"
        f"open_tracker(sys.argv[1], Path(sys.argv[2]), 'p')\n{asked[name]}"
    )
    left_out = (
        "CI",
        "PYTEST_CURRENT_TEST",
        "PYTEST_VERSION",
        "DO_NOT_TRACK",
        "MLFLOW_DISABLE_TELEMETRY",
        "WANDB_ERROR_REPORTING",
    )
    environ = {each: value for each, value in os.environ.items() if each not in left_out}
    said = subprocess.run(
        [sys.executable, "-c", program, name, str(tmp_path)],
        env=environ | {"MLFLOW_TRACKING_URI": str(tmp_path / "mlruns")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.split() == ["True"]
