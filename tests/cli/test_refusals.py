"""What the command line says where it cannot go on, or where nothing runs: a message, an exit code, no side effect."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from distrl.stack import ports
from distrl.stack.locks import held
from distrl.train.folder import LOCK

from .conftest import Cli


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of loopback where nothing listens, kept from others while the test runs."""
    with socket.socket() as bound:
        bound.bind((ports.HOST, 0))
        yield bound.getsockname()[1]


NEED_A_BROKER = [
    "feed", "worker", "learner", "learner --verify", "evaluate", "evaluate --versions first", "demonstrate",
    "tail trajectories", "topics describe", "topics ensure", "appagent evaluate", "scores", "replay", "lineage 0",
    "topics wait --role worker --timeout 0", "dlq ls", "failures", "show 0:0", "show task-1",
]  # fmt: skip


@pytest.mark.parametrize("command", NEED_A_BROKER)
def test_without_a_broker_it_ends_at_once_with_one_message(
    cli: Cli, command: str, closed_port: int, tmp_path: Path
) -> None:
    where = f"127.0.0.1:{closed_port}"
    ended = cli(*command.split(), "--set", f"kafka.bootstrap={where}", "--set", "kafka.connect_timeout_s=0.5")
    assert (ended.returncode, ended.stdout) == (1, "")
    what, hint = ended.stderr.splitlines()
    assert what.startswith(f"kafka.bootstrap: no answer within 0.5 s from a broker at {where} (PLAINTEXT)")
    assert hint.startswith("  hint: start the broker (`distrl up` starts a local one)")
    assert list(tmp_path.iterdir()) == [], "nothing was begun"


def test_why_no_broker_answers_is_said(cli: Cli, closed_port: int) -> None:
    """Once it is known, which takes a thread of the client's its time on a busy machine."""
    where = f"kafka.bootstrap=127.0.0.1:{closed_port}"
    ended = cli("worker", "--set", where, "--set", "kafka.connect_timeout_s=10")
    assert "Connection refused" in ended.stderr.splitlines()[0]


def test_settings_that_cannot_be_are_named_also_where_no_broker_answers(cli: Cli, closed_port: int) -> None:
    where = f"kafka.bootstrap=127.0.0.1:{closed_port}"
    ended = cli("feed", "--set", where, "--set", "kafka.connect_timeout_s=0.5", "--set", "algorithm.group_size=4")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("algorithm.group_size: ")


def test_a_full_disk_is_explained_though_a_write_names_no_file(tmp_path: Path) -> None:
    line = [sys.executable, "-m", "distrl.cli.main", "config", "show"]
    with Path("/dev/full").open("w") as full:
        ended = subprocess.run(line, cwd=tmp_path, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("this machine: a file cannot be written (No space left on device)")


def test_without_a_broker_a_log_of_json_has_the_message_and_no_other_line(cli: Cli, closed_port: int) -> None:
    secret = "hunter2"
    ended = cli(
        "worker", "--set", f"kafka.bootstrap=127.0.0.1:{closed_port}", "--set", "kafka.connect_timeout_s=0.5",
        "--set", "logging.format=json", "--set", f"store.secret_key={secret}", "--set", "store.access_key=a",
    )  # fmt: skip
    assert (ended.returncode, ended.stdout) == (1, "")
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    assert lines[-1]["message"].startswith("kafka.bootstrap: no answer within 0.5 s")
    assert {(line["role"], line["process"], line["run"]) for line in lines} == {("worker", "worker-0", "demo")}
    assert secret not in ended.stderr


def test_status_without_anything_shows_every_part_as_stopped(cli: Cli, tmp_path: Path) -> None:
    shown = cli("status")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert [line.split()[1:4:2] for line in shown.stdout.splitlines() if "stopped" in line] == [
        [name, "stopped"] for name in ("kafka", "s3", "adb", "phones")
    ]
    assert list(tmp_path.iterdir()) == []


def test_status_of_a_run_whose_broker_is_away_still_shows_the_other_parts(cli: Cli, closed_port: int) -> None:
    broker = f"127.0.0.1:{closed_port}"
    given = (f"kafka.bootstrap={broker}", "store.url=file://objects", "kafka.connect_timeout_s=2")
    shown = cli("status", *(word for each in given for word in ("-s", each)))
    assert shown.returncode == 1
    assert f"kafka.bootstrap: no answer within 2 s from a broker at {broker}" in shown.stderr
    assert "file://objects" in shown.stdout
    assert "no answer" in shown.stdout
    assert "stopped" in shown.stdout, "what is ours to start"


def test_down_without_anything_says_so(cli: Cli, tmp_path: Path) -> None:
    done = cli("down")
    assert (done.returncode, done.stdout, done.stderr) == (0, "nothing was running\n", "")
    assert list(tmp_path.iterdir()) == []


def test_doctor_before_the_first_up_finds_nothing_wrong_with_what_is_not_up(cli: Cli, tmp_path: Path) -> None:
    shown = cli("doctor", "-s", "stack.object_store=directory")
    for part in ("broker", "objects", "adb server", "phones"):
        line = next(line for line in shown.stdout.splitlines() if line.startswith(f"│ {part} "))
        assert "not running" in line
    assert shown.returncode == (1 if " NO " in shown.stdout else 0)
    assert list(tmp_path.iterdir()) == []


def test_doctor_tells_what_does_not_answer_and_exits_1(cli: Cli, closed_port: int) -> None:
    where = f"127.0.0.1:{closed_port}"
    shown = cli("doctor", "-s", f"kafka.bootstrap={where}", "-s", "kafka.connect_timeout_s=0.5")
    assert shown.returncode == 1
    assert " NO " in next(line for line in shown.stdout.splitlines() if line.startswith("│ broker "))
    assert where in shown.stdout, "an address is folded, never cut off"


def test_doctor_survives_a_spoilt_stack_folder(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "out" / "stack" / "stack.json").mkdir(parents=True)
    shown = cli("doctor")
    assert shown.returncode == 1
    assert "Traceback" not in shown.stderr
    assert "python" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("demo --seed -1", "'--seed'"),
        ("demo --seed one", "'--seed'"),
        ("demo --minutes 0", "'--minutes'"),
        ("demo --minutes nan", "'--minutes'"),
        ("demo --minutes inf", "'--minutes'"),
        ("demo --minutes ten", "'--minutes'"),
        ("demo --phones 1", "'--phones'"),
        ("demo --phones 513", "'--phones'"),
        ("demo --phones 2.5", "'--phones'"),
        ("learner --from-start", "it needs --verify"),
        ("evaluate --episodes 5", "they need --versions"),
        ("evaluate --split test", "they need --versions"),
        ("evaluate --versions first --episodes 0", "'--episodes'"),
        (f"evaluate --versions first --episodes {'9' * 5_000}", "'--episodes'"),
        ("evaluate --episodes folder --split test", "a folder of episodes has none"),
        ("evaluate --versions first --json", "they need a folder in --episodes"),
        ("demonstrate --format aitw", "it needs --episodes"),
        ("demonstrate --episodes absent --format coco", "'--format'"),
        ("phones --count 0", "'--count'"),
        ("phones --count 1 play", "behind `phones play`"),
        ("phones play --port 65536", "'--port'"),
        ("tail trajectories --last -1", "'--last'"),
        ("replay --avro a --parquet ./b/../a", "name two files"),
        ("replay --avro a --parquet a.manifest.json", "neither of them the other's manifest"),
        ("replay --dataset a --atif a/b", "name no file or folder inside another"),
        ("replay --dataset ./b/../a --parquet a/b/c", "name no file or folder inside another"),
        ("base-model train", "'--out'"),
        ("tasks ls mine.jsonl --suite home", "it is one or the other"),
        ("tasks ls --count 0", "'--count'"),
        ("wroker", "No such command 'wroker'"),
    ],
)
def test_a_wrong_command_line_is_refused_before_anything_starts(
    cli: Cli, tmp_path: Path, arguments: str, said: str
) -> None:
    refused = cli(*arguments.split())
    assert (refused.returncode, refused.stdout) == (2, "")
    assert said in refused.stderr
    assert "Traceback" not in refused.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("setting", ["phones.base_port=80", "run=No_Run", "algorithm.batch_size=0"])
def test_a_demo_with_an_impossible_setting_starts_nothing(cli: Cli, tmp_path: Path, setting: str) -> None:
    refused = cli("demo", "--set", setting)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"{setting.partition('=')[0]}: ")
    assert list(tmp_path.iterdir()) == []


def test_a_demo_whose_progress_file_is_spoilt_starts_nothing(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "demo-0").mkdir()
    (tmp_path / "demo-0" / "progress.json").write_text("{")
    refused = cli("demo", "--out", ".")
    assert refused.returncode == 1
    assert "rm demo-0/progress.json" in refused.stderr
    assert [str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*")] == ["demo-0", "demo-0/progress.json"]


@pytest.mark.parametrize(
    "command", ["status -s stack.directory=taken", "up -s stack.directory=taken/below", "demo --out taken"]
)
def test_a_file_in_place_of_a_folder_is_explained(cli: Cli, tmp_path: Path, command: str) -> None:
    (tmp_path / "taken").write_text("mine")
    refused = cli(*command.split())
    assert refused.returncode == 1
    assert "Traceback" not in refused.stderr
    assert "taken" in refused.stderr
    assert "hint: " in refused.stderr
    assert (tmp_path / "taken").read_text() == "mine"


def test_a_base_model_is_not_trained_for_a_place_that_cannot_take_it(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text("{}")
    for out, said in (
        ("taken", "taken: is a file"),
        ("other", "other: holds files"),
        ("taken/in", "cannot be written"),
    ):
        refused = cli("base-model", "train", "--out", out)
        assert refused.returncode == 1
        assert said in refused.stderr


@pytest.mark.parametrize("command", ["up", "down"])
def test_the_servers_of_a_training_are_left_alone(cli: Cli, tmp_path: Path, command: str) -> None:
    with held(tmp_path / "stack" / LOCK, "a training"):
        refused = cli(command, "-s", "stack.directory=stack")
    assert refused.returncode == 1
    assert "a training" in refused.stderr
    assert "Ctrl-C stops it and the servers that it started" in refused.stderr
    assert [each.name for each in (tmp_path / "stack").iterdir()] == [LOCK]


def test_phones_whose_port_is_in_use_say_which_port_and_which_setting(cli: Cli) -> None:
    with socket.socket() as other:
        other.bind((ports.HOST, ports.draw("a test", count=2)))
        other.listen()
        port = other.getsockname()[1]
        refused = cli("phones", "--count", "2", "--set", f"phones.base_port={port}")
    assert refused.returncode == 1
    assert f"{port}" in refused.stderr
    assert "phones.base_port" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("place", [".", "/", "/dev/stdout"])
def test_records_are_exported_to_files_alone(cli: Cli, tmp_path: Path, place: str) -> None:
    refused = cli("replay", "--avro", place, "--force")
    assert refused.returncode == 1
    assert "is no file" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_base_model_is_never_written_over(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "model.safetensors").write_text("mine")
    refused = cli("base-model", "train", "--out", "model")
    assert refused.returncode == 1
    assert "model: holds files" in refused.stderr
    assert (tmp_path / "model" / "model.safetensors").read_text() == "mine"


def test_exploration_without_an_endpoint_or_a_file_for_notes_is_refused(cli: Cli, tmp_path: Path) -> None:
    ended = cli("appagent", "explore", "-s", "devices.serials=[nobody]")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("appagent.notes: is not set")
    ended = cli("appagent", "explore", "--notes", "n.json", "-s", "devices.serials=[nobody]")
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("appagent.endpoint: is not set")
    assert list(tmp_path.iterdir()) == [], "nothing was begun"
