"""The learner's state from the log alone: what a run must end with, whatever was killed on the way.

Reads topics and objects and writes nothing, so it may run beside a live learner.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack

from distrl.broker.identity import IdSet
from distrl.broker.reader import LogReader, decoded
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.errors import BrokerError, WireError
from distrl.learner.fold import fold
from distrl.learner.inbox import Inbox
from distrl.learner.recover import TOPICS, Recovered, recover, unfolded
from distrl.learner.state import LearnerState
from distrl.policy.base import load_base
from distrl.store.objects import ObjectStore, open_store
from distrl.types import LoggedTrajectory, Trajectory, Update

LOG = logging.getLogger("distrl.learner.verify")

READ_S = 1.0
"""Longest wait for the next batch of a log that has not ended; it wakes when one comes."""


def refold(config: Config, *, from_start: bool = False) -> LearnerState:
    """The state after every journalled update: from the newest checkpoint on, or from nothing.

    Raises what recovery raises, and BrokerError where the log ends before the journal's watermarks.
    """
    store = open_store(config.store)
    begun = Recovered(LearnerState.create(load_base(config.policy.base_model), config), IdSet()) if from_start else None
    begun = begun or recover(config, store)
    with LogReader(config, "updates") as journal:
        entries = [decoded(raw, Update) for batch in journal.to_end() for raw in batch]
    updates = unfolded(entries, begun.state, config)
    LOG.info("folding %d updates after the first %d", len(updates), begun.state.u)
    _fold_all(config, store, begun, updates)
    return begun.state


def _fold_all(config: Config, store: ObjectStore, begun: Recovered, updates: Sequence[Update]) -> None:
    state = begun.state
    names = [topic_name(config.run, name) for name in TOPICS]
    inbox = Inbox(names[0], names[1], state.watermarks, begun.seen)
    with ExitStack() as stack:
        readers = []
        for name, topic in zip(TOPICS, names, strict=True):
            start = {mark.partition: mark.offset for mark in state.watermarks if mark.topic == topic}
            readers.append(stack.enter_context(LogReader(config, name, start)))
        for update in updates:
            while not inbox.reaches(update.watermarks):
                if sum(_take(reader, inbox) for reader in readers) == 0 and all(r.caught_up for r in readers):
                    raise BrokerError(
                        f"log of run {config.run}",
                        f"ends before the watermarks of journalled update {update.u}",
                        "bring the topics' records back, or choose a new `run`",
                    )
            fold(state, inbox.window(update.watermarks), update, store.get, config)
            inbox.folded(update.watermarks)
            state.forget_screens(but=inbox.pending)


def _take(reader: LogReader, inbox: Inbox) -> int:
    batch = [] if reader.caught_up else reader.read(READ_S)
    for raw in batch:
        try:
            inbox.push(LoggedTrajectory(raw.position, decoded(raw, Trajectory)))
        except WireError:
            inbox.passed(raw.position)
    return len(batch)
