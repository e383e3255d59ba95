from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from distrl.cli.ablate import shown
from distrl.config import load
from distrl.offline.ablation.arms import plan
from distrl.offline.ablation.fold import HELD_OUT, SEEN, Folded
from distrl.offline.ablation.log import RunLog, UpdateRange
from distrl.offline.ablation.report import (
    Ablation,
    Evaluated,
    Result,
    learning_table,
    notes,
    to_json,
    to_markdown,
    worth_table,
)
from distrl.offline.estimates import Estimate
from distrl.types import Update, Watermark
from rich.console import Console

SURE, NOISE = Estimate(0.412, 0.351, 0.474, 81.25, 128), Estimate(0.9, 0.0, 1.0, 2.5, 128)
METRICS = {"policy_loss": -0.0123, "value_loss": 0.5, "ratio": 1.02, "sample_share": 0.7, "entropy": 12.345}
LONG = "algorithm.replay.w1=0.01,algorithm.replay.w2=0.1,algorithm.replay.w3=0.1"


def ablation(
    estimates: Mapping[str, Estimate],
    outcomes: Mapping[str, Mapping[str, bool]],
    others: int = 0,
    on: str = HELD_OUT,
    arm: str = LONG,
    sets: Sequence[str] = (),
) -> Ablation:
    """The baseline and an arm with a long name. estimates, outcomes: by the arm's name. sets: of the run."""
    run = load(environ={}, sets=["run=demo-0", *sets])
    arms = plan(run, arms=[arm])
    log = RunLog(UpdateRange(0, 3), None, [(Update(2, (Watermark("t", 0, 9),), "", 0), [])], [], {}, 6)
    made = Ablation(run, arms, log)
    for each in arms.arms:
        found = {on: {"weighted": estimates[each.name]}} if each.name in estimates else {}
        folded = Folded(
            each, [(u, METRICS) for u in range(3)], 9, {"adapter": "a" * 64}, b"", "b" * 64, found, False, 1.0
        )
        played = Evaluated("test", 128, outcomes[each.name], others) if each.name in outcomes else None
        made.join(Result(folded, played), f"adapters/{each.name}")
    return made


def played(successes: range, tasks: int = 128) -> dict[str, bool]:
    return {f"task-{task}": task in successes for task in range(tasks)}


WHOLE = ablation(
    {"baseline": SURE, LONG: NOISE}, {"baseline": played(range(45)), LONG: played(range(5, 60))}, others=2
)  # 40 of both, 5 of the baseline alone, 15 of the arm alone


def test_success_stands_beside_each_arm_with_its_difference_to_the_baseline() -> None:
    header, rows = worth_table(WHOLE)
    assert header == ["arm", "success", "to baseline, points", "value (held out)"]
    assert [row[:3] for row in rows] == [
        ["baseline", "35.2%\n27.4% to 43.8%\n2 without an outcome", ""],
        [LONG, "43.0%\n34.7% to 51.6%\n2 without an outcome", "+7.8\n+0.9 to +14.6"],
    ]
    (_, arm) = json.loads(to_json(WHOLE))["arms"]
    difference = arm["evaluation"]["to_baseline"]
    assert (difference["tasks"], difference["difference"]) == (128, pytest.approx(10 / 128))
    assert sum(arm["evaluation"]["succeeded"].values()) == 55


def test_an_estimate_that_is_noise_is_a_dash_and_its_number_is_in_the_report() -> None:
    _, ((*_, sure), (*_, noise)) = worth_table(WHOLE)
    assert (sure, noise) == ("0.412\n0.351 to 0.474", "–")
    _, ((*_, of_sure), (*_, of_noise)) = learning_table(WHOLE)
    assert (of_sure, of_noise) == ("81.2 of 128", "2.5 of 128")
    markdown = to_markdown(WHOLE)
    assert f"| {LONG} | held_out | weighted | – | – | 2.5 of 128 |" in markdown
    assert "0.900" not in markdown
    (_, arm) = json.loads(to_json(WHOLE))["arms"]
    assert arm["estimates"]["held_out"]["weighted"]["value"] == 0.9
    assert arm["estimates"]["held_out"]["weighted"]["noise"] is True


def test_where_nothing_is_played_the_reason_stands_in_place_of_the_columns() -> None:
    made = ablation({"baseline": SURE}, {}, on=SEEN)
    made.unplayed = "no phone answers"
    header, rows = worth_table(made)
    assert header == ["arm", "value (seen)"]
    assert rows[1] == [LONG, "–"]
    assert "success: not played, no phone answers." in printed(made, 80)
    assert "success: not played, no phone answers." in to_markdown(made)


def test_an_arm_that_was_not_played_or_has_no_task_in_common_has_no_difference() -> None:
    for outcomes in ({"baseline": played(range(3))}, {"baseline": played(range(3)), LONG: {}}):
        _, (_, row) = worth_table(ablation({}, outcomes))
        assert row[1:] == ["–", "–", "–"]


def test_an_arm_whose_outcomes_are_all_unknown_has_no_success() -> None:
    """As on phones that tell no state and without a judge: 0 would be a failure in each."""
    made = ablation({}, {"baseline": {}, LONG: {}}, others=128)
    for arm in json.loads(to_json(made))["arms"]:
        assert arm["evaluation"]["success"] is None
        assert arm["evaluation"]["without_outcome"] == 128


def printed(made: Ablation, width: int) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(*shown(made), sep="\n")
    return out.getvalue()


@pytest.mark.parametrize("case", ["whole", "unplayed"])
def test_in_80_columns_no_word_of_a_header_breaks_and_no_number_does(case: str) -> None:
    made = WHOLE if case == "whole" else ablation({"baseline": SURE, LONG: NOISE}, {})
    text = printed(made, 80)
    assert max(map(len, text.splitlines())) <= 80
    words = set(re.split(r"[\s┃│]+", text))
    tables = worth_table(made), learning_table(made)
    titles = {word for header, _ in tables for title in header for word in title.split()}
    numbers = {word for _, rows in tables for _, *cells in rows for cell in cells for word in cell.split()}
    assert titles | numbers | {"baseline", "w1=0.01,", "w2=0.1,", "w3=0.1"} <= words


def test_an_interval_stands_on_a_line_of_its_own() -> None:
    lines = printed(WHOLE, 80).splitlines()
    assert all(note in lines for note in notes(WHOLE)), "each note fits on a line"
    for interval in ("27.4% to 43.8%", "+0.9 to +14.6", "0.351 to 0.474"):
        assert sum(interval in line for line in lines) == 1


def test_the_page_has_each_interval_in_brackets_and_one_line_a_row() -> None:
    rows = [line for line in to_markdown(WHOLE).splitlines() if line.startswith("| baseline")]
    assert rows[0] == ("| baseline | 35.2% (27.4% to 43.8%, 2 without an outcome) |  | 0.412 (0.351 to 0.474) |")


CLONING = "algorithm.type=cloning"
OTHER = ablation({}, {}, arm=CLONING, sets=["algorithm.lr=4e-3", "algorithm.minibatches=64"])
DEFAULTS = (
    f"{CLONING} has defaults of its own algorithm: algorithm.lr 0.001 (the run: 0.004), "
    "algorithm.minibatches 16 (the run: 64)."
)


def test_what_an_arm_of_another_algorithm_does_not_share_with_the_run_is_in_the_report() -> None:
    assert notes(OTHER)[-1] == DEFAULTS
    assert f"- {DEFAULTS}\n" in to_markdown(OTHER)
    assert [each["unshared"] for each in json.loads(to_json(OTHER))["arms"]] == [
        {},
        {"algorithm.minibatches": {"arm": 16, "run": 64}, "algorithm.lr": {"arm": 1e-3, "run": 4e-3}},
    ]


def test_a_report_is_json_whatever_the_numbers() -> None:
    report: Any = json.loads(to_json(ablation({"baseline": Estimate(float("nan"), 0.0, float("inf"), 1.0, 3)}, {})))
    assert report["arms"][0]["estimates"]["held_out"]["weighted"]["interval"] == [0.0, None]
    assert report["arms"][0]["evaluation"] is None
