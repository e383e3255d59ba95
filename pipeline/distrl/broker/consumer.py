"""Tasks for a worker, through a consumer group.

Life cycle: one thread owns a TaskConsumer and calls `poll` all the time, also while paused, because polling keeps the
worker in its group. `take_for` joins the group, or leaves it: a worker without a phone would keep its partitions' tasks
from the others. Only `commit` may be called from any thread: it records the fact, and the next `poll` sends it.
`close` commits what is done and leaves the group, so that others take over at once; if the broker does not answer it
gives up after CLOSE_S, and uncommitted tasks are repeated by the partition's next owner.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Set
from dataclasses import dataclass
from types import TracebackType

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from distrl.broker.client_settings import Settings
from distrl.broker.client_watch import ClientWatch
from distrl.broker.connect import PERMANENT, explain, reported, settings
from distrl.broker.dead_letters import DeadLetters
from distrl.broker.inflight import InFlight
from distrl.broker.producer import Headers
from distrl.broker.reader import RawRecord, decoded
from distrl.broker.task_buffer import TaskBuffer
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.errors import BrokerError, WireError
from distrl.supervised import SupervisedThread
from distrl.types import LogPosition, Task

LOG = logging.getLogger("distrl.broker.consumer")

SESSION_TIMEOUT_S = 15.0
"""After this long without a heartbeat the group gives a worker's tasks to others. librdkafka's own thread sends the
heartbeats, so a busy interpreter does not miss them; a dead process is noticed this soon. Longer than SOCKET_TIMEOUT_S:
a worker whose coordinator freezes finds the next one and stays a member, instead of joining again beside its old
membership, whose time-out the group would wait for."""

HEARTBEAT_S = 1.0
"""A member learns of a rebalance with its next heartbeat, and moving a partition takes two rebalances."""

POLL_INTERVAL_S = 60.0
"""A worker that has not polled for this long is stuck, and is removed from the group."""

PREFETCH_RECORDS = 64
"""Tasks fetched ahead. Few: pausing a partition discards what was fetched and not read."""

LEAST_BUFFERED, BUFFERED_PER_PHONE = 64, 4
"""Tasks that are read while the worker is busy: 64, or four for each phone if that is more. By default three are
outstanding for each phone, so those that wait are all read, and the oldest is begun first. Beyond that partitions are
paused, which costs: after a resume librdkafka sleeps for up to a second before it fetches again."""

RESUME_S = 5.0
"""Interval at which partitions that are not paused are resumed again: librdkafka may lose a resume during a rebalance
(its issue 5591). To resume a partition that is not paused does nothing."""

LOOK_S = 1.0
"""Interval of librdkafka's statistics, by which `brokers_away` is known."""

CLOSE_S = 10.0
"""Longest `close`: half of it for the last commit, the rest for leaving the group. A member that could not leave is
removed after SESSION_TIMEOUT_S."""

CLOSING_POLL_S = 0.1


def most_buffered(phones: int) -> int:
    """Tasks that a worker with so many phones reads before it begins them."""
    return max(LEAST_BUFFERED, BUFFERED_PER_PHONE * phones)


@dataclass(frozen=True, slots=True)
class LoggedTask:
    """A task with its position in the log; pass `position` to `commit` once its trajectory is acknowledged."""

    position: LogPosition
    task: Task
    headers: Headers = ()


class TaskConsumer:
    """The tasks topic of a run, shared with the other workers of group `worker.group`. It joins with `take_for`.

    dead_letters: where an unreadable task goes. Until its dead letter is acknowledged no further task is handed out,
    and `poll` keeps the group membership. If None, `poll` raises WireError.
    """

    def __init__(
        self,
        config: Config,
        dead_letters: DeadLetters | None = None,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        poll_interval_s: float = POLL_INTERVAL_S,
    ) -> None:
        self._config = config
        self._dead_letters = dead_letters
        self._topic = topic_name(config.run, "tasks")
        self._lock = threading.Lock()  # guards _flight, the only state that other threads use
        self._flight = InFlight()
        self._permanent_error: KafkaError | None = None
        self._committing = 0  # requests that the broker has not answered
        self._paused = False  # as the caller asked
        self._stopped: bool | None = False  # whether the partitions are paused; None: new ones may differ
        self._next_resume = 0.0
        self._closed = False
        self._phones = 0
        self._joined = False
        self._buffered = TaskBuffer()
        own: Settings = {
            "group.id": f"distrl.{config.run}.{config.worker.group}",
            "partition.assignment.strategy": "cooperative-sticky",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_uncommitted",  # a task in the log counts, even if aborted (Topic.fenced)
            "session.timeout.ms": int(session_timeout_s * 1000),
            "heartbeat.interval.ms": int(HEARTBEAT_S * 1000),
            "max.poll.interval.ms": int(max(poll_interval_s, session_timeout_s) * 1000),
            "queued.min.messages": PREFETCH_RECORDS,
            "fetch.queue.backoff.ms": 20,
        }
        self._own = own
        self._consumer, self._watch = self._made()

    def __enter__(self) -> TaskConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def dead_letters(self) -> int:
        """How many unreadable tasks were written to the dead-letter topic since the start."""
        return 0 if self._dead_letters is None else self._dead_letters.written

    @property
    def running(self) -> int:
        """Tasks handed out and not passed to `commit` yet."""
        with self._lock:
            return self._flight.running

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions that this worker owns now; none before the first few polls."""
        with self._lock:
            return self._flight.owned

    @property
    def brokers_away(self) -> bool:
        """Whether no broker was connected, by statistics that were at most LOOK_S old at the last poll."""
        return not self._watch.connected

    @property
    def buffered(self) -> int:
        """Tasks read and not handed out yet."""
        return len(self._buffered)

    @property
    def joined(self) -> bool:
        """Whether it is in the workers' group, or joining it."""
        return self._joined

    @property
    def paused(self) -> bool:
        return self._paused

    def take_for(self, phones: int) -> None:
        """Join the group and buffer tasks for this many phones; 0: leave it, so that others get its tasks.

        Leaving commits only what is done, and is complete when `partitions` is empty, after a few polls. Joining again
        waits for that.
        """
        self._phones = phones
        if not phones and self._joined:
            self._joined = False
            self._buffered.clear()
            self._commit_done()
            self._consumer.unsubscribe()  # later commits are sent when the partitions are revoked

    def drop(self, position: LogPosition) -> None:
        """The task at `position` was handed out and will not be begun here. Call after leaving the group."""
        with self._lock:
            self._flight.dropped(position.partition, position.offset)

    def poll(self, timeout_s: float) -> LoggedTask | None:
        """The oldest of the tasks that were read; None after `timeout_s`, while paused or out of the group. Serves
        group and commits.

        Raises BrokerError if waiting does not help (no such topic, refused credentials, no right), and BadRecordsError
        if more tasks are unreadable than `kafka.dead_letter_limit` allows.
        """
        self._settle()
        if self._watch.stuck:
            self._replace()
        self._commit_done()
        self._join()
        waits = self._blocked or not self._buffered
        message = self._consumer.poll(timeout_s if waits else 0)
        if message is not None:
            if (error := message.error()) is not None:
                self._on_error(error)
            elif self._joined:  # records that arrive after leaving belong to others
                self._buffered.add(RawRecord.of(message))
        if self._permanent_error is not None:
            raise explain(self._permanent_error, self._topic, "read tasks", self._config.kafka)
        raw = self._buffered.pop() if self._buffered and not self._blocked else None
        self._throttle()
        return None if raw is None else self._begin(raw)

    def pause(self) -> None:
        """Hand out no further task; they are read on until the buffer is full. Keep calling `poll`."""
        self._paused = True

    def resume(self) -> None:
        """Hand out tasks again; the first ones are buffered already."""
        self._paused = False

    def commit(self, position: LogPosition) -> None:
        """The trajectory of the task at `position` is acknowledged. From any thread, in any order.

        No error if the partition has moved to another worker meanwhile: that worker repeats the task, and readers skip
        the second record by its task id.
        """
        with self._lock:
            counted = self._flight.finished(position.partition, position.offset)
        if not counted:
            LOG.info("%s is done but not committed: its partition was reassigned", position)

    def close(self) -> None:
        """Commit what is done, leave the group, within CLOSE_S. Tasks still in flight go to other workers."""
        if self._closed:
            return
        self._closed, began = True, time.monotonic()
        try:
            self._settle()
        except BrokerError as error:  # `poll` raises it, too, and the group must not wait for the session time-out
            LOG.warning("a dead letter is not written; its task will be read again: %s", error)
        self._commit_until(began + CLOSE_S / 2)
        # librdkafka waits for the broker without a time-out, so a daemon thread does it.
        leaving = SupervisedThread(self._consumer.close, "leaving the workers' group")
        leaving.join(max(0.0, began + CLOSE_S - time.monotonic()))
        if leaving.running:
            LOG.warning("the broker does not answer: the workers' group notices the leave after the session time-out")

    def _made(self, before: ClientWatch | None = None) -> tuple[Consumer, ClientWatch]:
        """A client that is in no group yet. before: of the client that it replaces."""
        watch = ClientWatch(self._config.kafka, self._topic, lambda: self.partitions, LOOK_S, before)

        def on_error(error: KafkaError) -> None:
            if watch is self._watch:  # else its client was replaced
                self._on_error(error)

        def on_commit(error: KafkaError | None, stored: list[TopicPartition]) -> None:
            if watch is self._watch:
                self._on_commit(error, stored)

        own = self._own | watch.settings() | {"on_commit": on_commit}
        try:
            return Consumer(settings(self._config.kafka, self._config.worker.name, own, on_error)), watch
        except KafkaException as error:
            raise explain(error.args[0], self._topic, "join the workers' group", self._config.kafka) from None

    def _replace(self) -> None:
        """Continue with another client, which joins the group anew. The tasks in flight count as reassigned."""
        made = self._watch.replacement(lambda: self._made(self._watch), LOG, "reading tasks")
        if made is None:
            return
        old = self._consumer
        self._consumer, self._watch = made
        self._give_up(self.partitions)
        self._joined, self._stopped, self._committing = False, False, 0
        SupervisedThread(old.close, "closing a replaced client")  # which may wait for a broker for ever

    def _join(self) -> None:
        """Subscribe if wanted, once the partitions of an earlier membership are revoked."""
        if self._joined or not self._phones or self.partitions:
            return
        try:
            self._consumer.subscribe(
                [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
        except KafkaException as error:
            raise explain(error.args[0], self._topic, "join the workers' group", self._config.kafka) from None
        self._joined = True

    def _throttle(self) -> None:
        """Pause the partitions while the buffer is full."""
        full = len(self._buffered) >= most_buffered(self._phones)
        if full and self._stopped is not True:
            self._consumer.pause(self._places())
        elif not full and (self._stopped is not False or time.monotonic() >= self._next_resume):
            self._consumer.resume(self._places())
            self._next_resume = time.monotonic() + RESUME_S
        self._stopped = full

    def _begin(self, raw: RawRecord) -> LoggedTask | None:
        with self._lock:
            wanted = self._flight.delivered(raw.position.partition, raw.position.offset)
        if not wanted:
            return None
        try:
            return LoggedTask(raw.position, decoded(raw, Task), raw.headers)
        except WireError as error:
            if self._dead_letters is None:
                raise
            self._dead_letters.put(raw, error)
            return None

    @property
    def _blocked(self) -> bool:
        return self._paused or (self._dead_letters is not None and self._dead_letters.waiting)

    def _settle(self) -> None:
        """Commit the tasks whose dead letters are acknowledged."""
        for position in self._dead_letters.settled() if self._dead_letters is not None else ():
            self.commit(position)

    def _on_error(self, error: KafkaError) -> None:
        """Called within any client call, so it only stores the error for `poll` to raise."""
        if error.code() in PERMANENT or error.fatal():
            self._permanent_error = error
        else:
            LOG.warning("reading tasks: %s", reported(error))  # librdkafka retries by itself

    def _places(self) -> list[TopicPartition]:
        return [TopicPartition(self._topic, partition) for partition in sorted(self.partitions)]

    def _commit_done(self) -> None:
        """Send what is committable, one request at a time."""
        if not self._committing:
            self._send_commit()

    def _send_commit(self) -> None:
        """A later poll calls `_on_commit` with the result."""
        with self._lock:
            due = self._flight.committable()
        if due:
            self._committing += 1
            self._consumer.commit(offsets=[TopicPartition(self._topic, p, o) for p, o in due.items()])

    def _commit_until(self, deadline: float) -> None:
        """Commit what is done, and wait for the broker's answer until `deadline`."""
        self._stopped = True  # no further tasks are wanted
        self._consumer.pause(self._places())
        self._commit_done()
        while self._committing and time.monotonic() < deadline:
            self._consumer.poll(CLOSING_POLL_S)
            self._commit_done()
        with self._lock:
            due = self._flight.committable()
        if due:
            LOG.warning("tasks are done but not committed and will be repeated: before %s of %s", due, self._topic)

    def _confirm(self, stored: list[TopicPartition]) -> None:
        with self._lock:
            self._flight.confirmed({place.partition: place.offset for place in stored if place.error is None})

    def _on_commit(self, error: KafkaError | None, stored: list[TopicPartition]) -> None:
        self._committing -= 1
        if error is None:
            self._confirm(stored)
        elif self.partitions.issuperset(place.partition for place in stored):
            LOG.info("commit failed, retrying with the next poll: %s", error.str())
        else:
            LOG.warning("tasks are done but not committed and will be repeated: %s", error.str())

    def _on_assign(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        consumer.incremental_assign(places)
        if consumer is not self._consumer:
            return  # it was replaced, and is being closed
        with self._lock:
            self._flight.assigned(place.partition for place in places)
        self._stopped = None  # `_throttle` pauses them later: a pause within this callback would lose their offsets

    def _on_revoke(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        if consumer is self._consumer:
            self._send_commit()  # not waited for: the broker gets it before the revocation
        self._forget(consumer, places)

    def _on_lost(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._forget(consumer, places)

    def _forget(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Unassign partitions, resumed: librdkafka keeps them paused when they are assigned again."""
        consumer.resume(places)
        consumer.incremental_unassign(places)
        if consumer is not self._consumer:
            return  # it was replaced, and its partitions given up then
        self._give_up({place.partition for place in places})

    def _give_up(self, partitions: Set[int]) -> None:
        """These belong to other workers from now on."""
        with self._lock:
            self._flight.revoked(partitions)
        self._buffered.drop(partitions)
