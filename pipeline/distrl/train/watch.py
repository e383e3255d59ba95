"""Shows a run while it trains: the live view, or a progress line every PLAIN_PERIOD_S where there is no terminal."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack, closing

from rich.console import Console
from rich.live import Live

from distrl.config import Config
from distrl.errors import BrokerError
from distrl.telemetry.feed import RunFeed
from distrl.telemetry.screen import render
from distrl.telemetry.view import RunStatus, RunView
from distrl.train.roles import Roles

LOG = logging.getLogger("distrl.train")

VIEW_PERIOD_S = 1.0
PLAIN_PERIOD_S = 15.0
"""Interval of progress lines if the output is not a terminal, instead of the live view."""
REOPEN_S = 10.0
"""Pause before topics that could not be read are opened again: a broker that is down is not polled all the time."""


def watch(
    config: Config,
    roles: Roles,
    console: Console,
    left: Callable[[], float | None],
    footer: str = "Ctrl-C stops; the same command goes on",
) -> None:
    """Show the run and supervise its roles until `left` returns 0. left: seconds; None: for ever.

    While the topics cannot be read, the last status is shown, and they are opened again: roles survive a broker that is
    down, and so does the view. Raises as `Roles.check`.
    """
    with closing(_Shown(config)) as shown:
        if not console.is_terminal:
            while (seconds := left()) is None or seconds > 0:
                _follow(shown, roles, PLAIN_PERIOD_S if seconds is None else min(PLAIN_PERIOD_S, seconds))
                console.print(
                    f"{_time_left(left(), '4.0f', ': ')}{progress(shown.status())}{_restarted(roles)}", soft_wrap=True
                )
            return
        with Live(console=console, auto_refresh=False) as live:
            while (seconds := left()) is None or seconds > 0:
                _follow(shown, roles, VIEW_PERIOD_S if seconds is None else min(VIEW_PERIOD_S, seconds))
                below = f"{_time_left(left(), '.0f', '; ')}{footer}{_restarted(roles)}"
                width, rows = console.size  # read each time: a terminal may be resized
                view = render(shown.status(), f"DistRL run {config.run}", below, width, rows)
                live.update(view, refresh=True)


class _Shown:
    """The status of a run, from a feed that is opened again after an error of the broker. One thread."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._feed: RunFeed | None = None
        self._opened = ExitStack()
        self._open_at = time.monotonic()
        self._last = RunView().status(0)

    def wait(self, seconds: float) -> None:
        """Read new records for `seconds`; an error of the broker is logged."""
        if self._feed is None and (pause := self._open_at - time.monotonic()) > 0:
            time.sleep(min(pause, seconds))
            return
        try:
            if self._feed is None:
                self._feed = self._opened.enter_context(RunFeed(self._config))
            self._feed.wait(seconds)
        except BrokerError as error:
            why = f"{error.where}: {error.what}"
            LOG.warning("the view shows the last status and reads the topics again in %g s; %s", REOPEN_S, why)
            self.status()
            self.close()
            self._open_at = time.monotonic() + REOPEN_S

    def status(self) -> RunStatus:
        """The last one that was read while there is no feed."""
        if self._feed is not None:
            self._last = self._feed.status()
        return self._last

    def close(self) -> None:
        self._feed = None
        self._opened.close()


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


def _follow(shown: _Shown, roles: Roles, seconds: float) -> None:
    """Read new records for `seconds`, and check the roles every second."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        shown.wait(min(VIEW_PERIOD_S, left))
        roles.check()
