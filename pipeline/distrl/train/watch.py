"""What a person sees while a run trains: the live view, or a line now and then where there is no terminal."""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.live import Live

from distrl.config import Config
from distrl.telemetry.feed import RunFeed
from distrl.telemetry.screen import render
from distrl.telemetry.view import RunStatus
from distrl.train.roles import Roles

VIEW_PERIOD_S = 1.0
PLAIN_PERIOD_S = 15.0
"""Interval of progress lines if the output is not a terminal, instead of the live view."""


def watch(
    config: Config,
    roles: Roles,
    console: Console,
    left: Callable[[], float | None],
    footer: str = "Ctrl-C stops; the same command goes on",
) -> None:
    """Show the run and supervise its roles until `left` is 0. left: seconds; None: for ever."""
    with RunFeed(config) as feed:
        if not console.is_terminal:
            while (seconds := left()) is None or seconds > 0:
                _follow(feed, roles, PLAIN_PERIOD_S if seconds is None else min(PLAIN_PERIOD_S, seconds))
                console.print(f"{_time_left(left(), '4.0f', ': ')}{progress(feed.status())}{_restarted(roles)}")
            return
        with Live(console=console, auto_refresh=False) as live:
            while (seconds := left()) is None or seconds > 0:
                _follow(feed, roles, VIEW_PERIOD_S if seconds is None else min(VIEW_PERIOD_S, seconds))
                below = f"{_time_left(left(), '.0f', '; ')}{footer}{_restarted(roles)}"
                width, rows = console.size  # read each time: a terminal may be resized
                view = render(feed.status(), f"DistRL run {config.run}", below, width, rows)
                live.update(view, refresh=True)


def progress(shot: RunStatus) -> str:
    """The progress line without a terminal. Before the first version there are no episodes, so no success rate."""
    if shot.newest is None:
        return "warming up on demonstrations; no version yet"
    success = "–" if shot.success is None else f"{shot.success:.0%}"
    return (
        f"{shot.trajectories} trajectories, {shot.per_minute:.0f} a minute, success {success}, "
        f"version {shot.newest.version}"
    )


def _time_left(seconds: float | None, digits: str, behind: str) -> str:
    return "" if seconds is None else f"{seconds:{digits}} s left{behind}"


def _restarted(roles: Roles) -> str:
    found = ", ".join(f"{name} {count}" for name, count in sorted(roles.restarted.items()))
    return f"; started again: {found}" if found else ""


def _follow(feed: RunFeed, roles: Roles, seconds: float) -> None:
    """Read new records for `seconds`, and check the roles every second."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        feed.wait(min(VIEW_PERIOD_S, left))
        roles.check()
