from __future__ import annotations

from dataclasses import replace

import pytest
from distrl.errors import WireError
from distrl.learner.reading import refuse_unread
from distrl.learner.skipped import SkippedRecords
from distrl.types import LogPosition, PutAside, Update, Watermark


def at(offset: int, topic: str = "t") -> LogPosition:
    return LogPosition(topic, 0, offset)


def update(u: int, offset: int, *skipped: PutAside) -> Update:
    return Update(u, (Watermark("t", 0, offset),), "f", 0, skipped)


def test_what_the_journal_names_is_never_read_again() -> None:
    skipped = SkippedRecords([update(0, 10, PutAside("t", 0, (3, 4))), update(1, 20, PutAside("t", 0, (15,)))])
    assert [offset for offset in range(25) if skipped.skips(at(offset))] == [3, 4, 15]
    assert not skipped.skips(at(3, "another"))


def test_an_update_names_what_lies_before_its_watermarks_once() -> None:
    skipped = SkippedRecords([update(0, 10)])
    assert not skipped.add(at(9)), "the journal is past it"
    assert all(skipped.add(place) for place in (at(14), at(12), at(30), at(0, "another")))
    marks = (Watermark("another", 0, 5), Watermark("t", 0, 20))
    due = (PutAside("another", 0, (0,)), PutAside("t", 0, (12, 14)))
    assert skipped.due(marks) == skipped.due(marks) == due
    skipped.journalled(Update(1, marks, "f", 0, due))
    assert skipped.due((Watermark("t", 0, 40),)) == (PutAside("t", 0, (30,)),)
    assert not skipped.add(at(19))


def test_what_the_journal_is_past_and_does_not_name_was_read_by_another_version() -> None:
    """Folding its update again without it would fork the run; where the line says nothing of its records, who knows."""
    skipped = SkippedRecords([replace(update(0, 10), window_sha256="ab"), replace(update(1, 20), window_sha256="cd")])
    assert not skipped.add(at(12))
    assert skipped.add(at(25))
    refuse_unread(skipped, replace(update(0, 10), window_sha256="ab"))
    refuse_unread(skipped, update(1, 20))
    with pytest.raises(WireError, match=r"t\[0\] offset 12: update 1 folded this record, and this version"):
        refuse_unread(skipped, replace(update(1, 20), window_sha256="cd"))


def test_a_run_begins_with_nothing() -> None:
    skipped = SkippedRecords([])
    assert not skipped.skips(at(0))
    assert skipped.due((Watermark("t", 0, 5),)) == ()
    assert skipped.add(at(0))
