"""Which runs a broker has, by the names of their topics; for commands that only read a run."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import SequenceMatcher

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from distrl.broker.connect import RefusedError, UnknownTopicError, admin, check, explain, request_timeout_s, with_retry
from distrl.broker.topic_admin import partition_count
from distrl.broker.topics import TOPICS, topic_name
from distrl.config import RUN_NAME, Config, KafkaSettings

SHOWN_RUNS = 8
"""Runs listed in a message: those with the most similar names."""


def check_run(config: Config) -> None:
    """Reach the broker, and find the run there. Raises as `check`, and RefusedError if the broker has no such run.

    For readers: creating topics for a mistyped name would leave them there, empty.
    """
    check(config)
    kafka, name = config.kafka, topic_name(config.run, "trajectories")
    client = admin(kafka)
    names = _topics(client, kafka)
    if any(topic_name(config.run, each) in names for each in TOPICS):
        return
    try:
        partition_count(client, config, name, "see the topic")  # a list omits topics without read access
    except UnknownTopicError:
        what = f"the broker at {kafka.bootstrap} has no run {config.run}"
        raise RefusedError("run", what, hint(config.run, names)) from None


def run_names(config: Config) -> list[str]:
    """The runs of the broker, ascending. Raises BrokerError."""
    return runs_of(_topics(admin(config.kafka), config.kafka))


def _topics(client: AdminClient, kafka: KafkaSettings) -> Collection[str]:
    try:
        return with_retry(kafka, lambda: client.list_topics(timeout=request_timeout_s(kafka))).topics.keys()
    except KafkaException as error:
        raise explain(error.args[0], "kafka.bootstrap", "list the topics", kafka) from None


def runs_of(names: Iterable[str]) -> list[str]:
    """The runs whose trajectories are among these names of topics, ascending. Pure."""
    parts = (each.split(".") for each in names)
    return sorted(each[1] for each in parts if len(each) == 3 and _is_run(*each))


def _is_run(first: str, run: str, last: str) -> bool:
    return (first, last) == ("distrl", "trajectories") and RUN_NAME.fullmatch(run) is not None


def hint(wanted: str, names: Iterable[str]) -> str:
    """The hint for an unknown run. names: of the broker's topics. Pure."""
    runs = runs_of(names)
    if not runs:
        return "set kafka.bootstrap to the broker of that run; this one has no runs"
    near = sorted(runs, key=lambda run: -SequenceMatcher(None, wanted, run).ratio())
    more = len(near) - SHOWN_RUNS
    return f"set `run` to one that it has: {', '.join(near[:SHOWN_RUNS])}" + (f", … {more} more" if more > 0 else "")
