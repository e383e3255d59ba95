"""What a demo writes and stops: a folder for each run, its own servers alone; and how it says that a disk is full."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from distrl.config import Config, load
from distrl.demo.run import run_demo
from distrl.errors import BrokerError, ConfigError, StackError
from distrl.stack import ports
from distrl.stack.local import LocalStack
from distrl.stack.locks import held
from distrl.stack.processes import find_all, stop_all
from distrl.train.folder import LATEST, LOCK, folder_of
from elsewhere import drawn, elsewhere
from rich.console import Console

FILES = ("report.html", "report.json", "settings.yaml", "progress.json", "logs/learner.log")


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Config]:
    """A run whose demo starts an adb server and then finds no broker."""
    sets = [
        "run=demo-1",
        f"stack.directory={tmp_path / 'stack'}",
        f"stack.cache={tmp_path / 'cache'}",
        f"store.url=file://{tmp_path / 'objects'}",
        "kafka.bootstrap=127.0.0.1:1",
        "kafka.connect_timeout_s=0.2",
        "phones.count=0",
        "phones.evaluation_count=0",
        "warmup.demonstrations=0",
    ]
    yield elsewhere(load(sets=sets, environ={}), drawn())
    stop_all(find_all(tmp_path / "stack"), 5.0)


def aborted(config: Config, out: Path) -> None:
    with pytest.raises(BrokerError):
        run_demo(config, lambda base: config, 0.1, out, 0.0, Console(quiet=True))


def test_an_aborted_demo_leaves_the_finished_run_before_it_alone(config: Config, tmp_path: Path) -> None:
    finished = folder_of(config.model_copy(update={"run": "demo-0"}), tmp_path / "out")
    finished.make()
    finished.logs.mkdir()
    for name in FILES:
        (finished.path / name).write_text(f"{name} of demo-0")
    finished.link()
    aborted(config, tmp_path / "out")
    assert (tmp_path / "out" / "demo-1").is_dir()
    for name in FILES:
        assert (finished.path / name).read_text() == f"{name} of demo-0"
        assert (tmp_path / "out" / LATEST / name).read_text() == f"{name} of demo-0"


def test_the_latest_is_the_newest_with_a_report_and_without_any_the_newest(config: Config, tmp_path: Path) -> None:
    folders = [folder_of(config.model_copy(update={"run": f"demo-{seed}"}), tmp_path) for seed in range(3)]
    for folder in folders[:2]:
        folder.make()
        assert (tmp_path / LATEST).resolve() == folder.path
    folders[1].report.write_text("done")
    folders[2].make()
    assert (tmp_path / LATEST).resolve() == folders[1].path
    folders[2].link()
    assert (tmp_path / LATEST).readlink() == Path("demo-2"), "it may be moved with its folder"


def test_what_the_link_would_replace_is_refused(config: Config, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="link to the newest run"):
        folder_of(config.model_copy(update={"run": LATEST}), tmp_path)
    (tmp_path / LATEST).mkdir()
    with pytest.raises(ConfigError, match="is not a link"):
        folder_of(config, tmp_path)


def test_a_demo_stops_its_own_servers_and_none_that_the_user_has_started(config: Config, tmp_path: Path) -> None:
    aborted(config, tmp_path / "out")
    assert find_all(config.stack.directory) == []
    LocalStack(config, owner="distrl demo").up()  # left by a demo that was killed
    aborted(config, tmp_path / "out")
    assert find_all(config.stack.directory) == []
    theirs = LocalStack(config).up()
    (before,) = find_all(config.stack.directory)
    aborted(config, tmp_path / "out")
    assert [child.pid for child in find_all(config.stack.directory)] == [before.pid]
    assert ports.listens(theirs.adb.port)


LOADS = """
import sys
from distrl.cli.main import main
try:
    main()
finally:
    print("torch" in sys.modules)
"""


@pytest.mark.parametrize("shared", ["out", "stack"])
def test_a_second_demo_is_refused_before_anything_is_loaded(tmp_path: Path, shared: str) -> None:
    line = [sys.executable, "-c", LOADS, "demo", "--out", "out", "--set", "stack.directory=stack"]
    with held(tmp_path / shared / LOCK, "a demo"):
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (1, "False\n")
    assert f"{shared}/{LOCK}: a demo (process " in done.stderr.replace("\n", "")
    assert [path.name for path in tmp_path.iterdir()] == [shared], "it has made nothing"


def test_down_is_refused_while_a_demo_is_at_work(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "distrl.cli.main", "down", "--set", "stack.directory=stack"]
    with held(tmp_path / "stack" / LOCK, "a demo"):
        done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "a demo (process " in done.stderr
    assert "Ctrl-C stops it and the servers" in " ".join(done.stderr.split())
    done = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "nothing was running\n")


def test_a_full_disk_is_said_with_its_place(config: Config, tmp_path: Path) -> None:
    """What `distrl up` notes in its folder meets a full disk, after its server was started."""
    (tmp_path / "stack").mkdir()
    (tmp_path / "stack" / "stack.json.new").symlink_to("/dev/full")
    with pytest.raises(StackError, match=f"{tmp_path}.*: No space left on device") as told:
        run_demo(config, lambda base: config, 0.1, tmp_path / "out", 0.0, Console(quiet=True))
    assert "free disk space" in told.value.hint
    assert find_all(config.stack.directory) == []
