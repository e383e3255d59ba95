"""report.json of `distrl experiment` (distrl/experiment/report.py) as a page shows it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from distrl.view.report_form import Cell, Curve, Interval, Points, ReportForm, Table, curve

HOUR_S: Final = 3600.0


class Mean(msgspec.Struct):
    """Over the seeds, or over draws of their tasks. Bounds are null where one seed gives none."""

    mean: float | None
    low: float | None
    high: float | None


class Estimate(msgspec.Struct):
    value: float | None
    low: float | None
    high: float | None


class HeldOut(msgspec.Struct):
    interquartile_mean: Estimate
    flipped: float | None


class Reached(msgspec.Struct):
    """When the arm is at a share of the best success, in virtual seconds; null where it never is."""

    at_s: float | None
    low_s: float | None
    high_s: float | None


class Arm(msgspec.Struct):
    name: str
    phones: int
    settings: list[str]
    costs: dict[str, msgspec.Raw]
    figures: dict[str, Mean | None]
    collected: list[list[tuple[float, float]]] = []
    """Of each seed: [virtual seconds, trajectories until then]."""
    curve: list[list[tuple[float, float, float | None]]] = []
    """Of each seed: [virtual seconds, trajectories until then, success]; earlier reports have none."""
    held_out: HeldOut | None = None
    reached: Reached | None = None
    """Earlier reports have none."""


class Comparison(msgspec.Struct):
    arm: str
    other: str
    figure: str
    ratio: Mean | None
    difference: Mean
    difference_over_tasks: Mean | None
    probability_of_improvement: Estimate | None
    verdict: str


class Experiment(msgspec.Struct):
    """The parts of the file that are shown."""

    command: str
    title: str
    about: str
    virtual_seconds: float
    seeds: list[int]
    arms: list[Arm]
    comparisons: list[Comparison]


def experiment_form(content: bytes) -> ReportForm:
    """Raises msgspec.DecodeError for what is no such report."""
    found = msgspec.json.decode(content, type=Experiment)
    return ReportForm(
        kind="experiment",
        title=found.title,
        about=found.about,
        complete=True,  # it is written once, when all cells are there
        arms=len(found.arms),
        notes=[],
        facts=[
            ("Command", found.command),
            ("Virtual time", f"{found.virtual_seconds / HOUR_S:.2f} hours"),
            ("Seeds", ", ".join(map(str, found.seeds))),
        ],
        tables=[*([_compared(found)] if found.comparisons else []), _arms(found)],
        curves=_curves(found.arms),
        settings={arm.name: {"settings": arm.settings, "costs": arm.costs} for arm in found.arms},
    )


def _compared(found: Experiment) -> Table:
    rows: list[list[Cell]] = [
        [
            each.arm,
            each.other,
            each.verdict,
            each.figure,
            _mean(each.difference),
            _mean(each.difference_over_tasks),
            _mean(each.ratio),
            _estimate(each.probability_of_improvement),
        ]
        for each in found.comparisons
    ]
    return Table(
        "Arms against each other",
        ["arm", "against", "verdict", "by", "difference", "over tasks", "ratio", "probability of improvement"],
        rows,
        "Means over the seeds with 95 % intervals. A verdict is undecided unless all intervals of the difference leave "
        "out 0 on the same side.",
    )


def _arms(found: Experiment) -> Table:
    names = list(dict.fromkeys(name for arm in found.arms for name in arm.figures))
    rows: list[list[Cell]] = []
    for arm in found.arms:
        held_out = arm.held_out
        learned: list[Cell] = [None, None, None]
        if held_out is not None:
            learned = [_reached(arm.reached), _estimate(held_out.interquartile_mean), held_out.flipped]
        rows.append([arm.name, arm.phones, *(_mean(arm.figures.get(name)) for name in names), *learned])
    head = ["arm", "phones", *names, "hours to 80 % of the best", "interquartile mean", "tasks that flip"]
    return Table("Every arm", head, rows)


def _curves(arms: Sequence[Arm]) -> list[Curve]:
    made = [
        curve("trajectories", "virtual seconds", [(arm.name, _over_seeds(arm.collected)) for arm in arms]),
        curve("success", "virtual seconds", [(arm.name, _over_seeds(_column(arm, 0))) for arm in arms]),
        curve("success by trajectories", "trajectories", [(arm.name, _over_seeds(_column(arm, 1))) for arm in arms]),
    ]
    return [each for each in made if each is not None]


def _column(arm: Arm, column: int) -> list[list[tuple[float, float]]]:
    """Of every seed (the column, success), without points where success is not known. column: 0 or 1."""
    return [
        [((at, trajectories)[column], success) for at, trajectories, success in seed if success is not None]
        for seed in arm.curve
    ]


def _over_seeds(seeds: Sequence[Sequence[tuple[float, float]]]) -> Points:
    """The mean over the seeds of each of their points, as far as all of them have it."""
    return [
        (sum(x for x, _ in points) / len(points), sum(y for _, y in points) / len(points))
        for points in zip(*seeds, strict=False)
    ]


def _mean(found: Mean | None) -> Interval | None:
    return None if found is None else (found.mean, found.low, found.high)


def _reached(found: Reached | None) -> Cell:
    if found is None:
        return None
    if found.at_s is None:
        return "not reached"
    low, high = (None if each is None else each / HOUR_S for each in (found.low_s, found.high_s))
    return found.at_s / HOUR_S, low, high


def _estimate(found: Estimate | None) -> Interval | None:
    return None if found is None else (found.value, found.low, found.high)
