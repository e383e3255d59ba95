"""Parameters of lists: whatever is asked, the statement is one of ours and the values stay values."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import factories
import pytest
from distrl.errors import ConfigError
from distrl.types import Outcome
from distrl.view import queries
from distrl.view.filters import EQUAL, MOST_ROWS, NO_STEPS, ORDERS, RANGES, SORTED, EpisodeFilter, Page
from distrl.view.index import IndexWriter, reading
from hypothesis import given
from hypothesis import strategies as st

from .test_index import TOPICS, batch

SAID = ["50% off", "50 percent", "a_b", "axb", "back\\slash", "it's", 'say "hi"', "x' OR '1'='1"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("index") / "run.sqlite"
    records = [factories.trajectory(factories.task(f"t{n}", instruction=text)) for n, text in enumerate(SAID)]
    with closing(IndexWriter(path, TOPICS)) as index:
        index.add(batch(records))
    return path


def found(path: Path, **asked: str) -> list[str]:
    with reading(path) as connection:
        wanted = EpisodeFilter.of({"sort": "instruction", "order": "asc", **asked})
        return [row["instruction"] for row in queries.episodes(connection, wanted, Page(0, 100))["rows"]]


@pytest.mark.parametrize("text", SAID)
def test_a_text_is_found_as_it_is_written(path: Path, text: str) -> None:
    assert found(path, text=text) == [text]


def test_failures_without_steps_are_a_mode_of_their_own(tmp_path: Path) -> None:
    records = [
        factories.trajectory(factories.task(name, instruction=name), steps, outcome=outcome)
        for name, steps, outcome in (
            ("stood still", (), Outcome.FAILURE),
            ("gave up", (factories.STEP,), Outcome.FAILURE),
            ("was done", (), Outcome.SUCCESS),
        )
    ]
    with closing(IndexWriter(tmp_path / "run.sqlite", TOPICS)) as index:
        index.add(batch(records))
    assert found(tmp_path / "run.sqlite", mode=NO_STEPS) == ["stood still"]
    assert found(tmp_path / "run.sqlite", mode="stuck midway") == ["gave up"]
    with reading(tmp_path / "run.sqlite") as connection:
        failed = queries.failures(connection, None)
    assert {each["name"]: each["count"] for each in failed["classes"]} == {NO_STEPS: 1, "stuck midway": 1}


@given(st.dictionaries(st.sampled_from([*EQUAL, *dict(RANGES), "text", "version", "sort", "order"]), st.text()))
def test_any_parameters_give_a_list_or_a_refusal(path: Path, asked: dict[str, str]) -> None:
    with reading(path) as connection:
        try:
            wanted = EpisodeFilter.of(asked)
        except ConfigError:
            return
        assert queries.episodes(connection, wanted, Page(0, 100))["total"] <= len(SAID)


@pytest.mark.parametrize("column", SORTED)
@pytest.mark.parametrize("order", ORDERS)
def test_every_column_sorts_in_both_orders(path: Path, column: str, order: str) -> None:
    assert sorted(found(path, sort=column, order=order)) == sorted(SAID)


@pytest.mark.parametrize(
    "asked",
    [{"sort": "rowid"}, {"order": "up"}, {"version": "one"}, {"from": "-1"}, {"to": "1e9"}, {"version": "-3"},
     {"from": "9" * 30}, {"from_offset": "-1"}, {"topic": "settings"}, {"version": "²"}],
)  # fmt: skip
def test_what_is_malformed_is_refused_with_what_is_allowed(asked: dict[str, str]) -> None:
    with pytest.raises(ConfigError):
        EpisodeFilter.of(asked)


def test_a_page_is_bounded() -> None:
    assert Page.of({"limit": "1000000", "offset": "7"}) == Page(7, MOST_ROWS)
    assert Page.of({}) == Page(0, 100)
    with pytest.raises(ConfigError):
        Page.of({"limit": "-1"})
