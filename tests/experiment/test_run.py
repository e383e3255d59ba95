"""An experiment's files: the same bytes each time, also after a kill."""

from __future__ import annotations

import csv
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import psutil
import pytest
from command_lines import line_of
from distrl.errors import ComputeError, ConfigError
from distrl.experiment import spent
from distrl.experiment.catalogue import EXPERIMENTS, experiment_of
from distrl.experiment.cells import FOLDER, TEMPORARY, persisted_by_other_code
from distrl.experiment.plan import FORMAT, Cell, seeds_of
from distrl.experiment.run import FILES
from distrl.experiment.spent import DIRTY, UNKNOWN, Spent, by_other_code, code_version, note, total
from distrl.experiment.spent import FILE as COST
from distrl.experiment.spent import FOLDER as SPENT
from distrl.processor import processor
from waiting import until

from . import small

LONGEST_S = 300.0


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an experiment that nobody interrupted."""
    out = tmp_path_factory.mktemp("whole")
    small.run(out)
    return out


def files(out: Path) -> dict[str, bytes]:
    return {name: (out / name).read_bytes() for name in FILES}


def test_the_files_hold_every_arm_and_seed(whole: Path) -> None:
    found = json.loads((whole / "report.json").read_bytes())
    assert [each["name"] for each in found["arms"]] == ["few/async", "few/sync"]
    rows = list(csv.DictReader((whole / "report.csv").read_text().splitlines()))
    assert [(row["arm"], row["seed"]) for row in rows] == [
        ("few/async", "0"), ("few/async", "1"), ("few/sync", "0"), ("few/sync", "1"),
    ]  # fmt: skip
    by_seed = [each["trajectories"] for arm in found["arms"] for each in arm["by_seed"]]
    assert [float(row["trajectories"]) for row in rows] == by_seed
    assert all(count > 0 for count in by_seed)
    (compared,) = found["comparisons"]
    assert (compared["arm"], compared["other"]) == ("few/async", "few/sync")
    assert compared["ratio"]["mean"] > 1
    page = (whole / "report.html").read_text()
    assert "few/async" in page
    assert "data:image/png;base64," in page


def test_where_the_system_ends_a_process_the_error_says_how_to_go_on(whole: Path, tmp_path: Path) -> None:
    def kill(cell: Cell) -> None:
        for child in psutil.Process().children():
            if "spawn_main" in line_of(child):
                child.kill()

    with pytest.raises(ComputeError, match="one of 1 processes that compute cells") as ended:
        small.run(tmp_path, kill)
    assert "--processes 1" in ended.value.hint
    small.run(tmp_path)
    assert files(tmp_path) == files(whole)


def test_after_a_kill_the_same_command_goes_on_and_ends_with_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    process = subprocess.Popen([sys.executable, small.__file__, str(tmp_path)], env=environment)
    try:

        def persisted() -> list[Path]:
            assert process.poll() is None, "it ended before it was killed"
            return sorted((tmp_path / FOLDER).glob("*.json"))

        done = until(persisted, "a cell", LONGEST_S)
        (own,) = temporary.glob(f"{TEMPORARY}*")
        (own / "a version").write_bytes(b"weights")
        children = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.kill()
        process.wait()
    assert psutil.wait_procs(children, timeout=30)[1] == [], "a process of the pool outlives its parent"
    assert list(temporary.glob(f"{TEMPORARY}*")) == []
    before = {path: path.stat().st_mtime_ns for path in done}
    assert len(before) < 4
    assert not (tmp_path / "report.json").exists()
    seen: list[str] = []
    small.run(tmp_path, lambda cell: seen.append(cell.file))
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert len(seen) == 4
    assert files(tmp_path) == files(whole)


def test_what_it_took_is_beside_the_report_and_not_in_it(whole: Path, tmp_path: Path) -> None:
    found = json.loads((whole / COST).read_bytes())
    assert (found["parts"], found["unknown"]) == (4, 0)
    assert (found["format"], found["processor"]) == ([FORMAT], [processor()])
    assert found["processor_s"] > 0
    assert len(found["code"]) == 1
    for name in (FOLDER, SPENT):
        shutil.copytree(whole / name, tmp_path / name)
    next((tmp_path / SPENT).iterdir()).unlink()
    small.run(tmp_path)
    again = json.loads((tmp_path / COST).read_bytes())
    assert (again["parts"], again["unknown"]) == (3, 1), "cells that were there cost nothing again"
    assert files(tmp_path) == files(whole)


def test_an_interrupted_experiment_leaves_no_process_and_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Ctrl-C reaches the parent alone where it is sent by `kill`."""
    temporary = tmp_path_factory.mktemp("temporary")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    before = set(psutil.Process().children(recursive=True))

    def interrupt(cell: Cell) -> None:
        (own,) = temporary.glob(f"{TEMPORARY}*")
        (own / "adapters").mkdir()
        (own / "adapters" / "a version").write_bytes(b"weights")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small.run(tmp_path, interrupt)
    left = [each for each in psutil.Process().children(recursive=True) if each not in before and not tracker(each)]
    pids = {each.pid for each in left}
    for child in multiprocessing.active_children():
        if child.pid in pids:  # one that psutil reaps would be among multiprocessing's children for ever
            child.join(30)
    assert psutil.wait_procs(left, timeout=30)[1] == []
    assert len(list((tmp_path / FOLDER).glob("*.json"))) == 1
    assert list(temporary.iterdir()) == []


ONE_IDLE = """
import sys
from pathlib import Path
from distrl.experiment.cells import results
from distrl.experiment.costs import PAPER
from distrl.experiment.plan import Arm, Cell
lengths = {"short": 100.0, "long": 1e7}
cells = [Cell(Arm(name, 4, PAPER, ("feeder.suite=home",)), 0, until) for name, until in lengths.items()]
try:
    results(cells, Path(sys.argv[1]), lambda cell: print(cell.arm.name, flush=True), processes=2)
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_ctrl_c_in_a_terminal_ends_all_processes_without_a_traceback(tmp_path: Path) -> None:
    """It reaches every process of the terminal's group; one of those here waits for a cell, the other computes."""
    process = subprocess.Popen(
        [sys.executable, "-c", ONE_IDLE, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "short\n"
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate(timeout=LONGEST_S)[1] == ""
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130


def tracker(process: psutil.Process) -> bool:
    """multiprocessing's own, which stays for as long as this process does."""
    return "resource_tracker" in line_of(process)


def test_what_is_there_is_not_computed_again_and_what_is_damaged_or_of_other_settings_is(whole: Path) -> None:
    cells = sorted((whole / FOLDER).glob("*.json"))
    before, kept = files(whole), {path: path.read_bytes() for path in cells}
    cells[0].write_bytes(kept[cells[0]][:50])
    other = json.loads(kept[cells[1]])
    cells[1].write_text(json.dumps({**other, "fingerprint": "of other settings", "result": {}}))
    times = {path: path.stat().st_mtime_ns for path in cells}
    small.run(whole)
    assert {path: path.read_bytes() for path in cells} == kept
    assert files(whole) == before
    assert [path.stat().st_mtime_ns == times[path] for path in cells] == [False, False, True, True]


def test_one_arm_is_computed_alone_and_the_others_are_added_to_it(whole: Path, tmp_path: Path) -> None:
    computed = list[str]()
    report = small.run(tmp_path, lambda cell: computed.append(cell.arm.name), only=["few/async"])
    assert computed == ["few/async"] * 2
    assert report.comparisons == [], "the one that it is compared with was left out"
    found = json.loads((tmp_path / "report.json").read_bytes())
    assert [each["name"] for each in found["arms"]] == ["few/async"]
    assert found["command"] == "distrl experiment small --preset quick --seeds 0,1 --arm few/async"
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / FOLDER).iterdir()}
    small.run(tmp_path)
    assert files(tmp_path) == files(whole)
    assert all(path.stat().st_mtime_ns == at for path, at in before.items()), "what is there is not computed again"


def test_an_arm_that_is_none_is_refused_with_those_that_there_are(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"(?s)--arm: small has no arm 'few' in its preset quick.*few/async; few/sync"
    ):
        small.run(tmp_path / "never", only=["few/sync", "few"])
    assert not (tmp_path / "never").exists()


def test_what_other_code_has_made_is_said_and_taken(whole: Path, tmp_path: Path) -> None:
    for name in (FOLDER, SPENT):
        shutil.copytree(whole / name, tmp_path / name)
    cells = small.SMALL.cells("quick", small.SEEDS)
    for cell, code in zip(cells, ("abc", "abc", "def", "def-dirty"), strict=True):
        note(tmp_path, cell.file, Spent(1.0, code))
    assert by_other_code(tmp_path, [cell.file for cell in cells], "def") == {"abc": 2, "def-dirty": 1}
    assert persisted_by_other_code(cells, tmp_path, code_version()) == {"abc": 2, "def": 1, "def-dirty": 1}
    (tmp_path / FOLDER / cells[0].file).unlink()
    assert persisted_by_other_code(cells, tmp_path, code_version())["abc"] == 1, "what is computed anew is not named"
    (tmp_path / SPENT / cells[1].file).unlink()
    assert persisted_by_other_code(cells, tmp_path, code_version()) == {"def": 1, "def-dirty": 1, UNKNOWN: 1}


@pytest.mark.parametrize(
    "other",
    [
        {"format": "5"},
        {"format": [5]},
        {"processor": ["A CPU"]},
        {"code": 5},
        {"processor_s": "1"},
        {"processor_s": 10**400},
    ],
    ids=lambda other: f"{next(iter(other))} {type(next(iter(other.values()))).__name__}",
)
def test_what_a_part_took_is_unknown_where_its_file_is_damaged(tmp_path: Path, other: dict[str, object]) -> None:
    (tmp_path / SPENT).mkdir()
    for name in ("a", "b", "c"):
        note(tmp_path, name, Spent(1.0, "abc", FORMAT, "A CPU"))
    damaged = tmp_path / SPENT / "b"
    damaged.write_text(json.dumps(json.loads(damaged.read_bytes()) | other))
    (tmp_path / SPENT / "c").write_text("[" * 100_000)
    assert total(tmp_path, ["a", "b", "c"]) == {
        "processor_s": 1.0, "code": ["abc"], "format": [FORMAT], "processor": ["A CPU"], "parts": 1, "unknown": 2,
    }  # fmt: skip
    assert by_other_code(tmp_path, ["a", "b"], "abc") == {UNKNOWN: 1}


def test_the_commit_of_a_repository_that_the_package_only_lies_in_is_not_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a project in whose environment the package is installed."""
    environment = tmp_path / ".venv"
    environment.mkdir()
    shutil.copyfile(spent.__file__, environment / "spent.py")
    (tmp_path / ".gitignore").write_text(".venv/\n")
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-q", "-m", "a project")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    monkeypatch.setattr(spent, "__file__", str(environment / "spent.py"))
    assert code_version() == f"distrl {version('distrl')}"
    subprocess.run(["git", "add", "-f", "."], cwd=tmp_path, check=True)
    assert code_version().endswith(DIRTY), "a file of the repository is of its commit"


def test_every_experiment_has_arms_with_settings_that_are_taken() -> None:
    for experiment in EXPERIMENTS.values():
        for preset in ("quick", "full"):
            cells = experiment.cells(preset, (0, 1))
            assert len({cell.file for cell in cells}) == len({cell.fingerprint for cell in cells}) == len(cells)
            for cell in cells:
                settings = cell.arm.config(cell.seed)
                assert settings.learner.seed == cell.seed
                assert cell.arm.synchronous == (settings.feeder.max_lag == 0)


def test_the_machines_settings_change_no_experiment(monkeypatch: pytest.MonkeyPatch) -> None:
    (cell, *_) = experiment_of("collection").cells("quick", (0,))
    before = cell.arm.config(0)
    assert before.learner.device == "cpu", "a GPU that is there is left alone"
    monkeypatch.setenv("DISTRL_FEEDER__OUTSTANDING", "1")
    assert cell.arm.config(0) == before


@pytest.mark.parametrize("text", ["", "a", "1,1", "-1", "0,,1"])
def test_seeds_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="names no seeds"):
        seeds_of(text)


def test_an_unknown_experiment_is_refused_with_the_names_that_there_are() -> None:
    with pytest.raises(ConfigError, match="none of collection, scaling"):
        experiment_of("colection")
