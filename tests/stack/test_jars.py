"""Kafka's jars: used only whole and only as locked."""

from __future__ import annotations

import hashlib
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from distrl.errors import StackError
from distrl.stack import jars as module
from distrl.stack.jars import Jars

BYTES = {"kafka.jar": b"the broker", "log.jar": b"its log"}
LOCKED = {name: hashlib.sha256(data).hexdigest() for name, data in BYTES.items()}


class Repository:
    """Stands for the network: puts files where a resolution would, and counts how often it is asked."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked = 0

    def resolve(self, work: Path) -> list[Path]:
        self.asked += 1
        made = [work / name for name in self.files]
        for file in made:
            file.write_bytes(self.files[file.name])
        return made


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Repository:
    made = Repository(dict(BYTES))
    text = "".join(f"{digest}  {name}\n" for name, digest in LOCKED.items())
    monkeypatch.setattr(module, "declared", lambda name: text if name == "kafka/jars.sha256" else "")
    return made


@pytest.fixture
def jars(repository: Repository) -> Jars:
    return replace(module.KAFKA, resolve=repository.resolve)


def test_they_are_fetched_once_and_given_in_the_locked_order(
    jars: Jars, repository: Repository, tmp_path: Path
) -> None:
    assert not jars.present(tmp_path)
    found = jars.class_path(tmp_path)
    assert [jar.name for jar in found] == list(LOCKED)
    assert [jar.read_bytes() for jar in found] == list(BYTES.values())
    assert jars.class_path(tmp_path) == found
    assert repository.asked == 1


@pytest.mark.parametrize(
    "files",
    [{**BYTES, "log.jar": b"something else"}, {"kafka.jar": BYTES["kafka.jar"]}, {**BYTES, "more.jar": b"more"}],
    ids=["changed", "lacking", "more than locked"],
)
def test_anything_but_the_locked_jars_is_refused(
    jars: Jars, repository: Repository, tmp_path: Path, files: dict[str, bytes]
) -> None:
    repository.files = files
    with pytest.raises(StackError, match=r"not as locked in infra/kafka/jars\.sha256"):
        jars.class_path(tmp_path)
    assert not jars.present(tmp_path)
    assert [path.name for path in (tmp_path / "kafka").iterdir()] == ["fetch.lock"]


def test_a_folder_that_lacks_a_jar_is_fetched_again(jars: Jars, repository: Repository, tmp_path: Path) -> None:
    jars.class_path(tmp_path)[1].unlink()
    assert all(jar.is_file() for jar in jars.class_path(tmp_path))
    assert repository.asked == 2


def test_what_a_killed_fetch_has_left_is_removed(jars: Jars, repository: Repository, tmp_path: Path) -> None:
    left = tmp_path / "kafka" / "new-abc" / "jars"
    left.mkdir(parents=True)
    (left / "kafka.jar").write_bytes(b"half of it")
    jars.class_path(tmp_path)
    assert sorted(path.name for path in (tmp_path / "kafka").iterdir()) == sorted([jars.version, "fetch.lock"])


def test_several_at_once_fetch_once(jars: Jars, repository: Repository, tmp_path: Path) -> None:
    threads = [threading.Thread(target=jars.class_path, args=(tmp_path,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert repository.asked == 1
    assert jars.present(tmp_path)
