from __future__ import annotations

from dataclasses import replace
from xml.parsers import expat

import pytest
from distrl.evaluate.failures import NOT_RECORDED, JudgedAttempt, Mode, by_condition, by_suite_and_version, mode_of
from distrl.evaluate.figures import DRAWN_ROWS, failure_modes
from distrl.types import PROMPTED, Action, ActionKind, LogPosition, Outcome, Trajectory, Unmet

from evaluate.world import TAP, screen, task, trajectory

COMPLETE = Action(ActionKind.COMPLETE)


def attempt(greys: list[int], *, done: bool = False, outcome: Outcome = Outcome.FAILURE) -> Trajectory:
    """One whose steps saw screens of these greys, and which said COMPLETE at the end or not."""
    actions = [*[TAP] * len(greys[1:]), *[COMPLETE if done else TAP] * len(greys[:1])]
    made = trajectory(task("t"), outcome, versions=[3] * len(greys), actions=actions)
    return replace(
        made, steps=tuple(replace(step, screenshot=screen(grey)) for step, grey in zip(made.steps, greys, strict=True))
    )


@pytest.mark.parametrize(
    ("made", "mode"),
    [
        (attempt([0, 10, 20], done=True), Mode.WRONG_GOAL),
        (attempt([0, 0, 0, 0], done=True), Mode.WRONG_GOAL),
        (attempt([0, 10, 20, 30, 30, 30, 30, 30]), Mode.STUCK),
        (attempt([0, 10, 20, 30, 40, 30, 40, 30]), Mode.STUCK),
        (attempt([0, 10, 20, 30, 40, 50, 40, 30]), Mode.NOT_RECOVERED),
        (attempt([0, 10, 20]), Mode.NOT_RECOVERED),
        (attempt([0, 10]), Mode.STUCK),
        (attempt([0, 10, 20], outcome=Outcome.SUCCESS), None),
        (attempt([0, 0, 0], outcome=Outcome.INTERRUPTED), None),
        (attempt([0, 0, 0], outcome=Outcome.UNKNOWN), None),
        (attempt([]), None),
    ],
)
def test_the_mode_of_an_attempt(made: Trajectory, mode: Mode | None) -> None:
    assert mode_of(made) is mode


def test_rows_count_judged_attempts_by_suite_and_version() -> None:
    other = replace(task("u"), suite="webshop")
    made = [
        (attempt([0, 10, 20], done=True), 0),
        (attempt([0, 10, 20], outcome=Outcome.SUCCESS), 1),
        (attempt([0, 10, 20], outcome=Outcome.UNKNOWN), 1),
        (attempt([0, 0, 0, 0]), 2),
        (replace(attempt([0, 10, 20, 30]), task=other), 2),
    ]
    attempts = [JudgedAttempt(one, version, LogPosition("evaluations", 0, n)) for n, (one, version) in enumerate(made)]
    rows = by_suite_and_version(attempts, together=2)
    assert [(row.suite, row.first, row.last, row.attempts, row.failures) for row in rows] == [
        ("home", 0, 1, 2, 1),
        ("home", 2, 3, 1, 1),
        ("webshop", 2, 3, 1, 1),
    ]
    assert rows[0].share(Mode.WRONG_GOAL) == 0.5
    assert rows[1].counts == {Mode.WRONG_GOAL: 0, Mode.STUCK: 1, Mode.NOT_RECOVERED: 0}
    assert [row.attempts for row in by_suite_and_version(attempts, together=1)] == [1, 1, 1, 1]
    assert [row.who for row in rows] == ["0-1", "2-3", "2-3"]


def test_failures_are_counted_by_the_condition_that_was_not_met() -> None:
    alarm, note = Unmet("clock.alarms", "equals", "[1]", "[]"), Unmet("notes.notes", "unchanged", "[]", "[1]")
    missing = replace(attempt([0, 10, 20], done=True), unmet=(alarm,))
    made = [
        missing,
        replace(missing, unmet=(alarm, note, alarm)),
        replace(missing, unmet=(), reason="the judge's words"),
        replace(missing, unmet=(), outcome=Outcome.SUCCESS),
        replace(missing, task=replace(missing.task, family="search")),
    ]
    attempts = [JudgedAttempt(one, 0, LogPosition("evaluations", 0, n)) for n, one in enumerate(made)]
    found = by_condition(attempts)
    assert [(one.family, one.condition, len(one.attempts), one.failures) for one in found] == [
        ("toggle", "clock.alarms equals", 2, 3),
        ("search", "clock.alarms equals", 1, 1),
        ("toggle", NOT_RECORDED, 1, 3),
        ("toggle", "notes.notes unchanged", 1, 3),
    ]
    assert found[0].to_json() == {
        "suite": "home",
        "family": "toggle",
        "condition": "clock.alarms equals",
        "attempts": 2,
        "failures_of_family": 3,
    }


def test_agents_without_weights_have_rows_of_their_own() -> None:
    made = [(0, ""), (PROMPTED, "ab12"), (PROMPTED, "ab12"), (PROMPTED, "cd34")]
    attempts = [
        JudgedAttempt(attempt([0, 0, 0, 0]), version, LogPosition("evaluations", 0, n), agent)
        for n, (version, agent) in enumerate(made)
    ]
    rows = by_suite_and_version(attempts, together=10)
    assert [(row.who, row.attempts) for row in rows] == [("0-9", 1), ("agent ab12", 2), ("agent cd34", 1)]
    assert "agent ab12" in failure_modes(rows)


def test_of_hundreds_of_versions_the_figure_shows_the_newest_and_says_so() -> None:
    made = [(number, "") for number in range(2 * DRAWN_ROWS)] + [(PROMPTED, "ab12")]
    attempts = [
        JudgedAttempt(attempt([0, 0, 0, 0]), version, LogPosition("evaluations", 0, n), agent)
        for n, (version, agent) in enumerate(made)
    ]
    drawn = failure_modes(by_suite_and_version(attempts, together=1))
    assert f"the newest {DRAWN_ROWS} of {2 * DRAWN_ROWS + 1} rows" in drawn
    shown = [number for number in range(2 * DRAWN_ROWS) if f">home v{number}<" in drawn]
    assert shown == list(range(DRAWN_ROWS + 1, 2 * DRAWN_ROWS)), "the agent has one of the rows"
    assert "agent ab12" in drawn
    assert "the newest" not in failure_modes(by_suite_and_version(attempts, together=2)[-DRAWN_ROWS:])


def test_the_figure_names_suites_as_plain_text() -> None:
    odd = replace(attempt([0, 0, 0]), task=replace(task("u"), suite="<$suite>"))
    drawn = failure_modes(by_suite_and_version([JudgedAttempt(odd, 0, LogPosition("evaluations", 0, 0))], together=1))
    assert drawn.startswith("<svg")
    assert "&lt;$suite&gt; v0" in drawn
    assert failure_modes([]).startswith("<svg")


def test_a_control_in_a_suites_name_does_not_break_the_figure() -> None:
    odd = replace(attempt([0, 0, 0]), task=replace(task("u"), suite="a\x1b[2J\x00b"))
    drawn = failure_modes(by_suite_and_version([JudgedAttempt(odd, 0, LogPosition("evaluations", 0, 0))], together=1))
    parser = expat.ParserCreate()
    parser.Parse(drawn.encode(), True)
    assert "a\\x1b[2J\\x00b v0" in drawn
