"""What the learner writes to the log, over a broker that goes away and a write whose end nobody has heard of.

    write ─▶ no answer ─▶ look into the log ─▶ reopen the journal ─▶ look again ─▶ write, unless it is there

The first look keeps a learner that has taken over and works from being fenced by this one; the second is the one that
counts, for since the journal was reopened nobody else can write. A client that is beyond use, as one is whose records
the broker has lost, is replaced in the same way: what is lost then, the looks find out.
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
    """The broker did not take a record, or did not say that it has."""


class JournalWriter:
    """The one writer of a run's journal and versions. One thread.

    Life cycle: `with` opens the journal, which fences every earlier learner. `append` and `publish_version` make one
    attempt each and may wait for seconds; after UnwrittenError, and before any other record, call them again with the
    very same record: it is in the log once in the end. They raise FencedError where another learner has taken over,
    RefusedError and RecordTooLargeError where trying again is vain, CutError where the broker has lost lines of the
    journal: read `history` again then. For versions that are lost there is nothing to read again: a later one follows.
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
        """What the journal says; what is appended next follows it."""
        lines = journal_lines(self._config)
        self._lines, self._last_offset, self._in_doubt = len(lines), -1, False
        return History.of(lines)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._journal.close()

    def append(self, update: Update) -> None:
        """Write `update` down; when this returns, every later learner will redo it."""

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
        """Tell every worker of `version`. Its objects must be in the store already."""

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

        Before that, lines that are committed may not show yet: a broker that stands still has not marked their ends.
        """
        is_written(False)
        self._journal.close()
        self._journal = Journal(self._config)
        self._journal.open()
        written = is_written(True)
        self._in_doubt = False
        LOG.info("the journal is open again; the record in doubt %s", "is in it" if written else "is written now")
        return written

    def _cut(self, what: str) -> CutError:
        return CutError(topic_name(self._config.run, "updates"), f"{what}: its tail is lost", "start the learner again")

    def _is_last(self, record: Record, later: Sequence[Record]) -> bool:
        """Whether `record` is in the log, given what stands there in its place and after it."""
        if later and list(later) != [record]:
            raise fenced(self._config.run)
        return bool(later)
