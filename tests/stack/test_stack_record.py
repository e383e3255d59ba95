"""stack.json: what one command writes and the next one reads."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from distrl.birth import birth_of
from distrl.stack.part import Part
from distrl.stack.processes import Child
from distrl.stack.stack_record import FILE, Record


@pytest.fixture
def me(tmp_path: Path) -> Child:
    """A child that surely lives: this process."""
    child = Child("kafka", os.getpid(), birth_of(os.getpid()), tmp_path)
    child.save()
    return child


def test_what_is_put_is_read_by_another_command(tmp_path: Path, me: Child) -> None:
    Record(tmp_path).put(Part("kafka", "127.0.0.1:29092", {"heap_mb": 512}, me))
    Record(tmp_path).put(Part("s3", "file:///objects", {"object_store": "auto"}))
    parts = Record(tmp_path).parts()
    assert parts["s3"] == Part("s3", "file:///objects", {"object_store": "auto"})
    kafka = parts["kafka"]
    assert (kafka.where, kafka.settings) == ("127.0.0.1:29092", {"heap_mb": 512})
    assert kafka.child is not None
    assert kafka.child.pid == os.getpid()


def test_a_part_whose_process_is_gone_is_not_up(tmp_path: Path, me: Child) -> None:
    Record(tmp_path).put(Part("kafka", "127.0.0.1:29092", {}, me))
    me.forget()
    assert Record(tmp_path).parts() == {}


def test_the_last_part_takes_the_file_with_it(tmp_path: Path) -> None:
    record = Record(tmp_path)
    record.put(Part("s3", "file:///objects"))
    record.remove("adb")
    assert (tmp_path / FILE).exists()
    record.remove("s3")
    assert not (tmp_path / FILE).exists()
    record.remove("s3")


def test_all_parts_are_removed_on_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = Record(tmp_path)
    record.put(Part("s3", "file:///objects"))
    record.put(Part("adb", "127.0.0.1:5037"))
    monkeypatch.setattr(Path, "write_text", full)
    record.remove("s3", "adb")
    assert Record(tmp_path).parts() == {}


def full(*_: object, **__: object) -> int:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("text", ["", "[1]", "{", '{"kafka": 3}', '{"kafka": {"where": 1}}', '{"kafka": {}}'])
def test_a_spoilt_record_says_that_nothing_is_up(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert Record(tmp_path).parts() == {}


def test_it_holds_no_secret(tmp_path: Path) -> None:
    from distrl.stack import s3

    (tmp_path / "s3").mkdir()
    _, secret = s3.credentials(tmp_path / "s3")
    Record(tmp_path).put(Part("s3", "s3://127.0.0.1:29000/distrl", {"object_store": "minio"}))
    assert secret not in (tmp_path / FILE).read_text()
