"""The settings that a demo leaves start its stack again, from any folder and on any ports."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from adb_alone import adb_alone
from distrl.cli.common import connected
from distrl.cli.main import app
from distrl.config import Config, load
from distrl.errors import StackError
from distrl.stack import kafka, phones, ports, running_stacks, s3
from distrl.stack.local import LocalStack, connect
from distrl.stack.part import Part
from distrl.stack.processes import find_all, start, stop_all
from distrl.stack.stack_record import Record
from distrl.train.roles import write_settings
from typer.testing import CliRunner

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def config(tmp_path: Path) -> Iterator[Config]:
    """A stack of an adb server alone; the broker and the objects are elsewhere."""
    sets = adb_alone(tmp_path)
    made = load(sets=sets, environ={})
    free = made.adb.model_construct(**{**made.adb.model_dump(), "port": ports.draw("a test")}, _fields_set=set())
    yield made.model_copy(update={"adb": free})
    stop_all(find_all(tmp_path / "stack"), 10.0)


def test_the_settings_that_are_left_start_the_stack_again_on_a_port_that_is_free(
    config: Config, tmp_path: Path
) -> None:
    file = tmp_path / "settings.yaml"
    up = LocalStack(config).up()
    write_settings(up, file)
    left = load(file, environ={})
    assert "port" not in left.adb.model_fields_set
    assert connect(left).adb.port == up.adb.port, "a command with these settings finds the servers"
    LocalStack(left).down()
    moved = left.model_copy(update={"adb": config.adb.model_copy(update={})})
    again = LocalStack(moved).up()
    assert connect(left).adb.port == again.adb.port
    assert (again.kafka, again.store) == (up.kafka, up.store), "what is elsewhere stays named"


def test_the_endpoints_of_a_whole_stack_are_left_out_and_filled_in_again(tmp_path: Path) -> None:
    config = load(sets=[f"stack.directory={tmp_path / 'stack'}", "run=seven"], environ={})
    record, child = Record(tmp_path / "stack"), start("kafka", SLEEPER, tmp_path / "stack")
    try:
        record.put(Part(kafka.NAME, "127.0.0.1:1234", {}, child))
        record.put(Part(s3.NAME, f"file://{tmp_path}/objects", {}))
        record.put(Part(phones.NAME, "127.0.0.1:26000-26011", phones.settings(config.phones)))
        filled = connect(config)
        assert (filled.kafka.bootstrap, filled.store.url) == ("127.0.0.1:1234", f"file://{tmp_path}/objects")
        write_settings(filled, tmp_path / "settings.yaml")
        left = load(tmp_path / "settings.yaml", environ={})
        assert "bootstrap" not in left.kafka.model_fields_set
        assert "url" not in left.store.model_fields_set
        assert not {"kafka_port", "s3_port"} & left.stack.model_fields_set
        assert connect(left).kafka.bootstrap == "127.0.0.1:1234"
        assert left.run == "seven"
        assert left.devices.named == ()
        assert left.devices.settle_unchanged_s == 0.0, "of roles that are given some of the phones by address"
        assert len(connect(left).devices.addresses) == 12
    finally:
        stop_all([child], 10.0)


def test_a_second_stack_is_not_started_by_accident(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    LocalStack(config).up()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    unnamed = load(sets=[f"stack.cache={tmp_path / 'cache'}"], environ={})
    with pytest.raises(StackError, match=f"one is up in {tmp_path / 'stack'}") as told:
        running_stacks.refuse_second_by_accident(unnamed)
    for way in (f"--set stack.directory={tmp_path / 'stack'}", f"--set stack.directory={elsewhere / 'out/stack'}"):
        assert way in told.value.hint
        named = load(sets=[f"stack.cache={tmp_path / 'cache'}", way.removeprefix("--set ")], environ={})
        running_stacks.refuse_second_by_accident(named)
    assert list(elsewhere.iterdir()) == []
    LocalStack(config).down()
    running_stacks.refuse_second_by_accident(unnamed)


def test_the_broker_of_another_folders_stack_is_not_taken_for_ones_own(tmp_path: Path) -> None:
    """As of two checkouts that both have a run demo-0, of which one is up: else its topics would be removed."""
    cache, there, here = f"stack.cache={tmp_path / 'cache'}", tmp_path / "there", tmp_path / "here"
    child = start(kafka.NAME, SLEEPER, there)
    try:
        default = Config().kafka.bootstrap
        Record(there).put(Part(kafka.NAME, default, {}, child))
        running_stacks.remember(tmp_path / "cache", there)
        own = load(sets=[cache, f"stack.directory={here}"], environ={})
        with pytest.raises(StackError, match=f"the one at {default} is of the stack in {there}") as raised:
            running_stacks.refuse_broker_of_other(own)
        assert f"distrl up --set stack.directory={here}" in raised.value.hint
        shown = CliRunner().invoke(app, ["scores", "-s", cache, "-s", f"stack.directory={here}"])
        assert isinstance(shown.exception, StackError)
        shown = CliRunner().invoke(app, ["topics", "ensure", "-s", cache, "-s", f"stack.directory={here}"])
        assert isinstance(shown.exception, StackError)
        asks_no_broker = connected(None, [cache, f"stack.directory={here}"])
        assert asks_no_broker.kafka.bootstrap == default, "as `distrl devices`, which works all the same"
        for taken in (
            [cache, f"stack.directory={there}"],
            [cache, f"stack.directory={here}", f"kafka.bootstrap={default}"],
        ):
            running_stacks.refuse_broker_of_other(load(sets=taken, environ={}))
        Record(there).put(Part(kafka.NAME, "127.0.0.1:1234", {}, child))
        running_stacks.refuse_broker_of_other(own)
    finally:
        stop_all([child], 10.0)


def test_a_stack_that_is_down_is_looked_for_at_its_own_port(tmp_path: Path) -> None:
    """Not at the default one, where a broker of somebody else may be."""
    sets = [f"stack.cache={tmp_path / 'cache'}", f"stack.directory={tmp_path / 'here'}", "stack.kafka_port=28092"]
    found = connected(None, sets)
    assert found.kafka.bootstrap == "127.0.0.1:28092"
    assert "bootstrap" not in found.kafka.model_fields_set, "nobody has configured it: `distrl up` starts it"
    assert connected(None, [*sets, "kafka.bootstrap=there:9092"]).kafka.bootstrap == "there:9092"


def test_up_refuses_a_configured_broker_that_is_away_and_leaves_nothing(config: Config, tmp_path: Path) -> None:
    line = [
        sys.executable,
        "-m",
        "distrl.cli.main",
        "up",
        "--set",
        "kafka.bootstrap=127.0.0.1:1",
        "--set",
        f"stack.directory={tmp_path / 'stack'}",
        "--set",
        "kafka.connect_timeout_s=1",
        "--set",
        f"adb.port={config.adb.port}",
        "--set",
        f"store.url=file://{tmp_path}/objects",
    ]
    refused = subprocess.run(line, capture_output=True, text=True, timeout=60, check=False, cwd=tmp_path)
    assert refused.returncode == 1
    assert "take kafka.bootstrap out of the settings" in refused.stderr
    assert not ports.listens(config.adb.port)
    assert not (tmp_path / "stack").exists()
