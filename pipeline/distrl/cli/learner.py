"""`distrl learner`: the role, one of its ranks, or a check of what it has learned."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.cli.common import (
    ConfigFile,
    Sets,
    Verbose,
    connected,
    console,
    log_as,
    run_settings,
    start_role,
    started,
    stopped_by_signals,
)
from distrl.config import Config
from distrl.ranks.place import Place, place_of

if TYPE_CHECKING:
    from distrl.ranks.group import Ranks


def learner(
    config: ConfigFile = None,
    sets: Sets = None,
    verbose: Verbose = False,
    ranks: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Processes on this machine that compute together, at most learner.shards: as --set learner.ranks=N. "
            "They change no bit. Under torchrun leave it out.",
        ),
    ] = None,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Fold what is journalled, hold the weights against the published versions, and print the digests; "
            "publish nothing.",
        ),
    ] = False,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="With --verify: fold the whole log, without a checkpoint.")
    ] = False,
    run: Annotated[
        str | None, typer.Option(help="With --verify: of which run; `run` of the settings if not given.")
    ] = None,
) -> None:
    """Fold trajectories into new policy versions. Killed and started again, it ends with the same weights."""
    if from_start and not verify:
        raise typer.BadParameter("it needs --verify", param_hint="--from-start")
    if run is not None and not verify:
        raise typer.BadParameter("it needs --verify; a learner takes `--set run=NAME`", param_hint="--run")
    sets = [*(sets or ()), *([] if ranks is None else [f"learner.ranks={ranks}"])]
    place = place_of(os.environ)
    if place is not None and not place.leads:
        _follow(place, config, sets, verbose, run)
        return
    others = ["learner", *(["--config", str(config)] if config else []), *(["--verbose"] if verbose else [])]
    others += [*(["--verify", "--run", run] if run else []), *(word for each in sets for word in ("--set", each))]
    if verify:
        settings = run_settings(config, sets, run)
        stop = start_role("learner", verbose, second_kills=True)  # recovery, and an update, do not look at the event
        with _leading(settings, stop, others) as together:
            if together is not None:
                _verify(settings, from_start, together, stop)
        return
    settings, stop = started("learner", config, sets, verbose)
    from distrl.learner.run import run_learner
    from distrl.telemetry.exporter import exporting
    from distrl.telemetry.tracing import tracing

    with (
        exporting(settings, "learner", "learner") as monitor,
        tracing(settings, "learner", "learner") as tracer,
        _leading(settings, stop, others) as together,
    ):
        if together is not None:
            run_learner(settings, stop, monitor=monitor, tracer=tracer, ranks=together)


@contextmanager
def _leading(settings: Config, stop: threading.Event, others: Sequence[str]) -> Iterator[Ranks | None]:
    from distrl.learner.start_ranks import leading

    with leading(settings, stop, others) as ranks:
        yield ranks


def _follow(place: Place, config: Path | None, sets: list[str], verbose: bool, run: str | None) -> None:
    """Any rank but the first: it has no role of its own, and its probes are those of its machine's first rank."""
    given, name = connected(config, sets), f"learner-{place.rank}"
    log_as(given, "learner", name, verbose)
    stop = stopped_by_signals()
    from distrl.learner.start_ranks import follow_first
    from distrl.telemetry.exporter import exporting
    from distrl.telemetry.monitor import Monitor

    if place.local_rank:
        follow_first(given, place, stop, Monitor(), lambda: run_settings(config, sets, run))
        return
    with exporting(given, "learner", name) as monitor:
        follow_first(given, place, stop, monitor, lambda: run_settings(config, sets, run))


def _verify(settings: Config, from_start: bool, ranks: Ranks, stop: threading.Event) -> None:
    from distrl.learner.verify import verify as verified
    from distrl.text import ranges

    state, same = verified(settings, from_start=from_start, ranks=ranks, stop=stop)
    if same:
        console.print(f"bit for bit the weights of version {ranges(same)}", highlight=False, soft_wrap=True)
    else:
        console.print("no version was published that these weights could be held against", highlight=False)
    console.print(f"updates {state.u}", highlight=False)
    for name, digest in state.digests().items():
        console.print(f"{name} {digest}", highlight=False, soft_wrap=True)
    if stop.is_set():
        console.print("stopped before the end of the journal: the updates after these were not folded", style="yellow")
        raise typer.Exit(1)
