"""`distrl tasks oracle` as a person meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from distrl.cli.main import app
from distrl.cli.oracle import _profile
from distrl.errors import DistrlError
from simphone.profiles import PROFILES
from typer.testing import CliRunner


def here(*arguments: str, exit_code: int = 0) -> str:
    ended = CliRunner().invoke(app, ["tasks", "oracle", *arguments], env={"COLUMNS": "120"})
    assert (ended.exit_code, isinstance(ended.exception, DistrlError)) == (exit_code, bool(exit_code))
    return ended.stdout


def test_quiet_phones_then_popups_in_every_generation() -> None:
    told = json.loads(here("--suite", "install", "--count", "8", "--json", "-s", "phones.popup_probability=0.2"))
    assert told["split"] == "test"
    rows = told["measured"]
    assert [(row["phones"], row["popup_probability"]) for row in rows] == [
        ("generation 0", 0.0),
        *((f"generation {n}", 0.2) for n in range(5)),
    ]
    assert all((row["suite"], row["tasks"], row["done"]) == ("install", 8, 8) for row in rows)
    assert rows[0]["mean_steps"] < rows[1]["mean_steps"]
    assert "100.0%" in here("--suite", "install", "--count", "2")


def test_the_rows_of_a_list_are_played_and_one_that_cannot_be_done_ends_in_an_error(tmp_path: Path) -> None:
    alarm = {"app": "clock", "path": "alarms", "contains": "8 am"}
    rows = [
        {"instruction": "set an alarm for 8 am", "split": "train", "check": alarm},
        {"instruction": "set an alarm for 9 am", "split": "test", "check": alarm},
        {"instruction": "look around", "split": "test", "check": alarm},
    ]
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in rows))
    setting = ("-s", f"feeder.tasks={path}")
    told = json.loads(here(*setting, "--json", exit_code=1))
    assert [(each["line"], each["split"], each["script"], each["done"]) for each in told["rows"]] == [
        (1, "train", "general alarm", True),
        (2, "test", "general alarm", False),
        (3, "test", None, None),
    ]
    assert "done in 4 steps" in here(*setting, "--split", "train")
    assert "no script" in here(*setting, exit_code=1)
    assert "install" in here(*setting, "--suite", "install", "--count", "1")


@pytest.mark.parametrize(("flag", "name"), [("--suite", "hotel"), ("--profile", "wet")])
def test_an_unknown_suite_or_kind_of_phone_is_refused(flag: str, name: str) -> None:
    here(flag, name, exit_code=1)


def test_every_kind_of_phone_can_be_asked_for() -> None:
    assert [_profile(name) for name in PROFILES] == list(PROFILES)
