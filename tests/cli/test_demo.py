"""`distrl demo`: what its options, a file and variables make of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import brought_algorithm
import pytest
from distrl.cli.demo import _settings

FILE = """
run: demo-3
learner: {seed: 3}
phones: {seed: 3, count: 16}
algorithm: {type: grpo, group_size: 4}
"""
NONE: Mapping[str, None] = dict.fromkeys(("sets", "seed", "phones", "algorithm", "suite"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "settings.yaml").write_text(FILE)
    return tmp_path / "settings.yaml"


def made(file: Path | None, **given: object) -> tuple[str, int, int, int, str]:
    found = _settings(file, **{**NONE, "environ": {}, **given})  # type: ignore[arg-type]
    return found.run, found.learner.seed, found.phones.seed, found.phones.count, found.algorithm.type


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("demo-0", 0, 0, 8, "aride")),
        ({"seed": 3, "phones": 4}, ("demo-3", 3, 3, 4, "aride")),
        ({"algorithm": "filtered_bc", "suite": "general"}, ("demo-general-filtered-bc-0", 0, 0, 8, "filtered_bc")),
        ({"sets": ["learner.seed=5"]}, ("demo-5", 5, 5, 8, "aride")),
        ({"seed": 3, "sets": ["run=mine", "phones.seed=9"]}, ("mine", 3, 9, 8, "aride")),
    ],
)
def test_options_make_the_settings_and_the_name_of_the_run(
    given: dict[str, object], expected: tuple[object, ...]
) -> None:
    assert made(None, **given) == expected


def test_a_run_of_another_packages_algorithm_has_no_dot_in_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    brought_algorithm.use(brought_algorithm.install(tmp_path), monkeypatch)
    assert made(None, algorithm="users_awr.awr") == ("demo-users-awr-awr-0", 0, 0, 8, "users_awr.awr")


def test_a_file_is_taken_as_it_is_where_no_option_says_otherwise(file: Path) -> None:
    assert made(file) == ("demo-3", 3, 3, 16, "grpo")
    assert made(file, seed=4) == ("demo-3", 4, 4, 16, "grpo")
    assert made(file, phones=2) == ("demo-3", 3, 3, 2, "grpo")


def test_what_a_run_has_stands_where_nothing_else_says_otherwise() -> None:
    base = {"run": "demo-0", "learner": {"seed": 5}, "phones": {"count": 3}, "feeder": {"suite": "general"}}
    assert made(None, base=base) == ("demo-0", 5, 5, 3, "aride")
    assert made(None, base=base, seed=2, phones=4) == ("demo-0", 2, 2, 4, "aride")


def test_variables_count_too() -> None:
    assert made(None, seed=1, environ={"DISTRL_PHONES__COUNT": "16"}) == ("demo-1", 1, 1, 16, "aride")
    assert made(None, seed=1, environ={"DISTRL_RUN": "mine"}) == ("mine", 1, 1, 8, "aride")
