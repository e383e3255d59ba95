"""`distrl experiment`: computes what is missing of an experiment's cells, and writes its files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from distrl.errors import ConfigError
from distrl.experiment.base_models import refuse_unknown_words
from distrl.experiment.cells import OnCell, as_json, noted, results
from distrl.experiment.figure import draw
from distrl.experiment.page import html_page
from distrl.experiment.plan import Cell, Experiment, Preset
from distrl.experiment.report import Report, refuse_other_tasks, report_of, to_csv, to_dict
from distrl.experiment.spent import write_total
from distrl.files import write

FILES: Final = ("report.json", "report.csv", "report.png", "report.html")


def run_experiment(
    experiment: Experiment, preset: Preset, seeds: Sequence[int], out: Path, on_cell: OnCell = lambda cell: None,
    processes: int | None = None, base_model: Path | None = None, only: Sequence[str] = (),
) -> Report:  # fmt: skip
    """Write FILES into `out`, which keeps what an earlier call of the same command has computed, and what all of it
    took into its `cost.json`.

    base_model: directory of what arms that learn begin with; the shipped one if None. only: names of arms; all if
    empty. Raises ConfigError where `out` cannot be written or has cells of other tasks, an arm is none, the base model
    lacks words or no arm would read it, PolicyError where it cannot be read.
    """
    cells: list[Cell] = experiment.cells(preset, seeds, base_model, only)
    if base_model is not None and not any(cell.arm.learns for cell in cells):
        raise ConfigError(
            "--base-model", f"nothing learns in {experiment.name}, so nothing would read it", "leave it out"
        )
    refuse_unknown_words(cells)
    report = report_of(experiment, preset, tuple(seeds), cells, results(cells, out, on_cell, processes), base_model)
    refuse_other_tasks(report, out)
    png = draw(report)
    contents = as_json(to_dict(report)), to_csv(report).encode(), png, html_page(report, png).encode()
    for name, content in zip(FILES, contents, strict=True):
        write(out / name, content)
    write_total(out, noted(cells, out))
    return report
