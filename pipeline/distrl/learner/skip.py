"""Skips one record for ever, where an object that it names is lost or damaged for ever.

A journal line names the record and makes void every update from the one that folded it on. A running learner is fenced
by this and must be started again: it goes back to before that update and folds the log again without the record. Every
later fold leaves the record out too, so replays, ablations and lineages agree.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from distrl.broker.journal import History
from distrl.broker.reader import LogReader, RawRecord, retained
from distrl.broker.topics import topic_name
from distrl.broker.versions import lineage
from distrl.clock import SYSTEM_CLOCK
from distrl.config import Config
from distrl.errors import ConfigError
from distrl.learner.choose_checkpoint import marks, refusal
from distrl.learner.journal_writer import JournalWriter
from distrl.learner.reading import TOPICS
from distrl.learner.recover import log_of, manifests, refuse_other_journal, saved_as
from distrl.learner.reservations import highest_number
from distrl.runs.named_objects import screens_of
from distrl.runs.recorded import LEARNED, learned_with, refuse_other_settings
from distrl.runs.settings import learning_fingerprint
from distrl.store.objects import CorruptObjectError, MissingObjectError, open_store
from distrl.types import LoggedTrajectory, Skipped, Update

PLACE: Final = re.compile(rf"({'|'.join(TOPICS)})/([0-9]{{1,9}})/([0-9]{{1,18}})")
COMMAND: Final = "distrl skip"

Unusable = MissingObjectError | CorruptObjectError
"""An object that is gone, or is not what records say of it."""


@dataclass(frozen=True, slots=True)
class SkippedFrom:
    """Where a skip takes effect."""

    record: Skipped
    u: int
    """The first update without the record."""
    void: int
    """How many updates became void and will be folded again."""


def naming_records(error: Unusable, held: Iterable[LoggedTrajectory], run: str) -> Unusable:
    """`error`, naming also the records of `held` that need the object, and the command that skips one. The command
    names `run`, as another run may have a record at the same place."""
    key = error.where.removeprefix("object ")
    named = [each.position for each in held if any(screen.key == key for screen in screens_of(each.trajectory))]
    places = [f"{place.topic.rpartition('.')[2]}/{place.partition}/{place.offset}" for place in named]
    command = f"{COMMAND} {places[0] if places else 'TOPIC/PARTITION/OFFSET'} --run {run} --reason WHY"
    return type(error)(
        error.where,
        f"{error.what}; needed by {', '.join(places)}",
        f"{error.hint}; if it is gone for good: {command}",
    )


def skip(config: Config, place: str, reason: str) -> SkippedFrom:
    """Journal that the record at `place` (TOPIC/PARTITION/OFFSET, like trajectories/0/17) is never folded.

    Raises ConfigError where there is no such record, it is skipped already, `reason` is empty, the run has learned with
    other settings, or the updates before the record could not be restored; StoreError; and what opening and writing the
    journal raise.
    """
    if not reason.strip():
        raise ConfigError("--reason", "is empty", "say why, for those who read the journal later")
    raw = _record_at(config, place)
    at = raw.position
    record = Skipped(at.topic, at.partition, at.offset, hashlib.sha256(raw.value or b"").hexdigest(), reason.strip())
    with JournalWriter(config) as journal_writer:
        history = journal_writer.history()
        refuse_other_journal(history.updates, config)
        if not history.updates and (fingerprint := learned_with(config)) is not None:  # of updates that are all void
            refuse_other_settings(fingerprint, config, LEARNED)
        if any(
            (each.topic, each.partition, each.offset, each.sha256) == (*_where(record), record.sha256)
            for each in history.skipped
        ):
            raise ConfigError(
                place, "is left out already", f"start the learner of {config.run}, which goes on without it"
            )
        folded = (at.topic, at.partition)
        u = next(
            (each.u for each in history.updates if marks(each.watermarks).get(folded, 0) > at.offset),
            len(history.updates),
        )
        _refuse_without_a_beginning(config, place, history, u)
        # The reserved number too: a version whose transaction has lost its marker becomes visible with the next one.
        published = max((version.version for version in lineage(config)), default=-1)
        reserved = highest_number(open_store(config.store), config.run)
        journal_writer.append(
            Update(
                u,
                history.updates[u - 1].watermarks if u else (),
                learning_fingerprint(config),
                SYSTEM_CLOCK.now_ms(),
                log_id=history.log_id,
                version=max(published, reserved, history.version),
                void=f"{place} is left out: {record.reason}",
                skipped=(record,),
            )
        )
    return SkippedFrom(record, u, len(history.updates) - u)


def _refuse_without_a_beginning(config: Config, place: str, history: History, u: int) -> None:
    """Raises ConfigError where the learner could not continue after the skip, which cannot be undone: no checkpoint
    from before update `u` can be restored, and the log no longer has its first records."""
    log = log_of(config, history)
    if all(first == 0 for first, _ in log.ranges.values()):
        return
    saved = manifests(config, open_store(config.store), at_most=u)
    found = [each for _, meta in saved if meta is not None and (each := saved_as(meta)) is not None]
    if not any(refusal(each, history.updates, log.ranges) is None for each in found):
        raise ConfigError(
            place,
            f"was folded by update {u} of {len(history.updates)}; no checkpoint from before it can be restored, and "
            "the first records of the log are gone, so that nothing could be folded again",
            "put the object back into the store, or choose a new `run`",
        )


def _where(record: Skipped) -> tuple[str, int, int]:
    return record.topic, record.partition, record.offset


def refuse_other_form(place: str) -> re.Match[str]:
    """The match of PLACE: topic, partition and offset. Raises ConfigError for anything else."""
    found = PLACE.fullmatch(place)
    if found is None:
        raise ConfigError(
            repr(place),
            "is not TOPIC/PARTITION/OFFSET of a demonstration or trajectory",
            "write it like trajectories/0/17, as in the learner's log where it waits for an object",
        )
    return found


def _record_at(config: Config, place: str) -> RawRecord:
    found = refuse_other_form(place)
    name, partition, offset = found[1], int(found[2]), int(found[3])
    kept = retained(config, name)
    first, end = kept.get(partition, (0, 0))
    if first <= offset < end:
        with LogReader(config, name, {partition: offset}) as reader:
            for raw in (raw for batch in reader.to_end() for raw in batch):
                if (raw.position.partition, raw.position.offset) == (partition, offset):
                    return raw
    places = ", ".join(f"{name}/{each}/{first} to {end - 1}" for each, (first, end) in kept.items() if first < end)
    raise ConfigError(
        place,
        f"there is no such record in {topic_name(config.run, name)}, which keeps {places or 'none'}",
        "see `distrl replay`",
    )
