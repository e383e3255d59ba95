from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from distrl import config
from distrl.learner.reservations import Reservation, highest, highest_number, reserve
from distrl.store.objects import ObjectStore, open_store

FIRST, SECOND = Reservation(9, 20, "ab" * 32), Reservation(10, 22, "cd" * 32)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(config.StoreSettings(url=f"file://{tmp_path}"))


def test_the_highest_number_is_kept_with_its_weights_and_lower_ones_go(store: ObjectStore) -> None:
    assert (highest(store, "demo"), highest_number(store, "demo")) == ([], -1)
    reserve(store, "demo", FIRST)
    reserve(store, "demo", SECOND)
    reserve(store, "demo-2", FIRST)
    assert (highest(store, "demo"), highest_number(store, "demo")) == ([SECOND], 10)
    assert len(list(store.list("runs/demo/"))) == 1
    assert highest(store, "demo-2") == [FIRST]


def test_a_version_without_an_update_before_it_is_reserved_like_any_other(
    store: ObjectStore, caplog: pytest.LogCaptureFixture
) -> None:
    """As version 0 is where there is no warm-up."""
    made = Reservation(0, -1, FIRST.sha256)
    reserve(store, "demo", made)
    assert highest(store, "demo") == [made]
    reserve(store, "demo", SECOND)
    assert (highest(store, "demo"), len(list(store.list("runs/demo/")))) == ([SECOND], 1)
    assert caplog.text == ""


def test_a_request_that_arrives_late_lowers_no_number(store: ObjectStore) -> None:
    reserve(store, "demo", SECOND)
    reserve(store, "demo", FIRST)
    assert highest(store, "demo") == [SECOND]


def test_two_that_were_given_one_number_are_both_named(store: ObjectStore) -> None:
    other = Reservation(SECOND.version, SECOND.update, FIRST.sha256)
    reserve(store, "demo", SECOND)
    reserve(store, "demo", other)
    assert highest(store, "demo") == [other, SECOND]


EARLIER = "runs/demo/newest-version.json"


def test_a_number_that_earlier_software_has_reserved_counts_until_a_higher_one_is(store: ObjectStore) -> None:
    store.put_named(EARLIER, json.dumps({"sha256": FIRST.sha256, "update": 20, "version": 9}).encode())
    assert (highest(store, "demo"), highest_number(store, "demo")) == ([FIRST], 9)
    reserve(store, "demo", SECOND)
    assert highest(store, "demo") == [SECOND]
    assert store.get_named(EARLIER) is not None


@pytest.mark.parametrize("data", [b"", b"\xff", b"[]", b"{}", b'{"version": 9}', b'{"version": "x"}', b"[" * 100_000])
def test_what_earlier_software_has_left_damaged_is_skipped(
    store: ObjectStore, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    store.put_named(EARLIER, data)
    reserve(store, "demo", FIRST)
    with caplog.at_level(logging.WARNING):
        assert highest(store, "demo") == [FIRST]
    assert EARLIER in caplog.text


@pytest.mark.parametrize(
    "name", ["note.txt", f"7-9-{'ab' * 32}", f"{7:012d}-{9:012d}-ab", f"{7:012d}-{'9' * 11}x-{'ab' * 32}"]
)
def test_what_somebody_else_has_put_there_is_skipped(
    store: ObjectStore, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    store.put_named(f"runs/demo/reserved-versions/{name}", b"")
    with caplog.at_level(logging.WARNING):
        assert highest_number(store, "demo") == -1
    assert name in caplog.text
    reserve(store, "demo", FIRST)
    assert highest(store, "demo") == [FIRST]
    assert store.get_named(f"runs/demo/reserved-versions/{name}") == b""
