"""`distrl train`: all roles of a run on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from distrl.cli.common import ConfigFile, Sets, Workers, as_given, console, ended_as_interrupted, given, stopped_how
from distrl.telemetry import logs


def register(app: typer.Typer) -> None:
    app.command("train")(train)


def train(
    config: ConfigFile = None,
    sets: Sets = None,
    workers: Workers = None,
    evaluation_phones: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="How many of the named phones evaluate instead of training. If not given: none of your own, "
            "phones.evaluation_count of the local stack's simulated ones.",
        ),
    ] = None,
    out: Annotated[
        Path, typer.Option(help="Holds a folder for each run: the settings of its roles, and their logs.")
    ] = Path("out/train"),
) -> None:
    """Train on this machine until Ctrl-C: feeder, workers, learner, evaluator, and servers where none are configured.

    A role that ends with an error is started again, and so is a server that ends. Ctrl-C stops everything in order, a
    second one at once, and the same command goes on where the run was.
    """
    from distrl.train.folder import refuse_second

    logs.configure("train")
    ended_as_interrupted()
    settings, _ = as_given(config, sets)
    refuse_second(settings, out)  # before what takes seconds to import

    from distrl.train.run import train as run

    try:
        run(settings, given(config, sets), out, console, workers, evaluation_phones)
    except KeyboardInterrupt as interrupt:
        stopped_how(interrupt)
        raise
