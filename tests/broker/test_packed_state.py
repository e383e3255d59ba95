"""A saved state: every field of it comes back, and what is anything else is refused."""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass, field

import msgspec
import pytest
from distrl.broker import packed_state
from distrl.broker.duplicates import BLOCK, IdSet
from distrl.broker.packed_state import pack, unpack
from distrl.errors import WireError
from distrl.types import Heartbeat
from hypothesis import given
from hypothesis import strategies as st


@dataclass(slots=True)
class State:
    ids: IdSet = field(default_factory=IdSet)
    counts: dict[tuple[int, str], int] = field(default_factory=dict)
    beats: list[Heartbeat] = field(default_factory=list)


@dataclass(slots=True)
class Grown(State):
    more: int = 0


BEAT = Heartbeat("w", "worker", 1, None, None, {"lag": math.nan, "rate": math.inf})
task_ids = st.lists(st.builds("t-{:03}{}".format, st.integers(0, 2_000), st.sampled_from(["", ".r1", ".r2"])))


@given(task_ids, st.dictionaries(st.tuples(st.integers(-9, 9), st.text(max_size=3)), st.integers(), max_size=3))
def test_a_state_comes_back_with_every_field(ids: list[str], counts: dict[tuple[int, str], int]) -> None:
    counts = {key: value % 2**63 for key, value in counts.items()}
    state = State(IdSet(ids), counts, [BEAT])
    found = unpack(pack(state), State, len(set(ids)))
    assert pack(found) == pack(state)
    assert (set(found.ids), found.counts) == (set(ids), counts)
    assert math.isnan(found.beats[0].metrics["lag"])


def refused(data: bytes, kind: type = State, most: int = 10_000) -> str:
    with pytest.raises(WireError) as error:
        unpack(data, kind, most)
    return str(error.value)


def plain(state: object) -> object:
    return msgspec.msgpack.decode(zlib.decompress(pack(state)))


def packed(value: object) -> bytes:
    return zlib.compress(msgspec.msgpack.encode(value))


def test_a_state_with_a_field_more_or_less_is_refused() -> None:
    """Else a field that is new would be taken for empty, though the log may say something of it."""
    assert "would write other bytes" in refused(pack(State()), Grown)
    assert "would write other bytes" in refused(pack(Grown()), State)


@pytest.mark.parametrize("data", [b"", b"garbage", pack(State())[:-1], pack(State()) + b"x", zlib.compress(b"")])
def test_what_is_no_state_is_refused(data: bytes) -> None:
    assert "cannot be read" in refused(data)


def test_a_state_that_would_fill_the_memory_is_refused_unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed_state, "UNPACKED_BYTES", 1_000)
    assert "more than 1000 bytes" in refused(zlib.compress(bytes(10_000_000)))


@pytest.mark.parametrize(
    "series",
    [
        {"full": [[0, 10**12]]},
        {"full": [[10**12, 0], [0, 10**12]]},
        {"full": [[-1, 0]]},
        {"digits": 19},
        {"blocks": {"0": "!"}},
        {"blocks": {"x": "AQ=="}},
        {"blocks": {"0": "A" * (BLOCK // 3)}},
        {"blocks": {"0": 7}},
        {"prefix": None},
    ],
    ids=str,
)
def test_ids_in_another_form_or_too_many_are_refused(series: dict[str, object]) -> None:
    whole = plain(State(IdSet(["t-1"])))
    assert isinstance(whole, dict)
    whole["ids"][0].update(series)
    refused(packed(whole), most=2 * BLOCK)


def test_a_state_that_nobody_would_read_is_not_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the newest snapshot it had every start read the whole log."""
    state = State(IdSet(["a"]))
    pack(state)
    monkeypatch.setattr(packed_state, "UNPACKED_BYTES", 10)
    with pytest.raises(WireError, match="more than the 10 that are read"):
        pack(state)


def test_more_ids_than_records_are_refused() -> None:
    ids = IdSet(f"t-{n:04}" for n in range(2 * BLOCK + 5))
    assert len(unpack(pack(State(ids)), State, len(ids)).ids) == len(ids)
    for most in (len(ids) - 1, BLOCK, 0):
        assert f"more than {most} ids" in refused(pack(State(ids)), most=most)


@given(st.binary(max_size=200))
def test_any_other_bytes_are_refused_and_no_crash(data: bytes) -> None:
    for each in (data, zlib.compress(data)):
        refused(each)
