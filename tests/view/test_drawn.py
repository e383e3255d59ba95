"""What the index keeps of draws, and what a page gets of them; no number of a record can break either."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from distrl.broker.reader import RawRecord
from distrl.types import DrawnStep, DrawnTrajectory, Draws, LogPosition, Record, Update
from distrl.view import drawn
from distrl.view.answers import answer
from distrl.view.drawn import COLUMNS, draws_of, of_step
from distrl.view.index import Batch, IndexWriter, reading
from hypothesis import given
from hypothesis import strategies as st
from wire.records import drawn as anything


class Log:
    """An index, and how far its topics are read."""

    def __init__(self, path: Path) -> None:
        self._path, self._read = path / "run.sqlite", {"updates": 0, "draws": 0}

    def add(self, topic: str, records: Sequence[Record]) -> None:
        since = self._read[topic]
        self._read[topic] = to = since + len(records)
        raws = [RawRecord(LogPosition(topic, 0, since + n), b"", b"", 0) for n in range(len(records))]
        with closing(IndexWriter(self._path, {})) as index:
            index.add(Batch(topic, {0: since}, {0: to}, list(zip(raws, records, strict=True))))

    def of(self, topic: str, offset: int) -> dict[str, Any] | None:
        with reading(self._path) as connection:
            return draws_of(connection, topic, 0, offset)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def update(u: int, at: int = 0, void: str = "") -> Update:
    return Update(u, (), "f", at or 1000 + u, void=void)


def draws(u: int, *steps: DrawnStep, at: int = 0, topic: str = "trajectories", offset: int = 4) -> Draws:
    return Draws(u, "a-ride", at or 1000 + u, (DrawnTrajectory(topic, 0, offset, steps),))


def test_a_step_has_its_newest_numbers_and_every_update_that_drew_it(log: Log) -> None:
    log.add("updates", [update(u) for u in range(4)])
    log.add("draws", [draws(1, DrawnStep(0, 2, 0.5, -0.25, 0.125, 1.5, 2.0), DrawnStep(2, 1, 0.75))])
    log.add("draws", [draws(3, DrawnStep(0, 1, None, 0.5))])
    found = log.of("trajectories", 4)
    assert found is not None
    assert (found["recorded"], found["updates"], found["shown"]) == (True, 2, 2)
    step = of_step(found, 0)
    assert [step[name] for name in COLUMNS] == [0.5, 0.5, 0.125, 1.5, 2.0]
    assert step["drawn"] == {
        "u": [3, 1],
        "times": [1, 2],
        "value": [None, 0.5],
        "advantage": [0.5, -0.25],
        "td_error": [None, 0.125],
        "ratio": [None, 1.5],
        "priority": [None, 2.0],
    }
    assert of_step(found, 2)["value"] == 0.75
    assert of_step(found, 1) == {**dict.fromkeys(COLUMNS), "drawn": None}


def test_what_is_never_drawn_and_what_is_not_recorded_are_told_apart(log: Log) -> None:
    log.add("updates", [update(0)])
    assert log.of("trajectories", 4) == {"recorded": False, "updates": 0, "shown": 0, "steps": {}}
    log.add("draws", [draws(0, DrawnStep(0, 1))])
    assert log.of("trajectories", 5) == {"recorded": True, "updates": 0, "shown": 0, "steps": {}}
    assert log.of("demonstrations", 4) == {"recorded": True, "updates": 0, "shown": 0, "steps": {}}
    assert log.of("evaluations", 4) is None
    assert of_step(None, 0) == {**dict.fromkeys(COLUMNS), "drawn": None}


def test_an_update_that_is_redone_after_a_kill_is_there_once(log: Log) -> None:
    log.add("updates", [update(0), update(1)])
    records = [draws(u, DrawnStep(0, 1, 0.5)) for u in range(2)]
    log.add("draws", records)
    before = log.of("trajectories", 4)
    log.add("draws", records)
    assert log.of("trajectories", 4) == before


def test_draws_of_void_updates_are_gone_with_them(log: Log) -> None:
    """Whichever topic is read first: the update of a number is known by its time, too."""
    log.add("updates", [update(0), update(1)])
    log.add("draws", [draws(1, DrawnStep(0, 1, 0.5)), draws(1, DrawnStep(0, 1, 0.25), offset=9)])
    log.add("draws", [draws(1, DrawnStep(0, 3, 0.75), at=5000)])
    assert log.of("trajectories", 4) == {"recorded": True, "updates": 0, "shown": 0, "steps": {}}
    log.add("updates", [update(1, 4000, void="the broker lost it"), update(1, 5000)])
    found = log.of("trajectories", 4)
    assert found is not None
    assert of_step(found, 0)["drawn"]["times"] == [3]
    assert log.of("trajectories", 9) == {"recorded": True, "updates": 0, "shown": 0, "steps": {}}


def test_only_those_of_the_newest_updates_stay(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawn, "KEPT", 3)
    log.add("updates", [update(u) for u in range(10)])
    for u in range(10):
        log.add("draws", [draws(u, DrawnStep(0, 1))])
    found = log.of("trajectories", 4)
    assert found is not None
    assert of_step(found, 0)["drawn"]["u"] == [9, 8, 7]


@given(st.lists(anything(Draws), max_size=4), st.floats())
def test_no_record_breaks_the_index_or_the_answer(records: list[Draws], number: float) -> None:
    """Places and counts of any size, steps twice, NaN and infinities: what is shown is JSON with finite numbers."""
    odd = DrawnTrajectory("trajectories", 0, 4, (DrawnStep(0, 1, number, math.nan, math.inf, -math.inf, 1e308),))
    with TemporaryDirectory() as folder:
        log = Log(Path(folder))
        log.add("updates", [update(0, 7)])
        log.add("draws", [*records, Draws(0, "", 7, (odd,))])
        found = log.of("trajectories", 4)
    body = json.loads(bytes(answer(of_step(found, 0)).body), parse_constant=pytest.fail)
    assert [body[name] for name in COLUMNS[1:]] == [None] * 4
    assert body["value"] is None or math.isfinite(body["value"])
