from __future__ import annotations

import json
import re
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path

from distrl.evaluate import figures
from distrl.evaluate.curves import CurvePoint, SuccessRate
from distrl.evaluate.facts import RunData
from distrl.evaluate.failures import lean
from distrl.evaluate.report import PAGES, write_report
from distrl.types import Action, ActionKind, Evaluation, LogPosition, ObjectRef, Outcome, Split, Unmet

from .world import TAP, TOPIC, TYPE, evaluation, logged, read, task, trajectory, update, version

KEYS = {
    "success_before", "success_after", "success_curve", "trajectories", "interrupted", "updates", "versions_published",
    "reload_seconds_p50", "reload_seconds_p95", "policy_lag_mean", "policy_lag_max", "trajectories_per_minute",
    "setup_seconds", "train_seconds", "seed", "digests", "held_out_in_training",
    "success_by_policy", "no_success", "failed_conditions",
}  # fmt: skip
HOSTILE = '<img src=x onerror=alert(1)> $x^$ & "quoted"'


def evaluations() -> list[Evaluation]:
    """Ten held-out tasks: two solved before, seven after; and three validations."""
    made = []
    for number, solved in ((0, 2), (2, 7)):
        for n in range(10):
            family = HOSTILE if n % 2 else "search"
            outcome = Outcome.SUCCESS if n < solved else Outcome.FAILURE
            actions = [TAP, TYPE, Action(ActionKind.COMPLETE)]
            played = trajectory(task(f"h-{n}", family, instruction=HOSTILE), outcome, [number] * 3, actions)
            made.append(evaluation(number, played))
    for number in (0, 1, 2):
        for n in range(6):
            outcome = Outcome.SUCCESS if n < 2 + number else Outcome.FAILURE
            made.append(evaluation(number, trajectory(task(f"v-{n}", split=Split.VALIDATION), outcome)))
    return made


def data(**changes: object) -> RunData:
    acted = [trajectory(task(f"t-{n}", split=Split.TRAIN), versions=(n // 40,), started_at=n * 30) for n in range(100)]
    return RunData(
        **{
            "run": "demo",
            "seed": 1,
            "topic": TOPIC,
            "trajectories": logged(acted),
            "versions": [version(0, 4), version(1, 5), version(2, 6)],
            "updates": [update(4, 0), update(5, 40), update(6, 80)],
            "evaluations": evaluations(),
            "setup_seconds": 12.0,
            "train_seconds": 60.0,
            "digests": {"adapter": "ab" * 32, "buffer": "cd" * 32},
            "read": read,
            **changes,
        }
    )


def test_report_json_has_exactly_the_promised_keys_and_true_numbers(tmp_path: Path) -> None:
    write_report(data(), tmp_path)
    told = json.loads((tmp_path / "report.json").read_text())
    assert set(told) == KEYS
    assert (told["success_before"], told["success_after"]) == (0.2, 0.7)
    assert [point["success"] for point in told["success_curve"]] == [2 / 6, 3 / 6, 4 / 6]
    assert [point["trajectories"] for point in told["success_curve"]] == [0, 40, 80]
    assert (told["trajectories"], told["updates"], told["versions_published"]) == (100, 3, 3)
    assert (told["policy_lag_mean"], told["policy_lag_max"]) == (0.0, 0)
    assert told["trajectories_per_minute"] == 100
    assert told["digests"] == {"adapter": "ab" * 32, "buffer": "cd" * 32}


def test_a_report_shows_nothing_of_what_steps_have_read_and_written(tmp_path: Path) -> None:
    whole = data()
    slim = data(
        trajectories=[replace(each, trajectory=lean(each.trajectory)) for each in whole.trajectories],
        evaluations=[replace(each, trajectory=lean(each.trajectory)) for each in whole.evaluations],
    )
    for each, folder in ((whole, "whole"), (slim, "slim")):
        write_report(each, tmp_path / folder)
    names = sorted(path.relative_to(tmp_path / "whole") for path in (tmp_path / "whole").rglob("*") if path.is_file())
    assert [(tmp_path / "whole" / name).read_bytes() for name in names] == [
        (tmp_path / "slim" / name).read_bytes() for name in names
    ]


def test_a_version_that_is_still_played_is_no_point_of_the_curve(tmp_path: Path) -> None:
    """The demo's clock stops the evaluator in the middle, when the tasks that end soon have ended: mostly successes."""
    tasks = [task(f"v-{n}", split=Split.VALIDATION) for n in range(24)]
    won = [trajectory(each, Outcome.SUCCESS if n < 6 else Outcome.FAILURE) for n, each in enumerate(tasks)]
    page = write_report(
        data(evaluations=[*(evaluation(0, each) for each in won), *(evaluation(1, each) for each in won[:6])]), tmp_path
    )
    points = json.loads((tmp_path / "report.json").read_text())["success_curve"]
    assert [(point["success"], point["unfinished"]) for point in points] == [(0.25, False), (1.0, True)]
    assert "Left out is version 1, whose evaluation was still going on" in page.read_text()


def test_validation_of_another_suite_is_counted_and_interrupted_trajectories_apart(tmp_path: Path) -> None:
    home = [trajectory(task(f"v-{n}", split=Split.VALIDATION)) for n in range(3)]
    own = [trajectory(replace(task(f"o-{n}", split=Split.VALIDATION), suite="own")) for n in range(2)]
    acted = [trajectory(task(f"t-{n}", split=Split.TRAIN), Outcome.INTERRUPTED) for n in range(4)]
    acted.append(trajectory(task("t-9", split=Split.TRAIN)))
    page = write_report(
        data(evaluations=[evaluation(0, each) for each in (*home, *own)], trajectories=logged(acted)), tmp_path
    )
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["trajectories"], report["interrupted"], report["trajectories_per_minute"]) == (1, 4, 1.0)
    assert "2 evaluations of other suites are left out." in page.read_text()


def test_held_out_tasks_that_training_had_are_counted_and_reported(tmp_path: Path) -> None:
    held = [trajectory(task(f"h-{n}", instruction=said)) for n, said in enumerate(("Turn  it ON", "turn it off"))]
    asked = logged([trajectory(task("t-0", split=Split.TRAIN, instruction="turn it on"))])
    page = write_report(data(trajectories=asked, evaluations=[evaluation(2, each) for each in held]), tmp_path)
    assert json.loads((tmp_path / "report.json").read_text())["held_out_in_training"] == 1
    assert "1 of 2 held-out instructions are ones that training had." in page.read_text()


def test_held_out_tasks_are_counted_of_those_that_are_compared(tmp_path: Path) -> None:
    """Version 0 has played one of the two that version 2 has."""
    held = [trajectory(task(f"h-{n}", instruction=said)) for n, said in enumerate(("turn it on", "turn it off"))]
    asked = logged([trajectory(task("t-0", split=Split.TRAIN, instruction="turn it on"))])
    played = [evaluation(0, held[0]), *(evaluation(2, each) for each in held)]
    page = write_report(data(trajectories=asked, evaluations=played), tmp_path)
    assert "1 of 1 held-out instructions are ones that training had." in page.read_text()


def test_a_held_out_instruction_that_is_played_again_is_counted_once(tmp_path: Path) -> None:
    """A short list begins again after its end, on other phones."""
    held = [trajectory(task(f"h-{n}", instruction=said)) for n, said in enumerate(("go on", "go home", "Go on"))]
    asked = logged([trajectory(task("t-0", split=Split.TRAIN, instruction="go on"))])
    page = write_report(data(trajectories=asked, evaluations=[evaluation(2, each) for each in held]), tmp_path)
    assert json.loads((tmp_path / "report.json").read_text())["held_out_in_training"] == 1
    assert "1 of 2 held-out instructions" in page.read_text()


def test_a_task_without_a_success_in_many_attempts_is_reported_in_both_files_as_plain_text(tmp_path: Path) -> None:
    """A held-out row that every version failed, some records of it delivered twice; and a row that was done once."""
    dead = [
        replace(task(f"mine-test-{n}", instruction=HOSTILE), suite="mine", family="open", setup=HOSTILE)
        for n in range(4)
    ]
    failed = [evaluation(number, trajectory(each, Outcome.FAILURE)) for number in range(5) for each in dead]
    alive = [replace(task(f"mine-train-{n}", split=Split.TRAIN, instruction="go on"), suite="mine") for n in range(30)]
    acted = [trajectory(each, Outcome.FAILURE if n else Outcome.SUCCESS) for n, each in enumerate(alive)]
    page = write_report(data(trajectories=logged(acted), evaluations=[*failed, *failed]), tmp_path)
    assert json.loads((tmp_path / "report.json").read_text())["no_success"] == [
        {"suite": "mine", "family": "open", "split": "test", "instruction": HOSTILE, "attempts": 20}
    ]
    text = page.read_text()
    assert "Tasks without a success" in text
    assert f"<td>{escape(HOSTILE)}</td><td>mine</td><td>open</td><td>test</td><td>20</td>" in text
    assert HOSTILE not in text


def test_a_held_out_task_that_was_demonstrated_is_counted_too(tmp_path: Path) -> None:
    held = [evaluation(2, trajectory(task(f"h-{n}", instruction=said))) for n, said in enumerate(("Go home", "go on"))]
    write_report(data(trajectories=(), demonstrated={"go  home"}, evaluations=held), tmp_path)
    assert json.loads((tmp_path / "report.json").read_text())["held_out_in_training"] == 1


def test_evaluations_of_another_suite_are_not_compared_and_reported(tmp_path: Path) -> None:
    home, own = trajectory(task("h-0"), Outcome.FAILURE), trajectory(replace(task("o-0"), suite="own"))
    page = write_report(data(evaluations=[evaluation(0, home), evaluation(2, home), evaluation(2, own)]), tmp_path)
    assert json.loads((tmp_path / "report.json").read_text())["success_after"] == 0.0
    assert "1 evaluations of other suites are left out." in page.read_text()


def test_versions_are_compared_on_the_tasks_that_both_have_played(tmp_path: Path) -> None:
    """The last version's evaluation is still going on: of four tasks it has played the one that was done before."""
    outcomes = (Outcome.SUCCESS, Outcome.FAILURE, Outcome.FAILURE, Outcome.FAILURE)
    first = [trajectory(task(f"h-{n}"), outcome) for n, outcome in enumerate(outcomes)]
    held = [*(evaluation(0, each) for each in first), evaluation(2, first[0])]
    page = write_report(data(evaluations=held), tmp_path).read_text()
    found = json.loads((tmp_path / "report.json").read_text())
    assert (found["success_before"], found["success_after"]) == (1.0, 1.0)
    assert "of 1 tasks that both have played" in page
    page = write_report(data(evaluations=[*held[:1], evaluation(2, first[1])]), tmp_path).read_text()
    assert "nothing held out was compared yet" in page


def test_success_without_a_known_outcome_is_not_zero(tmp_path: Path) -> None:
    held = [evaluation(number, trajectory(task("h-0"), Outcome.UNKNOWN)) for number in (0, 2)]
    page = write_report(data(evaluations=held), tmp_path).read_text()
    assert "Held-out success went from <b>-</b> (version 0) to <b>-</b> (version 2)" in page
    assert "<div><b>- <small>-</small></b><span>success after</span></div>" in page


def test_conditions_that_failed_are_counted_with_links_to_pages_of_some_attempts(tmp_path: Path) -> None:
    """Of one condition of 60 tasks and of 40 with one each: two pages for the first, and no more than the bound."""
    often = Unmet("clock.alarms", "equals", "[1]", HOSTILE)
    lost = trajectory(task("h"), Outcome.FAILURE, [2, 2])
    held = [
        replace(lost, task=task(f"h-{n}", HOSTILE, instruction=HOSTILE), unmet=(often, *rare))
        for n in range(60)
        for rare in [(Unmet(f"{HOSTILE}{n}", "equals", "1", "2"),) if n < 40 else ()]
    ]
    at = {(2, each.task_id): LogPosition("distrl.test.evaluations", 0, n) for n, each in enumerate(held)}
    page = page_of(tmp_path, evaluations=[evaluation(2, each) for each in held], evaluated_at=at)
    links = [source for source in page.sources if source.startswith("episodes/")]
    files = sorted(f"episodes/{file.name}" for file in (tmp_path / "episodes").iterdir())
    assert sorted(set(links)) == files
    assert len(files) == PAGES
    assert "60 of 60" in page.text
    strip = (tmp_path / files[0]).read_text(encoding="utf-8")
    assert "<script" not in strip
    assert HOSTILE not in strip
    told = json.loads((tmp_path / "report.json").read_text())["failed_conditions"]
    assert (told[0]["condition"], told[0]["attempts"], len(told)) == ("clock.alarms equals", 60, 41)


def test_an_attempt_whose_place_is_unknown_gets_no_page(tmp_path: Path) -> None:
    write_report(data(), tmp_path)
    assert not (tmp_path / "episodes").exists()


class Page(HTMLParser):
    """Notes every tag, and every attribute that could load or run something."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.handlers: list[str] = []
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href")]
        self.handlers += [name for name, _ in attrs if name.startswith("on")]

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def page_of(directory: Path, **changes: object) -> Page:
    page = Page()
    page.feed(write_report(data(**changes), directory).read_text(encoding="utf-8"))
    return page


def test_the_page_fetches_nothing_and_runs_nothing_that_a_record_wrote(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    assert "script" not in page.tags
    assert page.handlers == []
    assert all(source.startswith(("data:image/png;base64,", "#")) for source in page.sources)
    text = " ".join(page.text)
    assert HOSTILE in text
    assert "<script>alert(1)</script>" in text


def test_two_film_strips_show_a_task_that_failed_before_and_was_solved_after(tmp_path: Path) -> None:
    page = page_of(tmp_path)
    headings = [text for text in page.text if re.fullmatch(r"version \d: \w+", text)]
    assert headings == ["version 0: failure", "version 2: success"]
    assert page.tags.count("img") == 8  # three steps and the last screen, twice
    assert page.tags.count("svg") == 6


def test_equal_runs_give_equal_bytes(tmp_path: Path) -> None:
    first, second = write_report(data(), tmp_path / "a"), write_report(data(), tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()


def test_a_run_without_anything_has_a_report_that_says_so(tmp_path: Path) -> None:
    page = page_of(tmp_path, trajectories=[], versions=[], updates=[], evaluations=[], train_seconds=0.0, digests={})
    told = json.loads((tmp_path / "report.json").read_text())
    assert (told["success_before"], told["success_curve"], told["trajectories_per_minute"]) == (None, [], 0.0)
    assert "No held-out evaluation yet." in page.text


def test_a_version_of_which_no_outcome_is_known_has_no_success_and_no_point_on_the_curve(tmp_path: Path) -> None:
    def validated(outcome: Outcome) -> list[Evaluation]:
        return [
            evaluation(
                number, trajectory(task(f"v-{n}", split=Split.VALIDATION), outcome if number else Outcome.SUCCESS)
            )
            for number in (0, 1)
            for n in range(4)
        ]

    page_of(tmp_path, evaluations=validated(Outcome.INTERRUPTED))
    report = json.loads((tmp_path / "report.json").read_text())
    assert [(point["success"], point["episodes"]) for point in report["success_curve"]] == [(1.0, 4), (None, 0)]
    known, unknown = CurvePoint(0, 0, 0.0, SuccessRate(4, 2)), CurvePoint(1, 40, 9.0, SuccessRate(0, 0, 4))
    drawn = [figures.curve(points, lambda point: point.seconds, "s") for points in ([known, unknown], [known])]
    assert drawn[0] == drawn[1]


def test_a_screen_that_is_gone_leaves_a_gap_and_not_a_broken_report(tmp_path: Path) -> None:
    def gone(ref: ObjectRef) -> bytes:
        return b"\x89PNG\r\n\x1a\n garbage"

    page = page_of(tmp_path, read=gone)
    assert page.tags.count("img") == 0
    assert page.text.count("no screen") == 8
