"""The report of arms that learn, from cells whose outcomes are planted."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distrl.errors import ConfigError
from distrl.evaluate.failures import Mode
from distrl.experiment.catalogue import EXPERIMENTS
from distrl.experiment.cells import FOLDER, as_json
from distrl.experiment.figure import draw, figure_of
from distrl.experiment.figure_learned import learned as learned_figure
from distrl.experiment.held_out import held_out_of
from distrl.experiment.measure import CurvePoint, learned
from distrl.experiment.page import html_page
from distrl.experiment.plan import Cell, Experiment, Preset
from distrl.experiment.report import Report, report_of, to_csv, to_dict
from distrl.experiment.run import FILES, run_experiment

SEEDS = (0, 1, 2)
TASKS, FAMILIES = 96, 6
PACED = dict.fromkeys(("trajectories", "per_hour", "bound_per_hour", "mean_lag", "max_lag"), 1.0)


def cell(done: Sequence[bool], plays: Sequence[str] = ()) -> Mapping[str, Any]:
    """The result of a cell whose last version did these held-out tasks, and as many of what else it played."""
    ends = ["success" if each else Mode.STUCK.value for each in done]
    curve = [CurvePoint(at, int(at), share) for at, share in ((0.0, 0.3), (1800.0, 0.4), (3600.0, sum(done) / TASKS))]
    return {
        "figures": {
            **PACED,
            **learned(curve, 0.3, sum(done) / TASKS, ends),
            **dict.fromkeys(plays, sum(done) / TASKS),
        },
        "collected": [],
        "curve": [[each.at, each.trajectories, each.success] for each in curve],
        "episodes": [[f"task-{place}", f"family-{place % FAMILIES}", end] for place, end in enumerate(ends)],
    }


def planted(
    name: str, chances: Sequence[float], draw_of: int = 3, seeds: tuple[int, ...] = SEEDS, preset: Preset = "quick",
    only: Sequence[str] = (),
) -> Report:  # fmt: skip
    """A report in which every arm does each task with its chance, each seed by its own luck."""
    rng = np.random.default_rng(draw_of)
    experiment = EXPERIMENTS[name]
    cells = experiment.cells(preset, seeds, only=only)
    plays = [play.name for play in cells[0].arm.plays]
    found = [cell((rng.random(TASKS) < chance).tolist(), plays) for chance in chances for _ in seeds]
    return report_of(experiment, preset, seeds, cells, [dict(each) for each in found])


def test_three_points_inside_the_noise_are_undecided_and_thirty_are_not() -> None:
    found = {(each.arm, each.other): each for each in planted("learning-curves", (0.53, 0.50, 0.20)).comparisons}
    assert len(found) == 3
    near = found["a-ride/async", "digirl/async"]
    assert near.verdict == "undecided"
    assert near.improvement is not None
    assert near.improvement.low < 0.5 < near.improvement.high
    far = found["a-ride/async", "digirl/sync"]
    assert far.verdict == "better"
    assert far.improvement is not None
    assert far.improvement.low > 0.5
    assert far.improvement.value > 0.9


def test_fleets_of_one_size_are_drawn_as_those_of_several_where_the_experiment_has_several() -> None:
    some = ("8 phones/async lag 32", "8 phones/sync")
    (axes,) = figure_of(planted("scaling", (0.5, 0.5), only=some)).axes
    assert (axes.get_title(loc="left") or axes.get_title(), axes.get_xscale()) == ("trajectories by the hour", "log")


def test_three_points_are_seldom_called_a_difference() -> None:
    """Of 100 experiments; that some are called one is the 5 % that the intervals allow for."""
    wrong = sum(
        planted("learning-curves", (0.53, 0.50, 0.50), seed).comparisons[0].verdict != "undecided"
        for seed in range(100)
    )
    assert wrong <= 8


def test_seeds_that_agree_by_chance_decide_nothing_that_the_tasks_do_not() -> None:
    """Each seed does 48 and 49 of 96 tasks: without the tasks, there would be no noise at all."""
    experiment = EXPERIMENTS["components"]
    cells = experiment.cells("quick", SEEDS)
    counts = (49, 48, 20)
    rng = np.random.default_rng(1)
    results = [dict(cell((rng.permutation(TASKS) < count).tolist())) for count in counts for _ in SEEDS]
    near, far = report_of(experiment, "quick", SEEDS, cells, results).comparisons
    assert near.difference.verdict == "worse"
    assert (near.arm, near.verdict) == ("no DPER", "undecided")
    assert (far.arm, far.verdict) == ("no Retrace", "worse")


@pytest.mark.parametrize("preset", ["quick", "full"])
@pytest.mark.parametrize("name", [name for name, each in EXPERIMENTS.items() if each.compared == "success_last"])
def test_every_learning_experiment_has_its_files(name: str, preset: Preset) -> None:
    experiment: Experiment = EXPERIMENTS[name]
    arms = len(experiment.arms(preset))
    chances = [0.3 + 0.4 * place / arms for place in range(arms)]
    report = planted(name, chances, preset=preset)
    content = json.loads(json.dumps(to_dict(report), allow_nan=False))
    assert [each["name"] for each in content["arms"]] == [arm.name for arm in experiment.arms(preset)]
    for each in content["arms"]:
        held_out = each["held_out"]
        assert held_out["interquartile_mean"]["low"] <= held_out["interquartile_mean"]["value"]
        assert [len(seed) for seed in held_out["families"]] == [FAMILIES] * len(SEEDS)
        assert 0 < held_out["flipped"] < 1
    assert len(to_csv(report).splitlines()) == 1 + len(chances) * len(SEEDS)
    png = draw(report)
    assert png == draw(report)
    page = html_page(report, png)
    assert ("probability of improvement" in page) == (len(chances) > 1)
    assert all(arm["name"] in page for arm in content["arms"])


@pytest.mark.parametrize(("name", "preset"), [("dper-weights", "full"), ("failure-modes", "quick")])
def test_each_arm_of_a_figure_has_a_look_of_its_own_and_is_named_where_nothing_covers_the_name(
    name: str, preset: Preset
) -> None:
    """As 20 arms, of which there are more than colours."""
    names = [arm.name for arm in EXPERIMENTS[name].arms(preset)]
    figure = learned_figure(planted(name, [0.5] * len(names), preset=preset))
    figure.draw_without_rendering()  # places what it consists of
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == names
    assert len({(line.get_color(), line.get_linestyle()) for line in legend.get_lines()}) == len(names)
    below = legend.get_window_extent()
    assert figure.bbox.x0 <= below.x0 < below.x1 <= figure.bbox.x1
    assert not any(below.overlaps(axes.get_tightbbox()) for axes in figure.axes)
    rows = [text.get_window_extent() for text in figure.axes[2].get_yticklabels()]
    assert len(rows) == len(names)
    assert not any(one.overlaps(other) for one, other in pairwise(rows))


def test_methods_are_compared_with_a_ride_on_their_own_suite() -> None:
    """Three points of a method inside the noise are undecided here, too; thirty are not."""
    chances = {"general/a-ride/async": 0.55, "general/grpo": 0.52, "general/base model": 0.2}
    names = [arm.name for arm in EXPERIMENTS["methods"].arms("quick")]
    report = planted("methods", [chances.get(name, 0.5) for name in names])
    assert {(each.arm.split("/")[0], each.other) for each in report.comparisons} == {
        ("general", "general/a-ride/async"), ("webshop", "webshop/a-ride/async"),
    }  # fmt: skip
    verdicts = {each.arm: each.verdict for each in report.comparisons}
    assert (verdicts["general/grpo"], verdicts["general/base model"]) == ("undecided", "worse")


def test_an_arm_of_which_a_seed_has_no_figure_is_compared_by_the_seeds_that_both_have() -> None:
    """As of a synchronous fleet whose first round the end of the run has cut."""
    experiment = EXPERIMENTS["collection"]
    cells = experiment.cells("quick", SEEDS)
    lacking = {("plain/sync", 1), *(("heavy/sync", seed) for seed in SEEDS)}

    def rate(each: Cell) -> float | None:
        if (each.arm.name, each.seed) in lacking:
            return None
        return 10.0 * (each.seed + 1) * (1 if each.arm.synchronous else 2)

    results = [{"figures": {"per_hour": rate(each)}, "collected": [], "curve": [], "episodes": []} for each in cells]
    found = {each.arm: each for each in report_of(experiment, "quick", SEEDS, cells, results).comparisons}
    assert not any(arm.startswith("heavy/") for arm in found)
    ratio = next(each.ratio for arm, each in found.items() if arm.startswith("plain/"))
    assert ratio is not None
    assert (ratio.seeds, ratio.mean) == (2, 2.0)


def test_seeds_that_played_other_tasks_are_refused() -> None:
    one, other = cell([True] * TASKS), cell([True] * (TASKS - 1))
    with pytest.raises(ValueError, match="other tasks"):
        held_out_of([one, other])


@pytest.mark.parametrize("others", [{0}, {3, 4, 5}])
def test_cells_that_have_played_other_tasks_are_refused_before_they_are_compared(
    others: set[int], tmp_path: Path
) -> None:
    """others: of one seed, and of an arm under every seed, as other code may have made them."""
    experiment = EXPERIMENTS["learning-curves"]
    cells = experiment.cells("quick", SEEDS)
    results = [cell([True] * TASKS) for _ in cells]
    persist(cells, results, tmp_path)
    run_experiment(experiment, "quick", SEEDS, tmp_path)
    (tmp_path / FILES[0]).unlink()
    for place in others:
        episodes = [[f"other-{task}", *ended] for task, *ended in results[place]["episodes"]]
        results[place] = {**results[place], "episodes": episodes}
    persist(cells, results, tmp_path)
    with pytest.raises(ConfigError, match=r"have played other held-out tasks(?s:.)*name another --out") as refused:
        run_experiment(experiment, "quick", SEEDS, tmp_path)
    assert refused.value.where == str(tmp_path)
    assert "a-ride/async" in refused.value.what
    assert not (tmp_path / FILES[0]).exists()


def persist(cells: Sequence[Cell], results: Sequence[Mapping[str, Any]], out: Path) -> None:
    """As `distrl.experiment.cells` does."""
    (out / FOLDER).mkdir(exist_ok=True)
    for each, result in zip(cells, results, strict=True):
        content = {"fingerprint": each.fingerprint, "result": result}
        (out / FOLDER / each.file).write_bytes(as_json(content))


def test_scores_are_the_shares_of_families() -> None:
    done = [place % FAMILIES == 1 for place in range(TASKS)]
    found = held_out_of([cell(done), cell([False] * TASKS)])
    assert found is not None
    assert found.scores.tolist() == [[0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0]]
    assert found.flipped == 1 / 6


def test_some_arms_are_compared_with_the_first_of_all_and_with_none_where_it_was_left_out() -> None:
    def pairs(only: Sequence[str]) -> list[tuple[str, str]]:
        found = planted("methods", [0.5] * len(only), only=only)
        assert [each.arm.name for each in found.arms] == sorted(only, key=names.index), "in the experiment's order"
        return [(each.arm, each.other) for each in found.comparisons]

    names = [arm.name for arm in EXPERIMENTS["methods"].arms("quick")]
    assert pairs(["general/grpo", "general/a-ride/async"]) == [("general/grpo", "general/a-ride/async")]
    assert pairs(["general/grpo", "general/cloning"]) == []
    assert pairs(["webshop/grpo", "general/cloning", "general/a-ride/async"]) == [
        ("general/cloning", "general/a-ride/async")
    ]


@pytest.mark.parametrize("name", [each.name for each in EXPERIMENTS.values() if each.arms("quick")[0].learns])
def test_an_arm_alone_has_its_page_its_figure_and_the_command_that_makes_it(name: str) -> None:
    last = EXPERIMENTS[name].arms("quick")[-1].name
    alone = planted(name, [0.5], only=[last])
    assert alone.comparisons == []
    assert last in html_page(alone, draw(alone))
    words = shlex.split(alone.command)
    assert words[:3] == ["distrl", "experiment", name]
    of_many = len(EXPERIMENTS[name].arms("quick")) > 1
    assert words[7:] == (["--arm", last] if of_many else []), "of all arms, the command names none"
