"""`distrl view`: the runs of a broker in a browser."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import Progress

from distrl.cli.common import ConfigFile, Sets, Verbose, console, run_settings, start_role, with_broker
from distrl.errors import ConfigError

if TYPE_CHECKING:
    from distrl.view.runs import Runs

LEAST_TOKEN = 16
"""Characters of a token, so that nobody guesses it."""
SHOWN_S = 0.2


def register(app: typer.Typer) -> None:
    app.command("view")(view)


def view(
    config: ConfigFile = None,
    sets: Sets = None,
    verbose: Verbose = False,
    run: Annotated[
        list[str] | None, typer.Option(help="A run to show; may be given often; all of the broker if not given.")
    ] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Of the pages; 0 takes a free one.")] = 0,
    host: Annotated[
        str, typer.Option(help="Address to listen on; one that is not of this machine alone needs --token-file.")
    ] = "127.0.0.1",
    token_file: Annotated[
        Path | None,
        typer.Option(help="File with a secret that every request must show: for other addresses, and behind a proxy."),
    ] = None,
) -> None:
    """Show runs in a browser: how they learn, their versions, and every episode down to a step's screenshot.

    Reads the log and the store, joins no group and writes nothing but an index in stack.cache, which may be deleted at
    any time. Runs until SIGTERM or Ctrl-C (docs/view.md).
    """
    from distrl.broker.runs import run_names
    from distrl.stack import ports
    from distrl.view.runs import Runs
    from distrl.view.server import ViewServer

    token = None if token_file is None else _token(token_file)
    settings = with_broker(config, sets)
    wanted = run or []
    for name in wanted:
        run_settings(config, sets, name)  # fail here, and not in the browser
    stop = start_role("view", verbose)
    with (
        Runs(lambda: wanted or run_names(settings), lambda name: run_settings(config, sets, name)) as runs,
        ViewServer(runs, host, port or ports.draw("--port"), token) as server,
    ):
        typer.echo(f"ready: {server.address}")
        _show_indexing(runs, stop)
        while not stop.wait(1.0):
            server.check()


def _show_indexing(runs: Runs, stop: threading.Event) -> None:
    """Show how far the indexes are, until all are made. The pages may be opened meanwhile."""
    shown, _ = runs.all()
    with Progress(console=console, transient=True) as progress:
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
    if len(found) < LEAST_TOKEN or not found.isascii():
        raise ConfigError(
            "--token-file", f"{file} holds no secret of {LEAST_TOKEN} letters or more", f"openssl rand -hex 32 > {file}"
        )
    return found
