"""Writes the learner's journal and versions exactly once, even where the broker fails or never acknowledges.

    write ─▶ fenced, or no answer ─▶ reopen, unless another has the role ─▶ read the log ─▶ write, unless it is there

Reading the log after reopening is conclusive, because nobody else can write to a reopened journal. If two learners both
reopen it, claims.py decides which one stays. A client that can no longer be used, as after the broker has lost records,
is replaced in the same way; reading then finds what was lost.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import TypeVar

from distrl.broker import claims
from distrl.broker.claims import Claim, ReplacedError
from distrl.broker.connect import BeyondUseError, RefusedError
from distrl.broker.fenced import FencedError
from distrl.broker.journal import ROLE, History, Journal, journal_lines, journal_up_to
from distrl.broker.producer import RecordTooLargeError
from distrl.broker.reader import CutError
from distrl.broker.topics import topic_name
from distrl.broker.versions import lineage
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.types import Record, Update, Version

LOG = logging.getLogger("distrl.learner.journal_writer")

T = TypeVar("T")


class UnwrittenError(BrokerError):
    """The broker did not take a record, did not acknowledge it, or did not answer before one was written: a retry may
    succeed."""

    @classmethod
    def of(cls, error: BrokerError) -> UnwrittenError:
        return cls(error.where, error.what, error.hint)


@contextmanager
def as_unwritten() -> Iterator[None]:
    """Raises UnwrittenError for a BrokerError; that another learner has taken over stays a ReplacedError."""
    try:
        yield
    except ReplacedError:
        raise
    except BrokerError as error:
        raise UnwrittenError.of(error) from error


class OtherLinesError(BrokerError):
    """An older learner has written since the journal was read. It is fenced now and cannot write again."""


class JournalWriter:
    """The only writer of a run's journal and versions. One thread.

    `with` opens the journal, which fences every earlier learner; `history` then reads it, and comes before the first
    `append` to a journal with lines. `append` and `publish_version` make one attempt each and may take seconds. After
    UnwrittenError call them again with the same record before any other: it will be in the log once. Other errors:
    ReplacedError (another learner has taken over), RefusedError and RecordTooLargeError (a retry cannot help), CutError
    (the broker has lost lines of the journal) and OtherLinesError: read `history` again. Lost versions raise nothing: a
    later version replaces them.
    """

    claim: Claim
    """This learner's claim to the role, set by `with`. Its heartbeats must name it."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._journal = Journal(config)
        self._in_doubt = False
        self._lines = 0
        """How many lines of the journal this learner has read or written."""
        self._last: tuple[Update, int] | None = None
        """The last line that this learner appended since it read the journal, and its offset."""

    def __enter__(self) -> JournalWriter:
        self._journal.open()
        self.claim = claims.claim(self._config, ROLE)
        return self

    def history(self) -> History:
        """Read the journal; the next `append` follows what was read."""
        lines = self._read()
        self._lines, self._last, self._in_doubt = len(lines), None, False
        return History.of(lines)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._journal.close()

    def append(self, update: Update) -> None:
        """Journal `update`. Once this returns, every later learner will redo it."""

        def is_written() -> bool:
            lines = self._all_lines()
            if len(lines) < self._lines:
                raise self._cut(f"holds {len(lines)} lines of {self._lines}")
            return self._is_last(update, lines[self._lines :])

        def write() -> None:
            place = self._journal.append(update)
            if place is not None:
                self._refuse_lost(place.offset)
                self._last = update, place.offset

        self._write(write, is_written)
        self._lines += 1

    def publish_version(self, version: Version) -> None:
        """Announce `version` to all workers. Its objects must be in the store already."""

        def is_written() -> bool:
            later = [found for found in lineage(self._config) if found.version >= version.version]
            return self._is_last(version, later)

        self._write(lambda: self._journal.publish_version(version), is_written)

    def refuse_replaced(self) -> None:
        """Raises ReplacedError where another learner has taken over, and UnwrittenError where no broker answers.

        For actions that write no record: a record of a replaced learner would be refused by the broker.
        """
        with as_unwritten():
            claims.refuse_replaced(self.claim, self._config, ROLE)

    def _write(self, write: Callable[[], object], is_written: Callable[[], bool]) -> None:
        reopened = self._in_doubt
        try:
            if not (self._in_doubt and self._reopen(is_written)):
                self._unless_replaced(write)
        except (ReplacedError, RecordTooLargeError, CutError, OtherLinesError):
            raise
        except BrokerError as error:
            if isinstance(error, RefusedError) and (reopened or not isinstance(error, BeyondUseError)):
                raise
            self._in_doubt = True
            raise UnwrittenError.of(error) from error

    def _unless_replaced(self, act: Callable[[], T]) -> T:
        try:
            return act()
        except FencedError:
            claims.refuse_replaced(self.claim, self._config, ROLE, claims.SUCCESSOR_S)
            raise

    def _reopen(self, is_written: Callable[[], bool]) -> bool:
        """Open the journal again, unless this learner was replaced. Returns whether the unacknowledged record is in the
        log. claims.py says why the claim is checked twice.
        """
        self._open_again()
        written = is_written()
        self._in_doubt = False
        LOG.info("journal reopened; the unacknowledged record %s", "is in it" if written else "is written now")
        return written

    def _open_again(self) -> None:
        """Raises ReplacedError where another learner has taken over."""
        claims.refuse_replaced(self.claim, self._config, ROLE)
        self._journal.close()
        self._journal = Journal(self._config)
        self._journal.open()
        claims.refuse_replaced(self.claim, self._config, ROLE)

    def _read(self) -> list[Update]:
        """`_all_lines`; reopens the journal first where its client can no longer be used."""
        try:
            return self._unless_replaced(self._all_lines)
        except ReplacedError:
            raise
        except BrokerError as error:
            LOG.info("the journal is opened again: %s", error)
        self._open_again()
        return self._all_lines()

    def _all_lines(self) -> list[Update]:
        """Every line of the journal, even where the broker that answers is no longer the leader.

        A learner that missed lines would number its next update as one of them. Reading comes before any write, since a
        reader notices a frozen leader sooner.
        """
        lines, read = journal_up_to(self._config)
        end = self._journal.end()
        return lines if read == end else journal_lines(self._config, end)

    def _refuse_lost(self, offset: int) -> None:
        """Raise CutError where the line before the one that was written at `offset` is lost.

        A line and its transaction's marker take one offset each, so the next line is expected two offsets later. At any
        other offset the journal is read to check: a broker that lost a line may have written its transaction's marker
        again, and the next line then comes one offset later, not at the offset of the lost one.
        """
        if (
            self._last is not None
            and offset != self._last[1] + 2
            and self._last[0] not in journal_lines(self._config, offset)
        ):
            raise self._cut(f"has taken a line at offset {offset}, and no longer has the one at {self._last[1]}")

    def _cut(self, what: str) -> CutError:
        return CutError(topic_name(self._config.run, "updates"), f"{what}: its tail is lost", "start the learner again")

    def _is_last(self, record: Record, later: Sequence[Record]) -> bool:
        """Whether `record` is in the log. later: the log's records from where it belongs on. Raises OtherLinesError
        where these are other records.
        """
        if later and list(later) != [record]:
            raise OtherLinesError(
                f"learner of run {self._config.run}",
                "an older learner has journalled or published since the journal was read",
                "wait: it is read again",
            )
        return bool(later)
