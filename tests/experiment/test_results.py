"""docs/results.md, from experiments of seconds and of planted outcomes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from distrl.cli.main import app
from distrl.errors import ConfigError
from distrl.experiment.catalogue import EXPERIMENTS
from distrl.experiment.figure import draw
from distrl.experiment.page import arm_table, comparison_table, html_page
from distrl.experiment.plan import FORMAT
from distrl.experiment.report import report_of, to_csv, to_dict
from distrl.experiment.results import OUTDATED, results_page
from typer.testing import CliRunner

from .test_learned_report import PACED, SEEDS, TASKS, cell, planted


def folder(out: Path, name: str, cost: object = None) -> Path:
    report = planted(name, [0.4] * len(planted_arms(name)))
    out.mkdir()
    (out / "report.json").write_text(json.dumps(to_dict(report)))
    if cost is not None:
        (out / "cost.json").write_text(json.dumps(cost))
    return out


def planted_arms(name: str) -> list[str]:
    return [arm.name for arm in EXPERIMENTS[name].arms("quick")]


def test_a_page_has_command_code_cost_and_the_papers_numbers_beside_ours(tmp_path: Path) -> None:
    cost = {"processor_s": 90.0, "code": ["abc123"], "parts": 54, "unknown": 0}
    page = results_page([folder(tmp_path / "methods", "methods", cost), folder(tmp_path / "drift", "drift")])
    assert "`distrl experiment methods --preset quick --seeds 0,1,2`" in page
    assert "Code `abc123`; 1.5 minutes of processor time.\n" in page
    assert "Code and cost were not recorded." in page
    (ours,) = [line for line in page.splitlines() if line.startswith("| general/a-ride/async | 0.")]
    assert ours.endswith("train 0.755 ± 0.002; held-out, last 0.732 ± 0.011 |")
    rows = [line for line in page.splitlines() if "AppAgent + " in line and line.startswith("|")]
    assert len(rows) == 4
    assert all("not run: `distrl appagent evaluate" in line for line in rows)
    for line in page.splitlines():
        if line.startswith("| general/"):
            assert line.count(" | ") in (10, 5), "every row has its columns"
    assert page.index("## methods") < page.index("## drift")


def test_a_section_says_of_which_format_its_code_was_on_what_it_ran_and_that_code_of_today_finds_others(
    tmp_path: Path,
) -> None:
    for name, numbers, old in (("a", [FORMAT], False), ("b", [FORMAT - 1, FORMAT], True)):
        cost = {"processor_s": 90.0, "code": ["abc"], "format": numbers, "processor": ["A CPU"], "unknown": 0}
        page = results_page([folder(tmp_path / name, "drift", cost)])
        said = f"Code `abc`, format {', '.join(map(str, numbers))}; 1.5 minutes of processor time of A CPU."
        assert said in page
        assert (f"{said} {OUTDATED.format(FORMAT)}" in page) == old


def test_when_an_arm_was_near_the_best_is_a_column_that_reports_of_before_leave_open(tmp_path: Path) -> None:
    made = folder(tmp_path / "r2d3", "r2d3")
    content = json.loads((made / "report.json").read_text())
    column = [line.split(" | ")[-3] for line in results_page([made]).splitlines() if line.startswith("| r2d3 |")]
    there = content["arms"][0]["reached"]
    assert column[0] == f"{there['at_s'] / 3600:.2f} ({there['low_s'] / 3600:.2f} to {there['high_s'] / 3600:.2f})"
    for arm in content["arms"]:
        del arm["reached"]
    (made / "report.json").write_text(json.dumps(content))
    assert "| hours to 80 % of the best |" in results_page([made])
    assert any(line.split(" | ")[-3] == "–" for line in results_page([made]).splitlines() if line.startswith("| r2d3"))


def test_the_command_prints_the_page(tmp_path: Path) -> None:
    made = folder(tmp_path / "r2d3", "r2d3")
    shown = CliRunner().invoke(app, ["experiment", "--results", str(made)])
    assert shown.exit_code == 0
    assert shown.output == results_page([made])


@pytest.mark.parametrize("content", [None, "{", "[]", "{}", '{"command": "x"}'])
def test_a_folder_without_a_report_is_refused(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "report.json").write_text(content)
    with pytest.raises(ConfigError, match=r"--results: .*report\.json"):
        results_page([tmp_path])


@pytest.mark.parametrize(
    "cost",
    [
        {},
        {"code": 3, "unknown": 0, "processor_s": 1.0},
        {"code": ["x"], "unknown": 0},
        {"processor_s": 1.0, "code": [], "unknown": 0, "format": 3},
    ],
)
def test_a_damaged_cost_is_named_as_what_is_damaged(tmp_path: Path, cost: object) -> None:
    with pytest.raises(ConfigError, match=r"cost\.json does not say what an experiment took"):
        results_page([folder(tmp_path / "r2d3", "r2d3", cost)])


def test_one_seed_has_no_intervals_over_seeds(tmp_path: Path) -> None:
    report = planted("r2d3", [0.2, 0.8] + [0.4] * (len(planted_arms("r2d3")) - 2), seeds=(0,))
    page = html_page(report, draw(report))
    tables = page.split("<h2>", 1)[1]
    assert "<td>" in tables
    assert "inf" not in tables
    (tmp_path / "report.json").write_text(json.dumps(to_dict(report), allow_nan=False))
    rows = [line for line in results_page([tmp_path]).splitlines() if line.startswith("| ")]
    assert sum(") |" in row for row in rows) == len(report.comparisons), "only the differences over tasks"
    assert all(row.count(") |") <= 1 for row in rows)


def test_text_of_a_report_ends_no_cell_of_a_table(tmp_path: Path) -> None:
    made = folder(tmp_path / "r2d3", "r2d3")
    content = json.loads((made / "report.json").read_text())
    content["arms"][0]["name"] = "a | b\nc"
    (made / "report.json").write_text(json.dumps(content))
    assert "| a \\| b c |" in results_page([made])


def test_arms_of_the_papers_that_were_left_out_are_rows_with_how_they_are_run(tmp_path: Path) -> None:
    only = ["general/a-ride/async", "general/grpo"]
    (tmp_path / "report.json").write_text(json.dumps(to_dict(planted("methods", [0.4, 0.4], only=only))))
    rows = [line for line in results_page([tmp_path]).splitlines() if line.startswith("| ")]
    assert sum(line.startswith("| general/a-ride/async | 0.") for line in rows) == 1
    (left_out,) = [line for line in rows if line.startswith("| webshop/digirl/sync |")]
    assert "not run: `--arm webshop/digirl/sync`" in left_out
    assert left_out.endswith("held-out, last 0.599 ± 0.028 |")
    (base,) = [line for line in rows if line.startswith("| general/base model |")]
    assert "not run: `--arm 'general/base model'`" in base
    assert sum("not run: `distrl appagent evaluate" in line for line in rows) == 4


def test_two_folders_of_one_experiment_are_two_sections_and_what_either_has_was_run(tmp_path: Path) -> None:
    """Arms and seeds that were added later, by another commit."""
    first, second = folder(tmp_path / "a", "methods"), folder(tmp_path / "b", "methods")
    for made, suite in ((first, "general/"), (second, "webshop/")):
        content = json.loads((made / "report.json").read_text())
        content["arms"] = [arm for arm in content["arms"] if arm["name"].startswith(suite)]
        (made / "report.json").write_text(json.dumps(content))
    page = results_page([first, folder(tmp_path / "c", "drift"), second])
    headings = [line for line in page.splitlines() if line.startswith("## ")]
    assert headings == ["## methods", "## drift", "## methods (2)"]
    left_out = [line for line in page.splitlines() if "not run" in line]
    assert len(left_out) == 4
    assert all("AppAgent" in line for line in left_out)


@pytest.mark.parametrize("paced", [0, 1])
def test_an_arm_that_does_not_learn_beside_one_that_does_leaves_their_columns_open(tmp_path: Path, paced: int) -> None:
    learning = EXPERIMENTS["learning-curves"]
    arms = [replace(arm, learns=place != paced) for place, arm in enumerate(learning.arms("quick")[:2])]
    mixed = replace(learning, arms=lambda preset: arms, compared="per_hour", against="each other")
    cells = mixed.cells("quick", SEEDS)
    plain = {"figures": PACED, "collected": [], "curve": [], "episodes": []}
    report = report_of(
        mixed, "quick", SEEDS, cells, [dict(cell([True] * TASKS)) if each.arm.learns else plain for each in cells]
    )
    for head, rows in (arm_table(report), comparison_table(report)):
        assert rows
        assert {len(row) for row in rows} == {len(head)}
    assert html_page(report, draw(report))
    first, *lines = [line.split(",") for line in to_csv(report).splitlines()]
    assert {"per_hour", "success_last"} <= set(first)
    assert {len(line) for line in lines} == {len(first)}
    (tmp_path / "report.json").write_text(json.dumps(to_dict(report)))
    line, *_ = [one for one in results_page([tmp_path]).splitlines() if one.startswith(f"| {arms[paced].name} | ")]
    assert " | ".join(["–"] * 3) in line
