"""Replay, exports, lineage and the notebook's side, on a small real run."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import atif
import distrl
import factories
import numpy as np
import pytest
from avro.datafile import DataFileReader
from avro.io import DatumReader
from chat.server import body, serving, verdict
from click.testing import Result
from confluent_kafka import Consumer, TopicPartition
from datasets import load_dataset
from distrl import config as settings
from distrl.broker import topic_admin
from distrl.broker.connect import admin
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader, RawRecord
from distrl.broker.topics import TOPICS, topic_name
from distrl.cli.main import app
from distrl.config import Config
from distrl.errors import BrokerError, ChatError, ConfigError, DistrlError, PolicyError, StoreError, WireError
from distrl.judge import verdict_log
from distrl.judge.question import Verdict
from distrl.learner.run import run_learner
from distrl.offline.runs import Run
from distrl.runs.recorded import join
from distrl.runs.settings import learning_fingerprint
from distrl.store.checkpoints import checkpoints, latest_checkpoint
from distrl.store.folders import VERDICTS
from distrl.store.objects import open_store
from distrl.train.roles import write_settings
from distrl.types import Covered, Evaluation, Heartbeat, Outcome, Snapshot, Trajectory, Unmet, Version
from distrl.wire.codec import decode
from groups import committed, workers_group
from learner.world import Screens, learning, save_tiny_base, trajectory
from pyarrow import parquet
from typer.testing import CliRunner

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

UPDATES = 9
TRAJECTORIES = 4 * (UPDATES - 3)
WITH_REASON = "task-1007"
"""The failure that says which condition was not met."""
UNMET = "clock.alarms equals"
EVIL = 'open "x"\x1b[2J\x07\u202e\x7f\r\n"}'
DOCUMENT = Path(__file__).parents[2] / "docs" / "offline.md"


@pytest.fixture(scope="module")
def run(broker: str, s3: settings.StoreSettings, tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Nine updates over a log with a record that is none, one that came twice and one that hides controls."""
    base = tmp_path_factory.mktemp("base")
    save_tiny_base(base)
    config = Config.model_validate(
        {
            "run": f"offline-{uuid.uuid4().hex[:8]}",
            "kafka": {"bootstrap": broker, "task_partitions": 3},
            "store": s3.model_dump() | {"secret_key": s3.secret_key.get_secret_value() if s3.secret_key else None},
            **learning(base, capacity=40),
        }
    )
    config = config.model_copy(update={"learner": config.learner.model_copy(update={"keep_checkpoints": 9})})
    topic_admin.ensure(config)
    join(config, None, "learner", ("file run.yaml",))
    publish(config)
    stop = threading.Event()

    def on_update(metrics: Any, version: Version | None) -> None:
        if metrics["update"] >= UPDATES:
            stop.set()

    run_learner(config, stop, on_update)
    return config


def publish(config: Config) -> None:
    store, screens = open_store(config.store), Screens()
    with RecordProducer(config, "test") as producer:
        waiting = []
        for seed in range(6):
            demo = trajectory(screens, seed, expert=True, store=store)
            waiting.append(producer.publish("demonstrations", demo.task_id, demo))
        for seed in range(1000, 1000 + TRAJECTORIES):
            played = trajectory(screens, seed, store=store)
            made = replace(played, outcome_source="ground-truth", final_screenshot=played.steps[-1].screenshot)
            if made.task_id == WITH_REASON:
                unmet = (Unmet("clock.alarms", "equals", '["8 am"]', "[]"),)
                made = replace(made, outcome=Outcome.FAILURE, unmet=unmet, final_state='{"screen": "clock/face"}')
            if seed == 1003:
                made = replace(made, task=replace(made.task, instruction=EVIL))
            waiting.append(producer.publish("trajectories", made.task_id, made))
            if seed == 1005:
                waiting.append(producer.publish("trajectories", made.task_id, made))
                waiting.append(producer.publish_bytes(topic_name(config.run, "trajectories"), b"\xff", b"no record"))
        for number in range(12):
            task = factories.task(f"task-{number}", instruction="search", phone_seed=number, params={"item": "shoes"})
            waiting.append(producer.publish("tasks", task.task_id, task))
        for each in waiting:
            each.result(30)
        shown = trajectory(screens, 7, store=store)
        producer.publish("evaluations", "0", Evaluation(0, "a" * 64, "e-1", shown)).result(30)
        snapshot = Snapshot(9, 1, (Covered("tasks", 1, 7, "a" * 64),), b"\x00\xff", b"")
        producer.publish("snapshots", config.run, snapshot).result(30)


@pytest.fixture
def folder(run: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    write_settings(run, tmp_path / "run.yaml")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str) -> Result:
    """The command with the run's settings, to its end."""
    return CliRunner().invoke(app, [arguments[0], "--config", "run.yaml", *arguments[1:]], env={"COLUMNS": "200"})


def done(*arguments: str) -> Result:
    result = call(*arguments)
    assert result.exit_code == 0, f"{result.output}{result.exception!r}"
    return result


def raw_records(config: Config, topic: str) -> list[RawRecord]:
    with LogReader(config, topic) as reader:
        found = [raw for batch in reader.to_end() for raw in batch]
    return sorted(found, key=lambda raw: (raw.position.partition, raw.position.offset))


def manifest(file: Path) -> dict[str, Any]:
    read: dict[str, Any] = json.loads(Path(f"{file}.manifest.json").read_text())
    assert read["sha256"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert read["bytes"] == file.stat().st_size
    return read


def avro_records(file: Path) -> list[Any]:
    """As Apache Avro's own implementation reads it."""
    with DataFileReader(file.open("rb"), DatumReader()) as reader:
        return list(reader)


# Replay


def test_the_avro_file_holds_the_log_as_the_reference_reads_it(run: Config, folder: Path) -> None:
    done("replay", "--avro", "all.avro")
    log = raw_records(run, "trajectories")
    bad = [raw.position.offset for raw in log if raw.value == b"no record"]
    found = avro_records(folder / "all.avro")
    told = manifest(folder / "all.avro")
    places = [(each["topic"], each["partition"], each["offset"], each["timestamp"], each["key"]) for each in found]
    assert places == [
        (at.topic, at.partition, at.offset, raw.timestamp, raw.key)
        for raw in log
        if (at := raw.position).offset not in bad
    ]
    known = {logged.position.offset: logged.trajectory for logged in Run(run).trajectories(repeated=True)}
    for each in found:
        record, expected = each["record"], known[each["offset"]]
        assert record["task"]["instruction"] == expected.task.instruction
        assert [step["logprob"] for step in record["steps"]] == [step.logprob for step in expected.steps]
        assert [tuple(step["action_ids"]) for step in record["steps"]] == [s.action_ids for s in expected.steps]
    assert told["ranges"] == [{"partition": 0, "from": 0, "to": len(log)}]
    assert (told["records"], told["rows"]) == (len(log), len(log) - 1)
    assert [each["offset"] for each in told["undecodable"]] == bad
    assert [each["records"] for each in told["schemas"].values()] == [len(log) - 1]
    assert sorted(file.name for file in folder.iterdir()) == ["all.avro", "all.avro.manifest.json", "run.yaml"]


def test_the_same_range_gives_the_same_bytes_and_another_range_others(folder: Path) -> None:
    for name in ("one", "two"):
        done("replay", "--from", "2", "--to", "9", "--avro", f"{name}.avro", "--parquet", f"{name}.parquet")
    done("replay", "--from", "2", "--to", "8", "--avro", "other.avro")
    for form in ("avro", "parquet"):
        assert (folder / f"one.{form}").read_bytes() == (folder / f"two.{form}").read_bytes()
        one, two = manifest(folder / f"one.{form}"), manifest(folder / f"two.{form}")
        assert one.pop("file") != two.pop("file")
        assert one == two
    assert manifest(folder / "one.avro")["records_sha256"] == manifest(folder / "one.parquet")["records_sha256"]
    assert manifest(folder / "one.avro")["records_sha256"] != manifest(folder / "other.avro")["records_sha256"]


def test_the_parquet_file_has_a_typed_row_for_each_step(run: Config, folder: Path) -> None:
    done("replay", "--parquet", "steps.parquet")
    found = parquet.read_table(folder / "steps.parquet")
    types = {field.name: str(field.type) for field in found.schema}
    assert types["offset"] == "int64"
    assert types["timestamp"] == types["at"] == "timestamp[ms, tz=UTC]"
    assert types["prompt_ids"].startswith("list<")
    assert (types["logprob"], types["is_expert"], types["touch_x"]) == ("double", "bool", "double")
    expected = [
        (
            logged.position.offset,
            index,
            step.logprob,
            list(step.prompt_ids),
            step.action.kind.value,
            step.action.touch.x if step.action.touch else None,
            logged.trajectory.outcome.value,
        )
        for logged in Run(run).trajectories(repeated=True)
        for index, step in enumerate(logged.trajectory.steps)
    ]
    columns = ("offset", "step", "logprob", "prompt_ids", "action", "touch_x", "outcome")
    assert [tuple(row[name] for name in columns) for row in found.to_pylist()] == expected
    assert manifest(folder / "steps.parquet")["rows"] == len(expected)


def test_a_folder_for_datasets_has_the_screens_of_the_store(run: Config, folder: Path) -> None:
    told = done("replay", "--dataset", "steps").output
    found = load_dataset("steps", cache_dir=str(folder / "cache"))["train"]
    steps = [step for logged in Run(run).trajectories(repeated=True) for step in logged.trajectory.steps]
    assert f"{len(steps)} rows of train" in told
    assert [row["screenshot_sha256"] for row in found] == [step.screenshot.sha256 for step in steps]
    for row, step in list(zip(found, steps, strict=True))[::7]:
        assert np.array_equal(np.asarray(row["image"]), Run(run).screenshot(step))
    assert len(json.loads((folder / "steps" / "manifest.json").read_text())["undecodable"]) == 1
    refused = call("replay", "--dataset", "steps")
    assert "give --force to write over it" in str(refused.exception)
    assert call("replay", "--dataset", "same", "--avro", "same").exit_code == 2


def test_documents_of_atif_are_valid_and_their_screens_are_there(run: Config, folder: Path) -> None:
    done("replay", "--atif", "episodes")
    known = {logged.position.offset: logged.trajectory for logged in Run(run).trajectories(repeated=True)}
    found = {int(path.stem.split("-")[1]): path for path in (folder / "episodes" / "trajectories").iterdir()}
    assert found.keys() == known.keys()
    for offset, path in found.items():
        episode = atif.Trajectory.model_validate_json(path.read_text())
        assert [step.message for step in episode.steps[1:]] == [step.action_text for step in known[offset].steps]
        (text, screen) = episode.steps[0].message
        assert text.text == known[offset].task.instruction
        assert hashlib.sha256((path.parent / screen.source.path).read_bytes()).hexdigest() in screen.source.path


MAY_BE_EMPTY = {"trajectories.dlq", "feeder.claims"}
"""In this run: it may end before a record that cannot be read is set aside, and its tasks come from no feeder."""


@pytest.mark.parametrize("topic", [name for name in TOPICS if name != "trajectories"])
def test_every_other_topic_exports_too(run: Config, folder: Path, topic: str) -> None:
    done("replay", "--topic", topic, "--avro", "a", "--parquet", "p")
    log = raw_records(run, topic)
    told = manifest(folder / "a")
    assert told["records"] == len(log) == len(avro_records(folder / "a"))
    assert (told["undecodable"], told["topic"]) == ([], topic_name(run.run, topic))
    rows = parquet.read_table(folder / "p").to_pylist()
    places = [(raw.position.partition, raw.position.offset) for raw in log]
    assert list(dict.fromkeys((row["partition"], row["offset"]) for row in rows)) == places
    assert log or topic in MAY_BE_EMPTY


def test_what_is_printed_is_one_escaped_object_a_line(run: Config, folder: Path) -> None:
    printed = done("replay", "--print").stdout
    assert printed.isascii()
    assert not set(map(ord, printed)) & ({*range(32), 127} - {10})
    objects = [json.loads(line) for line in printed.splitlines()]
    assert [each["offset"] for each in objects] == [raw.position.offset for raw in raw_records(run, "trajectories")]
    assert [each["record"]["task"]["instruction"] for each in objects if "record" in each].count(EVIL) == 1
    assert ["error" in each for each in objects].count(True) == 1
    whole = done("replay")
    assert whole.stderr == "1 records could not be decoded\n"
    listed = whole.stdout
    assert len(listed.splitlines()) == len(objects)
    assert not set(map(ord, listed)) & ({*range(32), 127, 0x202E} - {10})
    assert "cannot be decoded" in listed


def test_times_select_what_was_made_then(run: Config, folder: Path) -> None:
    log = raw_records(run, "trajectories")
    half = log[len(log) // 2].timestamp
    at = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=half)).isoformat()
    first = next(i for i, raw in enumerate(log) if raw.timestamp >= half)
    late = [json.loads(line)["offset"] for line in done("replay", "--from", at, "--print").stdout.splitlines()]
    early = [json.loads(line)["offset"] for line in done("replay", "--to", at, "--print").stdout.splitlines()]
    assert (early, late) == (list(range(first)), list(range(first, len(log))))
    assert len(done("replay", "--from", "-1h").stdout.splitlines()) == len(log)
    for before in ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.998Z", "1900-01-01"):
        assert len(done("replay", "--from", before).stdout.splitlines()) == len(log)
        assert done("replay", "--to", before).stdout == ""
    empty = done("replay", "--from", (datetime.now(UTC) + timedelta(hours=1)).isoformat())
    assert (empty.stdout, empty.stderr) == ("", "no record in the range\n")


def test_a_dry_run_says_the_range_and_writes_nothing(run: Config, folder: Path) -> None:
    shown = done("replay", "--topic", "tasks", "--from", "0", "--avro", "tasks.avro", "--dry-run").stdout
    size = sum(len(raw.key or b"") + len(raw.value or b"") for raw in raw_records(run, "tasks"))
    assert f"at most 12 records, about {size} bytes; would go to tasks.avro" in shown
    assert [file.name for file in folder.iterdir()] == ["run.yaml"]


def test_a_file_that_exists_is_refused_unless_forced(folder: Path) -> None:
    (folder / "mine.avro").write_text("mine")
    refused = call("replay", "--avro", "mine.avro")
    assert isinstance(refused.exception, ConfigError)
    assert "--force" in refused.exception.hint
    assert (folder / "mine.avro").read_text() == "mine"
    done("replay", "--avro", "mine.avro", "--force", "--to", "3")
    assert manifest(folder / "mine.avro")["records"] == 3


def test_an_export_that_is_cut_off_leaves_nothing(run: Config, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from distrl.offline import export

    def full(self: export.AvroWriter, item: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export.AvroWriter, "put", full)
    refused = call("replay", "--avro", "cut.avro")
    assert isinstance(refused.exception, StoreError)
    assert "No space left" in str(refused.exception)
    assert [file.name for file in folder.iterdir()] == ["run.yaml"]


def test_records_that_retention_took_are_refused_with_the_command_that_works(run: Config, folder: Path) -> None:
    """The heartbeats: nothing else reads them back."""
    name = topic_name(run.run, "heartbeats")
    with RecordProducer(run, "test") as producer:
        for number in range(5):
            beat = Heartbeat("worker-9", "worker", number, None, None)
            last = producer.publish("heartbeats", "worker-9", beat).result(30)
    client = admin(run.kafka)  # its futures end with it
    (deleted,) = client.delete_records([TopicPartition(name, 0, last.offset - 1)]).values()
    deleted.result(30)
    assert replayed_heartbeats(folder, "0", "2020-01-01") == [last.offset - 1, last.offset]
    (deleted,) = client.delete_records([TopicPartition(name, 0, last.offset + 1)]).values()
    deleted.result(30)
    assert replayed_heartbeats(folder, "0", "2020-01-01", "-1h") == []
    none = CliRunner().invoke(app, ["replay", "--config", "run.yaml", "--topic", "heartbeats"])
    assert (none.exit_code, none.stdout, none.stderr.strip()) == (0, "", "no record in the range")


def replayed_heartbeats(folder: Path, *begins: str) -> list[int]:
    """What the commands print that are named where those ranges are refused: the same offsets each."""
    found = []
    for wanted in begins:
        refused = subprocess.run(
            [
                sys.executable,
                "-m",
                "distrl.cli.main",
                "replay",
                "--config",
                "run.yaml",
                "--topic",
                "heartbeats",
                "--from",
                wanted,
                "--print",
            ],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "retention has deleted" in refused.stderr
        command = shlex.split(refused.stderr.partition("hint: ")[2])
        assert command[:2] == ["distrl", "replay"]
        works = CliRunner().invoke(app, command[1:])
        assert works.exit_code == 0
        found.append([json.loads(line)["offset"] for line in works.stdout.splitlines()])
    assert found.count(found[0]) == len(found)
    return found[0]


@pytest.fixture
def group(run: Config) -> Iterator[Consumer]:
    """A live member of the workers' group, which has committed its place."""
    name = workers_group(run)
    member = Consumer(
        {
            "bootstrap.servers": run.kafka.bootstrap,
            "group.id": name,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    member.subscribe([topic_name(run.run, "tasks")])
    message = member.poll(60)
    assert message is not None
    member.commit(message, asynchronous=False)
    yield member
    member.close()


def test_a_replay_beside_a_live_group_neither_joins_nor_moves_it(run: Config, folder: Path, group: Consumer) -> None:
    client, name = admin(run.kafka), workers_group(run)

    def state() -> object:
        described = client.describe_consumer_groups([name])[name].result(30)
        return [str(described.state), sorted(m.member_id for m in described.members), committed(run)]

    before = state()
    assert len(done("replay", "--topic", "tasks").stdout.splitlines()) == 12
    assert state() == before
    groups = {each.group_id for each in client.list_consumer_groups(request_timeout=30).result(30).valid}
    assert name in groups
    assert {each for each in groups if run.run in each} == {name}


# Lineage


def test_a_version_names_what_the_learner_held_at_every_checkpoint(run: Config, folder: Path) -> None:
    last = Run(run).versions()[-1]
    told = json.loads(done("lineage", str(last.version), "--json", "--check-screens").stdout)
    assert told["version"]["adapter_sha256"] == last.adapter.sha256
    assert [each["version"] for each in told["parents"]] == list(range(last.version - 1, -1, -1))
    assert [each["u"] for each in told["updates"]] == list(range(UPDATES))
    assert {each["config_fingerprint"] for each in told["updates"]} == {learning_fingerprint(run)}
    store, compared = open_store(run.store), 0
    for u in checkpoints(store, run.run):
        found = latest_checkpoint(store, run.run, u)
        assert found is not None
        kept = "buffer" if u > run.warmup.updates else "warmup/demonstrations"
        lived = [(topic, partition, offset) for topic, partition, offset, _ in found[0]["buffers"][kept]["entries"]]
        span = "resident" if kept == "buffer" else "cloned"
        named = [
            (each["topic"], each["partition"], each["offset"])
            for each in told["trajectories"]
            if each[span] and each[span]["first"] <= u - 1 <= each[span]["last"]
        ]
        assert named == lived
        compared += bool(lived)
    assert compared >= 3
    first = told["updates"][3]["windows"]
    assert [(window["topic"], window["from"]) for window in first] == [(topic_name(run.run, "trajectories"), 0)]
    assert sum(each["is_expert"] for each in told["trajectories"]) == 6
    assert len(told["trajectories"]) == 6 + TRAJECTORIES


def test_an_older_version_knows_nothing_of_what_came_later(run: Config, folder: Path) -> None:
    version = Run(run).versions()[1]
    told = json.loads(done("lineage", "1", "--json").stdout)
    assert told["updates"][-1]["u"] == version.update
    assert {each["admitted"] for each in told["trajectories"]} <= set(range(version.update + 1))


def test_a_trajectory_names_who_acted_and_who_learned(run: Config, folder: Path) -> None:
    told = json.loads(done("lineage", "task-1005", "--json").stdout)
    first, second = told["records"]
    assert (first["duplicate"], second["duplicate"]) == (False, True)
    assert {each["version"] for each in first["acted"]} == {0}
    assert first["learned"]["admitted"] == 4
    learned = first["learned"]["resident"]
    versions = Run(run).versions()
    assert first["learned_by_versions"] == [
        v.version for v in versions if learned["first"] <= v.update <= learned["last"]
    ]
    assert first["in_weights_of_versions"] == [v.version for v in versions if v.update >= 4]
    assert second["learned_by_versions"] == second["in_weights_of_versions"] == []
    early = json.loads(done("lineage", "task-1000", "--json").stdout)["records"][0]
    assert early["learned"]["resident"]["first"] == 3
    unchanged = [v.update for v in versions if v.adapter.sha256 == versions[0].adapter.sha256]
    assert unchanged == [2, 3], "update 3 trains the critics alone, and publishes the weights that there were"
    assert early["in_weights_of_versions"] == [v.version for v in versions if v.update >= 4]
    demo = json.loads(done("lineage", "demo-0", "--json").stdout)["records"][0]
    assert demo["learned"]["cloned"] == {"first": 0, "last": 2}
    assert sum(map(sum, demo["learned"]["draws"].values())) > 0


def test_lineage_for_people_is_short_and_whole_on_demand(run: Config, folder: Path) -> None:
    short = done("lineage", "6").stdout
    whole = done("lineage", "6", "--all").stdout
    assert learning_fingerprint(run) in short
    assert "parents 0-5" in short
    assert "task-1000 to task-1003" in short
    assert "task-1017" not in short
    assert "task-1017" in whole
    tree = done("lineage", "task-1003").stdout
    assert "could be drawn by updates" in tree
    assert not set(map(ord, tree)) & ({*range(32), 127, 0x202E} - {10})


def test_failures_are_counted_by_version_and_named_with_their_place(run: Config, folder: Path) -> None:
    judged = [decode(raw.value or b"", Trajectory) for raw in raw_records(run, "trajectories") if raw.key != b"\xff"]
    first = {each.task_id: each for each in reversed(judged)}
    failed = {name for name, each in first.items() if each.outcome is Outcome.FAILURE}
    told = json.loads(done("failures", "--topic", "trajectories", "--together", "100", "--json").stdout)
    (row,) = told["rows"]
    assert (row["attempts"], row["failures"]) == (len(first), len(failed))
    assert row["failures"] == row["wrong_goal"] + row["stuck"] + row["not_recovered"]
    assert {one["task_id"] for one in told["failures"]} == failed
    places = {(one["partition"], one["offset"]): one["task_id"] for one in told["failures"]}
    for raw in raw_records(run, "trajectories"):
        named = places.get((raw.position.partition, raw.position.offset))
        assert named is None or decode(raw.value or b"", Trajectory).task_id == named
    people = done("failures", "--topic", "trajectories", "--out", "shown")
    assert "\x1b" not in people.output
    assert (folder / "shown" / "failures.svg").read_text().startswith("<svg")
    assert json.loads((folder / "shown" / "failures.json").read_text())["failures"] == told["failures"]
    assert "1" in done("failures").output, "the one evaluated attempt"
    (folder / "taken").write_text("mine")
    for where in ("taken", "taken/inside"):
        refused = call("failures", "--out", where)
        assert isinstance(refused.exception, ConfigError)
        assert "--out" in refused.exception.hint


def test_failures_name_conditions_and_the_command_that_shows_each_attempt(run: Config, folder: Path) -> None:
    told = json.loads(done("failures", "--topic", "trajectories", "--json").stdout)
    failed = {one["task_id"]: one for one in told["failures"]}
    assert sum(each["attempts"] for each in told["conditions"] if each["condition"] == UNMET) >= 1
    assert {each["condition"] for each in told["conditions"]} == {UNMET, "not recorded"}
    one = failed[WITH_REASON]
    assert one["unmet"] == [{"path": "clock.alarms", "rule": "equals", "wanted": '["8 am"]', "found": "[]"}]
    assert one["show"] in done("failures", "--topic", "trajectories").output
    words = shlex.split(one["show"])
    assert words[:2] == ["distrl", "show"]
    shown = CliRunner().invoke(app, words[1:], env={"COLUMNS": "200"}, catch_exceptions=False)
    page = Path(shown.stdout.split(":")[0])
    assert page.parent == Path("out/show")
    assert f"{one['partition']}-{one['offset']}-{WITH_REASON}" in page.name
    text = page.read_text()
    assert text.count("data:image/png;base64,") == text.count("<figure>")
    assert "clock.alarms" in text


def test_an_episode_is_shown_by_its_id_wherever_its_record_is(run: Config, folder: Path) -> None:
    twice = done("show", "task-1005", "--out", "here/one.html").stdout
    offsets = [raw.position.offset for raw in raw_records(run, "trajectories") if raw.key == b"task-1005"]
    assert f"trajectories 0:{offsets[0]}" in twice, "the first in the log counts"
    assert f"by its place: 0:{offsets[1]}" in twice
    page = (folder / "here" / "one.html").read_text()
    assert f"partition 0, offset {offsets[0]}" in page
    assert "first by update" in page
    hostile = done("show", "task-1003", "--out", "evil.html").output
    assert "\x1b" not in hostile
    assert "\x1b" not in (folder / "evil.html").read_text()
    assert "demonstrations 0:" in done("show", "demo-0").stdout
    evaluated = done("show", "0:0", "--topic", "evaluations", "--out", "e.html").stdout
    assert "task-7, evaluations 0:0" in evaluated
    assert "task-7, evaluations 0:0" in done("show", "task-7", "--version", "0", "--out", "e.html").stdout
    assert "version 0" in (folder / "e.html").read_text()


def test_a_screenshot_that_is_gone_is_missing_in_its_frame_alone(run: Config, folder: Path) -> None:
    screens = Screens()
    played = trajectory(screens, 5000, steps=3, outcome=Outcome.FAILURE, task_id="half", store=open_store(run.store))
    gone = replace(played.steps[1].screenshot, key=f"screenshots/{'0' * 64}.png", sha256="0" * 64)
    steps = (played.steps[0], replace(played.steps[1], screenshot=gone), played.steps[2])
    other = run.model_copy(update={"run": f"half-{uuid.uuid4().hex[:8]}"})
    topic_admin.ensure(other)
    with RecordProducer(other, "test") as producer:
        record = Evaluation(0, "a" * 64, "e-half", replace(played, steps=steps))
        producer.publish("evaluations", "0", record).result(30)
    done("show", "half", "--run", other.run, "--out", "half.html")
    page = (folder / "half.html").read_text()
    assert page.count("<figure>") == 3
    assert page.count("no screenshot: ") == 1
    assert page.count("data:image/png;base64,") == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["0:999"], r"0:999: is no record of distrl\.offline-.*\.trajectories\[0\]: it holds 0 to "),
        (["3:0"], r"3:0: there is no partition distrl\.offline-.*\.trajectories\[3\]"),
        (["no-such-task"], r"has no record of this task in trajectories, evaluations, demonstrations"),
        (["task-7", "--version", "5"], r"has no record of version 5 of this task in evaluations"),
        (["task-7", "--topic", "trajectories"], r"has no record of this task in trajectories\n"),
    ],
)
def test_an_episode_that_is_not_there_is_refused(folder: Path, arguments: list[str], said: str) -> None:
    refused = call("show", *arguments)
    assert isinstance(refused.exception, DistrlError)
    assert re.search(said, str(refused.exception))
    assert not (folder / "out").exists()


def test_a_record_that_cannot_be_read_has_no_page(run: Config, folder: Path) -> None:
    (bad,) = [raw.position.offset for raw in raw_records(run, "trajectories") if raw.key == b"\xff"]
    refused = call("show", f"0:{bad}")
    assert isinstance(refused.exception, WireError)
    assert f"offset {bad}" in str(refused.exception)


def test_a_check_of_the_policy_finds_what_is_recorded_wrong(run: Config, folder: Path) -> None:
    """The trajectories' log-probabilities are made up here; what acts and what learns agree all the same."""
    found = CliRunner().invoke(app, ["policy", "check", "--config", "run.yaml", "--json"])
    assert found.exit_code == 1
    assert isinstance(found.exception, PolicyError)
    assert "learner and record differ" in found.exception.what
    report = json.loads(found.stdout)
    record, worker = (report["differences"][f"learner and {name}"] for name in ("record", "worker"))
    assert re.fullmatch(rf"{topic_name(run.run, 'trajectories')}/[0-2]/[0-9]+#[0-9]+", record["worst"])
    assert record["steps"] == worker["steps"] > TRAJECTORIES
    assert record["beyond"] > 0
    assert worker["beyond"] == report["skipped"] == 0

    demonstrated = CliRunner().invoke(
        app,
        ["policy", "check", "--config", "run.yaml", "--topic", "demonstrations", "--steps", "3"],
        env={"COLUMNS": "200"},
    )
    assert demonstrated.exit_code == 0, demonstrated.output
    assert "learner and worker" in demonstrated.stdout
    assert "learner and record" not in demonstrated.stdout


def test_a_judge_is_compared_with_the_truth_and_paid_for_once(run: Config, folder: Path) -> None:
    with serving(verdict("success", {"prompt_tokens": 100, "completion_tokens": 10})) as server:
        settings = (
            "--set",
            f"judge.endpoint={server.url}",
            "--set",
            "judge.model=m",
            "--set",
            "judge.price_in=1.0",
            "--set",
            "judge.requests_per_minute=60000",
        )
        told = json.loads(done("judge", "--against-truth", "--json", *settings).stdout)
        truth = [each.trajectory.outcome for each in Run(run).trajectories()]
        assert told["against_truth"]["counts"] == {
            f"{outcome.value}/success": truth.count(outcome)
            for outcome in (Outcome.SUCCESS, Outcome.FAILURE)
            if outcome in truth
        }
        asked = len(server.requests)
        assert 0 < asked <= len(truth), "equal questions are asked once"
        for each in told["verdicts"]:
            at = verdict_log.Episode(VERDICTS.of(run.run), "trajectories", each["partition"], each["offset"])
            said = verdict_log.Said("vlm:m", Verdict(Outcome(each["verdict"]), each["reason"]))
            assert verdict_log.said_of(open_store(run.store), at) == ([said], 0)
        assert told["spent"]["tokens_in"] == 100 * asked
        again = done("judge", "--against-truth", "--most", "5", *settings).output
        assert len(server.requests) == asked
        assert "5 of 5 judged" in again
        assert "\x1b" not in done("judge", *settings).output, "verdicts beside untrusted instructions"
    with serving(body(b"no such key", 401)) as server:
        refused = call("judge", "--set", f"judge.endpoint={server.url}", "--set", "judge.model=other")
        assert isinstance(refused.exception, ChatError)
    assert isinstance(call("judge").exception, ChatError), "no judge is configured"


def test_a_judge_is_asked_about_as_many_as_wanted_of_those_with_a_last_screenshot(
    broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = settings.load(
        sets=[f"run=judged-{uuid.uuid4().hex[:8]}", f"kafka.bootstrap={broker}", f"store.url=file://{tmp_path}/store"],
        environ={},
    )
    write_settings(config, tmp_path / "run.yaml")
    topic_admin.ensure(config)
    shot = open_store(config.store).put("screenshots", b"\x89PNG", "png")
    with RecordProducer(config, "test") as producer:
        for number in range(4):
            screen = shot if number else None
            made = factories.trajectory(factories.task(f"task-{number}"), final_screenshot=screen)
            producer.publish("trajectories", made.task_id, made).result(30)
    with serving(verdict("success")) as server:
        given = ("judge", "--most", "2", "--set", f"judge.endpoint={server.url}", "--set", "judge.model=m")
        printed = json.loads(done(*given, "--json").stdout)
        assert [each["task_id"] for each in printed["verdicts"]] == ["task-1", "task-2"]
        assert printed["without_last_screenshot"] == 1
        assert "1 left out: they have no last screenshot" in done(*given).output


@pytest.mark.parametrize("command", ["failures --topic trajectories --together 9", "judge --against-truth --most 2"])
def test_a_refused_range_names_the_same_command_with_one_that_works(folder: Path, command: str) -> None:
    with serving(verdict("success")) as server:
        settings = ("--set", f"judge.endpoint={server.url}", "--set", "judge.model=m", "--set", "judge.api_key=hidden")
        refused = call(*command.split(), *settings, "--json", "--from", "999")
        assert isinstance(refused.exception, ConfigError)
        assert re.search(r"^--from 999: .* ends at ", str(refused.exception))
        words = shlex.split(refused.exception.hint)
        assert words[:2] == ["distrl", command.split()[0]]
        assert "hidden" not in refused.exception.hint
        works = CliRunner().invoke(app, [*words[1:], "--set", "judge.api_key=hidden"])
        assert works.exit_code == 0, works.output
        asked_whole = done(*command.split(), *settings, "--json", "--from", "0")
        assert json.loads(works.stdout).keys() == json.loads(asked_whole.stdout).keys()
        told, whole = (json.loads(each.stdout) for each in (works, asked_whole))
        assert told.get("rows", told.get("verdicts")) == whole.get("rows", whole.get("verdicts"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["99"], r"version 99: is no version of run .*; the run has 0-6"),
        (["no-such-task"], r"no trajectory or demonstration of run"),
        (["99", "--task"], r"no trajectory or demonstration of run"),
        (
            ["1", "--set", "algorithm.replay.capacity=41"],
            r"^algorithm.replay.capacity: update 0 .*: algorithm.replay.capacity is 41 here and [0-9]+ there",
        ),
    ],
)
def test_what_is_not_there_or_not_of_this_run_is_refused(folder: Path, arguments: list[str], said: str) -> None:
    refused = call("lineage", *arguments)
    assert isinstance(refused.exception, DistrlError)
    assert re.search(said, str(refused.exception))


@pytest.mark.parametrize(
    "command", ["replay", "failures", "show 0:0", "judge", "lineage 0", "scores", "ablate", "dlq ls"]
)
def test_a_run_that_is_not_there_is_refused_with_those_that_are(run: Config, folder: Path, command: str) -> None:
    """And not with the command that would make its topics."""
    name, *rest = command.split()
    typo = f"{run.run}x"
    words = ["--set", f"run={typo}"] if name == "dlq" else ["--run", typo]
    refused = CliRunner().invoke(app, [name, *rest, "--config", "run.yaml", *words])
    assert isinstance(refused.exception, BrokerError)
    assert re.fullmatch(
        rf"run: the broker at \S+ has no run {typo}\n  hint: set `run` to one that it has: {run.run}.*",
        str(refused.exception),
    )
    assert not any(typo in each for each in admin(run.kafka).list_topics(timeout=30).topics)


@pytest.mark.parametrize("more", [[], ["--json"], ["--split", "test"]])
def test_scores_of_a_run_that_nobody_evaluated_are_an_error_and_no_empty_table(
    run: Config, folder: Path, more: list[str]
) -> None:
    bare = run.model_copy(update={"run": f"{run.run}-bare"})
    topic_admin.ensure(bare)
    refused = CliRunner().invoke(app, ["scores", "--config", "run.yaml", "--run", bare.run, *more])
    assert isinstance(refused.exception, BrokerError)
    assert re.search(rf"run {bare.run}: has no evaluation.*`distrl evaluate`", str(refused.exception), re.DOTALL)
    assert refused.stdout == ""


# From Python


def test_a_notebook_sees_the_runs_that_there_are(run: Config) -> None:
    with pytest.raises(BrokerError, match=f"set `run` to one that it has: {run.run}"):
        distrl.open_run(f"{run.run}x", run)
    assert distrl.open_run(run.run, run).versions() != []


def test_a_run_is_read_as_records_arrays_screens_and_samples(run: Config) -> None:
    opened = distrl.open_run(config=run)
    both = list(opened.trajectories(expert=None))
    assert [logged.trajectory.is_expert for logged in both] == [True] * 6 + [False] * TRAJECTORIES
    assert len(list(opened.trajectories(expert=True))) == 6
    assert [logged.position.offset for logged in opened.trajectories(2, 5)] == [2, 3, 4]
    assert len(list(opened.trajectories(timedelta(hours=1)))) == TRAJECTORIES
    assert len(list(opened.trajectories(repeated=True))) == TRAJECTORIES + 1
    assert [update.u for update in opened.updates()] == list(range(UPDATES))
    assert [version.version for version in opened.versions()] == list(range(7))
    assert [evaluation.evaluation_id for evaluation in opened.evaluations()] == ["e-1"]
    with pytest.raises(ConfigError, match="is no offset"):
        list(opened.trajectories("yesterday"))

    taken = list(opened.trajectories())
    steps = opened.steps(taken)
    flat = [(logged, step) for logged in taken for step in logged.trajectory.steps]
    assert len(steps) == len(flat)
    np.testing.assert_array_equal(steps.logprob, [step.logprob for _, step in flat])
    np.testing.assert_array_equal(steps.prompt_length, [len(step.prompt_ids) for _, step in flat])
    np.testing.assert_array_equal(steps.outcome, [logged.trajectory.outcome is Outcome.SUCCESS for logged, _ in flat])
    np.testing.assert_array_equal(steps.offset, [logged.position.offset for logged, _ in flat])
    assert (steps.logprob.dtype, steps.version.dtype, len(opened.steps([]))) == (np.float64, np.int64, 0)

    samples = opened.dataset(taken)
    assert len(samples) == len(flat)
    for index in (0, len(flat) - 1):
        sample, step = samples[index], flat[index][1]
        screen = opened.screenshot(step)
        assert (screen.shape, screen.dtype) == ((128, 64, 3), np.uint8)
        np.testing.assert_array_equal(sample["screenshot"].numpy(), screen.transpose(2, 0, 1))
        assert tuple(sample["action_ids"].tolist()) == step.action_ids
    assert "screenshot" not in opened.dataset(taken, screens=False)[0]


def test_the_example_of_the_documentation_runs(
    run: Config, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    secret = run.store.secret_key
    monkeypatch.setenv("DISTRL_RUN", run.run)
    monkeypatch.setenv("DISTRL_KAFKA__BOOTSTRAP", run.kafka.bootstrap)
    monkeypatch.setenv("DISTRL_STORE__URL", run.store.url)
    if run.store.access_key and secret:
        monkeypatch.setenv("DISTRL_STORE__ACCESS_KEY", run.store.access_key)
        monkeypatch.setenv("DISTRL_STORE__SECRET_KEY", secret.get_secret_value())
    exec(compile(example, str(DOCUMENT), "exec"), {})
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"{TRAJECTORIES} trajectories, ")
    assert said[0].endswith(", 7 versions")
    assert said[1].startswith("version 0: ")
    assert said[-1].endswith("torch.Size([3, 128, 64])")
