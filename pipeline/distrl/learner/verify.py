"""Replays the learner from the log: the state that a run must end with, whatever was killed on the way.

Read-only, so it may run beside a live learner.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing

from distrl.accelerator import device_of, kind_of
from distrl.broker.connect import failover_s
from distrl.broker.duplicates import IdSet
from distrl.broker.journal import History, in_force
from distrl.broker.journal import history as read_history
from distrl.broker.reader import LogReader
from distrl.broker.versions import lineage
from distrl.config import Config
from distrl.errors import ConfigError, WireError
from distrl.learner.pending import PendingLog
from distrl.learner.publish import refuse_other_weights
from distrl.learner.ranks import Leader
from distrl.learner.reading import (
    TOPICS,
    not_the_log,
    pending_log_at,
    reached,
    refuse_unread,
    starts,
    take,
    unsupported,
)
from distrl.learner.recover import Recovered, computed_elsewhere, log_of, recover, retains, unfolded
from distrl.learner.skipped import SkippedRecords
from distrl.learner.state import LearnerState
from distrl.ranks.group import ALONE, Ranks
from distrl.store.objects import open_store
from distrl.types import LoggedTrajectory, Skipped, Update, Version, Watermark
from distrl.wire.gc_paused import gc_paused

LOG = logging.getLogger("distrl.learner.verify")

READ_S = 1.0
"""Longest wait for the next batch of a topic."""


def verify(
    config: Config, *, from_start: bool = False, ranks: Ranks = ALONE, stop: threading.Event | None = None
) -> tuple[LearnerState, list[int]]:
    """`replay`, comparing the weights with each version met on the way, bit for bit. Returns the state and the numbers
    of these versions.

    The versions are those of the checkpoint's update and of every update folded after it. Raises BrokerError where one
    has other weights, and what `replay` raises.
    """
    # The journal is read once, after the versions: a live learner may make updates void and redo them in between, and a
    # version would be compared with the weights of another update of the same number.
    versions = lineage(config)
    history = read_history(config)
    made: dict[int, list[Version]] = {}  # an update has a second version where one superseded lost versions
    for version in in_force(versions, history):
        made.setdefault(version.update, []).append(version)
    same: list[int] = []

    def compare(state: LearnerState) -> None:
        for version in made.get(state.u - 1, ()):
            refuse_other_weights(version, state.policy.adapter())
            same.append(version.version)

    state = _replayed(config, history, from_start=from_start, on_state=compare, ranks=ranks, stop=stop)
    return state, same


def compare_records(config: Config, history: History) -> list[int]:
    """Compare the records of the log with those that the journalled updates folded, by sha256; nothing is folded.

    history: of the journal. Returns the numbers of the updates that were compared. Left out are updates whose records
    retention has deleted, and those without a sha256, which earlier software journalled. Raises BrokerError where the
    log has other records or ends too soon, and WireError where an update folded a record that cannot be decoded.
    """
    updates, ranges = history.updates, log_of(config, history).ranges
    begins = [(), *(update.watermarks for update in updates)]
    first = next((u for u in range(len(updates)) if retains(ranges, begins[u])), len(updates))
    begin, left = begins[first], updates[first:]
    for _ in windows(config, left, pending_log_at(config, begin), begin, history.skipped):
        pass  # each is compared before it is yielded
    return [update.u for update in left if update.window_sha256]


def other_processor(config: Config, history: History) -> str | None:
    """The first kind of processor in the journal that differs from that of `learner.device` here: folding the log here
    would give other bits. None where the kinds agree."""
    try:
        here = kind_of(device_of(config.learner.device, "learner.device"))
    except ConfigError:  # the run's GPU is not here
        return next((update.device for update in history.updates if update.device), config.learner.device)
    found = computed_elsewhere(history.updates, here)
    return None if found is None else found.device


def replay(
    config: Config,
    *,
    from_start: bool = False,
    on_state: Callable[[LearnerState], None] = lambda state: None,
    ranks: Ranks = ALONE,
    stop: threading.Event | None = None,
) -> LearnerState:
    """The state after every journalled update, from the newest checkpoint on, or from the first update.

    on_state: called with the first state, and after each update. ranks: as in `run_learner`. stop: checked before each
    update; once it is set, the state after the updates so far is returned. Raises what `on_state`, the fold and
    recovery raise, and BrokerError where the log does not hold the records that the journal names.
    """
    history = read_history(config)
    return _replayed(config, history, from_start=from_start, on_state=on_state, ranks=ranks, stop=stop)


def _replayed(
    config: Config,
    history: History,
    *,
    from_start: bool,
    on_state: Callable[[LearnerState], None],
    ranks: Ranks,
    stop: threading.Event | None,
) -> LearnerState:
    """`replay` of the updates in force in `history`."""
    store = open_store(config.store)
    begun = Recovered(LearnerState(config), IdSet()) if from_start else recover(config, store, history=history)
    state = begun.state
    updates = unfolded(history.updates, state, config)
    LOG.info("folding %d updates after the first %d", len(updates), state.u)
    pending_log = pending_log_at(config, state.watermarks, begun.seen)
    stop = stop or threading.Event()
    with closing(Leader(config, ranks, store.get, stop)) as leader:
        leader.begin(state)
        on_state(state)
        for update, window in windows(config, updates, pending_log, state.watermarks, history.skipped):
            if stop.is_set():
                break
            leader.fold(window, update)
            on_state(state)
            leader.forget(pending_log.pending)
        leader.end()
    return state


def windows(
    config: Config,
    updates: Sequence[Update],
    pending_log: PendingLog,
    begin: Sequence[Watermark],
    skipped: Iterable[Skipped] = (),
) -> Iterator[tuple[Update, list[LoggedTrajectory]]]:
    """Yields each update with the records that it folds, reading the log lazily.

    pending_log: at `begin`, the watermarks before the first update; at each yield it holds what was read past the
    window. skipped: records left out by `distrl skip`. Raises BrokerError where the log no longer holds the records
    that an update folded, and where the brokers send nothing for `failover_s`; WireError where this version cannot
    decode one of them.
    """
    skipped_records, longest_s = SkippedRecords(updates, skipped), failover_s(config.kafka)
    with ExitStack() as stack:
        end = updates[-1].watermarks if updates else ()
        readers = [
            stack.enter_context(LogReader(config, name, starts(config, name, begin), reach=reached(config, name, end)))
            for name in TOPICS
        ]
        for update in updates:
            heard = time.monotonic()
            while not pending_log.reaches(update.watermarks):
                came = sum(_take(reader, pending_log, skipped_records) for reader in readers)
                behind = next((reader for reader in readers if not reader.caught_up), None)
                if came:
                    heard = time.monotonic()
                elif behind is None:
                    break
                elif time.monotonic() > heard + longest_s:
                    raise behind.silence(longest_s)
            if (why := unsupported(pending_log, update, ended=True)) is not None:
                raise not_the_log(config, why)
            refuse_unread(skipped_records, update)
            window = pending_log.window(update.watermarks)
            pending_log.folded(update.watermarks)
            yield update, window


def _take(reader: LogReader, pending_log: PendingLog, skipped: SkippedRecords) -> int:
    batch = [] if reader.caught_up else reader.read(READ_S)
    with gc_paused():
        for raw in batch:
            try:
                take(raw, pending_log, skipped)
            except WireError:
                skipped.add(raw.position)
    return len(batch)
