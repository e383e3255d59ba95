"""Keeps the index of one run up to date: reads the log from the watermarks to its end, then follows it while asked for.

A RunFollower owns one thread. It holds readers only while somebody looks at the run, or up to the log's end where a
list wants its counts: a broker may have a hundred runs, and each reader is a client. Errors of the broker are there for
the pages to show, and it tries again.
"""

from __future__ import annotations

import hashlib
import logging
import math
import re
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from distrl.broker.connect import UnknownTopicError, admin
from distrl.broker.reader import CutError, LogReader, RawRecord, decoded, retained
from distrl.broker.topic_admin import topic_id
from distrl.broker.topics import TOPICS, topic_name
from distrl.config import Config
from distrl.errors import DistrlError, StoreError, WireError
from distrl.supervised import SupervisedThread
from distrl.types import Record
from distrl.view import drawn, figures
from distrl.view.frugal import frugal
from distrl.view.index import DEAD_LETTERS, Batch, IndexWriter, OtherLogError, StaleIndexError, delete, schema_id

LOG = logging.getLogger(__name__)

INDEXED: Final = (
    "versions", "updates", "demonstrations", "evaluations", "trajectories", DEAD_LETTERS,
    figures.TOPIC, figures.HEARTBEATS, drawn.TOPIC,
)  # fmt: skip
"""Versions first: the lag of an episode is measured against them."""
SLICE_S: Final = 0.1
"""Wait on one topic before the next, so that a record is in the index within a second."""
ACTIVE_S: Final = 60.0
"""A run is followed for this long after the last request."""
FRESH_S: Final = 15.0
"""A list of runs has the log read again only this long after it was read to its end."""
AGAIN_S: Final = 5.0
"""Pause after an error of the broker; then it tries again if somebody looks at the run, or once somebody does."""
SAME_S: Final = 15.0
"""Interval of the check whether the followed topics were deleted and made again. A reader of few records does not
notice, and goes on in the new ones."""
TURN_S: Final = 0.5
"""Interval of the check whether to end, while others are indexed."""
ROUNDS: Final = 50
"""Reads of one topic before the next one's turn."""
UNUSED_S: Final = 30 * 86_400.0
"""An index that is not shown, and that nobody has opened for so long, is deleted."""
INDEX: Final = re.compile(r".+-[0-9a-f]{12}(-[0-9]+-[0-9a-f]{16})?\.sqlite")
"""Names of indexes, of any version."""
AT_ONCE = threading.Semaphore(2)
"""Runs that are indexed at a time: most of it is decoding, which one processor does."""


@dataclass(frozen=True, slots=True)
class Indexing:
    """Progress of the first reading, in records (an upper bound of them for `total`)."""

    done: int
    total: int


def index_path(config: Config) -> Path:
    """Beside what is downloaded and built: a cache of this user for this broker, run and schema. Under one name, the
    servers of two versions of DistRL would delete each other's for ever."""
    return config.stack.cache.expanduser().absolute() / "view" / f"{_stem(config)}-{schema_id()}.sqlite"


def forget_unused(kept: Collection[Path]) -> None:
    """Delete other indexes in the folders of these, which nobody has opened lately: of runs and brokers that are gone,
    of other versions of DistRL."""
    for folder in {each.parent for each in kept}:
        for each in folder.glob("*.sqlite"):
            if each not in kept and INDEX.fullmatch(each.name):
                with suppress(OSError):  # it is gone already, or of another user
                    if each.stat().st_mtime < time.time() - UNUSED_S:
                        delete(each)


def _stem(config: Config) -> str:
    return f"{config.run}-{hashlib.sha256(config.kafka.bootstrap.encode()).hexdigest()[:12]}"


class RunFollower:
    """Extends the index of `config.run`. `close` ends the thread within a second or two."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.path = index_path(config)
        self.indexing: Indexing | None = Indexing(0, 0)
        """None once the log was read to its end."""
        self.failure: DistrlError | None = None
        """Of the last attempt; None while it works."""
        self.revision = 0
        """Changes with the index."""
        self.generation = 0
        """Changes when the index is made again: what was read from the log before may be of another log."""
        self.begun_again = False
        """Whether topics of the run were deleted and made again since it is followed."""
        self.settings = 0
        """How many records of settings the run had when it was looked at last; 0 before that."""
        self.caught_up = threading.Event()
        """Set once the index was at the log's end, or could not be brought there."""
        self.reading = True
        """Whether it reads to the log's end now, or will at once."""
        self._asked = threading.Event()
        self._until = self._read_at = -math.inf
        self._topics: dict[str, str] = {}
        self._closing = threading.Event()
        self._thread = SupervisedThread(self._run, f"view {config.run}", self._ended)

    def touch(self) -> None:
        """Somebody looks at the run: follow it."""
        self._until = time.monotonic() + ACTIVE_S
        self._asked.set()

    def refresh(self) -> None:
        """Somebody wants the counts as they are about now: read the log to its end, and no further."""
        age_s = time.monotonic() - max(self._until, self._read_at)
        if age_s > FRESH_S and not (self.reading or self._closing.is_set()):
            self.reading = True
            self._asked.set()

    @property
    def closed(self) -> bool:
        """Whether it was stopped."""
        return self._closing.is_set()

    def stop(self) -> None:
        """Have the thread end, without waiting for it: it may be waiting for a follower that is to be stopped, too."""
        self._closing.set()
        self._asked.set()

    def close(self) -> None:
        self.stop()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._asked.clear()
            try:
                self._follow()
            except StaleIndexError as error:
                self._again(error)
                continue
            except CutError as error:  # the log has lost its tail, or it is another one
                delete(self.path)
                self._again(error)
                continue
            except DistrlError as error:
                if str(error) != str(self.failure):
                    LOG.warning("run %s: %s", self.config.run, error)
                self.failure = error
                self.caught_up.set()
                self._closing.wait(AGAIN_S)
                if time.monotonic() < self._until:
                    continue
                self.reading = False
            if not self._closing.is_set():  # else what woke it may be cleared already
                self._asked.wait()
        self.caught_up.set()  # nobody is to wait for what is not read any more

    def _ended(self, error: BaseException) -> None:
        self.failure = StoreError(
            str(self.path), f"the index is not extended any more ({error})", "start `distrl view` again"
        )
        self.reading = False
        self.caught_up.set()

    def _again(self, why: Exception) -> None:
        LOG.info("the index is made again: %s", why)
        self.reading = True
        self.generation += 1
        self.indexing = Indexing(0, 0)

    def _follow(self) -> None:
        with closing(IndexWriter(self.path, self._look())) as index, ExitStack() as opened:
            while not AT_ONCE.acquire(timeout=TURN_S):
                if self._closing.is_set():
                    return
            try:
                readers = self._open(index, opened)
                self._read_to_end(index, readers)
            finally:
                AT_ONCE.release()
            self.indexing, self.failure = None, None
            self._read_at = time.monotonic()
            self.reading = False
            self.caught_up.set()
            checked_at = self._read_at
            while time.monotonic() < self._until and not self._closing.is_set():
                index.refuse_replaced()
                if time.monotonic() - checked_at >= SAME_S:
                    self._look()
                    checked_at = time.monotonic()
                for topic, reader in readers.items():
                    self._take_new(index, topic, reader)
                if not readers:  # the run was removed
                    self._closing.wait(TURN_S)

    def _look(self) -> dict[str, str]:
        """The topics' ids; counts the records of settings. Raises StaleIndexError where one has another than before."""
        before, topics = self._topics, identity(self.config)
        self._topics = before | topics
        other = [name for name, each in topics.items() if before.get(name, each) != each]
        if other:
            self.begun_again = True
            raise StaleIndexError(f"{', '.join(other)} were deleted and made again")
        if topics:  # else the run was removed
            self.settings = settings_records(self.config)
        return topics

    def _open(self, index: IndexWriter, opened: ExitStack) -> dict[str, LogReader]:
        readers = {}
        for topic in INDEXED:
            marks, known = index.watermarks(topic), index.known(topic)
            try:  # asked afterwards: another process may index what comes in between
                kept = retained(self.config, topic)
            except UnknownTopicError:
                continue  # a run of an older version
            start = {p: max(first, marks.get(p, first), end - _newest(topic, end)) for p, (first, end) in kept.items()}
            index.add(Batch(topic, marks, start, ()))  # retention may have deleted records before they were read
            for partition, last in known.items():
                first, end = kept.get(partition, (0, 0))
                if last >= end:
                    delete(self.path)
                    raise OtherLogError(f"{topic}[{partition}] ends at {end}, and its record {last} was read")
                if start[partition] == last + 1 and first <= last:
                    start[partition] = last  # read once more: is it the one that was read?
            readers[topic] = opened.enter_context(LogReader(frugal(self.config), topic, start, follows=True))
        return readers

    def _read_to_end(self, index: IndexWriter, readers: Mapping[str, LogReader]) -> None:
        total = sum(end - r.next_offsets[p] for r in readers.values() for p, end in r.ends.items())
        done = 0
        for topic, reader in readers.items():
            before = dict(reader.next_offsets)
            for batch in reader.to_end(_most(topic)):
                self._take(index, topic, reader, before, batch)
                before = dict(reader.next_offsets)
                done += len(batch)
                if self.indexing is not None:
                    self.indexing = Indexing(done, total)
                if self._closing.is_set():
                    return

    def _take_new(self, index: IndexWriter, topic: str, reader: LogReader) -> None:
        """Add new records. Waits only for the first; all others that are there are read with it, so that the index
        keeps up with a burst."""
        wait_s = SLICE_S
        for _ in range(ROUNDS):
            before = dict(reader.next_offsets)
            raws = reader.read(wait_s, _most(topic))
            self._take(index, topic, reader, before, raws)
            if len(raws) < _most(topic) or self._closing.is_set():
                return
            wait_s = 0.0

    def _take(
        self, index: IndexWriter, topic: str, reader: LogReader, since: Mapping[int, int], raws: list[RawRecord]
    ) -> None:
        if raws:
            index.add(Batch(topic, since, reader.next_offsets, [(raw, _record(topic, raw)) for raw in raws]))
            self.revision += 1


def identity(config: Config) -> dict[str, str]:
    """Topic -> its id at the broker, for the indexed topics that it has. Raises BrokerError."""
    client = admin(config.kafka)
    found = {topic: topic_id(client, config, topic_name(config.run, topic)) for topic in INDEXED}
    return {topic: each for topic, each in found.items() if each}


def settings_records(config: Config) -> int:
    """How many records of settings the run has had; 0 for one of an older version. Raises BrokerError."""
    try:
        return sum(end for _, end in retained(config, "settings").values())
    except UnknownTopicError:
        return 0


def _newest(topic: str, end: int) -> int:
    """How many of a topic's last records are indexed; all but of draws. end: its end."""
    return drawn.KEPT if topic == drawn.TOPIC else end


def _most(topic: str) -> int:
    """Records read at once: a dead letter may be as large as the largest record, and draws are of a thousand steps."""
    return {DEAD_LETTERS: 1, drawn.TOPIC: 20}.get(topic, 500)


def _record(topic: str, raw: RawRecord) -> Record | None:
    kind = TOPICS[topic].record
    if kind is None or (topic == figures.HEARTBEATS and b"learner" not in (raw.value or b"")):
        return None
    try:
        return decoded(raw, kind)
    except WireError as error:
        LOG.debug("not in the index: %s", error)
        return None
