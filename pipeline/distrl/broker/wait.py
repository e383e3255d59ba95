"""Waits for topics that another process makes: a Job of the same Helm release, or Strimzi's operators.

A pod starts together with its broker, its user and its topics. A role that does not find them ends, and Kubernetes
starts it again after longer and longer pauses; `wait_for_topics` asks every second instead.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from confluent_kafka import KafkaException, TopicCollection
from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from distrl.broker.connect import admin, check, explain, request_timeout_s
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.errors import BrokerError

PAUSE_S = 1.0


def wait_for_topics(config: Config, names: Collection[str], timeout_s: float, report: Callable[[str], object]) -> None:
    """Returns once each topic of the run is there and these settings' user may use it. names: keys of TOPICS.

    report: called with what is missing, each time that changes. Refused credentials and rights are waited for, too: the
    user may not be created completely yet. Raises BrokerError with what is missing after `timeout_s`.
    """
    topics = [topic_name(config.run, name) for name in names]
    reported = ""

    def look() -> None:
        check(config)
        _look(config, topics)

    def before_sleep(state: RetryCallState) -> None:
        nonlocal reported
        error = state.outcome.exception() if state.outcome is not None else None
        assert isinstance(error, BrokerError)
        if error.where != reported:
            report(f"{error.where}: {error.what}")
        reported = error.where

    Retrying(
        retry=retry_if_exception_type(BrokerError),
        stop=stop_after_delay(timeout_s),
        wait=wait_fixed(PAUSE_S),
        before_sleep=before_sleep,
        reraise=True,
    )(look)


def _look(config: Config, topics: Collection[str]) -> None:
    client = admin(config.kafka)  # a new one each time: one that is kept may be stuck (client_watch.py)
    timeout_s = request_timeout_s(config.kafka)
    for name, answer in client.describe_topics(TopicCollection(list(topics)), request_timeout=timeout_s).items():
        try:
            answer.result()
        except KafkaException as error:
            raise explain(error.args[0], name, "wait for it", config.kafka) from None
