"""Records to the dicts that fastavro takes, and back: every field there is, and nothing that is none."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
import pytest
from distrl.types import Heartbeat, Record, Task, Trajectory
from distrl.wire.codec import encode
from distrl.wire.convert import to_datum, to_record
from hypothesis import given, settings

from tests.wire.records import STEP, TASK, TRAJECTORY, plain, records


def listed(value: Any) -> Any:
    """`value` with tuples as lists, as `plain` gives them."""
    if isinstance(value, dict):
        return {name: listed(each) for name, each in value.items()}
    return [listed(each) for each in value] if isinstance(value, list | tuple) else value


@settings(max_examples=300, deadline=None)
@given(records)
def test_every_field_is_in_the_datum_and_comes_back(record: Record) -> None:
    datum = to_datum(record)
    assert listed(datum) == plain(record)
    assert list(datum) == [field.name for field in dataclasses.fields(record)]
    assert to_record(datum, type(record)) == record


def test_maps_come_in_the_order_of_their_keys() -> None:
    assert list(to_datum(replace(TASK, params={"b": "2", "a": "1"}))["params"]) == ["a", "b"]


def test_numbers_of_numpy_and_any_mapping_are_written_as_what_they_are() -> None:
    """A measurement may come from an array; `msgspec.to_builtins` would refuse both."""
    step = replace(STEP, logprob=np.float64(-1.5), version=np.int64(7))
    assert encode(replace(TRAJECTORY, steps=(step,))) == encode(replace(TRAJECTORY, steps=(STEP,)))
    beat = Heartbeat("p", "worker", 1, None, None, MappingProxyType({"lag": np.float64(0.5)}))
    assert encode(beat) == encode(replace(beat, metrics={"lag": 0.5}))


@pytest.mark.parametrize(
    ("change", "where"),
    [
        ({"split": "elsewhere"}, r"\$\.split"),
        ({"max_steps": "10"}, r"\$\.max_steps"),
        ({"max_steps": 1.5}, r"\$\.max_steps"),
        ({"instruction": None}, r"\$\.instruction"),
        ({"params": {"a": 1}}, r"\$\.params\[\.\.\.\]"),
    ],
)
def test_a_datum_of_other_types_is_no_record(change: dict[str, Any], where: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=where):
        to_record(to_datum(TASK) | change, Task)


def test_a_datum_without_a_field_that_has_no_default_is_no_record() -> None:
    datum = to_datum(TRAJECTORY)
    del datum["steps"][1]["version"]
    with pytest.raises(msgspec.ValidationError, match=r"`version` - at `\$\.steps\[1\]`"):
        to_record(datum, Trajectory)
