"""What starts the broker: its command line, and a storage that is formatted whole or not at all."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest
from distrl.errors import StackError
from distrl.stack import jars, kafka, ports
from distrl.stack.part import Site


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A stack whose Kafka is an empty jar, so that Java itself refuses."""
    jar = tmp_path / "kafka.jar"
    jar.write_bytes(b"")
    digest = hashlib.sha256(b"").hexdigest()
    monkeypatch.setattr(jars, "declared", lambda _: f"{digest}  kafka.jar\n")
    folder = tmp_path / "cache" / "kafka" / jars.KAFKA.version
    folder.mkdir(parents=True)
    jar.rename(folder / jar.name)
    return Site(tmp_path / "stack", tmp_path / "cache", threading.Event(), lambda _: None)


def free_ports() -> tuple[int, int]:
    first = ports.draw("the tests", count=2)
    return first, first + 1


def test_a_format_that_fails_shows_its_last_lines_and_leaves_no_data(site: Site) -> None:
    with pytest.raises(StackError, match="cannot be formatted") as told:
        kafka.start_kafka(site, {"heap_mb": 256}, *free_ports())
    assert "StorageTool" in told.value.what
    assert not (site.directory / "kafka" / "data").exists()


def test_a_broker_that_does_not_start_shows_its_last_lines_and_leaves_no_process(site: Site) -> None:
    data = site.directory / "kafka" / "data"
    data.mkdir(parents=True)
    (data / "meta.properties").touch()
    with pytest.raises(StackError, match="ended while starting") as told:
        kafka.start_kafka(site, {"heap_mb": 256}, *free_ports())
    assert "kafka.Kafka" in told.value.what
    assert not list(site.directory.glob("*.pid"))


def test_a_data_folder_that_is_no_brokers_is_left_alone(site: Site) -> None:
    precious = site.directory / "kafka" / "data" / "precious"
    precious.mkdir(parents=True)
    with pytest.raises(StackError, match=r"has no meta\.properties"):
        kafka.start_kafka(site, {"heap_mb": 256}, *free_ports())
    assert precious.exists()


def test_a_cluster_id_is_never_taken_for_an_option() -> None:
    ids = {kafka.cluster_id() for _ in range(2000)}
    assert len(ids) == 2000
    assert all(len(text) == 22 and not text.startswith("-") for text in ids)
