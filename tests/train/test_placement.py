"""Who gets which phones where all roles run on one machine."""

from __future__ import annotations

import json
import re

import pytest
from distrl.config import Config, load
from distrl.errors import ConfigError
from distrl.train.placement import place, why_fewer
from hypothesis import given
from hypothesis import strategies as st


def named(sets: tuple[str, ...]) -> list[str]:
    """The phones that the `--set`s of a role name, as the role reads them."""
    devices = load(sets=sets, environ={}).devices
    return [*devices.addresses, *devices.serials]


def with_phones(addresses: list[str], serials: list[str]) -> Config:
    sets = [f"devices.addresses={json.dumps(addresses)}", f"devices.serials={json.dumps(serials)}"]
    return load(sets=sets, environ={})


NAMES = st.integers(1, 9999)


@given(
    st.lists(NAMES.map(lambda port: f"h:{port}"), unique=True),
    st.lists(NAMES.map(lambda number: f"usb{number}"), unique=True, min_size=1),
    st.integers(1, 9),
    st.integers(0, 3),
)
def test_every_phone_has_one_role_and_no_worker_is_idle(
    addresses: list[str], serials: list[str], workers: int, evaluation: int
) -> None:
    config = with_phones(addresses, serials)
    everybody = [*addresses, *serials]
    if len(everybody) <= evaluation:
        with pytest.raises(ConfigError, match="none is left to train on"):
            place(config, own=False, workers=workers, evaluation=evaluation)
        return
    placement = place(config, own=False, workers=workers, evaluation=evaluation)
    shares = [named(sets) for sets in placement.workers]
    held_out = [] if placement.evaluator is None else named(placement.evaluator)
    assert sorted([*held_out, *(name for share in shares for name in share)]) == sorted(everybody)
    assert len(held_out) == evaluation
    assert all(shares)
    assert len(shares) == min(workers, len(everybody) - evaluation)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert placement.demonstrator is None, "the script demonstrates on simulated phones alone"


def test_the_local_stack_demonstrates_on_the_phones_that_train() -> None:
    config = with_phones([f"127.0.0.1:{port}" for port in (1, 2, 3)], [])
    placement = place(config, own=True, workers=2, evaluation=1)
    assert placement.demonstrator is not None
    assert named(placement.demonstrator) == ["127.0.0.1:1", "127.0.0.1:2"]


def test_emulators_are_all_driven_by_the_worker_that_starts_them() -> None:
    config = load(sets=["devices.emulators.avd=pixel", "devices.emulators.count=4"], environ={})
    placement = place(config, own=False, workers=3, evaluation=0)
    assert placement.workers == ((),)
    assert placement.evaluator is None
    with pytest.raises(ConfigError, match="--evaluation-phones"):
        place(config, own=False, workers=3, evaluation=1)


@pytest.mark.parametrize(
    ("sets", "own", "workers", "why"),
    [
        (["devices.addresses=['h:1', 'h:2']"], True, 2, ""),
        (["devices.addresses=['h:1', 'h:2']"], True, 4, "2 of 4 workers start: each .*; raise phones.count"),
        (["devices.serials=[a]"], False, 3, "1 of 3 workers start: each .*; name more in devices.addresses"),
        (["devices.emulators.avd=pixel", "devices.emulators.count=4"], False, 2, "1 of 2 workers start: the emulators"),
    ],
)
def test_fewer_workers_than_are_asked_for_are_explained(sets: list[str], own: bool, workers: int, why: str) -> None:
    config = load(sets=sets, environ={})
    placement = place(config, own=own, workers=workers, evaluation=0)
    assert re.match(why or "$", why_fewer(config, placement, own=own, workers=workers))
