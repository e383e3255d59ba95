"""What is said of the runs of a broker to a person who has named none of them."""

from __future__ import annotations

from distrl.broker.runs import SHOWN_RUNS, hint, runs_of
from distrl.broker.topics import TOPICS, topic_name

OTHERS = ["orders", "distrl.trajectories", "distrl..trajectories", "distrl.Not_One.trajectories", "__consumer_offsets"]


def topics_of(*runs: str) -> list[str]:
    return [*OTHERS, *(topic_name(run, name) for run in runs for name in TOPICS)]


def test_runs_are_known_by_their_trajectories() -> None:
    assert runs_of(topics_of("b", "a-2")) == ["a-2", "b"]
    assert runs_of([topic_name("half", "tasks"), *OTHERS]) == []


def test_the_runs_that_are_nearest_in_name_are_named_first_and_not_all_of_many() -> None:
    assert hint("demmo", topics_of("alpha", "demo", "demo-1")) == "set `run` to one that it has: demo, demo-1, alpha"
    many = [f"other-{number}" for number in range(20)]
    said = hint("demo-7", topics_of(*many, "demo-17"))
    assert said.startswith("set `run` to one that it has: demo-17, ")
    assert said.endswith(f", … {len(many) + 1 - SHOWN_RUNS} more")


def test_where_there_is_no_run_that_is_said() -> None:
    assert "this one has no runs" in hint("demo", OTHERS)
