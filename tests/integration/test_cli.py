"""The commands against real servers: what a person sees of a run, of bad records in it, and of a stack that is up."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from urllib.request import Request, urlopen

import factories
import pytest
import yaml
from chat.server import serving, validity
from commands import run_distrl
from distrl import config as settings
from distrl.broker import topic_admin
from distrl.broker.connect import admin
from distrl.broker.journal import Journal
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader
from distrl.broker.retention import offsets_kept_minutes
from distrl.broker.tail import tail
from distrl.broker.topics import TOPICS, topic_name
from distrl.config import Config, load
from distrl.demonstrations.human import offered_tasks
from distrl.device.reset import truth
from distrl.device.server import AdbServer
from distrl.device.session import AdbSession
from distrl.judge.validity import to_be_judged
from distrl.learner.fold import is_usable
from distrl.policy.registry import base_sha256, policy_of, tokenizer_of
from distrl.stack.processes import find_all, stop_all
from distrl.store.objects import open_store
from distrl.tasks.oracle import oracle
from distrl.tasks.unsolved import MIN_ATTEMPTS
from distrl.train.roles import write_settings
from distrl.types import ActionKind, Heartbeat, ObjectRef, Outcome, Trajectory
from distrl.wire.codec import decode, encode
from distrl.worker.run import run_worker
from served import phones_served

pytestmark = pytest.mark.integration

PATIENCE_S = 30.0
LIMIT_S = 400.0


def trajectory(number: int, instruction: str = "turn on wifi lock") -> Trajectory:
    task, step = factories.task(f"task-{number}", instruction=instruction), factories.step(version=4, at=500)
    return factories.trajectory(task, (step,))


@pytest.fixture
def config(broker: str) -> Config:
    sets = [f"run=cli-{uuid.uuid4().hex[:12]}", f"kafka.bootstrap={broker}", "kafka.task_partitions=2"]
    return load(sets=sets, environ={})


def distrl(folder: Path, *arguments: str, config: Config | None = None) -> subprocess.CompletedProcess[str]:
    """`distrl ARGUMENTS` in `folder`, with the settings of `config`."""
    given: list[str] = []
    if config is not None:
        write_settings(config, folder / "run.yaml")
        given = ["--config", "run.yaml"]
    return run_distrl(folder, *arguments, *given, limit_s=LIMIT_S)


def test_topics_are_missing_then_made_then_as_declared_and_then_reported_to_differ(
    config: Config, tmp_path: Path
) -> None:
    before = distrl(tmp_path, "topics", "describe", config=config)
    assert before.returncode == 0
    assert before.stdout.count("missing") == len(TOPICS)

    made = distrl(tmp_path, "topics", "ensure", config=config)
    assert made.returncode == 0
    assert f"distrl.{config.run}.tasks: 2 partitions, created" in made.stdout.splitlines()
    described = distrl(tmp_path, "topics", "describe", config=config)
    assert described.returncode == 0
    assert "missing" not in described.stdout

    refused = distrl(tmp_path, "topics", "ensure", "--set", "kafka.task_partitions=3", config=config)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert f"distrl.{config.run}.tasks: partitions is 2, declared is 3" in refused.stderr
    assert "distrl topics ensure --alter" in refused.stderr
    altered = distrl(tmp_path, "topics", "ensure", "--alter", "--set", "kafka.task_partitions=3", config=config)
    assert f"distrl.{config.run}.tasks: 3 partitions, altered" in altered.stdout.splitlines()


def test_what_waits_for_topics_goes_on_once_they_are_made(config: Config, tmp_path: Path) -> None:
    early = distrl(tmp_path, "topics", "wait", "--role", "worker", "--timeout", "0", config=config)
    assert early.returncode == 1
    assert "no such topic" in early.stderr
    write_settings(config, tmp_path / "run.yaml")
    words = ("topics", "wait", "--role", "worker", "--timeout", str(LIMIT_S), "--config", str(tmp_path / "run.yaml"))
    with subprocess.Popen(
        [sys.executable, "-m", "distrl.cli.main", *words], stdout=subprocess.PIPE, text=True
    ) as waiting:
        assert waiting.stdout is not None
        assert waiting.stdout.readline().startswith(f"waiting: distrl.{config.run}.")
        topic_admin.ensure(config)
        assert waiting.stdout.read() == f"the 6 topics of the worker in run {config.run} are there\n"
    assert waiting.returncode == 0


def test_a_run_without_topics_shows_how_they_are_made(config: Config, tmp_path: Path) -> None:
    refused = distrl(tmp_path, "feed", config=config)
    assert refused.returncode == 1
    assert "no such topic" in refused.stderr
    assert "distrl topics ensure" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("command", ["status", "tail trajectories"])
def test_a_command_that_reads_a_run_that_the_broker_has_not_names_that_run(
    config: Config, tmp_path: Path, command: str
) -> None:
    refused = distrl(tmp_path, *command.split(), config=config)
    assert refused.returncode == 1
    assert f"has no run {config.run}" in refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.mark.parametrize("command", [("status",), ("tail", "trajectories", "--no-follow"), ("dlq", "ls")])
def test_a_command_that_looks_at_a_run_is_given_its_name_alone(
    config: Config, tmp_path: Path, command: tuple[str, ...]
) -> None:
    topic_admin.ensure(config)
    another = ("--set", "run=another")
    assert distrl(tmp_path, *command, *another, "--run", config.run, config=config).returncode == 0
    refused = distrl(tmp_path, *command, *another, config=config)
    assert refused.returncode == 1
    assert "has no run another" in refused.stderr


EVIL = "open \x1b]0;title\x07\x1b[2J\x9b31m\u202e:skull:"


def test_what_a_task_says_is_shown_and_moves_no_cursor(config: Config, tmp_path: Path) -> None:
    """By `distrl tail`; a record's words are those of a model, or of whoever wrote the list of tasks."""
    topic_admin.ensure(config)
    told = trajectory(1, EVIL)
    with RecordProducer(config, "a-test") as producer:
        evil = replace(told, task=replace(told.task, task_id="task-1\x1b[8m"))
        producer.publish("trajectories", "task-1", evil).result(PATIENCE_S)
    (line,) = distrl(tmp_path, "tail", "trajectories", "--no-follow", config=config).stdout.splitlines()
    assert line.endswith(r"open \x1b]0;title\x07\x1b[2J\x9b31m\u202e:skull:")
    assert r"task-1\x1b[8m" in line


def test_status_names_a_row_of_a_list_that_nobody_has_done_and_its_words_move_no_cursor(
    config: Config, tmp_path: Path
) -> None:
    topic_admin.ensure(config)
    with RecordProducer(config, "a-test") as producer:
        for number in range(MIN_ATTEMPTS):
            told = trajectory(number, EVIL)
            told = replace(told, task=replace(told.task, suite="mine"), outcome=Outcome.FAILURE)
            producer.publish("trajectories", told.task_id, told).result(PATIENCE_S)
    status = distrl(tmp_path, "status", config=config)
    assert status.returncode == 0
    said = r'"open \x1b]0;title\x07\x1b[2J\x9b31m\u202e:skull:"'
    lines = status.stdout.splitlines()
    assert (
        f"no success in {MIN_ATTEMPTS} attempts: {said} (check it: distrl tasks oracle -s feeder.tasks=FILE)" in lines
    )


def test_tail_tells_of_an_unknown_schema_and_a_truncated_record_and_goes_on(config: Config, tmp_path: Path) -> None:
    topic_admin.ensure(config)
    name = topic_name(config.run, "trajectories")
    whole = encode(trajectory(1))
    with RecordProducer(config, "a-test") as producer:
        for bad in (b"\xc3\x01" + bytes(8) + whole[10:], whole[:-3]):
            producer.publish_bytes(name, b"bad", bad).result(PATIENCE_S)
        for number in (1, 2):
            told = trajectory(number, "say " + "very " * 40 + "much")
            producer.publish("trajectories", told.task_id, told).result(PATIENCE_S)
    shown = distrl(tmp_path, "tail", "trajectories", "--no-follow", config=config)
    assert shown.returncode == 0
    assert [line.split()[:2] for line in shown.stdout.splitlines()] == [["2", "task-1"], ["3", "task-2"]]
    errors = [line for line in shown.stderr.splitlines() if " ERROR " in line]
    assert f"{name}[0] offset 0" in errors[0]
    assert "schema" in errors[0]
    assert f"{name}[0] offset 1" in errors[1]
    assert "Traceback" not in shown.stderr

    one = distrl(tmp_path, "tail", "trajectories", "--no-follow", "--last", "1", config=config)
    assert [line.split()[1] for line in one.stdout.splitlines()] == ["task-2"]
    status = distrl(tmp_path, "status", config=config)
    assert status.returncode == 0
    assert "trajectories  2" in status.stdout


@pytest.fixture
def one_phone(
    adb_server: settings.AdbSettings, free_ports: Callable[[int], list[int]], tmp_path: Path
) -> Iterator[dict[str, object]]:
    """Settings of a simulated phone behind the session's adb server."""
    port = min(free_ports(1)[0], 60_000)
    phones = settings.PhoneSettings.model_validate({"count": 1, "evaluation_count": 0, "base_port": port})
    with phones_served(phones, tmp_path):
        yield {"adb": adb_server, "devices": settings.DeviceSettings(addresses=(f"127.0.0.1:{port}",))}


def test_a_dry_run_shows_actions_and_touches_neither_the_phone_nor_the_run(
    config: Config, s3: settings.StoreSettings, one_phone: dict[str, object], tmp_path: Path
) -> None:
    made = config.model_copy(update={"store": s3, **one_phone})
    made = made.model_copy(update={"devices": made.devices.model_copy(update={"allowed_packages": ("com.sim.clock",)})})
    topic_admin.ensure(made)
    with RecordProducer(made, "a-test") as producer:
        producer.publish("tasks", "task-1", trajectory(1).task).result(PATIENCE_S)
    with Journal(made) as journal:
        adapter = open_store(s3).put("adapters", policy_of(made.policy).adapter(), "safetensors")
        journal.publish_version(factories.version(base_model_sha256=base_sha256(made.policy), adapter=adapter))
    write_settings(made, tmp_path / "run.yaml")
    session = AdbSession(AdbServer(made.adb), made.devices.addresses[0], made.devices)
    session.server.connect(session.serial)
    before, stored = truth(session), set(open_store(s3).list("screenshots/"))
    line = [sys.executable, "-m", "distrl.cli.main", "worker", "--config", "run.yaml", "--dry-run"]
    child = subprocess.Popen(
        [*line, "--instruction", "turn on \x1b[31mwifi"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=(tmp_path / "log").open("wb"),
        text=True,
    )
    try:
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(3)]
        assert lines[0] == f"version 0 on {session.serial}; nothing is done on the phone\n", (
            tmp_path / "log"
        ).read_text()
        assert lines[1] == "task: turn on \\x1b[31mwifi\n"
        assert lines[2].startswith('step 0, com.sim.launcher: "action_type": ')
        assert truth(session) == before
        session.start_app("com.sim.settings")  # as a person would
        assert child.stdout.readline().startswith("step 1, com.sim.settings (not allowed: it would be left): ")
        assert session.package_in_front() == "com.sim.settings"
        child.terminate()
        assert child.wait(PATIENCE_S) == 0
    finally:
        child.kill()
        child.wait()
    for topic in ("trajectories", "heartbeats", "trajectories.dlq"):
        with LogReader(made, topic) as reader:
            assert [raw for batch in reader.to_end() for raw in batch] == []
    client = admin(made.kafka)  # kept: without it the answer may never come
    groups = client.list_consumer_groups().result(PATIENCE_S).valid
    assert [group.group_id for group in groups if made.run in group.group_id] == []
    assert set(open_store(s3).list("screenshots/")) == stored


def test_a_demonstration_by_hand_is_in_the_topic_and_the_learner_can_use_it(
    config: Config, s3: settings.StoreSettings, one_phone: dict[str, object], tmp_path: Path
) -> None:
    made = config.model_copy(update={"store": s3, **one_phone})
    topic_admin.ensure(made)
    write_settings(made, tmp_path / "run.yaml")
    session = AdbSession(AdbServer(made.adb), made.devices.addresses[0], made.devices)
    line = [sys.executable, "-m", "distrl.cli.main", "phones", "play", "--record", "--config", "run.yaml"]
    with subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            page = child.stdout.readline().split()[-1]

            def post(what: str, **asked: object) -> bytes:
                body, kind = json.dumps(asked).encode(), {"Content-Type": "application/json"}
                with urlopen(Request(page + what, body, kind), timeout=PATIENCE_S) as answer:
                    said: bytes = answer.read()
                return said

            task = offered_tasks(made)[0]
            post("record", task=0)
            while (action := oracle(task, truth(session) or {})).kind is not ActionKind.COMPLETE:
                places = {name: [at.x, at.y] for name, at in (("touch", action.touch), ("lift", action.lift)) if at}
                post("act", kind=action.kind.value, text=action.text, **places)
            told = json.loads(post("done", well=True))
            assert (told["outcome"], told["source"], told["offset"]) == ("success", "ground-truth", 0)
            child.terminate()
            assert child.wait(PATIENCE_S) == 0
        finally:
            child.kill()
    with LogReader(made, "demonstrations") as reader:
        (raw,) = [raw for batch in reader.to_end() for raw in batch]
    found = decode(raw.value or b"", Trajectory)
    assert raw.key == found.task_id.encode()
    assert found.task.instruction == task.instruction
    assert is_usable(found, tokenizer_of(made.policy))
    for step in found.steps:
        assert open_store(s3).get(step.screenshot).startswith(b"\x89PNG")


def test_a_worker_records_what_the_judge_says_of_each_action(
    config: Config, s3: settings.StoreSettings, one_phone: dict[str, object]
) -> None:
    with serving(validity(False, {"prompt_tokens": 7, "completion_tokens": 1})) as server:
        judge = settings.JudgeSettings(endpoint=server.url, model="m", requests_per_minute=60_000, validity="vlm")
        worker = settings.WorkerSettings(heartbeat_s=0.2)
        made = config.model_copy(update={"store": s3, "judge": judge, "worker": worker, **one_phone})
        topic_admin.ensure(made)
        adapter = open_store(s3).put("adapters", policy_of(made.policy).adapter(), "safetensors")
        with Journal(made) as journal:
            journal.publish_version(factories.version(base_model_sha256=base_sha256(made.policy), adapter=adapter))
        task = replace(trajectory(1).task, params={"switch": "wifi lock", "goal": "on"}, max_steps=6)
        with RecordProducer(made, "a-test") as producer:
            producer.publish("tasks", "task-1", task).result(PATIENCE_S)
        stop = threading.Event()
        working = threading.Thread(target=run_worker, args=(made, stop), daemon=True)
        working.start()
        try:
            found = next(record for _, record in tail(made, "trajectories", Trajectory, 1, True, stop))
            asked = {index for index, _, _ in to_be_judged(found)}
            beats = (record.metrics for _, record in tail(made, "heartbeats", Heartbeat, 1, True, stop))
            told = next(each for each in beats if each["episodes"] == 1 and each["actions_judged"] == len(asked))
        finally:
            stop.set()
            working.join(PATIENCE_S)
        assert not working.is_alive()
    assert found.outcome is Outcome.FAILURE, found.note
    assert [step.valid for step in found.steps] == [False if i in asked else None for i in range(len(found.steps))]
    assert found.validity_source == ("vlm:m" if asked else "")
    assert told["judge_tokens"] == 8 * len(server.requests)
    assert told["actions_invalid"] == len(asked)


def test_weights_that_are_missing_or_have_another_hash_are_refused_by_name(
    config: Config, s3: settings.StoreSettings, one_phone: dict[str, object], tmp_path: Path
) -> None:
    made = config.model_copy(update={"store": s3, **one_phone})
    topic_admin.ensure(made)
    stored = open_store(s3).put("adapters", uuid.uuid4().bytes, "safetensors")
    other = ObjectRef(stored.key, "0" * 64, stored.size)
    missing = ObjectRef(f"adapters/{'1' * 64}.safetensors", "1" * 64, 3)
    base = base_sha256(made.policy)
    with Journal(made) as journal:
        for number, ref in enumerate((missing, other)):
            journal.publish_version(factories.version(number, base_model_sha256=base, adapter=ref))
    for number, ref in enumerate((missing, other)):
        command = ("evaluate", "--versions", str(number), "--episodes", "1")
        refused = distrl(tmp_path, *command, config=made)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert ref.key in refused.stderr
        assert "hint: " in refused.stderr
        assert "Traceback" not in refused.stderr


@pytest.fixture
def stack(config: Config, free_ports: Callable[[int], list[int]], tmp_path: Path) -> Iterator[Config]:
    """A stack of an adb server and two phones, beside the session's broker; objects go to a directory."""
    server, phones = free_ports(2)
    sets = [
        f"run={config.run}",
        f"kafka.bootstrap={config.kafka.bootstrap}",
        "store.url=file://objects",
        f"stack.directory={tmp_path / 'stack'}",
        f"adb.port={server}",
        f"phones.base_port={min(phones, 60_000)}",
        "phones.count=1",
        "phones.evaluation_count=1",
    ]
    yield load(sets=sets, environ={})
    stop_all(find_all(tmp_path / "stack"), 10.0)


def flags(config: Config) -> list[str]:
    """The settings that were named for `config`, and no other, as a person would type them."""
    tree = config.model_dump(mode="json", exclude_unset=True)
    pairs = [
        (f"{section}.{name}", value)
        for section, part in tree.items()
        if isinstance(part, dict)
        for name, value in part.items()
    ]
    return [flag for name, value in [("run", config.run), *pairs] for flag in ("--set", f"{name}={json.dumps(value)}")]


def test_up_up_again_status_doctor_and_down(stack: Config, tmp_path: Path) -> None:
    up = distrl(tmp_path, "up", *flags(stack))
    assert up.returncode == 0, up.stderr
    assert f"Kafka {stack.kafka.bootstrap}" in up.stdout
    assert "2 phones" in up.stdout

    second = distrl(tmp_path, "up", *flags(stack))
    assert (second.returncode, second.stdout) == (1, "")
    assert "the stack is up already" in second.stderr
    assert "distrl down" in second.stderr
    assert "Traceback" not in second.stderr
    assert {child.name for child in find_all(stack.stack.directory)} == {"adb", "phones"}

    status = distrl(tmp_path, "status", *flags(stack))
    assert (status.returncode, status.stderr) == (0, "")
    assert "stopped" not in status.stdout
    assert f"run {stack.run}" in status.stdout
    doctor = distrl(tmp_path, "doctor", *flags(stack))
    assert offsets_kept_minutes(stack) == 525_600
    assert " NO " not in "".join(line for line in doctor.stdout.splitlines() if "disk" not in line), doctor.stdout
    phones = distrl(tmp_path, "devices", "--json", *flags(stack))
    assert (phones.returncode, phones.stderr) == (0, "")
    shown = json.loads(phones.stdout)
    assert len(shown) == 2
    assert all((each["state"], each["size"], each["fault"]) == ("device", "128x256", "") for each in shown)

    down = distrl(tmp_path, "down", *flags(stack))
    assert (down.returncode, down.stdout) == (0, "stopped: adb, phones\n")
    assert find_all(stack.stack.directory) == []
    assert distrl(tmp_path, "down", *flags(stack)).stdout == "nothing was running\n"


def test_up_on_a_port_that_is_in_use_says_which_and_leaves_nothing(stack: Config, tmp_path: Path) -> None:
    taken = stack.kafka.bootstrap.rpartition(":")[2]
    refused = distrl(tmp_path, "up", *flags(stack), "--set", f"phones.base_port={taken}")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.splitlines()[-2].startswith(f"phones.base_port: port {taken} of 127.0.0.1 is in use")
    assert find_all(stack.stack.directory) == []


def test_the_settings_of_a_stack_that_is_up_reach_every_command(stack: Config, tmp_path: Path) -> None:
    """`config show` tells what was given, not what was found; the roles find the rest by the folder."""
    assert distrl(tmp_path, "up", *flags(stack)).returncode == 0
    shown = yaml.safe_load(distrl(tmp_path, "config", "show", *flags(stack)).stdout)
    assert shown["devices"]["addresses"] == []
    done = distrl(tmp_path, "demonstrate", "--count", "1", *flags(stack))
    assert done.returncode == 0, done.stderr
    assert "1 demonstrations wanted, 0 are there" in done.stderr
