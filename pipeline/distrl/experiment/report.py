"""The result of an experiment: every figure over the seeds, the arms of a group against each other, and its files."""

from __future__ import annotations

import csv
import io
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from distrl.errors import ConfigError
from distrl.experiment.compute import CellResult
from distrl.experiment.held_out import HeldOut, held_out_of, tasks_of
from distrl.experiment.plan import Arm, Cell, Experiment, Preset
from distrl.experiment.reached import Curves, Reached, goal, reached
from distrl.experiment.reliable import Estimate, improvement_estimate
from distrl.experiment.statistics import (
    Difference,
    Summary,
    Verdict,
    difference,
    difference_over_tasks,
    summary,
    verdict,
)


@dataclass(frozen=True, slots=True)
class ArmResult:
    """An arm under every seed."""

    arm: Arm
    results: Sequence[CellResult]
    """In the order of the seeds."""

    def values(self, figure: str) -> list[float]:
        """Of the seeds that have it."""
        found = [each["figures"].get(figure) for each in self.results]
        return [value for value in found if value is not None]

    @property
    def held_out(self) -> HeldOut | None:
        return held_out_of(self.results)

    def summary(self, figure: str) -> Summary | None:
        values = self.values(figure)
        return summary(values) if values else None

    @property
    def figures(self) -> list[str]:
        return list(self.results[0]["figures"])

    @property
    def curves(self) -> Curves:
        """Of every seed; of one that does not learn without points."""
        return [result["curve"] for result in self.results]


@dataclass(frozen=True, slots=True)
class Comparison:
    """An arm against another one of its group.

    figure: by which they are compared.
    """

    arm: str
    other: str
    figure: str
    ratio: Summary | None
    """Of the two under the same seed, so on phones with the same luck; None where the other's figure is 0, or no seed
    has both."""
    difference: Difference
    """Over the seeds: whether another run would find it."""
    tasks: Difference | None
    """Over the held-out tasks, where the arms learn."""
    improvement: Estimate | None
    """The probability that a seed of the one does a family of tasks better than a seed of the other; a tie counts
    half."""

    @property
    def verdict(self) -> Verdict:
        return verdict(self.difference, *(() if self.tasks is None else (self.tasks,)))


@dataclass(frozen=True, slots=True)
class Report:
    """What an experiment has found."""

    experiment: Experiment
    preset: Preset
    seeds: tuple[int, ...]
    arms: Sequence[ArmResult]
    base_model: Path | None = None

    @property
    def command(self) -> str:
        seeds = ",".join(map(str, self.seeds))
        words = ["distrl", "experiment", self.experiment.name, "--preset", self.preset, "--seeds", seeds]
        if len(self.arms) < len(self.experiment.arms(self.preset)):
            words += [word for each in self.arms for word in ("--arm", each.arm.name)]
        if self.base_model is not None:
            words += ["--base-model", str(self.base_model)]
        return shlex.join(words)

    @property
    def learns(self) -> bool:
        return any(each.arm.learns for each in self.arms)

    @property
    def comparisons(self) -> list[Comparison]:
        figure = self.experiment.compared
        return [
            _compared(one, other, figure) for one, other in self._pairs() if one.values(figure) and other.values(figure)
        ]

    def reached(self, each: ArmResult) -> Reached | None:
        """How soon an arm is near the best one of its group; None where it does not learn."""
        if not each.arm.learns:
            return None
        group = [one.curves for one in self.arms if one.arm.group == each.arm.group and one.arm.learns]
        return reached(each.curves, goal(group))

    def _pairs(self) -> Iterator[tuple[ArmResult, ArmResult]]:
        """The arms that are compared, each with the other; none of a group whose reference was left out."""
        groups = {each.arm.group: [one for one in self.arms if one.arm.group == each.arm.group] for each in self.arms}
        firsts = {arm.group: arm.name for arm in reversed(self.experiment.arms(self.preset))}
        for group, arms in groups.items():
            if self.experiment.against == "each other":
                yield from combinations(arms, 2)
                continue
            first = self.experiment.against == "the first"
            found = (each for each in arms if (each.arm.name == firsts[group] if first else each.arm.synchronous))
            other = next(found, None)
            yield from ((one, other) for one in arms if other is not None and one is not other)


def report_of(
    experiment: Experiment, preset: Preset, seeds: tuple[int, ...], cells: Sequence[Cell],
    results: Sequence[CellResult], base_model: Path | None = None,
) -> Report:  # fmt: skip
    """cells and results: in the same order, the seeds of an arm one after the other."""
    arms = [
        ArmResult(cells[first].arm, results[first : first + len(seeds)]) for first in range(0, len(cells), len(seeds))
    ]
    return Report(experiment, preset, seeds, arms, base_model)


def refuse_other_tasks(report: Report, out: Path) -> None:
    """Raises ConfigError where the seeds of an arm, or arms that are compared, have played other tasks than each other.

    Cells of other code may have. out: their folder.
    """
    for arms in (*((each,) for each in report.arms), *report._pairs()):
        played = {tasks for each in arms for result in each.results if (tasks := tasks_of(result))}
        if len(played) > 1:
            names = " and ".join(each.arm.name for each in arms)
            raise ConfigError(
                str(out),
                f"cells of {names} have played other held-out tasks than each other, as those that other code has made",
                "name another --out, and all of them are computed by this code",
            )


def to_dict(report: Report) -> dict[str, Any]:
    """JSON-able, and a function of the command alone; where arms learn, on processors of one kind, as others differ in
    last bits. It names no machine and no clock."""
    return {
        "command": report.command,
        "title": report.experiment.title,
        "about": report.experiment.about,
        "virtual_seconds": report.experiment.until[report.preset],
        "seeds": list(report.seeds),
        "arms": [_arm(each, report.reached(each)) for each in report.arms],
        "comparisons": [_comparison(each) for each in report.comparisons],
    }


def to_csv(report: Report) -> str:
    """A row for each arm and seed, a column for each figure; empty where there is none."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    names = list(dict.fromkeys(name for each in report.arms for name in each.figures))
    rows.writerow(["arm", "phones", "seed", *names])
    for each in report.arms:
        for seed, result in zip(report.seeds, each.results, strict=True):
            values = (result["figures"].get(name) for name in names)
            rows.writerow([each.arm.name, each.arm.phones, seed, *("" if v is None else repr(v) for v in values)])
    return out.getvalue()


def _arm(each: ArmResult, there: Reached | None) -> dict[str, Any]:
    summaries = {name: each.summary(name) for name in each.figures}
    return {
        "name": each.arm.name,
        "phones": each.arm.phones,
        "settings": list(each.arm.sets),
        "costs": each.arm.costs.to_dict(),
        "figures": {name: None if found is None else asdict(found) for name, found in summaries.items()},
        "by_seed": [dict(result["figures"]) for result in each.results],
        "held_out": _held_out(each.held_out),
        "collected": [result["collected"] for result in each.results],
        "curve": each.curves,
        "reached": None if there is None else asdict(there),
    }


def _held_out(found: HeldOut | None) -> Mapping[str, Any] | None:
    if found is None:
        return None
    names = sorted(set(found.families))
    by_seed = [dict(zip(names, row, strict=True)) for row in found.scores.tolist()]
    return {"interquartile_mean": asdict(found.interquartile), "flipped": found.flipped, "families": by_seed}


def _compared(one: ArmResult, other: ArmResult, figure: str) -> Comparison:
    values, others = one.values(figure), other.values(figure)
    both = [(a["figures"][figure], b["figures"][figure]) for a, b in zip(one.results, other.results, strict=True)]
    ratios = [a / b for a, b in both if a is not None and b is not None] if all(others) else []
    ratio = summary(ratios) if ratios else None
    mine, theirs = one.held_out, other.held_out
    tasks = improvement = None
    if mine is not None and theirs is not None:
        tasks = difference_over_tasks(mine.done, theirs.done)
        improvement = improvement_estimate(mine.scores, theirs.scores)
    return Comparison(one.arm.name, other.arm.name, figure, ratio, difference(values, others), tasks, improvement)


def _comparison(each: Comparison) -> Mapping[str, Any]:
    return {
        "arm": each.arm,
        "other": each.other,
        "figure": each.figure,
        "ratio": None if each.ratio is None else asdict(each.ratio),
        "difference": _difference(each.difference),
        "difference_over_tasks": None if each.tasks is None else _difference(each.tasks),
        "probability_of_improvement": None if each.improvement is None else asdict(each.improvement),
        "verdict": each.verdict,
    }


def _difference(apart: Difference) -> Mapping[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in asdict(apart).items()}
