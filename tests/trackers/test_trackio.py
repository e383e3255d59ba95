"""What Trackio alone could do wrong: reach for the network, lose a time, take another place for its own."""

from __future__ import annotations

import fcntl
import re
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from distrl.errors import ConfigError
from distrl.trackers.protocol import Axis, Point, TrackedRun

from tests.trackers.runs import all_points
from trackers.trackio_apart import LOCK, ROOT, Apart, logs

RUN = TrackedRun("demo-0", 1_738_000_000_000, {"learner.seed": 0})
HUB = (
    "TRACKIO_SPACE_ID",
    "TRACKIO_SERVER_URL",
    "TRACKIO_BUCKET_ID",
    "TRACKIO_DATASET_ID",
    "SPACE_REPO_NAME",
    "HF_TOKEN",
)
Opened = Callable[..., Apart]


@pytest.fixture(autouse=True)
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*HUB, "TRACKIO_DIR", "TRACKIO_STORAGE_MODE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    ended: list[Apart] = []

    def made(project: str = "p") -> Apart:
        ended.append(Apart(tmp_path, project))
        return ended[-1]

    yield made
    for each in ended:
        each.kill()


def test_it_asks_nothing_of_the_network_and_starts_no_program(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even where its own variables say where else to write."""
    for name in HUB:
        monkeypatch.setenv(
            name, "http://127.0.0.1:1?write_token=t" if name == "TRACKIO_SERVER_URL" else "someone/place"
        )
    tracker = opened()
    tracker.start(RUN, 0)
    tracker.log(all_points())
    tracker.finish()
    assert tracker.began == []


def test_the_network_would_be_noticed(opened: Opened) -> None:
    tracker = opened()
    tracker.call("eval", "__import__('socket').getaddrinfo('127.0.0.1', 1)")
    assert [each.split()[0] for each in tracker.began] == ["socket.getaddrinfo"]


def test_each_point_has_the_time_at_which_it_happened(opened: Opened, tmp_path: Path) -> None:
    """Whatever a record says that it was."""
    times = [0, 1_738_000_000_123, -1, 2**63 - 1, -(2**63), 253_402_300_799_999]
    tracker = opened()
    tracker.start(RUN, 0)
    tracker.log([Point(f"s-{n}", Axis.UPDATE, n, at, {f"a/b_{n}": 1.0}) for n, at in enumerate(times)])
    tracker.finish()
    ((_, _, rows),), _ = logs(tmp_path, "p")
    shown = {each["step"]: str(each["timestamp"]) for each in rows}
    never = "1970-01-01T00:00:00+00:00"
    assert shown == {
        **dict.fromkeys(range(len(times)), never),
        1: "2025-01-27T17:46:40.123000+00:00",
        5: "9999-12-31T23:59:59.999000+00:00",
    }


def test_runs_of_one_project_are_side_by_side_where_a_place_is_named(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "all"))
    again = replace(RUN, began=RUN.began + 1)  # removed, and begun once more under its name
    for run in (RUN, again):
        tracker = opened()
        tracker.start(run, 0)
        tracker.log(all_points())
        tracker.finish()
    found, _ = logs(tmp_path, "p")
    assert sorted((name, run_id, len(rows)) for name, run_id, rows in found) == [
        (run.name, run.id, len(all_points())) for run in (RUN, again)
    ]


@pytest.mark.parametrize("project", ["../../out", "a/b", "日本", "p'; DROP TABLE metrics", "\x00\n"])
def test_no_name_of_a_project_leaves_the_folder(opened: Opened, tmp_path: Path, project: str) -> None:
    before = set(tmp_path.parent.iterdir())
    tracker = opened(project)
    tracker.start(RUN, 0)
    tracker.log(all_points())
    tracker.finish()
    assert len(logs(tmp_path, project)[0]) == 1
    assert set(tmp_path.parent.iterdir()) == before


@pytest.mark.parametrize("project", ["registry-mine", "mine_configs"])
def test_a_project_that_trackio_refuses_is_a_setting_that_is_wrong(opened: Opened, project: str) -> None:
    with pytest.raises(ConfigError, match=r"--project: .*not allowed"):
        opened(project)


def test_points_that_are_not_where_they_were_logged_are_missed(opened: Opened) -> None:
    """Instead of a run there that begins in its middle."""
    with pytest.raises(
        ConfigError, match=r"project 'p' has 0 of the 3 points that were logged before\n  hint: .*--out"
    ):
        opened().start(RUN, 3)


def test_a_file_system_that_its_database_is_not_safe_on_is_refused(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACKIO_STORAGE_MODE", "jsonl")  # what it chooses for itself on NFS
    with pytest.raises(ConfigError, match=r"network's file system.*\n  hint: .*TRACKIO_STORAGE_MODE=sqlite"):
        opened()


def test_what_could_not_be_written_is_an_error_and_is_there_after_the_next_try(opened: Opened, tmp_path: Path) -> None:
    tracker = opened()
    tracker.start(RUN, 0)
    with (tmp_path / "p.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)  # as a dashboard that hangs would
        with pytest.raises(OSError, match="Could not acquire database lock"):
            tracker.log(all_points())
    again = opened()
    again.start(RUN, 0)
    again.log(all_points())
    again.finish()
    assert len(logs(tmp_path, "p")[0][0][2]) == len(all_points())


def test_its_lock_holds_what_the_extra_asks_for_and_else_the_versions_of_the_other_lock() -> None:
    """A version that differs is one that Trackio forces, and docs/trackers.md says what it changes."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert about["dependency-groups"]["trackio"] == about["project"]["optional-dependencies"]["trackio"]
    own, whole = (
        dict(re.findall(r"^([a-z0-9.-]+)==([^ ]+) ", path.read_text(), re.MULTILINE))
        for path in (LOCK, ROOT / "requirements.lock")
    )
    assert own["trackio"].startswith("0.43.")
    assert "trackio" not in whole
    assert {name for name in own.keys() & whole.keys() if own[name] != whole[name]} == {"pillow"}
