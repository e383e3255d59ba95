"""The result of an experiment: every figure over the seeds, the arms of a group against each other, and its files."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from distrl.experiment.compute import CellResult
from distrl.experiment.plan import Arm, Cell, Experiment, Preset
from distrl.experiment.statistics import Difference, Summary, difference, summary


@dataclass(frozen=True, slots=True)
class ArmResult:
    """An arm under every seed."""

    arm: Arm
    results: Sequence[CellResult]
    """In the order of the seeds."""

    def values(self, figure: str) -> list[float]:
        """Of the seeds that have it."""
        found = [each["figures"][figure] for each in self.results]
        return [value for value in found if value is not None]

    def summary(self, figure: str) -> Summary | None:
        values = self.values(figure)
        return summary(values) if values else None

    @property
    def figures(self) -> list[str]:
        return list(self.results[0]["figures"])


@dataclass(frozen=True, slots=True)
class Comparison:
    """An asynchronous arm against the synchronous one of its group.

    figure: by which they are compared.
    """

    arm: str
    other: str
    figure: str
    ratio: Summary
    """Of the two under the same seed, so on phones with the same luck."""
    difference: Difference


@dataclass(frozen=True, slots=True)
class Report:
    """What an experiment has found."""

    experiment: Experiment
    preset: Preset
    seeds: tuple[int, ...]
    arms: Sequence[ArmResult]

    @property
    def command(self) -> str:
        seeds = ",".join(map(str, self.seeds))
        return f"distrl experiment {self.experiment.name} --preset {self.preset} --seeds {seeds}"

    @property
    def comparisons(self) -> list[Comparison]:
        """Those whose synchronous arm brought anything."""
        made, figure = [], self.experiment.compared
        for one in self.arms:
            other = next((each for each in self.arms if each.arm.group == one.arm.group and each.arm.synchronous), None)
            if other is None or one is other or not all(rates := other.values(figure)):
                continue
            ratios = [a / b for a, b in zip(one.values(figure), rates, strict=True)]
            apart = difference(one.values(figure), rates)
            made.append(Comparison(one.arm.name, other.arm.name, figure, summary(ratios), apart))
        return made


def report_of(
    experiment: Experiment, preset: Preset, seeds: tuple[int, ...], cells: Sequence[Cell], results: Sequence[CellResult]
) -> Report:
    """cells and results: in the same order, the seeds of an arm one after the other."""
    arms = [
        ArmResult(cells[first].arm, results[first : first + len(seeds)]) for first in range(0, len(cells), len(seeds))
    ]
    return Report(experiment, preset, seeds, arms)


def to_dict(report: Report) -> dict[str, Any]:
    """JSON-able, and a function of the command alone: it names no machine and no clock."""
    return {
        "command": report.command,
        "title": report.experiment.title,
        "about": report.experiment.about,
        "virtual_seconds": report.experiment.until[report.preset],
        "seeds": list(report.seeds),
        "arms": [_arm(each) for each in report.arms],
        "comparisons": [_comparison(each) for each in report.comparisons],
    }


def to_csv(report: Report) -> str:
    """A row for each arm and seed, a column for each figure; empty where there is none."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    names = report.arms[0].figures
    rows.writerow(["arm", "phones", "seed", *names])
    for each in report.arms:
        for seed, result in zip(report.seeds, each.results, strict=True):
            values = (result["figures"][name] for name in names)
            rows.writerow([each.arm.name, each.arm.phones, seed, *("" if v is None else repr(v) for v in values)])
    return out.getvalue()


def _arm(each: ArmResult) -> dict[str, Any]:
    summaries = {name: each.summary(name) for name in each.figures}
    return {
        "name": each.arm.name,
        "phones": each.arm.phones,
        "settings": list(each.arm.sets),
        "costs": each.arm.costs.to_dict(),
        "figures": {name: None if found is None else asdict(found) for name, found in summaries.items()},
        "by_seed": [dict(result["figures"]) for result in each.results],
        "collected": [result["collected"] for result in each.results],
        "curve": [result["curve"] for result in each.results],
    }


def _comparison(each: Comparison) -> Mapping[str, Any]:
    apart = each.difference
    return {
        "arm": each.arm,
        "other": each.other,
        "figure": each.figure,
        "ratio": asdict(each.ratio),
        "difference": {name: value if math.isfinite(value) else None for name, value in asdict(apart).items()},
        "verdict": apart.verdict,
    }
