from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from distrl.broker.claims import MOST_AHEAD_MS, Claim, _counting


def test_a_claim_is_above_all_that_were_there_whatever_the_clock() -> None:
    first = Claim.after([], now_ms=1_000)
    second = Claim.after([first], now_ms=400)
    assert first < second < Claim.after([second, first], now_ms=5_000)


def test_of_claims_made_at_once_one_is_the_greater() -> None:
    claims = {Claim.after([], now_ms=1_000) for _ in range(20)}
    assert len(claims) == 20
    assert len({claim.number for claim in claims}) == 1
    assert [max(claims)] == [one for one in claims if all(one >= other for other in claims)]


def test_a_claim_is_read_as_it_was_sent() -> None:
    claim = Claim.after([], now_ms=1_700_000_000_000)
    name, value = claim.header
    assert (name, Claim.parsed(value)) == ("distrl.claim", claim)


@pytest.mark.parametrize(
    "header", [None, b"", b"7", b"7 ", b"-7 a", b"x a", b"7 " + b"a" * 33, b"9" * 19 + b" a", "٣ a".encode()]
)
def test_a_header_that_is_no_claim_claims_nothing(header: bytes | None) -> None:
    assert Claim.parsed(header) is None


def test_a_claim_far_ahead_of_the_brokers_clock_counts_for_nothing() -> None:
    now = 1_700_000_000_000
    assert Claim(now + MOST_AHEAD_MS, "a").counts(now)
    assert not Claim(now + MOST_AHEAD_MS + 1, "a").counts(now)
    assert not Claim(10**18 - 1, "a").counts(now), "after which no greater one could be read"


def written(claim: Claim, timestamp: int) -> Any:
    """As the record of it is read from the log."""
    return SimpleNamespace(headers=(claim.header,), timestamp=timestamp)


def test_a_claim_from_when_the_brokers_clock_was_ahead_is_followed_by_claims_that_count() -> None:
    """Else nobody could claim the role until the time of that clock has come."""
    now, year = 1_700_000_000_000, 365 * MOST_AHEAD_MS
    old = Claim.after([], now + year)
    new = Claim.after([old], now)
    log = [written(old, now + year), written(Claim(10**18 - 1, "a"), now), written(new, now)]
    assert [claim for claim, _ in _counting(log)] == [old, new]
    assert max(claim for claim, _ in _counting(log)) == new
    assert _counting([written(old, now)]) == []
