"""Where a learner starts: from the newest checkpoint that journal and log support, or from nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from distrl.broker.connect import admin
from distrl.broker.identity import IdSet
from distrl.broker.journal import History
from distrl.broker.journal import history as read_history
from distrl.broker.reader import LogReader, decoded
from distrl.broker.topic_admin import topic_id
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.errors import BrokerError, ConfigError, StoreError, WireError
from distrl.learner.agreed import learning_fingerprint, refuse_other_settings
from distrl.learner.reading import TOPICS, window_sha256
from distrl.learner.resume import Kept, Saved, marks, refusal
from distrl.learner.skipped import SkippedRecords
from distrl.learner.state import LearnerState, needed
from distrl.store.checkpoints import checkpoint_meta, checkpoints, load_checkpoint, save_checkpoint
from distrl.store.objects import ObjectStore
from distrl.types import LoggedTrajectory, LogPosition, Trajectory, Update
from distrl.wire.gc_paused import gc_paused

LOG = logging.getLogger("distrl.learner.recover")


NARROW = 0.8
"""Part of learner.rebuild_window that the buffer may span before the learner warns."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a learner begins with."""

    state: LearnerState
    """As of its checkpoint."""
    seen: IdSet
    """The ids folded until then."""
    refused: Mapping[int, str] = field(default_factory=dict)
    """Why each newer checkpoint is not what was begun with; one that is damaged is not among them."""


@dataclass(frozen=True, slots=True)
class Log:
    """What the broker has of the folded topics. id: their ids, joined by commas; empty: unknown."""

    kept: Kept
    id: str


def log_of(config: Config) -> Log:
    """Raises BrokerError where a topic is missing or the broker does not answer."""
    kept, client = {}, admin(config.kafka)
    for name in TOPICS:
        with LogReader(config, name) as reader:
            for partition, first in reader.next_offsets.items():
                kept[reader.topic, partition] = (first, reader.ends[partition])
    ids = [topic_id(client, config, topic_name(config.run, name)) for name in TOPICS]
    return Log(kept, ",".join(ids) if all(ids) else "")


def recover(
    config: Config,
    store: ObjectStore,
    at_most: int | None = None,
    history: History | None = None,
    log: Log | None = None,
) -> Recovered:
    """The newest checkpoint (of `at_most` updates) that journal and log support, with its buffer refilled from the log;
    a fresh state without one. history, log: read now if not given.

    Raises ConfigError where the run was begun with other learning settings, StoreError and BrokerError; the latter also
    where the log is another one than the journal's.
    """
    history, log = history or read_history(config), log or log_of(config)
    refused: dict[int, str] = {}
    for meta in manifests(config, store, at_most):
        u = int(meta["u"])
        why: str | None = refusal(Saved.of(meta, needed(meta)), history.updates, log.kept)
        if why is None:
            refuse_other_settings(meta["config_fingerprint"], config, f"the checkpoint of update {u}")
            found = load_checkpoint(store, config.run, u)
            if found is None:
                continue
            try:
                state = LearnerState.restore(config, meta, found[1], read_back(config, needed(meta)))
                why = _other_content(config, state, meta, history, log.kept)
            except (WireError, MissingRecordError) as error:
                why = error.what
            if why is None:
                LOG.info("restored the checkpoint of %d updates; %d transitions refilled", u, state.transitions)
                return Recovered(state, IdSet.of(meta["seen"]), refused)
            refuse_other_log(config, history, log, why, content=True)
        else:
            refuse_other_log(config, history, log, why, saved_on=str(meta.get("log_id", "")))
        refused[u] = why
        LOG.warning("the checkpoint of %d updates is passed over: %s", u, why)
    return Recovered(LearnerState(config), IdSet(), refused)


def refuse_other_log(
    config: Config, history: History, log: Log, why: str, *, content: bool = False, saved_on: str = ""
) -> None:
    """Raises BrokerError where what the log lacks cannot be a lost tail, since its topics are not those of the journal.

    why: what the log lacks. content: it has other records there. (Of journals that name no topics, an end that comes
    too soon is taken for a loss, and other records are not.) saved_on: the topics' ids as a checkpoint names them:
    where the whole broker is another one, its journal knows nothing of the run whose checkpoints the store has.
    """
    known = saved_on or history.log_id
    if log.id and known == log.id:
        return
    if (log.id and known) or content:
        names = " and ".join(topic_name(config.run, name) for name in TOPICS)
        raise BrokerError(
            names,
            f"are not the topics that the journal was written on, made again or mirrored, and differ from them: {why}",
            "set kafka.bootstrap and `run` to those of the whole run, bring the records back, or choose a new `run`; "
            f"where the topics were deleted on purpose, delete runs/{config.run}/ from the store",
        )


def manifests(config: Config, store: ObjectStore, at_most: int | None) -> Iterator[dict[str, Any]]:
    """The manifests of the run's checkpoints, newest first."""
    for u in checkpoints(store, config.run):
        meta = checkpoint_meta(store, config.run, u) if at_most is None or u <= at_most else None
        if meta is not None:
            yield meta


def _other_content(
    config: Config, state: LearnerState, meta: Mapping[str, Any], history: History, kept: Kept
) -> str | None:
    """Why the restored `state` is not the one that was saved; None where it is.

    Compares the digests that the checkpoint names, then the last window of each topic with the log: a tail that was
    lost and has grown again differs there. A window whose beginning retention has deleted cannot be compared, and its
    end is no lost tail. Raises StoreError where other parts than the buffer differ.
    """
    saved, found = meta.get("digests", {}), state.digests()
    differing = sorted(name for name in saved.keys() & found.keys() if saved[name] != found[name])
    if differing == ["buffer"]:
        return "the log holds other records at the offsets of its replay buffer"
    if differing:
        raise StoreError(
            f"checkpoint {state.u} of run {config.run}",
            f"restores to another {', '.join(differing)} than was saved",
            f"delete runs/{config.run}/checkpoints/{state.u:08d}.json, and the one before it is used",
        )
    aside = SkippedRecords(history.updates, history.skipped)
    for update in _last_windows(history.updates[: state.u]):
        begin = history.updates[update.u - 1].watermarks if update.u else ()
        begun = marks(begin)
        if any(begun.get(place, 0) < first for place, (first, _) in kept.items()):
            continue
        if window_sha256(config, begin, update.watermarks, aside) != update.window_sha256:
            return f"the log holds other records than update {update.u} folded"
    return None


def _last_windows(updates: Sequence[Update]) -> list[Update]:
    """For each partition, the last of `updates` that folded some of it and says what."""
    found: dict[tuple[str, int], Update] = {}
    before: dict[tuple[str, int], int] = {}
    for update in updates:
        for place, offset in marks(update.watermarks).items():
            if offset > before.get(place, 0) and update.window_sha256:
                found[place] = update
            before[place] = offset
    return sorted(set(found.values()), key=lambda update: update.u)


class MissingRecordError(StoreError):
    """The log no longer holds a record that a checkpoint needs."""


def checkpoint(
    config: Config,
    store: ObjectStore,
    state: LearnerState,
    seen: IdSet,
    history: str = "",
    version: int = -1,
    log_id: str = "",
) -> None:
    """Save what `recover` reads, and the digests that it compares.

    history: `resume.chain` of the folded updates. version: the highest number given out so far. log_id: the ids of the
    topics that were folded, as the journal names them.
    Raises StoreError; the checkpoint before is then still the newest.
    """
    meta = state.meta() | {
        "config_fingerprint": learning_fingerprint(config),
        "seen": seen.ranges(),
        "digests": state.digests(),
        "history": history,
        "version": version,
        "log_id": log_id,
    }
    save_checkpoint(store, config.run, state.u, state.tensors(), meta)


def read_back(config: Config, positions: Iterable[LogPosition]) -> list[LoggedTrajectory]:
    """The records at `positions`, from the log. Raises ConfigError where too much would have to be read for them."""
    wanted = set(positions)
    found: list[LoggedTrajectory] = []
    for name in TOPICS:
        here = {place for place in wanted if place.topic == topic_name(config.run, name)}
        if here:
            _refuse_too_far(config, here)
            found += _read(config, name, here)
    return found


def _read(config: Config, name: str, wanted: set[LogPosition]) -> list[LoggedTrajectory]:
    found: list[LoggedTrajectory] = []
    start: dict[int, int] = {}
    for place in wanted:
        start[place.partition] = min(place.offset, start.get(place.partition, place.offset))
    with LogReader(config, name, start) as reader:
        for batch in reader.to_end():
            with gc_paused():
                found += [
                    LoggedTrajectory(raw.position, decoded(raw, Trajectory, seen=True))  # it was folded once
                    for raw in batch
                    if raw.position in wanted
                ]
            if len(found) == len(wanted):
                break
    if len(found) < len(wanted):
        raise MissingRecordError(
            topic_name(config.run, name), f"holds {len(found)} of the {len(wanted)} records of the replay buffer", ""
        )
    return found


def _refuse_too_far(config: Config, wanted: set[LogPosition]) -> None:
    span = span_of(wanted)
    if span > config.learner.rebuild_window:
        raise ConfigError(
            "learner.rebuild_window",
            f"the replay buffer spans {span} records of the log, and a restart may read back "
            f"{config.learner.rebuild_window}",
            f"set learner.rebuild_window to {span} or more",
        )


def span_of(wanted: Iterable[LogPosition]) -> int:
    """Records between the first and the last of `wanted`, both counted, summed over the partitions."""
    found: dict[tuple[str, int], list[int]] = {}
    for place in wanted:
        found.setdefault((place.topic, place.partition), []).append(place.offset)
    return sum(max(offsets) - min(offsets) + 1 for offsets in found.values())


def warn_of_a_narrow_window(config: Config, state: LearnerState) -> None:
    """Says that a restart will need a larger learner.rebuild_window while there is time to set it.

    Records that nothing is learned from (interrupted, not judged) widen the span, and no setting bounds their number.
    """
    widest = max(
        span_of(logged.position for logged in state.held() if logged.position.topic == topic_name(config.run, name))
        for name in TOPICS
    )
    if widest > NARROW * config.learner.rebuild_window:
        LOG.warning(
            "the replay buffer spans %d records of the log, and a restart reads back learner.rebuild_window=%d at "
            "most: set it to %d or more before the next start (it may change in the middle of a run)",
            widest,
            config.learner.rebuild_window,
            2 * widest,
        )


def unfolded(entries: Sequence[Update], state: LearnerState, config: Config) -> list[Update]:
    """The journalled updates that `state` has not folded, in order. entries: those that count.

    Raises ConfigError for other settings, and BrokerError where the journal is not the one that `state` came from.
    """
    refuse_other_journal(entries, config)
    if state.u > len(entries):
        raise _foreign_journal(config, f"it ends after {len(entries)} updates, and the checkpoint has folded {state.u}")
    if state.u and marks(entries[state.u - 1].watermarks) != marks(state.watermarks):
        raise _foreign_journal(config, f"its update {state.u - 1} has other watermarks than the checkpoint")
    return list(entries[state.u :])


def refuse_other_journal(entries: Sequence[Update], config: Config) -> None:
    """Raises ConfigError where the journal was written with other settings, BrokerError where it has a gap."""
    for index, update in enumerate(entries):
        if update.u != index:
            raise _foreign_journal(config, f"its update {update.u} stands at place {index}")
        refuse_other_settings(update.config_fingerprint, config, f"update {update.u} in the journal")


def _foreign_journal(config: Config, what: str) -> BrokerError:
    return BrokerError(
        topic_name(config.run, "updates"),
        f"is not the journal of this checkpoint: {what}",
        f"delete runs/{config.run}/ from the store if its topics were deleted, or choose a new `run`",
    )
