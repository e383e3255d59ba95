from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from distrl.wire.gc_paused import gc_paused


@pytest.fixture(autouse=True)
def collecting() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.enable()


def test_nothing_is_collected_within_and_everything_after_whatever_happens() -> None:
    with gc_paused():
        assert not gc.isenabled()
        with gc_paused():
            assert not gc.isenabled()
        assert not gc.isenabled(), "the outer block decides"
    assert gc.isenabled()
    with pytest.raises(ValueError, match="a bad record"), gc_paused():
        raise ValueError("a bad record")
    assert gc.isenabled()


def test_a_process_that_never_collects_is_left_so() -> None:
    gc.disable()
    with gc_paused():
        pass
    assert not gc.isenabled()
