"""The whole local stack: every part real, found by another command, and its data there after it was down."""

from __future__ import annotations

import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import factories
import pytest
from distrl.broker import topic_admin
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader
from distrl.config import Config, load
from distrl.device.server import AdbServer
from distrl.errors import DeviceError, StackError
from distrl.stack import local, ports
from distrl.stack.doctor import examine
from distrl.stack.local import LocalStack, connect
from distrl.stack.processes import find_all, stop_all
from distrl.store.objects import open_store
from waiting import until

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("prepared")]

TASK = factories.task(family="alarm", instruction="set an alarm")
PHONES = 3


@pytest.fixture
def config(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> Iterator[Config]:
    """A stack of its own, on ports of its own, with nothing configured that it would not start. The store's is the
    next after the broker's, as people choose them: Kafka's controller, for which nobody sets one, must not take it."""
    server, phones = free_ports(2)
    kafka = ports.draw("the stack's tests", count=2)
    s3 = kafka + 1
    sets = [
        f"stack.directory={tmp_path / 'stack'}",
        f"stack.kafka_port={kafka}",
        f"stack.s3_port={s3}",
        f"adb.port={server}",
        "phones.count=2",
        "phones.evaluation_count=1",
    ]
    made = load(sets=[f"run=stack-{uuid.uuid4().hex[:12]}", *sets], environ={})
    phones_anywhere = made.phones.model_construct(
        **{**made.phones.model_dump(), "base_port": phones}, _fields_set={"count", "evaluation_count"}
    )
    yield made.model_copy(update={"phones": phones_anywhere})
    stop_all(find_all(tmp_path / "stack"), 30.0)


def publish(config: Config) -> None:
    topic_admin.ensure(config)
    with RecordProducer(config, "test") as producer:
        producer.publish("tasks", TASK.task_id, TASK).result(30.0)


def read(config: Config) -> list[bytes | None]:
    with LogReader(config, "tasks") as reader:
        return [record.key for batch in reader.to_end() for record in batch]


def test_up_used_down_and_up_again(config: Config) -> None:
    up = LocalStack(config).up()

    rows = LocalStack(config).status()
    assert [row.name for row in rows if row.running] == ["kafka", "s3", "adb", "phones"]
    assert len({row.pid for row in rows if row.pid}) == len([row for row in rows if row.pid])
    assert connect(config) == up, "another command finds what this one has started"
    assert all(found.ok for found in examine(config)), examine(config)

    publish(up)
    stored = open_store(up.store).put("adapters", b"weights", "safetensors")
    assert len(up.devices.addresses) == PHONES
    server = AdbServer(up.adb)
    for address in up.devices.addresses:
        server.connect(address)
    assert set(server.devices().values()) == {"device"}

    with pytest.raises(StackError, match="up already"):
        LocalStack(config).up()

    assert LocalStack(config).down() == [row.name for row in sorted(rows, key=lambda row: row.name) if row.pid]
    assert not any(row.running for row in LocalStack(config).status())
    assert find_all(config.stack.directory) == []

    again = LocalStack(config).up()
    assert read(again) == [b"task-0"]
    assert open_store(again.store).get(stored) == b"weights"
    LocalStack(config).down()


def test_a_killed_broker_is_started_again_beside_the_others_and_has_kept_its_log(
    config: Config, free_ports: Callable[[int], list[int]]
) -> None:
    publish(LocalStack(config).up())
    before = {row.name: row.pid for row in LocalStack(config).status()}
    (broker,) = (child for child in find_all(config.stack.directory) if child.name == "kafka")
    broker.kill()
    # the signal is on its way for a moment, in which the broker still counts as up
    until(lambda: not broker.lives(), "the broker to end")
    elsewhere = config.stack.model_copy(update={"kafka_port": free_ports(1)[0]})
    moved = config.model_copy(update={"stack": elsewhere})
    up = LocalStack(moved).up()
    after = {row.name: row.pid for row in LocalStack(moved).status()}
    assert {name for name in before if before[name] != after[name]} == {"kafka"}
    assert read(up) == [b"task-0"], "the log does not mind that the broker has another port now"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_up_that_is_interrupted_leaves_no_process(config: Config, tmp_path: Path, number: signal.Signals) -> None:
    values = {
        "stack.directory": tmp_path / "stack",
        "stack.kafka_port": config.stack.kafka_port,
        "stack.s3_port": config.stack.s3_port,
        "adb.port": config.adb.port,
        "phones.count": 1,
    }
    sets = [part for name, value in values.items() for part in ("--set", f"{name}={value}")]
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as in a terminal, also where the tests run under nohup
    up = subprocess.Popen([sys.executable, "-m", "distrl.cli.main", "up", *sets])
    signal.signal(signal.SIGHUP, before)

    def begun() -> bool:
        assert up.poll() is None
        return bool(find_all(tmp_path / "stack"))

    until(begun, "its record")
    up.send_signal(number)
    assert up.wait(60.0) == 130
    assert find_all(tmp_path / "stack") == []
    with pytest.raises(DeviceError):
        AdbServer(config.adb).version()


def test_an_up_that_is_interrupted_between_two_parts_stops_the_one_that_runs_already(
    config: Config, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class InterruptedOnceItRuns(ThreadPoolExecutor):
        def submit(self, *call: Any, **more: Any) -> Any:
            super().submit(*call, **more).result(60.0)
            raise KeyboardInterrupt

    monkeypatch.setattr(local, "ThreadPoolExecutor", InterruptedOnceItRuns)
    others = [
        f"kafka.bootstrap={broker}",
        f"store.url=file://{tmp_path}/objects",
        "phones.count=0",
        "phones.evaluation_count=0",
        f"adb.port={config.adb.port}",
        f"stack.directory={config.stack.directory}",
    ]
    with pytest.raises(KeyboardInterrupt):
        LocalStack(load(sets=others, environ={})).up()
    assert find_all(config.stack.directory) == []
    with pytest.raises(DeviceError):
        AdbServer(config.adb).version()


def test_a_port_that_was_named_and_is_in_use_is_reported(broker: str, config: Config) -> None:
    port = int(broker.rpartition(":")[2])
    stack = config.stack.model_copy(update={"kafka_port": port})
    with pytest.raises(StackError, match=f"port {port} of 127.0.0.1 is in use by java") as told:
        LocalStack(config.model_copy(update={"stack": stack})).up()
    assert told.value.where == "stack.kafka_port"
    assert find_all(config.stack.directory) == []
