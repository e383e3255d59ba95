"""The roles of a run, one command each: the same on a laptop and in a pod. Each runs until SIGTERM or Ctrl-C.

A role's own module is loaded only once the broker has answered: torch alone takes seconds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from distrl.cli.common import (
    ConfigFile,
    Sets,
    Verbose,
    console,
    end_if_stopped,
    started,
)
from distrl.cli.learner import learner
from distrl.cli.recorded import EpisodeFormat, demonstrate_recorded, match_recorded
from distrl.types import Split


def register(app: typer.Typer) -> None:
    app.command("feed")(feed)
    app.command("worker")(worker)
    app.command("learner")(learner)
    app.command("evaluate")(evaluate)
    app.command("demonstrate")(demonstrate)


def feed(config: ConfigFile = None, sets: Sets = None, verbose: Verbose = False) -> None:
    """Feed training tasks, paced so that no trajectory is staler than feeder.max_lag when learned."""
    settings, stop = started("feeder", config, sets, verbose)
    from distrl.feeder.run import run_feeder
    from distrl.telemetry.exporter import exporting
    from distrl.telemetry.tracing import tracing

    with exporting(settings, "feeder", "feeder") as monitor, tracing(settings, "feeder", "feeder") as tracer:
        run_feeder(settings, stop, monitor, tracer)


def worker(
    config: ConfigFile = None,
    sets: Sets = None,
    verbose: Verbose = False,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Show what the newest policy would do on one phone, as it stands. It is leased and looked at "
            "and does nothing; no task is taken, nothing is recorded. Each new screen that a person brings up is "
            "decided on.",
        ),
    ] = False,
    instruction: Annotated[
        str | None,
        typer.Option(help="With --dry-run: what is asked; the first training task that would be fed if not given."),
    ] = None,
) -> None:
    """Drive phones over adb: take tasks, act with the newest policy, publish trajectories."""
    if instruction is not None and not dry_run:
        raise typer.BadParameter("it needs --dry-run", param_hint="--instruction")
    settings, stop = started("worker", config, sets, verbose, "training", lambda own: own.worker.name)
    if dry_run:
        from distrl.rollout.dry_run import run_dry
        from distrl.text import printable

        run_dry(settings, instruction, stop, lambda line: print(printable(line), flush=True))
        return
    from distrl.telemetry.exporter import exporting
    from distrl.telemetry.tracing import tracing
    from distrl.worker.run import run_worker

    with (
        exporting(settings, "worker", settings.worker.name) as monitor,
        tracing(settings, "worker", settings.worker.name) as tracer,
    ):
        run_worker(settings, stop, monitor, tracer)


def evaluate(
    config: ConfigFile = None,
    sets: Sets = None,
    verbose: Verbose = False,
    versions: Annotated[
        str | None,
        typer.Option(
            help="Versions to evaluate once, like 0,12 or first,last; if not given, the newest is evaluated on the "
            "validation tasks again and again, or once on recorded episodes."
        ),
    ] = None,
    split: Annotated[Split | None, typer.Option(help="Which tasks, with --versions; test if not given.")] = None,
    episodes: Annotated[
        str | None,
        typer.Option(
            help="How many tasks, with --versions; evaluate.episodes if not given. Or a folder with files of "
            "AndroidControl or Android in the Wild: how often the version does what the people did, which needs no "
            "phone and writes nothing."
        ),
    ] = None,
    form: EpisodeFormat = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="With a folder: one JSON object, for programs, in place of a table.")
    ] = False,
) -> None:
    """Measure greedy success against ground truth: named versions once, or the newest one again and again; or how often
    versions do what people did in recorded episodes.
    """
    if episodes is not None and not episodes.isdecimal():
        if split is not None:
            raise typer.BadParameter("a folder of episodes has none", param_hint="--split")
        match_recorded(config, sets, verbose, Path(episodes), form, versions, as_json)
        return
    if form is not None or as_json:
        raise typer.BadParameter("they need a folder in --episodes", param_hint="--format, --json")
    if episodes is not None and not 0 < len(episodes.lstrip("0")) < 10:
        raise typer.BadParameter(f"{episodes[:20]} is no number of tasks", param_hint="'--episodes'")
    most = None if episodes is None else int(episodes)
    if versions is None and (split or episodes):
        raise typer.BadParameter("they need --versions", param_hint="--split, --episodes")
    settings, stop = started("evaluator", config, sets, verbose, "evaluation", lambda own: own.evaluate.name)
    from distrl.evaluate.run import evaluate_versions, run_evaluator
    from distrl.telemetry.exporter import exporting

    if versions is None:
        with exporting(settings, "evaluator", settings.evaluate.name) as monitor:
            run_evaluator(settings, stop, monitor)
        return
    count = most or settings.evaluate.episodes
    for score in evaluate_versions(settings, versions, split or Split.TEST, count, stop):
        console.print(str(score), markup=False, soft_wrap=True)
    if stop.is_set():
        console.print("it was stopped; the same command plays what is left", markup=False, soft_wrap=True)
    end_if_stopped(stop)


def demonstrate(
    config: ConfigFile = None,
    sets: Sets = None,
    verbose: Verbose = False,
    count: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="How many there are to be, those of earlier runs included; warmup.demonstrations if not given, with "
            "--episodes as many as there are.",
        ),
    ] = None,
    episodes: Annotated[
        Path | None,
        typer.Option(
            help="Folder with files of AndroidControl or Android in the Wild, as they are published: people's episodes "
            "in place of the script's. No phone is needed."
        ),
    ] = None,
    form: EpisodeFormat = None,
    without: Annotated[
        Path | None,
        typer.Option(
            help="With --episodes: text file with the ids of episodes to leave out, one a line, such as a test split."
        ),
    ] = None,
) -> None:
    """Publish warm-up demonstrations, then end: of a deliberately imperfect script on simulated phones, or recorded
    ones.
    """
    if episodes is not None:
        demonstrate_recorded(config, sets, verbose, episodes, form, count, without)
        return
    for given, name in ((form, "--format"), (without, "--without")):
        if given is not None:
            raise typer.BadParameter("it needs --episodes", param_hint=name)
    settings, stop = started("demonstrator", config, sets, verbose, "training", lambda own: "demonstrate")
    from distrl.demonstrations.scripted import run_demonstrations
    from distrl.telemetry.exporter import exporting

    with exporting(settings, "demonstrator", "demonstrate") as monitor:
        run_demonstrations(settings, settings.warmup.demonstrations if count is None else count, stop, monitor)
    end_if_stopped(stop)
