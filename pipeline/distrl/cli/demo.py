"""`distrl demo`: what `make demo` calls."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Final

import typer

from distrl.cli.common import NEEDED_FIRST, ConfigFile, Sets, Workers, console, ended_as_interrupted, stopped_how
from distrl.config import Config, UnsoundHereError, load
from distrl.config.algorithms import DEFAULT
from distrl.config.suites import sets_of
from distrl.telemetry import logs

HOME: Final = "home"
PHONES: Final = 8
NAMING: Final = ("feeder.suite", "algorithm.type", "learner.seed")
"""The settings from which a run's name is made."""


def register(app: typer.Typer) -> None:
    app.command("demo")(demo)


def demo(
    config: ConfigFile = None,
    sets: Sets = None,
    seed: Annotated[
        int | None,
        typer.Option(min=0, show_default="0", help="Seed of tasks, phones and weights; each seed is a run of its own."),
    ] = None,
    minutes: Annotated[
        float,
        typer.Option(
            min=0.1, max=10_000, help="Training time in minutes, over all sittings of this seed, warm-up included."
        ),
    ] = 12,
    phones: Annotated[
        int | None,
        typer.Option(
            min=2,
            max=512,
            show_default=str(PHONES),
            help="Simulated phones that train; phones.evaluation_count more evaluate.",
        ),
    ] = None,
    workers: Workers = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            show_default=DEFAULT, help="algorithm.type: what the learner does. Each but aride has runs of its own."
        ),
    ] = None,
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

    An option that is not given leaves what the settings say, or else what the run began with. A run that they do not
    name is called by suite, algorithm and seed; one that they name and that has begun refuses other settings.

    Ctrl-C stops everything cleanly; the same command goes on where the run was. A stack that `distrl up` has started in
    stack.directory is used, and stays up at the end.
    """
    from distrl.train.folder import refuse_second

    logs.configure("demo")
    ended_as_interrupted()
    options = partial(_settings, config, sets, seed, phones, algorithm, suite)
    try:
        settings = options()
    except UnsoundHereError:  # over the defaults; its run may have others
        settings = options(only=(*NEEDED_FIRST, *NAMING))
    began = time.time() if started is None else started
    refuse_second(settings, out)  # before what takes seconds to import

    from distrl.demo.run import run_demo
    from distrl.demo.summary import held_out_success

    def given(base: Mapping[str, Any]) -> Config:
        return options(base={**base, "run": settings.run})

    try:
        report = run_demo(settings, given, minutes, out, began, console, workers)
    except KeyboardInterrupt as interrupt:
        stopped_how(interrupt)
        raise
    summary = json.loads(report.with_name("report.json").read_text(encoding="utf-8"))
    console.print(held_out_success(summary), soft_wrap=True, highlight=False, markup=False)
    console.print(f"report: {report}", soft_wrap=True, highlight=False, markup=False)


def _settings(
    config: Path | None,
    sets: Sequence[str] | None,
    seed: int | None,
    phones: int | None,
    algorithm: str | None,
    suite: str | None,
    environ: Mapping[str, str] | None = None,
    base: Mapping[str, Any] = MappingProxyType({}),
    only: Collection[str] = (),
) -> Config:
    """Each option over the file and the variables, and --set over all of them; below them the settings of the run,
    `base`, and below those the demo's own. only: as of `load`."""
    given = [
        *([f"algorithm.type={algorithm}"] if algorithm is not None else []),
        *([f"learner.seed={seed}", f"phones.seed={seed}"] if seed is not None else []),
        *([f"phones.count={phones}"] if phones is not None else []),
        *(sets_of(suite) if suite else ()),
        *(sets or []),
    ]
    found = load(config, given, environ, base, only)
    phones_of = {"count": PHONES, "seed": found.learner.seed, **base.get("phones", {})}
    return load(config, given, environ, {"run": _run_name(found), **base, "phones": phones_of}, only)


def _run_name(settings: Config) -> str:
    """Where the settings name no run, each suite, algorithm and seed has runs of its own."""
    suite, algorithm = settings.feeder.suite, settings.algorithm.type
    named = re.sub(r"[_.]", "-", algorithm)  # another package's has a dot
    kind = [suite if suite != HOME else None, named if algorithm != DEFAULT else None]
    return "-".join(["demo", *filter(None, kind), str(settings.learner.seed)])
