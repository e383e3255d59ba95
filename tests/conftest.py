"""Of every test session: what is there before the first test, and how two processes share the tests.

`make test` runs two processes: half of the time is waiting for servers and phones. A group of tests stays in one of
them: those on the session's servers, so that each is started once, and else a file, whose fixtures are its own.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import apicurio
import gotools
import hypothesis
import policed
import pytest
from distrl.errors import DistrlError
from distrl.stack import ports
from fetching import Say, fetch_servers
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

ROOMS_OF_SERVERS = ("faults", "integration")
"""Rooms whose tests share servers. They take the longest, so they begin first."""

# A shell starts background jobs with SIGINT ignored, and what they start inherits that: a test that interrupts a
# process of its own would wait for it in vain.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Tables are as wide as a test says, or else as they are without a terminal, whatever terminal pytest was started in.
for variable in ("COLUMNS", "LINES"):
    os.environ.pop(variable, None)

# Servers in Java live for minutes here: what the second compiler makes of them costs more than it gives, and with it a
# broker takes twice the time and the processor to start.
os.environ.setdefault("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:-UsePerfData")

# The role of the machine that the tests run on is no test's business.
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

# The hub of the tests is a server of their own.
for variable in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
    os.environ.pop(variable, None)

# How long an example takes says how loaded the machine is, and nothing about a property.
hypothesis.settings.register_profile("loaded", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])
hypothesis.settings.load_profile("loaded")

# Between the choice of a port and its use another process may take it: each has a range of its own.
if (worker := os.environ.get("PYTEST_XDIST_WORKER", "")).removeprefix("gw").isdigit():
    share = (ports.HIGHEST - ports.LOWEST) // int(os.environ["PYTEST_XDIST_WORKER_COUNT"])
    ports.LOWEST += share * (int(worker.removeprefix("gw")) % int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))
    ports.HIGHEST = ports.LOWEST + share


def pytest_sessionstart(session: pytest.Session) -> None:
    """The process that hands tests out collects none: it sees to the servers before the others begin."""
    if session.config.getoption("numprocesses", None):
        fetch_servers(_say(session))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    return ByRoom(config, log)


class ByRoom(LoadScopeScheduling):
    """One process for each room of servers, and for each file elsewhere."""

    def _split_scope(self, nodeid: str) -> str:
        return _group(nodeid.partition("::")[0])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: _order(_group(item.nodeid.partition("::")[0])))
    if gotools.go() is None:
        can_police = policed.can_run()
        for item in items:
            if item.get_closest_marker("kubernetes") or ("policed" in item.fixturenames and not can_police):
                item.add_marker(pytest.mark.skip(reason=gotools.NO_GO))


def pytest_collection_finish(session: pytest.Session) -> None:
    """No test's own time limit may pay for what is fetched or built once for a user."""
    if session.config.option.collectonly:
        return
    asked = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    if {"servers", "cluster", "prepared"} & asked:
        fetch_servers(_say(session))
    if "schema_registry" in asked:
        with suppress(DistrlError):  # the tests that need it fail with the same words
            apicurio.build(_say(session))
    if "policed" in asked:
        with suppress(DistrlError):  # as below
            policed.build(_say(session))
    if gotools.go() is not None:
        for name in gotools.wanted(asked):
            with suppress(gotools.ToolError):  # the tests that need it fail with the same words
                gotools.tool(name)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    left_out = [each for each in terminalreporter.stats.get("skipped", []) if gotools.NO_GO in str(each.longrepr)]
    if left_out:
        kubernetes = sum("kubernetes" in each.keywords for each in left_out)
        text = gotools.left_out(kubernetes, rights=len(left_out) - kubernetes)
        terminalreporter.write_line(text, red=True, bold=True)


def _group(path: str) -> str:
    """path: of a file of tests, from the checkout's root on."""
    room = path.split("/")[1]
    return room if room in ROOMS_OF_SERVERS else path


def _order(group: str) -> int:
    return ROOMS_OF_SERVERS.index(group) if group in ROOMS_OF_SERVERS else len(ROOMS_OF_SERVERS)


def _say(session: pytest.Session) -> Say:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    return reporter.write_line if reporter is not None else lambda text: None
