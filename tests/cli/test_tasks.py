"""`distrl tasks` as a person meets it: what is told of a list, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from distrl.cli.main import app
from distrl.errors import DistrlError
from distrl.policy.autoui.base import save_base
from distrl.policy.autoui.model import AutoUIModel, Shape
from distrl.policy.autoui.tokenizer import WordTokenizer
from simphone.words import ALL
from typer.testing import CliRunner

from .conftest import Cli

ROWS = [
    {"instruction": "open notes", "split": "train"}, {"instruction": "water the plants", "split": "train", "steps": 5},
    {"instruction": "Open Notes", "split": "test", "check": {"screen": "notes/list"}},
    {"instruction": "open \u00e9tsy", "split": "test"}, {"instruction": "open \u00e9tsy", "split": "test"},
]  # fmt: skip


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    file = tmp_path / "mine.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS))
    return file


def here(*arguments: str, exit_code: int = 0) -> str:
    """What `distrl tasks ARGUMENTS` prints, run in this process: a process of its own would import torch again."""
    ended = CliRunner().invoke(app, ["tasks", *arguments], env={"COLUMNS": "120"})
    assert (ended.exit_code, isinstance(ended.exception, DistrlError)) == (exit_code, bool(exit_code))
    return ended.stdout


def test_check_tells_everything_that_should_be_known(mine: Path) -> None:
    assert json.loads(here("check", str(mine), "--json")) == {
        "rows": 5,
        "duplicates": 1,
        "problems": [],
        "done_at_the_start": [],
        "splits": [
            {"suite": "mine", "split": "train", "rows": 2, "with_check": 0, "least_steps": 5, "most_steps": 20},
            {"suite": "mine", "split": "test", "rows": 3, "with_check": 1, "least_steps": 20, "most_steps": 20},
        ],
        "unknown_words": {"\u00e9tsy": 2, "water": 1, "plants": 1},
        "overlap": [
            {
                "split": "test",
                "rows": 3,
                "same_template": [],
                "identical": [{"file": str(mine), "line": 3, "instruction": "Open Notes"}],
            }
        ],
    }
    table = here("check", str(mine))
    assert "5 rows, 1 of them repeat an earlier one" in table
    assert "4 words (3 different ones) are not the policy's and read <unk>: \u00e9tsy (2), water (1)" in table
    assert "1 of 3 test tasks have an instruction that training has, 0 more its template" in table
    assert f"{mine}:3: Open Notes" in table


def test_check_without_a_file_tells_of_the_built_in_suites(tmp_path: Path) -> None:
    told = {each["suite"]: each for each in json.loads(here("check", "--json"))}
    assert list(told) == ["home", "general", "webshop", "install", "googleapps"]
    assert told["general"]["tasks"] == {"train": 600, "validation": 64, "test": 128}
    assert told["home"]["tasks"] == dict.fromkeys(("train", "validation", "test"))
    assert {each["in_training"][split] for each in told.values() for split in ("validation", "test")} == {0}
    assert not any(each["unknown_words"] for each in told.values())
    words = WordTokenizer(ALL)
    save_base(tmp_path, AutoUIModel(Shape(len(words.tokens), 128, 256, (8, 8, 8, 8), 32, 32, 1, 2)), words, {})
    lacking = {
        each["suite"]: each["unknown_words"]
        for each in json.loads(here("check", "--json", "-s", f"policy.base_model={tmp_path}"))
    }
    assert [name for name, unknown in lacking.items() if not unknown] == ["home"]
    assert "capital" in lacking["general"]
    table = here("check")
    assert "endless" in table
    assert "googleapps" in table


def test_check_tells_every_row_that_is_wrong_and_exits_1(cli: Cli, mine: Path) -> None:
    mine.write_text(mine.read_text() + "[]\n" * 40)
    refused = cli("tasks", "check", mine.name, "none.csv")
    assert refused.returncode == 1
    assert refused.stderr.startswith("tasks: 41 rows or files are wrong")
    told = refused.stdout.splitlines()
    assert len(told) == 41
    assert told[39:] == ["mine.jsonl:45: is no JSON object", "none.csv: cannot be read (No such file or directory)"]
    assert len(json.loads(here("check", str(mine), "--json", exit_code=1))["problems"]) == 40


def test_ls_prints_what_would_be_fed(mine: Path) -> None:
    fed = here("ls", "--json", "--count", "4", "-s", f"feeder.tasks={mine}")
    tasks = [json.loads(line) for line in fed.splitlines()]
    assert sorted(task["instruction"] for task in tasks[:2]) == ["open notes", "water the plants"]
    assert len({task["task_id"] for task in tasks}) == 4
    held = here("ls", str(mine), "--split", "test", "--count", "2", "--json")
    assert [json.loads(line)["instruction"] for line in held.splitlines()] == ["Open Notes", "open \u00e9tsy"]
    general = here("ls", "--suite", "general", "--split", "test", "--count", "128", "--json").splitlines()
    assert len({json.loads(line)["instruction"] for line in general}) == 128
    assert "home-train-0-000000" in here("ls", "--suite", "home", "--count", "1", "-s", f"feeder.tasks={mine}")


def test_a_wrong_list_stops_a_role_before_anything_starts(cli: Cli, mine: Path, tmp_path: Path) -> None:
    mine.write_text("{}\n")
    refused = cli("demo", "--set", f"feeder.tasks={mine.name}")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert "mine.jsonl:1: no instruction" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert [file.name for file in tmp_path.iterdir()] == [mine.name]
