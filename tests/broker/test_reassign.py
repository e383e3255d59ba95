from __future__ import annotations

import json

import pytest
from distrl.broker.reassign import copies, plan, reassigned
from distrl.errors import BrokerError


def test_further_copies_go_to_the_brokers_that_hold_the_fewest_and_those_there_stay() -> None:
    assigned = {"tasks": {0: [1], 1: [1], 2: [2]}, "updates": {0: [3, 1, 2]}}
    wanted = reassigned(assigned, brokers=[1, 2, 3], factor=3)
    assert {p: held[0] for p, held in wanted["tasks"].items()} == {0: 1, 1: 1, 2: 2}
    assert all(sorted(held) == [1, 2, 3] for held in wanted["tasks"].values())
    assert "updates" not in wanted, "it has its copies"
    two = reassigned({"tasks": {0: [1], 1: [1]}}, brokers=[1, 2, 3], factor=2)
    assert two == {"tasks": {0: [1, 2], 1: [1, 3]}}


def test_fewer_copies_are_the_first_ones() -> None:
    assert reassigned({"tasks": {0: [3, 1, 2]}}, brokers=[1, 2, 3], factor=1) == {"tasks": {0: [3]}}


def test_a_broker_that_is_away_keeps_its_copies_and_counts() -> None:
    assert reassigned({"tasks": {0: [2]}}, brokers=[1, 3], factor=3)["tasks"][0][0] == 2


def test_more_copies_than_brokers_are_refused() -> None:
    with pytest.raises(BrokerError, match="3 replicas need as many brokers, and the cluster has 2"):
        reassigned({"tasks": {0: [1]}}, brokers=[1, 2], factor=3)


def test_the_plan_is_what_kafkas_tool_reads() -> None:
    read = json.loads(plan({"tasks": {1: [1, 2]}}))
    assert read == {"version": 1, "partitions": [{"topic": "tasks", "partition": 1, "replicas": [1, 2]}]}


def test_a_topic_has_as_many_copies_as_its_poorest_partition() -> None:
    assert copies({0: [1, 2, 3], 1: [1]}) == 1
