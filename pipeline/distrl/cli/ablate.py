"""`distrl ablate`: the same range of a run's log under other settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.text import Text

from distrl.cli.common import ConfigFile, OfRun, Verbose, console, load, row, run_settings, table
from distrl.telemetry import logs
from distrl.types import Split

if TYPE_CHECKING:
    from distrl.config import Config
    from distrl.offline.ablation.report import Ablation
    from distrl.offline.ablation.run import Request

COLUMNS = (
    MofNCompleteColumn(),
    TextColumn("updates"),
    BarColumn(),
    TimeElapsedColumn(),
    TextColumn("left"),
    TimeRemainingColumn(),
    TextColumn("{task.description}"),
)


def register(app: typer.Typer) -> None:
    app.command("ablate")(ablate)


def ablate(
    config: ConfigFile = None,
    run: OfRun = None,
    sets: Annotated[
        list[str] | None, typer.Option("--set", "-s", help="path=value: an arm that changes this one setting.")
    ] = None,
    arms: Annotated[
        list[str] | None, typer.Option("--arm", help="path=value,path=value: an arm that changes them all.")
    ] = None,
    grids: Annotated[
        list[str] | None, typer.Option("--grid", help="path=value,value…: arms of every combination of all --grid.")
    ] = None,
    sweeps: Annotated[
        list[str] | None,
        typer.Option("--sweep", help="dper-weights: the 252 arms of DistRL A.4.3; dper-weights-axes: one at a time."),
    ] = None,
    first: Annotated[int, typer.Option("--from", min=0, help="First update to fold.")] = 0,
    to: Annotated[
        int | None, typer.Option(min=1, help="The update to end before; the journal's end if not given.")
    ] = None,
    hold_out: Annotated[
        int, typer.Option(min=0, help="Last updates of the range that no arm folds, for estimates on unseen episodes.")
    ] = 0,
    evaluate: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Tasks to play on phones under each arm's adapter, 0 for none. Unless given, "
            "evaluate.validation_episodes where a local stack's evaluation phones answer.",
        ),
    ] = None,
    split: Annotated[Split, typer.Option(help="Which tasks are played.")] = Split.TEST,
    out: Annotated[Path, typer.Option(help="Where the folder of the report goes.")] = Path("out/ablations"),
    name: Annotated[str | None, typer.Option(help="Name of the folder; made from the options if not given.")] = None,
    verbose: Verbose = False,
) -> None:
    """Fold one range of a run's log under other settings, side by side: table, curves, JSON, adapters.

    The run's own settings come from its log, with those of --config and DISTRL_* over them; they are folded too, as
    the baseline. Where it was interrupted, the same command goes on with the arms that are not done. An arm of another
    warmup.demonstrations than the run's learns from that many demonstrations, the first of the log, and from no others.
    """
    from distrl.offline.ablation.arms import plan, refuse_elsewhere

    logs.configure("ablate", verbose)
    refuse_elsewhere(sets or (), arms or (), grids or (), sweeps or ())
    settings = run_settings(config, None, run, "evaluation")
    arms_of_it = plan(settings, sets or (), arms or (), grids or (), sweeps or ())  # refuses before the log is read

    from distrl.offline.ablation.run import Request, asked_evaluation

    played, unplayed = asked_evaluation(evaluate, split, settings, own_phones=bool(load(config, None).devices.named))
    _show(*_folded(settings, Request(arms_of_it, first, to, hold_out, played, unplayed, out, name)))


def _folded(settings: Config, request: Request) -> tuple[Ablation, Path]:
    """The ablation and its folder, with a bar meanwhile."""
    from distrl.offline.ablation.run import ablate as fold

    with Progress(*COLUMNS, console=console) as progress:
        bar = progress.add_task("reading the log", total=None)

        def on_progress(done: int, total: int, text: str) -> None:
            progress.update(bar, completed=done, total=total, description=escape(text))

        return fold(settings, request, on_progress)


def _show(ablation: Ablation, folder: Path) -> None:
    from distrl.offline.ablation.report import identity_sentence

    console.print(*shown(ablation), sep="\n")
    console.print(
        identity_sentence(ablation),
        style="green" if ablation.identity.holds else "yellow",
        markup=False,
        highlight=False,
    )
    if ablation.reused:
        played = f", {ablation.reused_played} of them played" if ablation.evaluations else ""
        console.print(f"arms reused from an earlier run of this command: {ablation.reused}{played}", highlight=False)
    console.print(f"report: {folder / 'report.json'}", markup=False, highlight=False, soft_wrap=True)


def shown(ablation: Ablation) -> list[RenderableType]:
    """The tables and what to know about them."""
    from distrl.offline.ablation.report import learning_table, notes, worth_table

    parts: list[RenderableType] = []
    for header, rows in (worth_table(ablation), learning_table(ablation)):
        made = table(*header)
        for folded, (_, *cells) in zip(ablation.arms, rows, strict=True):
            made.add_row(*row(folded.arm.label.replace(",", ",\n"), *cells))
        parts.append(made)
    parts[1:1] = [Text(note) for note in notes(ablation)]
    return parts
