from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from unittest.mock import patch

import factories
from distrl.broker import versions
from distrl.broker.reader import RawRecord
from distrl.broker.versions import Lineage, lineage, newest
from distrl.config import Config, load
from distrl.errors import BrokerError
from distrl.types import LogPosition, ObjectRef, Version
from distrl.wire.codec import encode
from hypothesis import given
from hypothesis import strategies as st


def version(number: int, sha256: str = "a") -> Version:
    return factories.version(number, adapter=ObjectRef("adapters/a", sha256, 1))


@given(st.lists(st.integers(0, 20), min_size=1))
def test_the_highest_number_wins_in_whatever_order_they_come(numbers: list[int]) -> None:
    chosen = newest(None, map(version, numbers))
    assert chosen is not None
    assert chosen.version == max(numbers)


def test_a_rollback_is_a_higher_number_that_points_at_older_weights() -> None:
    chosen = newest(version(3, "newer weights"), [version(4, "older weights")])
    assert chosen is not None
    assert chosen.adapter.sha256 == "older weights"


def test_the_first_of_equal_numbers_wins() -> None:
    assert newest(version(3, "first"), [version(3, "second")]) == version(3, "first")


def test_nothing_new_leaves_what_was() -> None:
    assert newest(None, []) is None
    assert newest(version(1), []) == version(1)


class Log:
    """The versions topic of a run."""

    def __init__(self) -> None:
        self.records: list[RawRecord] = []
        self.read = 0
        """How many records were read."""
        self.breaks_after: int | None = None
        """A reader gets so many records, and then an error."""
        self._now = 0

    def append(self, number: int | None) -> None:
        """number: None for a record that cannot be read."""
        self._now += 1
        value = b"?" if number is None else encode(version(number, f"{self._now:064x}"))
        self.records.append(RawRecord(LogPosition("versions", 0, len(self.records)), None, value, self._now))

    def read_since(self, config: Config, topic: str, start: Mapping[int, int]) -> Iterator[RawRecord]:
        assert topic == "versions"
        for number, raw in enumerate(self.records[start.get(0, 0) :]):
            if number == self.breaks_after:
                raise BrokerError("kafka", "is away", "start it")
            self.read += 1
            yield raw


CONFIG = load(environ={})


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.none() | st.integers(0, 5)),
            st.tuples(st.sampled_from(["cut", "break"]), st.integers(0, 4)),
            st.just(("read", 0)),
        ),
        max_size=40,
    )
)
def test_a_lineage_that_goes_on_is_the_one_that_the_log_has_now(steps: list[tuple[str, int | None]]) -> None:
    """Whichever numbers come twice or cannot be read, and whatever tail is lost and written anew meanwhile."""
    log, found = Log(), Lineage(CONFIG)
    with patch.object(versions, "read_since", log.read_since):
        for what, number in [*steps, ("read", 0)]:
            if what == "append":
                log.append(number)
            elif what == "cut":
                del log.records[number:]
            elif what == "break":
                log.breaks_after = number
                with suppress(BrokerError):
                    found.read()
                log.breaks_after = None
            else:
                assert found.read() == lineage(CONFIG)


def test_a_lineage_that_goes_on_reads_what_came_since_and_one_record_more() -> None:
    log, found = Log(), Lineage(CONFIG)
    with patch.object(versions, "read_since", log.read_since):
        read = []
        for _ in range(3):
            for number in range(100):
                log.append(len(log.records) + number)
            log.read = 0
            assert found.read()
            read.append(log.read)
    assert read == [100, 101, 101]
