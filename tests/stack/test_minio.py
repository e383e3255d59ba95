"""Which way to MinIO a machine offers. The PATH of these tests holds only what each puts there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from distrl.errors import StackError
from distrl.stack import minio
from distrl.stack.minio import Kind
from distrl.stack.processes import CancelledError

Program = Callable[..., Path]


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Program:
    """Puts a shell script on a PATH that is otherwise empty."""
    folder = tmp_path / "path"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def put(name: str, script: str = "exit 0", where: Path = folder) -> Path:
        where.mkdir(parents=True, exist_ok=True)
        file = where / name
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)
        return file

    return put


def test_a_program_on_the_path_comes_first(program: Program, tmp_path: Path) -> None:
    program("go")
    program("docker")
    mine = program("minio")
    assert minio.way(tmp_path) == minio.Way(Kind.PROGRAM, mine, f"{mine} is on the PATH")


def test_one_that_was_built_before_is_used_again(program: Program, tmp_path: Path) -> None:
    program("go")
    built = program(minio.built_program(tmp_path).name, where=minio.built_program(tmp_path).parent)
    assert minio.way(tmp_path).program == built
    assert minio.build(tmp_path, lambda _: None, threading.Event()) == built


def test_docker_counts_only_with_a_daemon_and_compose(program: Program, tmp_path: Path) -> None:
    program("go")
    program("docker")
    assert minio.way(tmp_path).kind is Kind.DOCKER
    program("docker", '[ "$1" = info ]')
    assert minio.way(tmp_path).kind is Kind.BUILD
    program("docker", '[ "$1" = compose ]')
    assert minio.way(tmp_path).kind is Kind.BUILD


def test_without_any_the_reason_is_said(program: Program, tmp_path: Path) -> None:
    way = minio.way(tmp_path)
    assert (way.kind, way.program) == (Kind.NONE, None)
    assert "no Go" in way.why


def test_a_build_appears_whole_under_a_name_with_its_version(program: Program, tmp_path: Path) -> None:
    program("go", 'echo "#!/bin/sh" > "$GOBIN/minio"; /bin/chmod 755 "$GOBIN/minio"')
    said: list[str] = []
    built = minio.build(tmp_path, said.append, threading.Event())
    assert built.name == f"minio-{minio.VERSION}"
    assert minio.way(tmp_path).program == built
    assert "once" in said[0]


def test_what_a_killed_build_has_left_is_removed(program: Program, tmp_path: Path) -> None:
    built = minio.built_program(tmp_path)
    program("minio", where=built.parent / "new-abc")
    program("go", 'echo "#!/bin/sh" > "$GOBIN/minio"; /bin/chmod 755 "$GOBIN/minio"')
    minio.build(tmp_path, lambda _: None, threading.Event())
    assert {path.name for path in built.parent.iterdir()} == {built.name, "build.lock", "build.log"}


def test_a_build_that_fails_says_what_go_said(program: Program, tmp_path: Path) -> None:
    program("go", "echo 'no route to the module' >&2; exit 1")
    with pytest.raises(StackError, match="no route to the module"):
        minio.build(tmp_path, lambda _: None, threading.Event())
    assert not minio.built_program(tmp_path).exists()


def test_a_build_is_given_up_when_the_others_have_failed(program: Program, tmp_path: Path) -> None:
    program("go", "exec /bin/sleep 600")
    cancelled = threading.Event()
    cancelled.set()
    with pytest.raises(CancelledError):
        minio.build(tmp_path, lambda _: None, cancelled)
    left = {path.name for path in minio.built_program(tmp_path).parent.iterdir()}
    assert left == {"build.lock", "build.log"}
