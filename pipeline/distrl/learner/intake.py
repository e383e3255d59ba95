"""The reading side of the learner: records go to the pending log, bad ones to the dead letters, and screenshots are
fetched ahead of the fold."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import ExitStack

from distrl.broker.dead_letters import DeadLetters
from distrl.broker.reader import LogReader, RawRecord
from distrl.config import Config
from distrl.errors import StoreError, WireError
from distrl.learner.fold import is_usable
from distrl.learner.pending import PendingLog
from distrl.learner.reading import TOPICS, reached, refuse_unread, starts, take, unsupported
from distrl.learner.skipped import SkippedRecords
from distrl.learner.state import LearnerState
from distrl.types import ObjectRef, Trajectory, Update, Watermark
from distrl.wire.gc_paused import gc_paused

LOG = logging.getLogger("distrl.learner")

AT_ONCE = 50
"""Most records of one read: those of a vision-language model take some 3 MB each once they are decoded."""
POLL_S = 0.1
"""Longest wait for a record before looking at the stop event; a record wakes it at once."""

FETCH_AGAIN_S = 10.0
"""How long fetching ahead pauses after the store has failed. Meanwhile the fold fetches; it has to wait anyway."""


class Intake:
    """Follows the log from the state's watermarks on. Used by the learner's thread only."""

    def __init__(
        self,
        config: Config,
        want: Callable[[Iterable[ObjectRef]], object],
        load_arrived: Callable[[], bool],
        state: LearnerState,
        pending_log: PendingLog,
        skipped: SkippedRecords,
        dead_letters: DeadLetters,
        progress: Callable[[], object],
        traced: Callable[[RawRecord], object],
    ) -> None:
        """want: starts to fetch screenshots, without waiting for them. load_arrived: loads the features of some
        screenshots that have arrived; returns False where none has; raises StoreError. progress: called with each read.
        traced: called with each record that may be learned from."""
        self._config, self._want, self._load_arrived, self._state = config, want, load_arrived, state
        self._pending_log, self._skipped, self._dead_letters = pending_log, skipped, dead_letters
        self._progress, self._traced = progress, traced
        self._readers: dict[str, LogReader] = {}
        self._next_fetch = 0.0

    def follow(self, open_readers: ExitStack, folded: Sequence[Watermark]) -> None:
        """Open the log at the state's watermarks; `open_readers` closes it. folded: the journal's watermarks, up to
        which records once existed."""
        for name in TOPICS:
            start, reach = starts(self._config, name, self._state.watermarks), reached(self._config, name, folded)
            self._readers[name] = open_readers.enter_context(LogReader(self._config, name, start, reach=reach))

    @property
    def has_old_demonstrations(self) -> bool:
        """Whether those that were in the log at the start are all read."""
        return self._readers["demonstrations"].caught_up

    def read(self, longest_s: float = POLL_S, names: Collection[str] = TOPICS) -> int:
        """Take the next records of the topics `names`. Waits at most `longest_s`. Returns how many records came."""
        self._progress()
        came = 0
        for name in names:
            batch = self._readers[name].read(longest_s / len(names), AT_ONCE)
            came += len(batch)
            with gc_paused():
                for raw in batch:
                    self._take(raw)
        return came

    def read_idle(self, names: Collection[str] = TOPICS) -> None:
        """Take the next records while no update is due: load features meanwhile, or wait up to POLL_S for a record."""
        self.read(0.0 if self._load_some() else POLL_S, names)

    def read_window(self, update: Update, stop: threading.Event) -> str | None:
        """Read until all records that `update` folds are pending, or `stop` is set. Returns why the log does not hold
        them, else None. Raises WireError where this version cannot decode one of them."""
        while not self._pending_log.reaches(update.watermarks) and not stop.is_set():
            ended = all(reader.caught_up for reader in self._readers.values())
            if not self.read() and ended and not self._pending_log.reaches(update.watermarks):
                return unsupported(self._pending_log, update, ended=True)
        if (why := unsupported(self._pending_log, update, ended=False)) is None:
            refuse_unread(self._skipped, update)
        return why

    def waits_for_dead_letters(self, watermarks: Sequence[Watermark]) -> bool:
        """Whether a bad record before `watermarks` has no acknowledged dead letter yet: journalling past it would lose
        it."""
        return any(self._dead_letters.waits_before(mark.topic, mark.partition, mark.offset) for mark in watermarks)

    def store_failed(self) -> None:
        """Pause fetching ahead for FETCH_AGAIN_S."""
        self._next_fetch = time.monotonic() + FETCH_AGAIN_S

    def _take(self, raw: RawRecord) -> None:
        try:
            logged = take(raw, self._pending_log, self._skipped)
        except WireError as error:
            if self._skipped.add(raw.position):
                self._dead_letters.put(raw, error)
            return
        if logged is not None and is_usable(logged.trajectory, self._state.policy.tokenizer):
            self._traced(raw)
            self._fetch_ahead(logged.trajectory)

    def _fetch_ahead(self, trajectory: Trajectory) -> None:
        """Fetch the screenshots early; the fold asks again for those that failed."""
        if time.monotonic() >= self._next_fetch:
            self._want(step.screenshot for step in trajectory.steps)

    def _load_some(self) -> bool:
        """Load features of screenshots that have come. False where there are none."""
        try:
            return time.monotonic() >= self._next_fetch and self._load_arrived()
        except StoreError as error:
            LOG.warning("screenshots not fetched ahead; the fold tries again: %s", error)
            self.store_failed()
            return False
