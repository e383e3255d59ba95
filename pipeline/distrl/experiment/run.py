"""`distrl experiment`: computes what is missing of an experiment's cells, and writes its files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from distrl.experiment.cells import OnCell, as_json, results
from distrl.experiment.figure import draw
from distrl.experiment.page import html_page
from distrl.experiment.plan import Cell, Experiment, Preset
from distrl.experiment.report import Report, report_of, to_csv, to_dict
from distrl.offline.files import write

FILES: Final = ("report.json", "report.csv", "report.png", "report.html")


def run_experiment(
    experiment: Experiment, preset: Preset, seeds: Sequence[int], out: Path, on_cell: OnCell = lambda cell: None,
    processes: int | None = None,
) -> Report:  # fmt: skip
    """Write FILES into `out`, which keeps what an earlier call of the same command has computed.

    Raises ConfigError where `out` cannot be written.
    """
    cells: list[Cell] = experiment.cells(preset, seeds)
    report = report_of(experiment, preset, tuple(seeds), cells, results(cells, out, on_cell, processes))
    png = draw(report)
    contents = as_json(to_dict(report)), to_csv(report).encode(), png, html_page(report, png).encode()
    for name, content in zip(FILES, contents, strict=True):
        write(out / name, content)
    return report
