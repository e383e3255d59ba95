"""Figures of updates in the index: records that last, heartbeats where there are none, and no number that breaks."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from distrl.broker.reader import RawRecord
from distrl.types import Figures, Heartbeat, LogPosition, Record, Update
from distrl.view import series as charts
from distrl.view.answers import answer
from distrl.view.index import Batch, IndexWriter, reading
from hypothesis import given
from hypothesis import strategies as st
from wire.records import drawn as anything


class Log:
    """An index, and how far its topics are read."""

    def __init__(self, path: Path) -> None:
        self._path = path / "run.sqlite"
        self._read = {"updates": 0, "figures": 0, "heartbeats": 0}

    def add(self, topic: str, *records: Record) -> None:
        since = self._read[topic]
        self._read[topic] = to = since + len(records)
        raws = [RawRecord(LogPosition(topic, 0, since + n), b"", b"", 0) for n in range(len(records))]
        with closing(IndexWriter(self._path, {})) as index:
            index.add(Batch(topic, {0: since}, {0: to}, list(zip(raws, records, strict=True))))

    def updates(self) -> dict[str, Any]:
        with reading(self._path) as connection:
            found: dict[str, Any] = charts.series(connection, 0, 10**13)["updates"]
            return found

    def losses(self) -> Sequence[float | None] | None:
        found: Sequence[float | None] | None = self.updates()["metrics"].get("policy_loss")
        return found

    def count(self, table: str) -> int:
        with reading(self._path) as connection:
            (found,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
            return int(found)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def test_of_a_long_run_only_the_figures_that_are_shown_are_read(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(charts, "POINTS", 10)
    name, count = "loss of a very long name " * 400, 995
    log.add("updates", *(update(u) for u in range(count)))
    log.add("figures", *(Figures(u, 1000 + u, 2000 + u, {name: float(u)}) for u in range(count)))
    tracemalloc.start()
    try:
        found = log.updates()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found["update"][-1] == count - 1
    assert len(found["update"]) == 10
    assert found["metrics"] == {name: [float(u) for u in found["update"]]}
    assert most < 100 * len(name), "a tenth of all figures"


def update(u: int, at: int = 0, void: str = "") -> Update:
    return Update(u, (), "f", at or 1000 + u, void=void)


def figures(u: int, loss: float, at: int = 0) -> Figures:
    return Figures(u, at or 1000 + u, 2000 + u, {"policy_loss": loss})


def beat(u: int, loss: float) -> Heartbeat:
    return Heartbeat("l", "learner", 2001 + u, None, None, {"update": u + 1.0, "policy_loss": loss, "version": 1.0})


def test_records_last_and_heartbeats_stand_in_where_there_are_none(log: Log) -> None:
    log.add("updates", *(update(u) for u in range(4)))
    log.add("heartbeats", beat(0, 9.0), beat(1, 9.0))
    log.add("figures", figures(1, 0.5), figures(2, 0.25))
    log.add("heartbeats", beat(2, 9.0))
    found = log.updates()
    assert found["metrics"] == {"policy_loss": [9.0, 0.5, 0.25, None], "version": [1.0, None, None, None]}
    assert found["update"] == [0, 1, 2, 3], "each update once"
    assert log.count("metrics") == 1, "what heartbeats say of an update that has figures is not stored"


def test_the_first_of_two_records_counts(log: Log) -> None:
    log.add("updates", update(0))
    log.add("figures", figures(0, 0.5), figures(0, 7.0))
    log.add("figures", figures(0, 8.0))
    assert log.losses() == [0.5]


def test_a_void_update_takes_its_figures_with_it(log: Log) -> None:
    log.add("updates", update(0), update(1))
    log.add("figures", figures(0, 0.5), figures(1, 7.0))
    log.add("updates", update(1, 5_000, void="the log lost records"), update(1, 6_000))
    assert log.losses() == [0.5, None]
    log.add("heartbeats", beat(1, 9.0))
    assert log.losses() == [0.5, 9.0]
    log.add("figures", figures(1, 0.25, 6_000))
    assert log.losses() == [0.5, 0.25]


@given(st.lists(anything(Figures), max_size=4), st.floats())
def test_no_record_breaks_the_index_or_the_answer(records: list[Figures], number: float) -> None:
    with TemporaryDirectory() as folder:
        log = Log(Path(folder))
        log.add("updates", *(update(u) for u in range(2)))
        log.add("figures", *records, figures(0, number), figures(1, 0.5))
        body = bytes(answer(log.updates()).body)
        assert json.loads(body)["metrics"]["policy_loss"][1] == 0.5
        assert b"NaN" not in body
        assert b"Infinity" not in body
