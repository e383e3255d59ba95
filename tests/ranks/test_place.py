"""Which rank a process is, by what a launcher has set."""

from __future__ import annotations

import pytest
from distrl.errors import ConfigError
from distrl.ranks.place import Place, place_of

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "MASTER_ADDR": "learner-0", "MASTER_PORT": "29500"}


def test_no_launcher_gives_no_place() -> None:
    assert place_of({"HOME": "/", "LOCAL_RANK": "1"}) is None


def test_what_torchrun_sets_is_read() -> None:
    assert place_of(TORCHRUN) == Place(3, 8, 1)
    assert not Place(3, 8, 1).leads
    assert Place(0, 8).leads


def test_a_pod_with_one_rank_needs_no_local_rank() -> None:
    assert place_of({name: value for name, value in TORCHRUN.items() if name != "LOCAL_RANK"}) == Place(3, 8, 0)


def test_a_single_rank_needs_no_address() -> None:
    assert place_of({"RANK": "0", "WORLD_SIZE": "1"}) == Place()


def test_a_place_is_read_as_it_was_written() -> None:
    assert place_of(Place(2, 4, 2).environ(port=20001)) == Place(2, 4, 2)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"RANK": "8"}, "WORLD_SIZE - 1"),
        ({"RANK": "-1"}, "RANK"),
        ({"RANK": ""}, "RANK: is not set"),
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE"),
        ({"WORLD_SIZE": "0", "RANK": "0"}, "WORLD_SIZE"),
        ({"MASTER_ADDR": ""}, "MASTER_ADDR"),
        ({"MASTER_PORT": "http"}, "MASTER_PORT"),
    ],
)
def test_what_no_launcher_would_set_is_refused_by_its_name(changes: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        place_of(TORCHRUN | changes)


def test_attempts_are_counted_where_all_ranks_are_on_one_machine() -> None:
    """Elsewhere each machine's torchrun counts its own restarts."""
    again = TORCHRUN | {"TORCHELASTIC_RESTART_COUNT": "2"}
    assert place_of(again | {"LOCAL_WORLD_SIZE": "8"}) == Place(3, 8, 1, 2)
    assert place_of(again | {"LOCAL_WORLD_SIZE": "4"}) == Place(3, 8, 1, 0)
    assert place_of(again) == Place(3, 8, 1, 0)
