"""The reports of ablations and experiments: what a page gets of them, and that a bad file is said and shows nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from distrl.errors import WireError
from distrl.experiment.report import to_dict
from distrl.offline.ablation.report import to_json
from distrl.view import reports
from distrl.view.app import application
from distrl.view.in_process import InProcess
from distrl.view.report_form import MOST_LINES, MOST_POINTS, ReportForm, curve
from distrl.view.reports import Reports, read
from distrl.view.runs import Runs
from experiment.test_learned_report import planted
from hypothesis import given
from hypothesis import strategies as st
from offline.ablation.test_report import DEFAULTS, LONG, OTHER, WHOLE

from view.reporting import ABLATION, BROKEN, EXPERIMENT, HALF, write_reports

WHOLE_FILE = to_json(WHOLE).encode()


def table(found: Any, title: str) -> list[dict[str, Any]]:
    (wanted,) = (each for each in found["tables"] if each["title"] == title)
    return [dict(zip(wanted["columns"], row, strict=True)) for row in wanted["rows"]]


def asked(folders: list[Path], path: str) -> tuple[int, Any]:
    with Runs(list, lambda name: pytest.fail(name)) as runs:
        app = application(runs, lambda: True, Reports(folders))
        with InProcess(app) as asking:
            reply = asking.get(f"/api/{path}")
    return reply.status, json.loads(reply.body)


def shown(folder: Path, name: str) -> Any:
    folders = write_reports(folder)
    (row,) = (each for each in asked(folders, "reports")[1]["reports"] if each["name"] == name)
    status, found = asked(folders, f"reports/{row['id']}")
    assert status == 200
    return found


def test_an_ablation_has_its_intervals_and_verdicts(tmp_path: Path) -> None:
    found = shown(tmp_path, ABLATION)
    baseline, arm = table(found, "What each arm's last policy is worth")
    written = json.loads(WHOLE_FILE)["arms"][1]["evaluation"]
    assert (baseline["arm"], baseline["to baseline"], baseline["verdict"]) == ("baseline", None, None)
    assert arm["arm"] == LONG
    assert arm["success"] == [written["success"], *written["wilson_interval"]]
    assert arm["to baseline"] == [written["to_baseline"]["difference"], *written["to_baseline"]["newcombe_interval"]]
    assert (arm["verdict"], arm["value (held out)"]) == ("better", "noise")
    assert baseline["value (held out)"] == [0.412, 0.351, 0.474]
    (loss,) = (each for each in found["curves"] if each["name"] == "policy_loss")
    assert (loss["x"], loss["at"]) == ("update", [0, 1, 2])
    assert [line["values"] for line in loss["lines"]] == [[-0.0123] * 3] * 2
    assert found["settings"] == json.loads(WHOLE_FILE)["settings"]
    assert found["complete"] is True


def test_an_ablation_says_what_an_arm_of_another_algorithm_does_not_share_with_the_run(tmp_path: Path) -> None:
    (file := tmp_path / "report.json").write_text(to_json(OTHER))
    assert DEFAULTS in read(file).notes


def test_an_experiment_has_its_comparisons_and_its_command(tmp_path: Path) -> None:
    found = shown(tmp_path, EXPERIMENT)
    report = planted("learning-curves", (0.4, 0.7, 0.4))
    rows = table(found, "Arms against each other")
    assert [(row["arm"], row["against"], row["verdict"]) for row in rows] == [
        (each.arm, each.other, each.verdict) for each in report.comparisons
    ]
    apart = report.comparisons[0].difference
    assert rows[0]["difference"] == [apart.mean, apart.low, apart.high]
    assert dict(map(tuple, found["facts"]))["Command"] == report.command
    arms = table(found, "Every arm")
    assert [row["arm"] for row in arms] == [each.arm.name for each in report.arms]
    best = report.reached(report.arms[1])
    assert best is not None
    near = [row["hours to 80 % of the best"] for row in arms]
    assert near[0] == "not reached", "0.4 is less than 80 % of 0.7"
    assert near[1] == [second / 3600 for second in (best.at_s, best.low_s, best.high_s)]


def test_files_that_are_no_report_are_said_and_show_nothing_of_themselves(tmp_path: Path) -> None:
    folders = write_reports(tmp_path)
    status, found = asked(folders, "reports")
    assert status == 200
    rows = {row["name"]: row for row in found["reports"]}
    assert set(rows) == {ABLATION, EXPERIMENT, BROKEN, HALF}
    for name in (BROKEN, HALF):
        assert "no report that can be shown" in rows[name]["problem"]["error"]
        status, refused = asked(folders, f"reports/{rows[name]['id']}")
        assert (status, refused["error"]) == (422, rows[name]["problem"]["error"])
        assert "another program" not in json.dumps([rows[name], refused])


@given(st.integers(0, len(WHOLE_FILE) - 3))
def test_no_beginning_of_a_report_is_a_report(tmp_path_factory: pytest.TempPathFactory, size: int) -> None:
    path = tmp_path_factory.mktemp("cut") / "report.json"
    path.write_bytes(WHOLE_FILE[:size])
    with pytest.raises(WireError):
        read(path)


@pytest.mark.parametrize("content", [b"", b"\xff", b"[" * 100_000, b'{"a": NaN}', b"null", b'{"format": 1e999}'])
def test_any_other_bytes_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "report.json"
    for each in (content, b'{"baseline_is_the_run": ' + content):
        path.write_bytes(each)
        with pytest.raises(WireError):
            read(path)


def deep(levels: int) -> str:
    return "[" * levels + "]" * levels


@pytest.mark.parametrize("levels", [600, 100_000])
def test_settings_of_any_depth_are_shown_or_refused(tmp_path: Path, levels: int) -> None:
    ablation, experiment = to_json(WHOLE), json.dumps(to_dict(planted("components", (0.5, 0.5, 0.5))))
    for name, text, inside in (("a", ablation, '\n "settings": {'), ("b", experiment, '"costs": {')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.json").write_text(text.replace(inside, f'{inside}"deep": {deep(levels)},', 1))
    _, found = asked([tmp_path], "reports")
    assert len(found["reports"]) == 2
    with (
        Runs(list, lambda name: pytest.fail(name)) as runs,
        InProcess(application(runs, lambda: True, Reports([tmp_path]))) as asking,
    ):
        replies = [asking.get(f"/api/reports/{row['id']}") for row in found["reports"]]
    for row, reply in zip(found["reports"], replies, strict=True):
        assert reply.status == (200 if row["problem"] is None else 422)
        assert (deep(levels).encode() in reply.body) == (levels == 600) == (row["problem"] is None)


def test_what_is_shown_as_it_is_must_be_text(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(WHOLE_FILE.replace(b'"settings": {', b'"settings": {"odd": "\xff",', 1))
    with pytest.raises(WireError, match="utf-8"):
        read(path)


def test_a_report_is_read_again_only_once_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_reports(tmp_path)
    read_files: list[Path] = []

    def spied(path: Path) -> ReportForm:
        read_files.append(path)
        return read(path)

    monkeypatch.setattr(reports, "read", spied)
    listing = Reports([tmp_path])
    first = listing.all()
    assert (len(read_files), listing.all()) == (4, first)
    assert len(read_files) == 4
    changed = tmp_path / HALF / "report.json"
    changed.write_bytes(WHOLE_FILE)
    (problem,) = (row["problem"] for row in listing.all() if row["name"].endswith(HALF))
    assert (problem, read_files[4:]) == (None, [changed])
    changed.unlink()
    assert len(listing.all()) == 3


def test_an_ablation_of_another_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(json.dumps(json.loads(WHOLE_FILE) | {"format": 2}))
    with pytest.raises(WireError, match="another version"):
        read(path)


def test_only_reports_of_the_folders_are_reached(tmp_path: Path) -> None:
    folders = write_reports(tmp_path)
    (tmp_path / "report.json").write_bytes(WHOLE_FILE)
    for path in ("reports/..", "reports/%2e%2e%2freport.json", "reports/0123456789abcdef", "reports/"):
        status, found = asked(folders, path)
        assert (status, bool(found["error"])) == (404, True)


def test_a_pipe_and_a_name_that_is_no_text_do_no_harm(tmp_path: Path) -> None:
    folders = write_reports(tmp_path)
    (folders[0] / "pipe").mkdir()
    os.mkfifo(folders[0] / "pipe" / "report.json")
    odd = Path(os.fsdecode(os.fsencode(folders[0]) + b"/odd\xff"))
    odd.mkdir()
    (odd / "report.json").write_text("{}")
    status, found = asked(folders, "reports")
    assert (status, len(found["reports"])) == (200, 5)
    assert any("odd\ufffd" in row["name"] for row in found["reports"])


def test_a_folder_that_is_not_there_has_no_report(tmp_path: Path) -> None:
    assert asked([tmp_path / "none"], "reports") == (200, {"reports": []})


@given(st.lists(st.lists(st.tuples(st.integers(0, 3000), st.floats(0, 1)), max_size=40), max_size=4))
def test_lines_of_a_curve_have_a_value_for_each_x(lines: list[list[tuple[int, float]]]) -> None:
    points = [(str(number), sorted(dict(line).items())) for number, line in enumerate(lines)]
    made = curve("c", "update", points)
    if made is None:
        assert not any(lines)
        return
    for line, (_, given_points) in zip(made.lines, points, strict=True):
        assert [(x, y) for x, y in zip(made.at, line["values"], strict=True) if y is not None] == given_points


def test_a_curve_is_bounded_and_keeps_its_ends() -> None:
    made = curve("c", "update", [(str(arm), [(x, 0.5) for x in range(10_000)]) for arm in range(MOST_LINES + 5)])
    assert made is not None
    assert len(made.lines) == MOST_LINES
    assert len(made.at) <= MOST_POINTS
    assert made.at[-1] == 9_999


def test_the_forms_follow_what_the_commands_write(tmp_path: Path) -> None:
    """A field that a command no longer writes would make every report unreadable."""
    for content in (to_json(WHOLE), json.dumps(to_dict(planted("components", (0.5, 0.5, 0.5))))):
        (tmp_path / "report.json").write_text(content)
        assert read(tmp_path / "report.json").arms > 1
