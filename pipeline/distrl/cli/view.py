"""`distrl view`: the runs of a broker in a browser, or as files that show the same."""

from __future__ import annotations

import shlex
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import MofNCompleteColumn, Progress, TaskID

from distrl.cli.common import (
    ASKING,
    ConfigFile,
    Sets,
    Verbose,
    ended_as_interrupted,
    log_as,
    note,
    passing_bar,
    run_settings,
    stopped_by_signals,
    with_broker,
)
from distrl.errors import ConfigError

if TYPE_CHECKING:
    from distrl.view.reports import Reports
    from distrl.view.runs import Runs

LEAST_TOKEN = 16
"""Fewest characters of a token, so that nobody guesses it."""
SHOWN_S = 0.2
LOOPBACK = "127.0.0.1"
REPORTS = (Path("out/ablations"), Path("out/experiments"))
"""Where the two commands write unless told otherwise."""
EPISODES = 1_000
"""Episodes of a run in an export: a few hundred MB with their screenshots."""


def register(app: typer.Typer) -> None:
    app.command("view")(view)


def view(
    config: ConfigFile = None,
    sets: Sets = None,
    verbose: Verbose = False,
    run: Annotated[
        list[str] | None, typer.Option(help="A run to show; may be given often; all of the broker if not given.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the pages; 0 takes a free one.")] = 0,
    host: Annotated[
        str, typer.Option(help="Address to listen on; one that is not of this machine alone needs --token-file.")
    ] = LOOPBACK,
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with a secret that every request must show: for other addresses, and behind a proxy."),
    ] = None,
    reports: Annotated[
        list[Path] | None,
        typer.Option(
            help="A folder with reports of `distrl ablate` or `distrl experiment`; may be given often; out/ablations "
            "and out/experiments if not given."
        ),
    ] = None,
    export: Annotated[
        Path | None,
        typer.Option(help="Serve nothing: write the pages and what they show to this folder, for any server of files."),
    ] = None,
    episodes: Annotated[
        str | None,
        typer.Option(
            help=f"With --export: how many episodes of each run, the last ones, or all; {EPISODES} if not given."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="With --export: write over an earlier export.")] = False,
) -> None:
    """Show runs in a browser: how they learn, their versions, and every episode down to a step's screenshot.

    Reads the log and the store, joins no group and writes nothing but an index in stack.cache, which may be deleted at
    any time. Runs until SIGTERM or Ctrl-C; with --export until the folder is written (docs/view.md).
    """
    from distrl.broker.runs import run_names
    from distrl.stack import ports
    from distrl.view.reports import Reports
    from distrl.view.runs import Runs
    from distrl.view.server import ViewServer

    served = {"--port": port != 0, "--host": host != LOOPBACK, "--token-file": token_file is not None}
    _refuse(export is not None, served, "an export listens nowhere")
    _refuse(export is None, {"--episodes": episodes is not None, "--force": force}, "is of an export: add --export DIR")
    most = _most(episodes)
    found = Reports(_report_folders(reports))
    token = None if token_file is None else _token(token_file)
    if export is not None:
        ended_as_interrupted()  # what is half written is removed
        _refuse_folder(export, force)  # before the broker is asked, and the log is read
    settings = with_broker(config, sets)
    wanted = run or []
    for name in wanted:
        run_settings(config, sets, name)  # fail here, and not in the browser
    if export is not None:
        names = wanted or run_names(settings)
        with Runs(lambda: names, lambda name: run_settings(config, sets, name)) as runs:
            _show_indexing(runs, threading.Event())
            _export(runs, found, export, most, force, every_run=bool(wanted))
        return
    log_as(settings, "view", "view", verbose)
    stop = stopped_by_signals(second_kills=ASKING)  # a broker that is away is waited for
    with (
        Runs(lambda: wanted or run_names(settings), lambda name: run_settings(config, sets, name)) as runs,
        ViewServer(runs, host, port or ports.draw("--port"), token, found) as server,
    ):
        typer.echo(f"ready: {server.address}")
        _show_indexing(runs, stop)
        while not stop.wait(1.0):
            server.check()


def _refuse(unless: bool, given: dict[str, bool], why: str) -> None:
    """Raises ConfigError for an option that is given and does nothing here."""
    if unless:
        for name, is_given in given.items():
            if is_given:
                raise ConfigError(name, why, f"leave {name} out")


def _most(episodes: str | None) -> int | None:
    """None: all. Raises ConfigError."""
    if episodes == "all":
        return None
    text = str(EPISODES) if episodes is None else episodes
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise ConfigError("--episodes", f"{text[:40]!r} is no number of episodes", "write a number, or all")
    return int(text)


def _report_folders(given: list[Path] | None) -> list[Path]:
    """Raises ConfigError for one that is given and not there."""
    for folder in given or []:
        if not folder.is_dir():
            raise ConfigError(
                "--reports", f"{folder} is no folder", "name the --out of `distrl ablate`, or leave it out"
            )
    return list(REPORTS) if given is None else given


def _refuse_folder(place: Path, force: bool) -> None:
    from distrl.offline.new_folder import refuse_folder
    from distrl.view.export import FORMAT

    refuse_folder(place, FORMAT, force)


def _export(runs: Runs, reports: Reports, place: Path, most: int | None, force: bool, every_run: bool) -> None:
    from distrl.clock import SYSTEM_CLOCK
    from distrl.view.export import export

    address = shlex.quote(str(place.absolute()))  # before the working directory may be replaced

    with passing_bar(*Progress.get_default_columns()[:2], MofNCompleteColumn()) as progress:
        bars: dict[str, TaskID] = {}

        def report(run: str, done: int, total: int) -> None:
            if run not in bars:
                bars[run] = progress.add_task(f"episodes of {run}")
            progress.update(bars[run], completed=done, total=total)

        done = export(runs, place, most, force, SYSTEM_CLOCK.now_ms(), report, reports, every_run)
    for run, error in done.left_out.items():
        note(f"{run} is not in it: {error}")
    absent = f"; {done.absent} steps have none in the store" if done.absent else ""
    typer.echo(f"{place}: {done.runs} runs, {done.episodes} episodes, {done.screenshots} screenshots{absent}")
    typer.echo(f"to look at it: python -m http.server --bind {LOOPBACK} -d {address}")


def _show_indexing(runs: Runs, stop: threading.Event) -> None:
    """Show how far the indexes are, until all are made. The pages may be opened meanwhile."""
    shown, _ = runs.all()
    with passing_bar() as progress:
        bars = {each: progress.add_task(f"indexing {each.config.run}", total=None) for each in shown}
        while bars and not stop.wait(SHOWN_S):
            for each, bar in list(bars.items()):
                at = each.follower.indexing
                if at is None or each.follower.caught_up.is_set():
                    progress.remove_task(bars.pop(each))
                else:
                    progress.update(bar, completed=at.done, total=at.total or None)


def _token(file: Path) -> str:
    try:
        found = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            "--token-file", f"{file} cannot be read ({error})", f"openssl rand -hex 32 > {file}"
        ) from None
    if len(found) < LEAST_TOKEN or not (found.isascii() and found.isprintable()):  # a header has one line
        raise ConfigError(
            "--token-file",
            f"{file} does not hold one line of {LEAST_TOKEN} or more printable ASCII characters",
            f"openssl rand -hex 32 > {file}",
        )
    return found
