from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from distrl.wire.collector import uncollected


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.enable()


def test_nothing_is_collected_within_and_everything_after_whatever_happens() -> None:
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            assert not gc.isenabled()
        assert not gc.isenabled(), "the outer block decides"
    assert gc.isenabled()
    with pytest.raises(ValueError, match="a bad record"), uncollected():
        raise ValueError("a bad record")
    assert gc.isenabled()


def test_a_process_that_never_collects_is_left_so() -> None:
    gc.disable()
    with uncollected():
        pass
    assert not gc.isenabled()
