"""Publishes tasks as the only feeder of a run: a feeder that starts later fences this one.

Each batch is a transaction, or several of MOST tasks. If an outcome is unknown (the broker became unavailable, or this
process was killed), the tasks found in the log were fed, and the others are published again, unless a later feeder has
claimed the role (docs/adr/0017).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType

from tenacity import wait_fixed

from distrl.broker import claims
from distrl.broker.claims import Claim, ReplacedError
from distrl.broker.connect import BeyondUseError, RefusedError
from distrl.broker.fenced import FencedError, FencedProducer, Outgoing
from distrl.broker.producer import RecordTooLargeError
from distrl.broker.reader import read_since
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.feeder.traces import traced
from distrl.retry import StoppedError, retry
from distrl.telemetry.tracing import OFF, Tracer
from distrl.types import Task

log = logging.getLogger(__name__)

ROLE = "feeder"
AGAIN_S = 1.0
"""Pause before a batch is retried; the producer's own time-outs are seconds longer."""
MOST = 10_000
"""Most tasks of one transaction: the client queues no more than 100,000 records, and the broker aborts a transaction
that takes longer than its time-out."""


class TaskPublisher:
    """Life cycle: `with` opens it, which fences every earlier feeder. One thread."""

    claim: Claim
    """This feeder's claim to the role, set by `with`. Its heartbeats must name it."""

    def __init__(self, config: Config, tracer: Tracer = OFF) -> None:
        self._config, self._tracer = config, tracer
        self._producer: FencedProducer | None = self._made()

    def __enter__(self) -> TaskPublisher:
        assert self._producer is not None
        self._producer.open()
        self.claim = claims.claim(self._config, ROLE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def feed(
        self,
        tasks: Iterable[tuple[Task, int]],
        before: Mapping[int, int],
        stop: threading.Event,
        retrying: Callable[[], object] = lambda: None,
    ) -> None:
        """Publish each task to its partition, and return when the broker has them all or `stop` is set.

        before: the ends of the tasks topic before this batch, by partition; the batch's tasks are searched from there.
        retrying: called before each pause while the broker does not answer.
        Raises ReplacedError if another feeder has taken over, and errors that retrying does not fix.
        """
        fed = [] if stop.is_set() else list(tasks)
        left: dict[str, Outgoing] = {}

        def publish() -> None:
            reopened = self._producer is None
            if reopened:
                self._reopen()
                for raw in read_since(self._config, "tasks", before):
                    left.pop((raw.key or b"").decode(errors="replace"), None)
            if left:
                self._write(list(left.values()), reopened)

        def failed(error: BrokerError, wait_s: float) -> None:
            log.warning("%d tasks are not acknowledged yet, retrying: %s", len(left), error.what)
            self._close()
            retrying()

        with traced(self._tracer, [task for task, _ in fed]) as headers, suppress(StoppedError):
            for task, at in fed:
                own = headers[task.task_id]
                left[task.task_id] = Outgoing.of(self._config.run, "tasks", task.task_id, task, own, at)
            if left:
                final = (ReplacedError, RefusedError, RecordTooLargeError)
                retry(publish, stop, BrokerError, wait_fixed(AGAIN_S), failed, but=final)

    def _write(self, records: Sequence[Outgoing], reopened: bool) -> None:
        """reopened: whether the client is new. If a new client cannot be used either, replacing it again is no help."""
        assert self._producer is not None
        try:
            for begin in range(0, len(records), MOST):
                self._producer.write_all(records[begin : begin + MOST])
        except BeyondUseError as error:
            if reopened:
                raise
            raise BrokerError(error.where, error.what, error.hint) from error
        except FencedError:
            self._refuse_replaced(claims.SUCCESSOR_S)
            raise

    def _reopen(self) -> None:
        """Open another producer, unless this feeder was replaced. claims.py says why the claim is checked twice."""
        self._refuse_replaced()
        self._producer = self._made()
        self._producer.open()
        self._refuse_replaced()

    def _refuse_replaced(self, longest_s: float = 0.0) -> None:
        claims.refuse_replaced(self.claim, self._config, ROLE, longest_s)

    def _made(self) -> FencedProducer:
        return FencedProducer(self._config, ROLE, "the tasks topic", lambda: claims.fenced(self._config.run, ROLE))

    def _close(self) -> None:
        if self._producer is not None:
            self._producer.close()
            self._producer = None
