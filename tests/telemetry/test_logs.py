"""One line an event, in UTC, with the role's name, to standard error and nowhere else."""

from __future__ import annotations

import io
import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from distrl.telemetry import logs
from rich.console import Console
from rich.live import Live


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    levels = {name: logging.getLogger(name).level for name in ("urllib3", "PIL", "matplotlib", "jgo", "transformers")}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, was in levels.items():
        logging.getLogger(name).setLevel(was)


SAYS = """
import logging, sys
from distrl.telemetry import logs
logs.configure("worker-3", verbose=sys.argv[1] == "verbose")
log = logging.getLogger("distrl.worker")
log.debug("a detail")
log.info("%d phones", 4)
log.warning("none left")
logging.getLogger("urllib3").info("noise")
"""
LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ worker-3 (DEBUG|INFO|WARNING) distrl\.worker: .+")


@pytest.mark.parametrize("verbose", ["quiet", "verbose"])
def test_a_line_says_when_who_how_bad_and_what(verbose: str) -> None:
    line = [sys.executable, "-c", SAYS, verbose]
    environ = {**os.environ, "TZ": "Asia/Tokyo"}
    said = subprocess.run(line, capture_output=True, text=True, check=True, env=environ)
    assert said.stdout == ""
    told = said.stderr.splitlines()
    assert all(LINE.fullmatch(each) for each in told), told
    kept = [each.partition(": ")[2] for each in told]
    assert kept == (["a detail"] if verbose == "verbose" else []) + ["4 phones", "none left"]


AS_JSON = r"""
import logging, sys, threading
from distrl.telemetry import logs
logs.configure("worker-3", identity=logs.Identity("my-run", "worker", "worker-3"))
log = logging.getLogger("distrl.worker")
log.info("%d phones", 4)
with logs.about(task="t-1", device="phone-0"):
    with logs.about(version=7):
        log.warning("typed: a\n{\"level\": \"x\"} \x1b[2J é")
    other = threading.Thread(target=log.info, args=("of another task",), name="actor-1")
    other.start()
    other.join()
    try:
        1 / 0
    except ZeroDivisionError:
        log.exception("failed")
log.info("after")
logging.getLogger("urllib3").info("noise")
raise RuntimeError("nobody expects it")
"""


def test_as_json_each_line_is_an_object_with_who_what_and_about_what() -> None:
    environ = {**os.environ, "TZ": "Asia/Tokyo"}
    said = subprocess.run([sys.executable, "-c", AS_JSON], capture_output=True, text=True, check=False, env=environ)
    assert (said.returncode, said.stdout) == (1, "")
    lines = [json.loads(line) for line in said.stderr.splitlines()]
    phones, typed, other, failed, after, uncaught = lines
    assert all((line["run"], line["role"], line["process"]) == ("my-run", "worker", "worker-3") for line in lines)
    at = [datetime.fromisoformat(line["time"]) for line in lines]
    assert all(abs((each - datetime.now(UTC)).total_seconds()) < 60 for each in at)
    assert (phones["message"], phones["level"], phones["logger"]) == ("4 phones", "INFO", "distrl.worker")
    assert typed["message"] == 'typed: a\n{"level": "x"} \x1b[2J é', "what a model typed makes no line of its own"
    assert (typed["task"], typed["device"], typed["version"]) == ("t-1", "phone-0", 7)
    assert (other["thread"], other.get("task")) == ("actor-1", None), "another thread is about another task"
    assert (failed["task"], failed.get("version")) == ("t-1", None)
    assert failed["exception"].endswith("ZeroDivisionError: division by zero")
    assert "task" not in after
    assert uncaught["level"] == "CRITICAL"
    assert "nobody expects it" in uncaught["exception"]


def test_the_clock_is_utc_wherever_the_machine_is() -> None:
    said = io.StringIO()
    logs.configure("role")
    (handler,) = logging.getLogger().handlers
    record = logging.LogRecord("distrl", logging.INFO, "", 0, "then", None, None)
    record.created = 1_700_000_000.0
    said.write(handler.format(record))
    assert said.getvalue() == "2023-11-14T22:13:20Z role INFO distrl: then"


def test_as_text_what_a_phone_says_moves_no_cursor_and_makes_no_line_that_looks_like_one() -> None:
    logs.configure("role")
    (handler,) = logging.getLogger().handlers
    typed = "it says\r\x1b[2J\n2026-01-01T00:00:00Z role INFO distrl: all is well\u202e"
    try:
        raise ValueError(typed)
    except ValueError:
        record = logging.LogRecord("distrl", logging.ERROR, "", 0, "%s", (typed,), sys.exc_info())
    first, *more = handler.format(record).split("\n")
    assert first.endswith(r"role ERROR distrl: it says\r\x1b[2J")
    assert more[0] == r"  2026-01-01T00:00:00Z role INFO distrl: all is well\u202e"
    assert all(line.startswith("  ") and line.isprintable() for line in more)
    assert any("ValueError" in line for line in more)


def test_configured_twice_it_still_says_a_thing_once(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("first")
    logs.configure("second")
    logging.getLogger("distrl").info("said once")
    assert capsys.readouterr().err.count("said once") == 1


def test_a_line_goes_above_the_live_view_and_not_into_it(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("demo")
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=60, height=16)
    with Live("the picture", console=console, auto_refresh=False) as live:
        live.refresh()
        logging.getLogger("distrl").info("in between")
        live.refresh()
    logging.getLogger("distrl").info("afterwards")
    assert "in between" in out.getvalue()
    told = capsys.readouterr().err
    assert "in between" not in told
    assert "afterwards" in told


def test_repeated_warnings_of_an_unavailable_broker_are_rate_limited_and_others_are_not() -> None:
    rate_limit = logs.RateLimit()

    def told(at: float, name: str, level: int, message: str, *args: object) -> bool:
        record = logging.LogRecord(name, level, "", 0, message, args, None)
        record.created = at
        return rate_limit.filter(record)

    away = ("distrl.broker.reader", logging.WARNING, "reading %s: %s")
    assert [at for at in range(0, 40, 2) if told(at, *away, "tasks", f"refused after {at} ms")] == [0, 10, 20, 30]
    assert told(33, *away, "versions", "refused"), "another topic"
    assert told(3, *away, "versions", "refused"), "the clock was set back"
    assert all(told(33, "distrl.broker.reader", logging.ERROR, "lost %s", each) for each in (1, 1))
    assert all(told(33, "distrl.worker", logging.WARNING, "no phone") for _ in range(2))


def test_whatever_is_logged_of_a_collector_that_is_away_is_one_line_in_five_minutes() -> None:
    rate_limit = logs.RateLimit()

    def told(at: float, level: int) -> bool:
        record = logging.LogRecord("opentelemetry.exporter", level, "", 0, "refused after %d s", (at,), None)
        record.created = at
        return rate_limit.filter(record)

    assert [at for at in range(0, 700, 7) if told(at, logging.ERROR) or told(at, logging.WARNING)] == [0, 301, 602]
