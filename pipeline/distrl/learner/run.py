"""A learner from its start to its stop: recover, learn, and begin again where the log is no longer what was read.

Killed anywhere, it ends with the same weights when it is started again. Where the broker has lost acknowledged records,
it journals which updates are void and begins again with what is left (docs/adr/0010).
"""

from __future__ import annotations

import logging
import threading
from contextlib import ExitStack, closing
from functools import partial

from distrl.broker import claims
from distrl.broker.heartbeats import HeartbeatSender
from distrl.broker.journal import ROLE
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import CutError
from distrl.config import Config
from distrl.learner.journal_writer import JournalWriter, OtherLinesError
from distrl.learner.loop import Loop, OnUpdate
from distrl.learner.newest_version import NewestVersionWatch
from distrl.learner.ranks import Leader, keep_features
from distrl.learner.recover import log_of, recover, unfolded
from distrl.ranks.group import ALONE, Ranks
from distrl.store.objects import ObjectStore, open_store
from distrl.telemetry.monitor import Monitor, Reporter
from distrl.telemetry.tracing import OFF, Tracer

LOG = logging.getLogger("distrl.learner")

HEARTBEAT_S = 2.0

LEFT = "stopping without a checkpoint; the next start recovers"

RESTART_PAUSE_S = 1.0
"""Pause before beginning again after lost records: a broker that has just come back may not be settled."""


def run_learner(
    config: Config,
    stop: threading.Event,
    on_update: OnUpdate | None = None,
    monitor: Monitor | None = None,
    tracer: Tracer = OFF,
    ranks: Ranks = ALONE,
) -> None:
    """Learn until `stop`; then finish the running update and save a checkpoint. Raises DistrlError.

    on_update: called after each update, redone ones too, with its metrics and the newest version. ranks: this process
    must be the first of them; the others `follow` (ranks.py).
    """
    store, monitor = open_store(config.store), monitor or Monitor()
    with (
        closing(Leader(config, ranks, store.get, stop, monitor.progress)) as leader,
        JournalWriter(config) as journal_writer,
        RecordProducer(config, ROLE) as producer,
    ):
        send = partial(claims.send, producer, config, mine=journal_writer.claim)
        reporter = Reporter(HeartbeatSender(ROLE, ROLE, HEARTBEAT_S, send), monitor)
        reporter.report(None, {})
        watch = NewestVersionWatch(config)
        while _run_once(config, store, journal_writer, producer, reporter, leader, stop, on_update, tracer, watch):
            if stop.wait(RESTART_PAUSE_S):
                LOG.info(LEFT)
                break
        leader.end()


def _run_once(
    config: Config,
    store: ObjectStore,
    journal_writer: JournalWriter,
    producer: RecordProducer,
    reporter: Reporter,
    leader: Leader,
    stop: threading.Event,
    on_update: OnUpdate | None,
    tracer: Tracer,
    watch: NewestVersionWatch,
) -> bool:
    """Recover, redo and work until `stop`. Returns True where the log is no longer what was read, so that the caller
    has to recover again."""
    reporter.monitor.waits_for("its recovery")
    try:
        history = journal_writer.history()
        log = log_of(config, history)
        recovered = recover(config, store, history=history, log=log)
        redone = unfolded(history.updates, recovered.state, config)
        keep_features(recovered.state, config)
        leader.begin(recovered.state)
        with ExitStack() as open_readers:
            learner = Loop(
                config, store, journal_writer, producer, reporter, leader, recovered, history, log, stop, on_update,
                tracer, watch,
            )  # fmt: skip
            learner.follow(open_readers)
            if not learner.redo(redone) and not stop.is_set():
                return True
            reporter.monitor.ready()
            learner.work()
    except CutError as error:
        LOG.warning("the broker has lost records (%s): what is left is read again", error.what)
        return True
    except OtherLinesError as error:
        LOG.warning("what is journalled is read again: %s", error)
        return True
    return False
