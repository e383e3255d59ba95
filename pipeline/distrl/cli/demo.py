"""`distrl demo`: what `make demo` calls."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Annotated, Final

import typer

from distrl.cli.common import ConfigFile, Sets, console, ended_as_interrupted, load, stopped_how
from distrl.config.algorithms import DEFAULT
from distrl.config.suites import sets_of
from distrl.telemetry import logs

HOME: Final = "home"


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    config: ConfigFile = None,
    sets: Sets = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of tasks, phones and weights; each seed is a run of its own.")
    ] = 0,
    minutes: Annotated[
        float,
        typer.Option(
            min=0.1, max=10_000, help="Training time in minutes, over all sittings of this seed, warm-up included."
        ),
    ] = 12,
    phones: Annotated[
        int, typer.Option(min=2, max=512, help="Simulated phones that train; phones.evaluation_count more evaluate.")
    ] = 8,
    algorithm: Annotated[
        str, typer.Option(help="algorithm.type: what the learner does. Each but aride has runs of its own.")
    ] = DEFAULT,
    suite: Annotated[
        str | None,
        typer.Option(help="feeder.suite: what is trained and tested on. Each but home has runs of its own."),
    ] = None,
    out: Annotated[
        Path,
        typer.Option(help="Holds a folder for each run: report, settings, logs, time trained."),
    ] = Path("out/demo"),
    started: Annotated[
        float | None, typer.Option(hidden=True, help="When the set-up began, in seconds since 1970; now if not given.")
    ] = None,
) -> None:
    """Train an agent on this machine with every real part, then write report.html and report.json.

    Ctrl-C stops everything cleanly; the same command goes on where the run was. A stack that `distrl up` has started in
    stack.directory is used, and stays up at the end.
    """
    from distrl.train.folder import refuse_second

    logs.configure("demo")
    ended_as_interrupted()
    kind = [suite if suite != HOME else None, algorithm.replace("_", "-") if algorithm != DEFAULT else None]
    run = [
        f"algorithm.type={algorithm}",
        f"run={'-'.join(['demo', *filter(None, kind), str(seed)])}",
        f"learner.seed={seed}",
        f"phones.seed={seed}",
        f"phones.count={phones}",
        *(sets_of(suite) if suite else ()),
    ]
    settings, began = load(config, [*run, *(sets or [])]), time.time() if started is None else started
    refuse_second(settings, out)  # before what takes seconds to import

    from distrl.demo.run import run_demo
    from distrl.demo.summary import held_out_success

    try:
        report = run_demo(settings, minutes, out, began, console)
    except KeyboardInterrupt as interrupt:
        stopped_how(interrupt)
        raise
    summary = json.loads(report.with_name("report.json").read_text(encoding="utf-8"))
    console.print(held_out_success(summary), soft_wrap=True, highlight=False, markup=False)
    console.print(f"report: {report}", soft_wrap=True, highlight=False, markup=False)
