"""Tasks for a worker, through a consumer group.

Life cycle: one thread owns a TaskConsumer and calls `poll` again and again, also while it is paused, because polling is
what keeps the worker in its group. `take_for` joins the group, and leaves it: a worker without a phone would keep its
partitions' tasks from the others. `commit` alone may be called from any thread: it notes the fact, and the next `poll`
tells the broker. `close` commits what is done and leaves the group, so that others take over at once; where the broker
does not answer it gives up after CLOSE_S, and what could not be committed is done once more by whoever gets it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from types import TracebackType

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from distrl.broker.connect import HOPELESS, explain, reported, settings
from distrl.broker.dead_letters import DeadLetters
from distrl.broker.inflight import InFlight
from distrl.broker.reader import RawRecord, decoded
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.errors import WireError
from distrl.supervised import SupervisedThread
from distrl.types import LogPosition, Task

LOG = logging.getLogger("distrl.broker.consumer")

SESSION_TIMEOUT_S = 15.0
"""After this long without a heartbeat the group gives a worker's tasks to others. Heartbeats come from librdkafka's own
thread, so a busy interpreter does not miss them; a dead process is noticed this soon. Longer than SOCKET_TIMEOUT_S: a
worker whose coordinator stands still finds the next one and stays a member, instead of joining anew beside its own
shadow, for which the group would wait once more."""

HEARTBEAT_S = 1.0
"""A member hears of a rebalance with its next heartbeat, and moving a partition takes two rebalances."""

POLL_INTERVAL_S = 60.0
"""A worker that has not polled for this long is stuck, and leaves the group."""

PREFETCH_RECORDS = 64
"""Tasks fetched ahead. Few: what is fetched and not begun is thrown away when the partitions are paused."""

HELD_PER_PHONE = 1
"""Tasks kept in hand while the worker is busy; its partitions are paused only once it has as many. After a resume,
librdkafka sleeps for up to a second before it fetches again, and without these each phone would sleep with it."""

CLOSE_S = 10.0
"""Longest `close`: half of it for the last commit, the rest for leaving the group. Who is never heard of again is put
out of the group after SESSION_TIMEOUT_S."""

CLOSING_POLL_S = 0.1


@dataclass(frozen=True, slots=True)
class LoggedTask:
    """A task with its place in the log; hand `position` to `commit` once its trajectory is acknowledged."""

    position: LogPosition
    task: Task


class TaskConsumer:
    """The tasks topic of a run, shared with the other workers of group `worker.group`. It joins with `take_for`.

    letters: where an unreadable task goes. Until its dead letter is acknowledged no further task is handed out, and
    `poll` keeps the place in the group. Without letters, `poll` raises WireError.
    """

    def __init__(
        self,
        config: Config,
        letters: DeadLetters | None = None,
        session_timeout_s: float = SESSION_TIMEOUT_S,
        poll_interval_s: float = POLL_INTERVAL_S,
    ) -> None:
        self._config = config
        self._letters = letters
        self._topic = topic_name(config.run, "tasks")
        self._lock = threading.Lock()  # guards _flight, the one thing that other threads reach
        self._flight = InFlight()
        self._hopeless: KafkaError | None = None
        self._committing = 0  # requests that the broker has not answered
        self._paused = False  # the caller's wish
        self._stopped: bool | None = False  # whether the partitions are; None: some came, which may be or not
        self._closed = False
        self._phones = 0
        self._joined = False
        self._held: deque[RawRecord] = deque()
        own = {
            "group.id": f"distrl.{config.run}.{config.worker.group}",
            "partition.assignment.strategy": "cooperative-sticky",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_uncommitted",  # a task counts once it stands in the log, for every reader of it
            "session.timeout.ms": int(session_timeout_s * 1000),
            "heartbeat.interval.ms": int(HEARTBEAT_S * 1000),
            "max.poll.interval.ms": int(max(poll_interval_s, session_timeout_s) * 1000),
            "queued.min.messages": PREFETCH_RECORDS,
            "fetch.queue.backoff.ms": 20,
            "on_commit": self._on_commit,
        }
        try:
            self._consumer = Consumer(settings(config.kafka, config.worker.name, own, self._on_error))
        except KafkaException as error:
            raise explain(error.args[0], self._topic, "join the workers' group", config.kafka) from None

    def __enter__(self) -> TaskConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def running(self) -> int:
        """Tasks handed out and not committed to by `commit` yet."""
        with self._lock:
            return self._flight.running

    @property
    def partitions(self) -> frozenset[int]:
        """The partitions that this worker owns now; none before the first few polls."""
        with self._lock:
            return self._flight.owned

    @property
    def held(self) -> int:
        """Tasks read and not handed out."""
        return len(self._held)

    @property
    def joined(self) -> bool:
        """Whether it is in the workers' group, or on its way there."""
        return self._joined

    @property
    def paused(self) -> bool:
        return self._paused

    def take_for(self, phones: int) -> None:
        """Join the group and keep tasks in hand for so many phones; 0: leave it, so that others get its tasks.

        Leaving commits what is done and no more. It is over once `partitions` is empty, after a few polls; who joins
        again before that waits for it.
        """
        self._phones = phones
        if not phones and self._joined:
            self._joined = False
            self._held.clear()
            self._commit_done()
            self._consumer.unsubscribe()  # what was committed meanwhile goes along when the partitions are given up

    def drop(self, position: LogPosition) -> None:
        """The task at `position` was handed out and not begun, and will not be here. To be told after leaving."""
        with self._lock:
            self._flight.dropped(position.partition, position.offset)

    def poll(self, timeout_s: float) -> LoggedTask | None:
        """The next task, or None after `timeout_s`, while paused or out of the group. Serves group and commits.

        Raises BrokerError where waiting does not help: no such topic, refused credentials, no right; and
        BadRecordsError where more tasks cannot be read than `kafka.dead_letter_limit` allows.
        """
        self._settle()
        self._commit_done()
        self._join()
        waits = self._held_back or not self._held
        message = self._consumer.poll(timeout_s if waits else 0)
        if message is not None:
            if (error := message.error()) is not None:
                self._on_error(error)
            elif self._joined:  # what still comes after leaving is the others'
                self._held.append(RawRecord.of(message))
        if self._hopeless is not None:
            raise explain(self._hopeless, self._topic, "read tasks", self._config.kafka)
        raw = self._held.popleft() if self._held and not self._held_back else None
        self._throttle()
        return None if raw is None else self._begin(raw)

    def pause(self) -> None:
        """Take no further tasks. Partitions that come later are paused too; call `poll` all the same."""
        self._paused = True

    def resume(self) -> None:
        """Take tasks again; the first ones are in hand already."""
        self._paused = False

    def commit(self, position: LogPosition) -> None:
        """The trajectory of the task at `position` is acknowledged. From any thread, in any order.

        Quiet about a partition that has gone to another worker meanwhile: that worker repeats the task, and readers
        skip the second record by its task id.
        """
        with self._lock:
            counted = self._flight.finished(position.partition, position.offset)
        if not counted:
            LOG.info("the end of %s is not committed: its partition was reassigned", position)

    def close(self) -> None:
        """Commit what is done, leave the group, within CLOSE_S. Tasks still in flight go to other workers."""
        if self._closed:
            return
        self._closed, began = True, time.monotonic()
        self._settle()
        self._commit_until(began + CLOSE_S / 2)
        # librdkafka waits for the broker's word without end, so it is left to a thread that dies with the process.
        leaving = SupervisedThread(self._consumer.close, "leaving the workers' group")
        leaving.join(max(0.0, began + CLOSE_S - time.monotonic()))
        if leaving.running:
            LOG.warning("the broker does not answer: left without telling the workers' group, which waits a session")

    def _join(self) -> None:
        """Subscribe where it is wanted, once the partitions of a membership before are given up."""
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
        """Fetch while there is room in the hand, and only then."""
        full = len(self._held) >= HELD_PER_PHONE * self._phones
        if full and self._stopped is not True:
            self._consumer.pause(self._places())
        elif not full and self._stopped is not False:
            self._consumer.resume(self._places())
        self._stopped = full

    def _begin(self, raw: RawRecord) -> LoggedTask | None:
        with self._lock:
            wanted = self._flight.delivered(raw.position.partition, raw.position.offset)
        if not wanted:
            return None
        try:
            return LoggedTask(raw.position, decoded(raw, Task))
        except WireError as error:
            if self._letters is None:
                raise
            self._letters.put(raw, error)
            return None

    @property
    def _held_back(self) -> bool:
        return self._paused or (self._letters is not None and self._letters.waiting)

    def _settle(self) -> None:
        """Commit the tasks whose dead letters are acknowledged, as if their trajectories were."""
        for position in self._letters.settled() if self._letters is not None else ():
            self.commit(position)

    def _on_error(self, error: KafkaError) -> None:
        """Within any call of the client; so it only notes what `poll` then raises."""
        if error.code() in HOPELESS or error.fatal():
            self._hopeless = error
        else:
            LOG.warning("reading tasks: %s", reported(error))  # librdkafka goes on by itself

    def _places(self) -> list[TopicPartition]:
        return [TopicPartition(self._topic, partition) for partition in sorted(self.partitions)]

    def _commit_done(self) -> None:
        """Send what is committable, one request at a time."""
        if not self._committing:
            self._send_commit()

    def _send_commit(self) -> None:
        """`_on_commit` hears of the end of it in a later poll."""
        with self._lock:
            due = self._flight.committable()
        if due:
            self._committing += 1
            self._consumer.commit(offsets=[TopicPartition(self._topic, p, o) for p, o in due.items()])

    def _commit_until(self, deadline: float) -> None:
        """Commit what is done, and wait for the broker's word until `deadline`."""
        self._stopped = True  # what a poll would hand out is not wanted any more
        self._consumer.pause(self._places())
        self._commit_done()
        while self._committing and time.monotonic() < deadline:
            self._consumer.poll(CLOSING_POLL_S)
            self._commit_done()
        with self._lock:
            due = self._flight.committable()
        if due:
            LOG.warning("tasks done but not committed, they will be repeated: before %s of %s", due, self._topic)

    def _confirm(self, stored: list[TopicPartition]) -> None:
        with self._lock:
            self._flight.confirmed({place.partition: place.offset for place in stored if place.error is None})

    def _on_commit(self, error: KafkaError | None, stored: list[TopicPartition]) -> None:
        self._committing -= 1
        if error is None:
            self._confirm(stored)
        elif self.partitions.issuperset(place.partition for place in stored):
            LOG.info("commit repeated with the next poll: %s", error.str())
        else:
            LOG.warning("tasks done but not committed, they will be repeated: %s", error.str())

    def _on_assign(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        consumer.incremental_assign(places)
        with self._lock:
            self._flight.assigned(place.partition for place in places)
        self._stopped = None  # `_throttle` sees to all of them: a pause within this call would lose their offsets

    def _on_revoke(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._send_commit()  # not waited for: the broker has it before it hears that the partitions are given up
        self._forget(consumer, places)

    def _on_lost(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        self._forget(consumer, places)

    def _forget(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        """Let go of partitions, resumed: librdkafka keeps a pause until they come back, and then for ever."""
        consumer.resume(places)
        consumer.incremental_unassign(places)
        gone = {place.partition for place in places}
        with self._lock:
            self._flight.revoked(gone)
        self._held = deque(raw for raw in self._held if raw.position.partition not in gone)
