"""`distrl tail`: print records of a run as they arrive."""

from __future__ import annotations

from typing import Annotated

import typer

from distrl.cli.common import ConfigFile, OfRun, Sets, console, run_settings, start_role
from distrl.types import Trajectory

app = typer.Typer(help="Print records as they come.", no_args_is_help=True)


@app.callback()
def tail() -> None:
    """Print records as they come."""


@app.command("trajectories")
def tail_trajectories(
    run: OfRun = None,
    config: ConfigFile = None,
    sets: Sets = None,
    last: Annotated[
        int, typer.Option(min=0, help="How many of the records already there to print first, from each partition.")
    ] = 10,
    follow: Annotated[bool, typer.Option(help="Go on with new records until Ctrl-C.")] = True,
) -> None:
    """One line per trajectory: offset, task, outcome, steps, versions that acted, instruction.

    Beside the steps: how many actions a judge called invalid, how many were not sent because an app that is not allowed
    was in front, and how many led to such an app and were undone.
    """
    from distrl.broker.tail import tail as records
    from distrl.offline.record_text import gist_of
    from distrl.text import printable

    settings = run_settings(config, sets, run)
    for position, trajectory in records(settings, "trajectories", Trajectory, last, follow, start_role("tail", False)):
        line = f"{position.offset:>7}  {printable(trajectory.task_id):<16} {printable(gist_of(trajectory))}"
        console.print(line, markup=False, highlight=False, soft_wrap=True)
