"""Verdicts of an episode are found by its place; whatever lies beside them is counted and not shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from distrl.config import StoreSettings
from distrl.judge.question import Verdict
from distrl.judge.verdict_log import MOST_JUDGES, MOST_LETTERS, Episode, Said, put, said_of
from distrl.store.objects import ObjectStore, open_store
from distrl.types import Outcome
from hypothesis import given
from hypothesis import strategies as st

HERE = Episode("verdicts/a-run", "trajectories", 0, 17)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(StoreSettings(url=f"file://{tmp_path}"))


@given(saids=st.lists(st.builds(Said, st.text(max_size=20), st.builds(Verdict, st.sampled_from(Outcome), st.text()))))
def test_the_last_verdict_of_each_judge_is_found(tmp_path_factory: pytest.TempPathFactory, saids: list[Said]) -> None:
    store = open_store(StoreSettings(url=f"file://{tmp_path_factory.mktemp('store')}"))
    for each in saids:
        put(store, HERE, each)
    last: dict[str, Said] = {}
    for each in saids:
        if each.verdict.outcome is not Outcome.UNKNOWN or each.source not in last:
            last[each.source] = each
    assert said_of(store, HERE) == ([last[source] for source in sorted(last)][:MOST_JUDGES], 0)


def test_episodes_do_not_mix(store: ObjectStore) -> None:
    """1 is the beginning of 17, and neither is of another partition, topic or run."""
    said = Said("vlm:m", Verdict(Outcome.SUCCESS, "it is done"))
    put(store, HERE, said)
    others = (
        Episode("verdicts/a-run", "trajectories", 0, 1),
        Episode("verdicts/a-run", "trajectories", 1, 17),
        Episode("verdicts/a-run", "evaluations", 0, 17),
        Episode("verdicts/a", "trajectories", 0, 17),
    )
    assert [said_of(store, each) for each in (HERE, *others)] == [([said], 0), *[([], 0)] * 4]


@pytest.mark.parametrize(
    "data", [b"", b"\xff", b"[" * 100_000, b"{}", b"[]", b"null", b'{"source": "a", "outcome": "done", "reason": ""}']
)
def test_what_is_no_verdict_is_counted(store: ObjectStore, data: bytes) -> None:
    put(store, HERE, said := Said("vlm:m", Verdict(Outcome.FAILURE, "")))
    store.put_named(f"{HERE.prefix}{'0' * 64}.json", data)
    assert said_of(store, HERE) == ([said], 1)


def test_an_object_of_another_name_is_counted_and_not_asked_for(store: ObjectStore, tmp_path: Path) -> None:
    """As a store refuses to read a key that it would not write: a folder that was made in a console ended the page."""
    put(store, HERE, said := Said("vlm:m", Verdict(Outcome.FAILURE, "")))
    (tmp_path / HERE.prefix / "copy of a verdict").write_bytes(b"")
    assert said_of(store, HERE) == ([said], 1)


def test_half_a_character_of_a_models_answer_becomes_a_question_mark(store: ObjectStore) -> None:
    put(store, HERE, Said("vlm:\ud83d", Verdict(Outcome.FAILURE, "no \udc00 alarm")))
    assert said_of(store, HERE) == ([Said("vlm:?", Verdict(Outcome.FAILURE, "no ? alarm"))], 0)


def test_no_answer_takes_no_verdicts_place(store: ObjectStore) -> None:
    put(store, HERE, said := Said("vlm:m", Verdict(Outcome.FAILURE, "no alarm")))
    put(store, HERE, Said("vlm:m", Verdict(Outcome.UNKNOWN, "no answer: it timed out")))
    assert said_of(store, HERE) == ([said], 0)


def test_a_very_long_reason_is_cut(store: ObjectStore) -> None:
    put(store, HERE, Said("vlm:m", Verdict(Outcome.FAILURE, "a" * 1_000_000)))
    ((said,), _) = said_of(store, HERE)
    assert said.verdict.reason == "a" * MOST_LETTERS


def test_no_more_than_a_bound_are_read(store: ObjectStore) -> None:
    for number in range(MOST_JUDGES + 3):
        put(store, HERE, Said(f"vlm:{number}", Verdict(Outcome.UNKNOWN, "")))
    assert len(said_of(store, HERE)[0]) == MOST_JUDGES
