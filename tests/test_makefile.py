"""What `make` says of its variables, without doing anything."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def make(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Prints what would be done, as if nobody had called make before: pytest itself may run under `make test`.

    more: variables of the environment."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--dry-run", "--no-print-directory", *words]
    return subprocess.run(
        command, cwd=ROOT, env=environ | more, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("given", ["MINUTS=3", "minutes=3", "MINUTS:=3"])
def test_a_variable_that_it_does_not_know_is_refused_with_those_that_it_does(given: str) -> None:
    done = make("demo", "SEED=1", given)
    assert done.returncode == 2
    assert "distrl demo" not in done.stdout
    name = given.partition("=")[0].removesuffix(":")
    assert f"no variable is called {name}; those of this Makefile: PYTHON SEED MINUTES PHONES" in done.stderr


def test_each_that_it_knows_is_taken() -> None:
    given = ("SEED=1", "MINUTES=2", "PHONES=3", "WORKERS=1", "ALGORITHM=filtered_bc", "SUITE=general", "BASE_MODEL=/m")
    demo = make("demo", *given, "PYTHON=python3")
    assert demo.returncode == 0, demo.stderr
    command = " ".join(demo.stdout.replace("\\\n", "").split())
    asked = (
        "--seed 1 --minutes 2 --phones 3 --workers 1 --algorithm filtered_bc --suite general --set policy.base_model=/m"
    )
    assert asked in " ".join(shlex.split(command))
    faults = make("faults", "STORM=300", "SEED=7")
    assert faults.returncode == 0, faults.stderr
    assert "STORM=300 SEED=7" in faults.stdout


def test_a_path_with_a_space_is_one_word() -> None:
    demo = make("demo", "BASE_MODEL=/my models/m")
    assert "policy.base_model=/my models/m" in shlex.split(demo.stdout.replace("\\\n", ""))
    browser = make("test-browser", "CHROMIUM=/Google Chrome/chrome")
    assert "CHROMIUM=/Google Chrome/chrome" in shlex.split(browser.stdout)


GIVEN = ("SEED", "MINUTES", "PHONES", "WORKERS", "ALGORITHM", "SUITE", "BASE_MODEL", "STORM")


@pytest.mark.parametrize("target", ["demo", "faults"])
def test_only_the_command_line_gives_variables_and_not_the_environment(target: str) -> None:
    """WORKERS and SEED are names that other programs' environments have."""

    def said(*words: str, **more: str) -> str:
        done = make(target, *words, **more)
        assert done.returncode == 0, done.stderr
        return re.sub(r"--started \d+", "", done.stdout)

    assert said(**dict.fromkeys(GIVEN, "7")) == said()
    assert said("SEED=3", **dict.fromkeys(GIVEN, "7")) == said("SEED=3") != said()
