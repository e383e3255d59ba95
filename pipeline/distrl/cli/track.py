"""`distrl track`: a run's figures for an experiment tracker, read from its log."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from distrl.cli.common import ConfigFile, OfRun, Sets, Verbose, end_if_stopped, print_line, run_settings, start_role
from distrl.trackers.registry import DEFAULT, TRACKERS, refuse_unknown


def register(app: typer.Typer) -> None:
    app.command("track")(track_run)


def track_run(
    config: ConfigFile = None,
    sets: Sets = None,
    run: OfRun = None,
    to: Annotated[str, typer.Option(help=f"What to write to: {', '.join(TRACKERS)}.")] = DEFAULT,
    out: Annotated[
        Path, typer.Option(help="Where files and progress go, in a folder for each run and tracker.")
    ] = Path("out/track"),
    project: Annotated[
        str, typer.Option(help="What W&B and Trackio call a project and MLflow an experiment.")
    ] = "distrl",
    follow: Annotated[bool, typer.Option(help="Go on with what comes until Ctrl-C.")] = True,
    verbose: Verbose = False,
) -> None:
    """Give a run's figures to an experiment tracker: success of versions, losses of updates, collection and lag.

    It reads the log and nobody waits for it. A late start fills in the past, and one after another repeats nothing.
    """
    refuse_unknown(to)
    stop = start_role("track", verbose, second_kills=True)  # a tracker's library may wait for long
    settings = run_settings(config, sets, run)
    from distrl.trackers.follow import track, tracked_run
    from distrl.trackers.registry import open_tracker

    found = tracked_run(settings, stop, follow=follow)
    if found is None:
        return
    settings = run_settings(config, sets, run)  # the run's own, which may have begun only now
    folder = out / found.id / to
    print_line(f"run {found.name}: figures for {to} in {folder}")
    logged = track(settings, found, partial(open_tracker, to, project=project), folder, stop, follow=follow)
    print_line(f"{logged} points logged")
    if not follow:
        end_if_stopped(stop)
