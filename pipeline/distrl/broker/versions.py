"""The published versions: read to the end, then followed; the highest number wins.

A rollback is a higher number that points at older weights, so "latest" needs neither a clock nor a second topic.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from types import TracebackType

from distrl.broker.reader import CutError, LogReader, RawRecord, decoded, read_since
from distrl.config import Config
from distrl.errors import WireError
from distrl.supervised import SupervisedThread
from distrl.types import Version

LOG = logging.getLogger("distrl.broker.versions")

FOLLOW_S = 0.2
"""Longest wait of the following thread before it checks whether to end; a version ends it at once."""


def newest(current: Version | None, candidates: Iterable[Version]) -> Version | None:
    """The one with the highest number; of equal numbers the first in the log."""
    for candidate in candidates:
        if current is None or candidate.version > current.version:
            current = candidate
    return current


def lineage(config: Config) -> list[Version]:
    """Every version published so far, ascending, one per number (the first in the log).

    A version is visible some milliseconds after `Journal.publish_version` has returned, once the broker has marked its
    transaction as committed.
    """
    return Lineage(config).read()


class Lineage:
    """`lineage` for repeated use: each `read` reads only what came since the previous one. Used by one thread at a
    time."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._by_number: dict[int, Version] = {}
        self._last: RawRecord | None = None
        """The last record that was read. The topic has one partition."""

    def read(self) -> list[Version]:
        """As `lineage`. Raises BrokerError; the next call continues where this one failed."""
        last = self._last
        start = {} if last is None else {last.position.partition: last.position.offset}
        records = read_since(self._config, "versions", start)
        if last is not None and next(records, None) != last:
            # The log has lost its tail, and may have other versions in its place; or `last` was compacted away.
            self._by_number, self._last = {}, None
            records = read_since(self._config, "versions", {})
        for raw in records:
            for version in _readable([raw]):
                self._by_number.setdefault(version.version, version)
            self._last = raw
        return [self._by_number[number] for number in sorted(self._by_number)]


def written_at(config: Config, number: int) -> int | None:
    """When version `number` arrived in the log (ms since the epoch, by the broker's clock); None if it is not there.

    Not `published_at`, which is by the learner's clock.
    """
    with LogReader(config, "versions") as reader:
        for raw in (raw for batch in reader.to_end() for raw in batch):
            if any(version.version == number for version in _readable([raw])):
                return raw.timestamp
    return None


class VersionFollower:
    """The newest version, kept up to date by a thread of its own.

    Life cycle: the constructor reads to the end of the topic (so `latest` is never older than what was published
    before), then starts the thread; `close` ends it. The thread has a reader of its own, which follows: a reader that
    notices the end fast, as the constructor's does, polls the broker 20 times a second, and a fleet has a follower in
    each worker. If the thread fails, `latest` and `wait_newer` raise its error: a worker must not go on for ever with
    old weights. If the topic loses its tail, it is read again from its start; the newest version ever seen stays until
    a higher number arrives, which every learner publishes after a loss.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._changed = threading.Condition()
        self._latest: Version | None = None
        self._closing = False
        with LogReader(config, "versions") as reader:
            for batch in reader.to_end():
                self._latest = newest(self._latest, _readable(batch))
            self._next: Mapping[int, int] = reader.next_offsets
        self._thread = SupervisedThread(self._follow, "versions", lambda error: self._wake())

    def __enter__(self) -> VersionFollower:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def latest(self) -> Version | None:
        """The newest version; None before the first is published."""
        with self._changed:
            self._thread.check()
            return self._latest

    def wait_newer(self, than: int | None, timeout_s: float) -> Version | None:
        """The newest version if its number is above `than` (None: any), as soon as there is one; else None."""

        def come() -> bool:
            newer = self._latest is not None and (than is None or self._latest.version > than)
            return newer or self._closing or self._thread.failure is not None

        with self._changed:
            self._changed.wait_for(come, timeout_s)
            self._thread.check()
            return self._latest if self._latest and (than is None or self._latest.version > than) else None

    def close(self) -> None:
        """End the thread; calls of `wait_newer` return at once."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join()

    def _follow(self) -> None:
        while not self._closing:
            try:
                with LogReader(self._config, "versions", self._next, follows=True) as reader:
                    while not self._closing:
                        self._take(_readable(reader.read(FOLLOW_S)))
            except CutError as error:
                LOG.warning("reading the versions again from their start: %s", error.what)
                self._next = {}

    def _take(self, versions: list[Version]) -> None:
        if versions:
            with self._changed:
                self._latest = newest(self._latest, versions)
                self._changed.notify_all()

    def _wake(self) -> None:
        """The thread has failed: wake the waiters, which raise its error."""
        with self._changed:
            self._changed.notify_all()


def _readable(batch: Iterable[RawRecord]) -> list[Version]:
    """The versions in `batch`; an unreadable record is logged and skipped, as a later one supersedes it."""
    found = []
    for raw in batch:
        try:
            found.append(decoded(raw, Version))
        except WireError as error:
            LOG.error("version record skipped: %s", error)
    return found
