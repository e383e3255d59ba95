"""The doctor: looks at everything, says how to fix what is missing, and never raises."""

from __future__ import annotations

from pathlib import Path

import pytest
from distrl.config import Config, load
from distrl.stack import doctor
from distrl.stack.doctor import Finding, examine
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
