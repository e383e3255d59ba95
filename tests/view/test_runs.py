"""The followers of runs, and streams of their events, where the broker is away."""

from __future__ import annotations

import http.client
import logging
import os
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from distrl.config import Config, load, with_run
from distrl.errors import BrokerError
from distrl.view import follow
from distrl.view.follow import UNUSED_S, RunFollower, index_path
from distrl.view.index import IndexWriter, schema_id
from distrl.view.runs import Runs
from distrl.view.server import ViewServer
from waiting import until

from .asking import MOST_S, ask


def away(cache: Path) -> Config:
    """A run on a broker that does not answer."""
    sets = ["run=away", "kafka.bootstrap=127.0.0.1:1", "kafka.connect_timeout_s=0.1", f"stack.cache={cache}"]
    return load(sets=sets, environ={})


class Broker:
    """Fails with these texts in turn, and with the last one from then on."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts
        self.asked = 0

    def identity(self, config: Config) -> dict[str, str]:
        self.asked += 1
        raise BrokerError("kafka.bootstrap", self._texts[min(self.asked, len(self._texts)) - 1], "look at it")


def ends(follower: RunFollower) -> None:
    """Until it waits to be asked."""
    until(lambda: not follower.reading, "it to be read")


def test_a_run_that_nobody_looks_at_is_tried_once_and_again_when_somebody_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = Broker("is away")
    monkeypatch.setattr(follow, "identity", broker.identity)
    monkeypatch.setattr(follow, "AGAIN_S", 0.0)
    with closing(RunFollower(away(tmp_path))) as follower:
        ends(follower)
        assert broker.asked == 1
        follower.refresh()
        ends(follower)
        assert broker.asked == 2
        assert follower.failure is not None


def test_a_list_that_waits_for_its_runs_has_none_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it waits for ever: each question would be a reason for the next one."""
    broker = Broker("is away")
    monkeypatch.setattr(follow, "identity", broker.identity)
    monkeypatch.setattr(follow, "FRESH_S", 0.0)
    with (
        Runs(lambda: ["away"], lambda name: away(tmp_path)) as runs,
        ViewServer(runs, "127.0.0.1", 0, None) as server,
    ):
        for path, is_read in (("/api/runs", True), ("/api/runs?again=1", False), ("/api/runs", True)):
            before = broker.asked
            assert ask(server.port, path).status == 200
            (shown,), _ = runs.all()
            ends(shown.follower)
            assert (broker.asked > before) == is_read, path


def test_an_error_is_logged_once_until_it_is_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    broker = Broker("is away", "is away", "refuses", "refuses")
    monkeypatch.setattr(follow, "identity", broker.identity)
    monkeypatch.setattr(follow, "AGAIN_S", 0.0)
    caplog.set_level(logging.WARNING, "distrl.view.follow")
    with closing(RunFollower(away(tmp_path))) as follower:
        follower.touch()
        until(lambda: broker.asked >= 10, "ten questions")
    warned = [each.getMessage() for each in caplog.records if each.name == follow.LOG.name]
    assert ["refuses" in each for each in warned] == [False, True]


def test_who_waits_for_a_run_that_is_stopped_waits_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, free = threading.Event(), threading.Event()

    def identity(config: Config) -> dict[str, str]:
        begun.set()
        assert free.wait(MOST_S)
        return {}

    monkeypatch.setattr(follow, "identity", identity)
    monkeypatch.setattr(follow, "INDEXED", ())
    with closing(RunFollower(away(tmp_path))) as follower:
        assert begun.wait(MOST_S)
        follower.stop()
        free.set()
        assert follower.caught_up.wait(MOST_S)


def test_a_run_without_topics_is_not_looked_at_without_a_pause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one that was removed while it is shown."""
    looks = list[int]()
    monkeypatch.setattr(follow, "identity", lambda config: {})
    monkeypatch.setattr(follow, "INDEXED", ())
    monkeypatch.setattr(follow.IndexWriter, "refuse_replaced", lambda index: looks.append(1))
    with closing(RunFollower(away(tmp_path))) as follower:
        follower.touch()
        until(lambda: len(looks) >= 3, "three looks")
        began, before = time.monotonic(), len(looks)
        while time.monotonic() < began + 2 * follow.TURN_S:
            time.sleep(0.01)
        more = len(looks) - before
        assert more <= 2 + (time.monotonic() - began) / follow.TURN_S


def test_the_stream_of_a_run_that_is_gone_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distrl.view.runs.REFRESH_S", 0.0)
    names = ["away"]
    with Runs(lambda: names, lambda name: away(tmp_path)) as runs, ViewServer(runs, "127.0.0.1", 0, None) as server:
        with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=MOST_S)) as connection:
            connection.request("GET", "/api/runs/away/events")
            stream = connection.getresponse()
            names.clear()
            assert ask(server.port, "/api/runs").json["runs"] == []
            assert stream.readline() == b""
        assert ask(server.port, "/api/runs/away/events").status == 404


def test_an_index_that_is_not_shown_is_deleted_once_nobody_has_opened_it_for_long(tmp_path: Path) -> None:
    config = away(tmp_path)
    shown = index_path(config)
    assert schema_id() in shown.name
    removed, lately = (index_path(with_run(config, name)) for name in ("removed", "lately"))
    stem = shown.name.removesuffix(f"-{schema_id()}.sqlite")
    of_others = [shown.with_name(f"{stem}{version}.sqlite") for version in ("", f"-2-{'0' * 16}")]
    strange = shown.with_name("other.sqlite")
    old = time.time() - UNUSED_S - 60
    for each in (shown, removed, lately, *of_others):
        IndexWriter(each, {}).close()
        os.utime(each, (old, old))
    strange.touch()
    os.utime(strange, (old, old))
    IndexWriter(lately, {}).close()
    with Runs(lambda: ["away"], lambda name: config) as runs:
        runs.all()
    assert {each.name for each in shown.parent.glob("*.sqlite*") if each.suffix != ".lock"} == {
        shown.name, lately.name, strange.name,
    }  # fmt: skip
