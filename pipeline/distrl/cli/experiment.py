"""`distrl experiment`: the paper's figures without a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from distrl.cli.common import console, note, print_line, row, table

if TYPE_CHECKING:
    from distrl.experiment.plan import Cell
    from distrl.experiment.report import Report

COLUMNS = (MofNCompleteColumn(), BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))


class Preset(StrEnum):
    """How long an experiment may take."""

    QUICK = "quick"
    FULL = "full"


def register(app: typer.Typer) -> None:
    app.command("experiment")(experiment)


def experiment(
    name: Annotated[str | None, typer.Argument(help="Which experiment; --list names them.")] = None,
    preset: Annotated[Preset, typer.Option(help="quick: minutes on two cores; full: longer and more arms.")] = (
        Preset.QUICK
    ),
    seeds: Annotated[str, typer.Option(help="One run of every arm for each.")] = "0,1,2",
    out: Annotated[
        Path | None, typer.Option(help="Folder of the results; out/experiments/NAME-PRESET if not given.")
    ] = None,
    base_model: Annotated[
        Path | None,
        typer.Option(help="Directory of the base model that arms which learn begin with; the shipped one if left out."),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="How many arms are computed at once; the cores there are if not given.")
    ] = None,
    arm: Annotated[
        list[str] | None,
        typer.Option(help="Only that arm; may be given often. `NAME --list` names them. Others can be added later."),
    ] = None,
    names: Annotated[
        bool, typer.Option("--list", help="Name the experiments, or the arms of the one that is named, and end.")
    ] = False,
    results: Annotated[
        list[Path] | None,
        typer.Option(
            help="Print what was found in that folder of an experiment as Markdown, beside the paper's numbers, and "
            "end; may be given often. docs/results.md is made so."
        ),
    ] = None,
) -> None:
    """Run the system's own parts on simulated phones in virtual time: no server, no waiting, the same bytes each time.

    The result does not depend on how fast or how busy the machine is. Where it was interrupted, the same command goes
    on with what is missing.
    """
    from distrl.experiment.catalogue import EXPERIMENTS, experiment_of
    from distrl.experiment.plan import seeds_of

    if results:
        from distrl.experiment.results import results_page

        typer.echo(results_page(results), nl=False)
        return
    if name is None:
        for each in EXPERIMENTS.values():
            print_line(f"{each.name:15} {each.title}")
        return
    from distrl.experiment.run import FILES, run_experiment

    asked, numbers, only = experiment_of(name), seeds_of(seeds), arm or []
    if names:
        for one in asked.arms(preset.value):
            print_line(one.name)
        return
    folder = out or Path("out/experiments") / f"{name}-{preset.value}"
    cells = asked.cells(preset.value, numbers, base_model, only)
    _note_other_code(cells, folder)
    with Progress(*COLUMNS, console=console) as progress:
        bar = progress.add_task("", total=len(cells))

        def on_cell(cell: Cell) -> None:
            progress.update(bar, advance=1, description=escape(f"{cell.arm.name}, seed {cell.seed}"))

        report = run_experiment(asked, preset.value, numbers, folder, on_cell, processes, base_model, only)
    _show(report)
    print_line(f"report: {folder / FILES[-1]}")


def _note_other_code(cells: Sequence[Cell], folder: Path) -> None:
    """Say which of the cells that are there code of another commit has made."""
    from distrl.experiment.cells import code_of, persisted_by_other_code
    from distrl.experiment.spent import DIRTY

    own = code_of(cells)
    for code, parts in persisted_by_other_code(cells, folder, own).items():
        why = "whose files may have been others" if code.endswith(DIRTY) else f"this is {own}"
        note(
            f"{parts} cells and warm-ups in {folder} were made by code {code}, {why}; they are taken as they are: "
            "name another --out to compute all of them by this code",
            "yellow",
        )


def _show(report: Report) -> None:
    from distrl.experiment.page import arm_table, comparison_table

    for head, rows in (arm_table(report), comparison_table(report)):
        if not rows:
            continue
        made = table(*head)
        for each in rows:
            made.add_row(*row(*each))
        console.print(made)
