"""Queues records that the learner publishes for people only. They follow from the log; nothing is learned from them.

Publishing neither waits nor raises. Where the run lacks the topic, or the learner has no right to write it, the learner
logs one warning and continues without these records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future, wait

from distrl.broker.connect import RefusedError
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import retained
from distrl.config import Config
from distrl.errors import BrokerError, WireError
from distrl.types import LogPosition, Record

LOG = logging.getLogger("distrl.learner.beside")


class BesideLog:
    """Publishes records of one topic. One thread."""

    def __init__(self, config: Config, producer: RecordProducer, topic: str, most_waiting: int) -> None:
        """Asks the broker once whether the topic exists: a run that was begun by earlier software may lack it.

        most_waiting: the most unacknowledged records. Further ones are dropped, so that they cannot fill the producer's
        queue, which the learner's heartbeats and dead letters share.
        """
        self._producer, self._topic, self._most_waiting = producer, topic, most_waiting
        self._waiting: list[Future[LogPosition | None]] = []
        self._over = False
        try:
            retained(config, topic)
        except RefusedError as error:
            self._end(error)
        except BrokerError as error:  # temporary: the producer keeps its queue until the broker answers
            LOG.warning("the topic %s cannot be examined now: %s", topic, error)

    def send(self, key: str, made: Callable[[], Record]) -> None:
        """Queue the record that `made` returns, or drop it."""
        self._forget_acknowledged()
        if self._over or len(self._waiting) >= self._most_waiting:
            return
        try:
            self._waiting.append(self._producer.publish(self._topic, key, made()))
        except RefusedError as error:
            self._end(error)
        except (BrokerError, WireError) as error:  # the latter: it is larger than any record may be
            LOG.warning("a record of %s is left out: %s", self._topic, error)

    def settle(self, timeout_s: float) -> None:
        """Wait until every record that was sent is acknowledged or refused, at most `timeout_s`."""
        wait(self._waiting, timeout_s)
        self._forget_acknowledged()

    def _forget_acknowledged(self) -> None:
        done = [each for each in self._waiting if each.done()]
        self._waiting = [each for each in self._waiting if not each.done()]
        failed = next((error for each in done if (error := each.exception()) is not None), None)
        if failed is not None and not self._over:
            self._end(failed)

    def _end(self, error: BaseException) -> None:
        """Send nothing more while this process runs: a missing topic or right does not come by itself."""
        self._over = True
        LOG.warning("%s of updates are not recorded until this learner is started again: %s", self._topic, error)
