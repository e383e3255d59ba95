"""Writes the learner's journal and versions exactly once, also where the broker goes away or never acknowledges.

    write ─▶ no answer ─▶ read the log ─▶ reopen the journal ─▶ read again ─▶ write, unless it is there

The first reading finds a learner that has taken over, before reopening would fence it. The second decides: nobody else
can write once the journal is reopened. A client that can no longer be used, as after the broker has lost its records,
is replaced in the same way; the readings find what was lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from types import TracebackType

from distrl.broker.connect import BeyondUseError, RefusedError
from distrl.broker.fenced import FencedError
from distrl.broker.journal import History, Journal, fenced, journal_lines
from distrl.broker.producer import RecordTooLargeError
from distrl.broker.reader import CutError
from distrl.broker.topics import topic_name
from distrl.broker.versions import lineage
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.types import Record, Update, Version

LOG = logging.getLogger("distrl.learner.journal_writer")


class UnwrittenError(BrokerError):
    """The broker did not take a record, or did not acknowledge it."""


class JournalWriter:
    """The only writer of a run's journal and versions. One thread.

    `with` opens the journal, which fences every earlier learner. `append` and `publish_version` make one attempt each
    and may take seconds. After UnwrittenError call them again with the same record before any other: it will be in the
    log once. Other errors: FencedError (another learner has taken over), RefusedError and RecordTooLargeError (a retry
    cannot help), CutError (the broker has lost lines of the journal: read `history` again). Lost versions raise
    nothing: a later version replaces them.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._journal = Journal(config)
        self._in_doubt = False
        self._lines = 0
        self._last_offset = -1

    def __enter__(self) -> JournalWriter:
        self._journal.open()
        self._lines = len(journal_lines(self._config))
        return self

    def history(self) -> History:
        """Read the journal; the next `append` follows what was read."""
        lines = journal_lines(self._config)
        self._lines, self._last_offset, self._in_doubt = len(lines), -1, False
        return History.of(lines)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._journal.close()

    def append(self, update: Update) -> None:
        """Journal `update`. Once this returns, every later learner will redo it."""

        def is_written(reopened: bool) -> bool:
            lines = journal_lines(self._config)
            if len(lines) < self._lines and reopened:
                raise self._cut(f"holds {len(lines)} lines of {self._lines}")
            return self._is_last(update, lines[self._lines :])

        def write() -> None:
            place = self._journal.append(update)
            if place is not None and place.offset <= self._last_offset:
                raise self._cut(f"has taken a line at offset {place.offset}, and had one at {self._last_offset}")
            self._last_offset = self._last_offset if place is None else place.offset

        self._write(write, is_written)
        self._lines += 1

    def publish_version(self, version: Version) -> None:
        """Announce `version` to all workers. Its objects must be in the store already."""

        def is_written(reopened: bool) -> bool:
            later = [found for found in lineage(self._config) if found.version >= version.version]
            return self._is_last(version, later)

        self._write(lambda: self._journal.publish_version(version), is_written)

    def _write(self, write: Callable[[], object], is_written: Callable[[bool], bool]) -> None:
        reopened = self._in_doubt
        try:
            if not (self._in_doubt and self._reopen(is_written)):
                write()
        except (FencedError, RecordTooLargeError, CutError):
            raise
        except BrokerError as error:
            if isinstance(error, RefusedError) and (reopened or not isinstance(error, BeyondUseError)):
                raise
            self._in_doubt = True
            raise UnwrittenError(error.where, error.what, error.hint) from error

    def _reopen(self, is_written: Callable[[bool], bool]) -> bool:
        """Open the journal again. Returns whether the record in doubt is in the log.

        Until then committed lines may be invisible: a broker that hangs has not written their commit markers.
        """
        is_written(False)
        self._journal.close()
        self._journal = Journal(self._config)
        self._journal.open()
        written = is_written(True)
        self._in_doubt = False
        LOG.info("journal reopened; the unacknowledged record %s", "is in it" if written else "is written now")
        return written

    def _cut(self, what: str) -> CutError:
        return CutError(topic_name(self._config.run, "updates"), f"{what}: its tail is lost", "start the learner again")

    def _is_last(self, record: Record, later: Sequence[Record]) -> bool:
        """Whether `record` is in the log. later: the log's records from its place on. Raises FencedError for others."""
        if later and list(later) != [record]:
            raise fenced(self._config.run)
        return bool(later)
