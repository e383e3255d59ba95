"""Logging for every role: one line per event, UTC time, to standard error; for people, or as JSON for a log store."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass
from typing import Any, Final

from distrl.text import printable

log = logging.getLogger(__name__)

CLIENTS = ("distrl.broker", "distrl.kafka")
COLLECTOR = "opentelemetry"
AGAIN_S = 10.0
"""Shortest interval of a repeated warning of a client: while a broker is unavailable, each client warns with every
attempt, some hundred times a minute, which would hide everything else."""

COLLECTOR_AGAIN_S = 300.0
"""As AGAIN_S, for messages about a trace collector that does not answer: only traces are lost."""

REMEMBERED = 1000
"""Most remembered warnings: some name a record each, and a role may run for weeks."""


_ABOUT: Final[ContextVar[Mapping[str, str | int]]] = ContextVar("about")


@contextmanager
def about(**what: str | int) -> Iterator[None]:
    """Names in JSON what this thread's lines within the block are about, such as task, device, version or update."""
    token = _ABOUT.set({**_ABOUT.get({}), **what})
    try:
        yield
    finally:
        _ABOUT.reset(token)


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose lines they are, as in heartbeats."""

    run: str
    role: str
    process: str


class JsonLines(logging.Formatter):
    """One JSON object for each record. Whatever a message holds, it stays one line."""

    def __init__(self, identity: Identity) -> None:
        super().__init__()
        self._identity = asdict(identity)

    def format(self, record: logging.LogRecord) -> str:
        seconds, fraction = divmod(record.created, 1)
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
        line: dict[str, Any] = {
            "time": f"{at}.{int(fraction * 1000):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **self._identity,
            "thread": record.threadName,
            **_ABOUT.get({}),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class TextLines(logging.Formatter):
    """Lines for people. Whatever a message holds, it moves no cursor, and no line of it looks like one of its own."""

    converter = staticmethod(time.gmtime)

    def __init__(self, process: str) -> None:
        super().__init__(f"%(asctime)s {process} %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%SZ")

    def format(self, record: logging.LogRecord) -> str:
        first, *more = super().format(record).split("\n")
        return "\n".join((printable(first), *(f"  {printable(line)}" for line in more)))


class RateLimit(logging.Filter):
    """Rate-limits repeated warnings of clients: one per subject within AGAIN_S, whatever the reason.

    The subject of a message with several arguments is the first.
    """

    def __init__(self) -> None:
        super().__init__()
        self._logged_at: dict[tuple[str, str, str], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.startswith(COLLECTOR):
            return self._is_due((COLLECTOR, "", ""), record.created, COLLECTOR_AGAIN_S)
        if record.levelno != logging.WARNING or not record.name.startswith(CLIENTS):
            return True
        of = str(record.args[0]) if isinstance(record.args, tuple) and len(record.args) > 1 else ""
        return self._is_due((record.name, str(record.msg), of), record.created, AGAIN_S)

    def _is_due(self, what: tuple[str, str, str], now: float, again_s: float) -> bool:
        if abs(now - self._logged_at.get(what, -again_s)) < again_s:  # the system's clock may jump back
            return False
        if len(self._logged_at) >= REMEMBERED:
            self._logged_at.clear()
        self._logged_at[what] = now
        return True


class _Stderr(logging.StreamHandler[Any]):
    """Writes to the current sys.stderr: the live view replaces it, so that log lines appear above the view.

    A redirected log (`2>file`) is not affected.
    """

    def emit(self, record: logging.LogRecord) -> None:
        self.stream = sys.stderr
        super().emit(record)


def configure(process: str, verbose: bool = False, identity: Identity | None = None) -> None:
    """Send the process's log to standard error. Call before any thread starts.

    process: its name in lines for people. identity: given, lines are JSON, an uncaught exception too.
    """
    handler = _Stderr()
    handler.setFormatter(TextLines(process) if identity is None else JsonLines(identity))
    handler.addFilter(RateLimit())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.DEBUG if verbose else logging.INFO)
    for noisy in ("urllib3", "PIL", "matplotlib", "jgo", "transformers"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    if identity is not None:
        sys.excepthook = lambda kind, error, trace: log.critical("ended unexpectedly", exc_info=(kind, error, trace))


def configured_as_json() -> bool:
    """Whether lines are JSON: nothing else should be printed among them."""
    return any(isinstance(handler.formatter, JsonLines) for handler in logging.getLogger().handlers)
