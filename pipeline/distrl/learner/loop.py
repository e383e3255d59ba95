"""The learner's I/O: read the log, journal, fold, publish, checkpoint. All computation is in the fold.

    redo what is journalled ─▶ { read ─▶ journal ─▶ fold ─▶ version ─▶ checkpoint begun } until stopped

An update is journalled before it is folded, so after a kill it is redone. Its version and checkpoint come after the
fold, so a redo either finds them or makes them again. One thread, no locks; checkpoints are uploaded on another thread
(saving.py). No update begins once an upload is known to have failed, and none is two checkpoints ahead of what is
stored.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import count

from tenacity import wait_chain, wait_fixed

from distrl.accelerator import kind_of
from distrl.broker.dead_letters import DeadLetters
from distrl.broker.journal import History
from distrl.broker.producer import RecordProducer
from distrl.broker.versions import Lineage
from distrl.clock import SYSTEM_CLOCK
from distrl.config import Config
from distrl.errors import DistrlError, StoreError
from distrl.learner.choose_checkpoint import beyond, chain
from distrl.learner.draws import DrawsSender
from distrl.learner.figures import FiguresSender
from distrl.learner.fold import why_skipped
from distrl.learner.intake import POLL_S, Intake
from distrl.learner.journal_writer import JournalWriter, UnwrittenError, as_unwritten
from distrl.learner.metrics import FOLDING, WAITING, LearnerMetrics
from distrl.learner.newest_version import NewestVersionWatch
from distrl.learner.publish import Publisher
from distrl.learner.ranks import Leader
from distrl.learner.reading import pending_log_at
from distrl.learner.recover import Log, Recovered, refuse_other_log, snapshot, warn_if_window_is_narrow
from distrl.learner.saving import CheckpointSaver
from distrl.learner.skip import naming_records
from distrl.learner.skipped import SkippedRecords
from distrl.learner.traces import UpdateTraces
from distrl.retry import StoppedError, retry
from distrl.runs.recorded import refuse_changed
from distrl.store.objects import CorruptObjectError, MissingObjectError, ObjectStore
from distrl.tasks.demonstration import publishes_missing
from distrl.telemetry.logs import about
from distrl.telemetry.monitor import Reporter
from distrl.telemetry.tracing import Tracer
from distrl.types import LoggedTrajectory, Update, Version

LOG = logging.getLogger("distrl.learner")

PAUSES = wait_chain(*map(wait_fixed, (0.5, 1.0, 2.0, 5.0)))
"""Pauses between attempts while the store or the broker fails, in seconds; the last one repeats."""

SAVE_AT_STOP_S = 10.0
"""How long saving the last checkpoint is retried at a stop. Without retries, a short failure of the store would make
the next start redo updates."""

READ_AHEAD = 5_000
READ_AHEAD_IDS = 5_000_000
"""Most pending records, and most token ids in them (some 200 MB), while a dead letter, the store, the broker or a
demonstration is waited for; the learner then stops reading, in the last case only the trajectories. A record of a
vision-language model may have 100,000 ids."""

WINDOWS_AHEAD = 2
"""With fewer windows than this pending, records are also read before an update is folded."""

OnUpdate = Callable[[Mapping[str, float], Version | None], None]


class Loop:
    """One learner from recovery to its stop or to the next loss of records."""

    def __init__(
        self,
        config: Config,
        store: ObjectStore,
        journal_writer: JournalWriter,
        producer: RecordProducer,
        reporter: Reporter,
        leader: Leader,
        recovered: Recovered,
        history: History,
        log: Log,
        stop: threading.Event,
        on_update: OnUpdate | None,
        tracer: Tracer,
        watch: NewestVersionWatch,
    ) -> None:
        self._config, self._store, self._journal_writer = config, store, journal_writer
        self._state, self._stop, self._on_update = recovered.state, stop, on_update
        self._history, self._log = history, log
        self._chain = chain(history.updates[: self._state.u])
        self._pending_log = pending_log_at(config, self._state.watermarks, recovered.seen, recovered.named)
        lineage = Lineage(config)
        self._versions = lineage.read()
        self._publisher = Publisher(
            config,
            store,
            journal_writer.publish_version,
            self._versions,
            SYSTEM_CLOCK.now_ms,
            history,
            self._settle,  # the checkpoint under way may be deleting that very adapter
        )
        self._metrics = LearnerMetrics()
        self._dead_letters = DeadLetters.of(config, producer)
        self._draws, self._figures = DrawsSender(config, producer), FiguresSender(config, producer)
        self._skipped = SkippedRecords(history.updates, history.skipped)
        self._traces = UpdateTraces(tracer, SYSTEM_CLOCK)
        self._reporter, self._leader = reporter, leader
        self._intake = Intake(
            config,
            leader.want,
            leader.load_arrived,
            self._state,
            self._pending_log,
            self._skipped,
            self._dead_letters,
            self._progress,
            self._traces.read,
        )
        self._saver = CheckpointSaver(config, store, self._state.u, recovered.refused, lineage)
        self._newest_version = watch
        self._said_missing = False
        self._state.features.report_to(self._loaded)

    def follow(self, open_readers: ExitStack) -> None:
        """Open the log at the state's watermarks; `open_readers` closes it, and ends the upload of a checkpoint."""
        open_readers.callback(self._saver.close)
        self._intake.follow(open_readers, self._history.watermarks)

    def redo(self, updates: Sequence[Update]) -> bool:
        """Fold the journalled updates that the checkpoint lacks, then publish the versions that are due and missing.

        Returns False where stopped, and where updates became void: the log lacks their records, or versions lie beyond
        the journal. The caller then recovers again. Raises BrokerError where the log is not the journal's.
        """
        if updates:
            LOG.info("redoing %d journalled updates", len(updates))
        if not self._retry(self._publisher.look_up_reserved):  # each line that is journalled names them
            return False
        lost = beyond(self._history, self._versions, self._publisher.reserved)
        self._retry(self._publish)
        for update in updates:
            if self._saver.has_ended and not self._retry(self._settle):
                return False
            why = self._intake.read_window(update, self._stop)
            if self._stop.is_set():
                return False
            if why is not None:
                refuse_other_log(
                    self._config, self._history, self._log, why, content=self._pending_log.reaches(update.watermarks)
                )
                self._void(why)
                return False
            with about(update=update.u):
                self._apply(update, redone=True)
            if self._stop.is_set():
                return False
        if lost:
            self._void(f"the journal has lost the updates of versions {lost[0]} to {lost[-1]}")
            return False
        if not self._retry(lambda: self._publisher.settle(self._state)):
            return False
        return self._retry(self._delete_refused)

    def _void(self, why: str) -> None:
        """Journal that the updates from the state's next one on are void. Those redone before it stay valid."""
        lost = [update.u for update in self._history.updates if update.u >= self._state.u]
        LOG.warning(
            "going back to update %d, %s void: %s",
            self._state.u,
            f"updates {lost[0]} to {lost[-1]} are" if lost else "what follows is",
            why,
        )
        if not self._retry(self._publisher.look_up_reserved):
            return
        line = Update(
            self._state.u,
            self._state.watermarks,
            self._state.fingerprint,
            SYSTEM_CLOCK.now_ms(),
            log_id=self._log.id,
            version=self._publisher.highest,
            void=why,
        )
        if not self._retry(partial(self._journal_writer.append, line)) or not self._retry(self._delete_refused):
            return
        if self._saver.saved != self._state.u and self._retry(self._checkpoint):
            self._retry(self._settle)

    def _delete_refused(self) -> None:
        """Delete the checkpoints that recovery refused, unless another learner has taken over."""
        self._settle()
        if self._saver.has_refused:
            self._journal_writer.refuse_replaced()  # a successor may have saved a sound one under the same number
            self._saver.delete_refused()

    def work(self) -> None:
        """Update until stopped. Reads only while no update is due, so that a long backlog stays in the log."""
        while not self._stop.is_set():
            self._dead_letters.settled()
            if self._saver.has_ended and not self._retry(self._settle):
                break
            watermarks = self._pending_log.due(self._state.u, self._config)
            if watermarks is None or self._intake.waits_for_dead_letters(watermarks):
                with self._metrics.spending(WAITING):
                    self._wait(is_due=watermarks is not None)
                self._report()
                continue
            if len(self._pending_log.pending) < WINDOWS_AHEAD * self._config.learner.trajectories_per_update:
                self._intake.read(0.0)  # without waiting: screenshots are then fetched while this update is folded
            if not self._state.u and not self._retry(self._refuse_changed):
                break
            skipped = self._skipped.due(watermarks)
            update = Update(
                self._state.u,
                watermarks,
                self._state.fingerprint,
                SYSTEM_CLOCK.now_ms(),
                skipped,
                self._pending_log.window_sha256(watermarks),
                self._log.id,
                self._publisher.highest,
                device=kind_of(self._state.policy.device),
            )
            if not self._retry(partial(self._journal_writer.append, update)):
                break  # stopped while the broker was away; the next start finds out whether it is journalled
            self._saver.journalled()
            self._publisher.journalled(update)
            self._skipped.journalled(update)
            with about(update=update.u):
                self._apply(update)
        self._checkpoint_at_stop()

    def _wait(self, *, is_due: bool) -> None:
        """Read on for a moment: no update is due, or (`is_due`) the due one cannot be journalled yet."""
        self._newest_version.look(self._publisher.newest)
        missing = self._pending_log.missing_demonstrations(self._state.u, self._config)
        if missing and not self._said_missing and self._intake.has_old_demonstrations:
            self._said_missing = True
            LOG.info(
                "update 0 waits: %d demonstrations are there, and warmup.demonstrations=%d are wanted; %s",
                self._config.warmup.demonstrations - missing,
                self._config.warmup.demonstrations,
                publishes_missing(
                    [each.trajectory.task_id for each in self._pending_log.pending if each.trajectory.is_expert],
                    self._config.devices,
                    self._pending_log.demonstrations_read + missing,
                ),
            )
        if not (is_due or missing) or not self._is_full:  # an update that waits for trajectories alone must read on
            self._intake.read_idle()
        elif missing:
            self._intake.read_idle(("demonstrations",))
        else:
            self._stop.wait(POLL_S)

    def _apply(self, update: Update, *, redone: bool = False) -> None:
        """Fold a journalled update, publish and checkpoint; retries for as long as store or broker fail."""
        window = self._pending_log.window(update.watermarks)
        began = time.perf_counter()
        self._traces.begin(update, window, redone)
        if not self._retry(lambda: self._fold(window, update)):
            return  # stopped while the store was away; the update is journalled and will be redone
        self._metrics.update_seconds = time.perf_counter() - began
        learning = self._state.learning
        self._draws.send(update, learning.memory.phase(update.u).name, learning.drawn)
        self._pending_log.folded(update.watermarks)
        self._chain = chain([update], self._chain)
        self._leader.forget(self._pending_log.pending)
        self._traces.folded()
        published = self._retry(self._publish)
        self._traces.published(self._publisher.newest)
        self._figures.send(update, self.metrics())
        if published and self._state.u % self._config.learner.checkpoint_every == 0:
            self._retry(self._checkpoint)
        if self._on_update is not None:
            self._on_update(self.metrics(), self._publisher.newest)
        self._report(at_once=True)

    def metrics(self) -> dict[str, float]:
        """Metrics of the last update and counters since the start, named as in telemetry.metrics."""
        newest = self._publisher.newest
        return self._metrics.metrics() | {
            "pending": float(len(self._pending_log.pending)),
            "duplicates": float(self._pending_log.duplicates),
            "dead_letters": float(self._dead_letters.written),
            "version": float(newest.version) if newest else -1.0,
        }

    def _fold(self, window: Sequence[LoggedTrajectory], update: Update) -> None:
        try:
            with self._metrics.spending(FOLDING):
                metrics = self._leader.fold(window, update)
            self._metrics.folded(metrics, window, update)
            if window and metrics["skipped"] == metrics["trajectories"]:
                self._warn_of_nothing_learned(window, update)
        except (MissingObjectError, CorruptObjectError) as error:
            raise naming_records(error, [*window, *self._state.held()], self._config.run) from None

    def _warn_of_nothing_learned(self, window: Sequence[LoggedTrajectory], update: Update) -> None:
        """Versions go on to be published all the same, and would look like learning."""
        LOG.warning(
            "update %d could learn from none of its %d trajectories: %s; an outcome is unknown where a task has no "
            "check and no judge decides (judge.endpoint)",
            update.u,
            len(window),
            ", ".join(f"{why} ({number})" for why, number in why_skipped(self._state, window).items()),
        )

    def _refuse_changed(self) -> None:
        """`refuse_changed`; raises UnwrittenError where no broker answers, so that it is retried."""
        with as_unwritten():
            refuse_changed(self._config)

    def _publish(self) -> None:
        self._publisher.due(self._state)

    def _checkpoint(self) -> None:
        """Begin to save the state, once the checkpoint before it is stored."""
        self._figures.settle()
        self._settle()
        log = self._pending_log
        made = snapshot(
            self._state,
            log.folded_ids,
            self._chain,
            self._publisher.highest,
            self._log.id,
            log.named,
        )
        announced = self._publisher.newest_adapters(self._config.learner.keep_adapters or 0)
        self._saver.begin(made, log.trajectories_read(), announced)
        warn_if_window_is_narrow(self._config, self._state)

    def _settle(self) -> None:
        """Wait for the upload that is under way, and read on meanwhile."""
        self._saver.settle(self._meanwhile)

    def _meanwhile(self, longest_s: float = 0.0) -> None:
        """Called while something is waited for: take the next records, unless READ_AHEAD are pending."""
        if not self._is_full:
            self._intake.read(longest_s)
        self._report()

    @property
    def _is_full(self) -> bool:
        log = self._pending_log
        return len(log.pending) >= READ_AHEAD or log.pending_ids >= READ_AHEAD_IDS

    def _checkpoint_at_stop(self) -> None:
        self._saver.abandon(self._progress)
        if self._saver.saved == self._state.u:
            return
        self._checkpoint()
        try:
            self._saver.settle_within(SAVE_AT_STOP_S, self._progress)
        except StoreError as error:
            LOG.error(
                "stopping without a checkpoint; the next start redoes %d updates: %s",
                self._state.u - self._saver.saved,
                error,
            )

    def _retry(self, action: Callable[[], None]) -> bool:
        """Retry `action` while the store or the broker fails, reading on in between. False where stopped first."""
        tries = count()

        def attempt() -> None:
            if next(tries):
                self._meanwhile(POLL_S)
            action()

        try:
            retry(attempt, self._stop, (StoreError, UnwrittenError), PAUSES, self._wait_for)
        except StoppedError:
            return False
        finally:
            self._metrics.stalled = False
        return True

    def _wait_for(self, error: DistrlError, pause_s: float) -> None:
        self._metrics.stalled = True
        if isinstance(error, StoreError):
            self._intake.store_failed()
        LOG.error("waiting for the %s: %s", "store" if isinstance(error, StoreError) else "broker", error)

    def _loaded(self) -> None:
        """Called with each screenshot that is loaded: the store works, though loading all may still take hours."""
        self._metrics.stalled = False
        self._reporter.monitor.progress()  # not `_progress`: the ranks are already executing an order
        if self._reporter.due:
            self._reporter.report(self._publisher.newest, self.metrics())

    def _report(self, *, at_once: bool = False) -> None:
        """Report progress; send metrics too if a heartbeat is due or `at_once`."""
        self._progress()
        if at_once or self._reporter.due:
            self._reporter.report(self._publisher.newest, self.metrics(), at_once=at_once)

    def _progress(self) -> None:
        self._reporter.monitor.progress()
        self._leader.call()
