"""The doctor: looks at everything, says how to fix what is missing, and never raises."""

from __future__ import annotations

from pathlib import Path

import pytest
from distrl.config import Config, load
from distrl.device.server import AdbServer
from distrl.stack import doctor, minio
from distrl.stack.doctor import Finding, examine
from distrl.stack.local import LocalStack
from elsewhere import drawn, elsewhere


def config(tmp_path: Path, *sets: str) -> Config:
    fixed = [f"stack.directory={tmp_path / 'stack'}", f"stack.cache={tmp_path / 'cache'}"]
    return elsewhere(load(sets=[*fixed, *sets], environ={}), drawn())


def finding(findings: list[Finding], what: str) -> Finding:
    return next(found for found in findings if found.what == what)


def test_what_is_not_up_yet_is_no_fault(tmp_path: Path) -> None:
    findings = examine(config(tmp_path, "stack.object_store=directory"))
    for what in ("python", "java", "Kafka's jars", "object store", "adb", "broker", "objects", "adb server", "phones"):
        assert finding(findings, what).ok, what
    assert "Android Debug Bridge" in finding(findings, "adb").detail
    assert not (tmp_path / "stack").exists()


def test_the_object_store_is_the_one_that_the_stack_began_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minio, "way", lambda cache: minio.Way(minio.Kind.NONE, None, "no MinIO here"))
    (tmp_path / "stack/s3").mkdir(parents=True)
    (tmp_path / "stack/s3/kind").write_text("minio\n")
    found = finding(examine(config(tmp_path)), "object store")
    assert (found.ok, found.detail) == (False, "MinIO: no MinIO here"), "up would not take another"
    found = finding(examine(config(tmp_path, "stack.object_store=s3proxy")), "object store")
    assert (found.ok, found.detail) == (
        False,
        "stack.object_store: is s3proxy, but the objects of this stack are in its minio store",
    ), "as `distrl up` says"
    assert "stack.object_store=minio" in found.hint
    (tmp_path / "stack/s3/kind").write_text("directory\n")
    assert finding(examine(config(tmp_path)), "object store").ok


@pytest.mark.parametrize("where", ["store.url=s3://10.0..5:9000/distrl", "adb.host=a..b"])
def test_an_address_with_an_empty_label_is_one_that_does_not_answer(tmp_path: Path, where: str) -> None:
    """The library that encodes names raises no OSError for it."""
    given = config(tmp_path, where, "store.access_key=a", "store.secret_key=b")
    assert finding(examine(given), "objects").ok is not where.startswith("store")
    assert not any(part.running for part in LocalStack(given).status())


def test_a_configured_endpoint_that_does_not_answer_is_reported_with_its_setting(tmp_path: Path) -> None:
    sets = [
        "kafka.bootstrap=127.0.0.1:1",
        "kafka.connect_timeout_s=0.2",
        "store.url=s3://127.0.0.1:1/distrl",
        "store.access_key=a",
        "store.secret_key=b",
        "devices.addresses=['127.0.0.1:1']",
    ]
    findings = examine(config(tmp_path, *sets))
    for what, setting in (("broker", "kafka.bootstrap"), ("objects", "store.url"), ("phones", "127.0.0.1:1")):
        found = finding(findings, what)
        assert not found.ok
        assert setting in found.detail
        assert found.hint


def test_a_phone_that_is_named_by_its_serial_is_asked_for_at_the_adb_server(tmp_path: Path) -> None:
    port = drawn()["adb.port"]
    named = config(tmp_path, "devices.serials=['R58M123ABC']", f"adb.port={port}")
    with AdbServer(named.adb):
        asked = finding(examine(named), "phones")
    assert not asked.ok
    assert asked.detail == "0 of 1 answer; no answer: R58M123ABC"
    assert "adb.usb" in asked.hint
    assert finding(examine(named), "phones").ok, "nobody runs who could be asked"


def test_a_phone_at_an_ipv6_address_is_asked_for_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, str]] = []
    monkeypatch.setattr(doctor.ports, "listens", lambda port, host: asked.append((port, host)) or True)
    assert finding(examine(config(tmp_path, "devices.addresses=['[::1]:5555']")), "phones").ok
    assert (5555, "::1") in asked


OF_THE_STACK = {"disk", "java", "Kafka's jars", "object store", "port of kafka", "port of s3"}
KAFKA, STORE = "kafka.bootstrap=127.0.0.1:1", "store.url=s3://127.0.0.1:1/distrl"


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ([], OF_THE_STACK),
        ([KAFKA], OF_THE_STACK - {"Kafka's jars", "port of kafka"}),
        ([STORE], OF_THE_STACK - {"object store", "port of s3"}),
        ([KAFKA, STORE], set()),
    ],
)
def test_what_only_a_local_server_needs_is_looked_at_where_one_would_be_started(
    tmp_path: Path, given: list[str], left: set[str]
) -> None:
    findings = examine(config(tmp_path, *given, "kafka.connect_timeout_s=0.2", "store.timeout_s=0.2"))
    looked_at = {found.what for found in findings}
    assert looked_at & OF_THE_STACK == left
    assert looked_at >= {"python", "adb", "broker", "objects", "phones"}


def test_an_adb_that_cannot_be_run_is_a_finding(tmp_path: Path) -> None:
    found = finding(examine(config(tmp_path, f"adb.binary={tmp_path / 'none'}")), "adb")
    assert not found.ok
    assert found.hint


def test_a_full_disk_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "DISK_BYTES", 1 << 60)
    found = finding(examine(config(tmp_path)), "disk")
    assert not found.ok
    assert "GB free at" in found.detail


def test_a_spoilt_stack_folder_is_survived(tmp_path: Path) -> None:
    (tmp_path / "stack").mkdir()
    (tmp_path / "stack" / "stack.json").mkdir()
    findings = examine(config(tmp_path))
    assert not finding(findings, "stack").ok
    assert finding(findings, "python").ok
