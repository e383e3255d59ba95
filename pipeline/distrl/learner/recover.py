"""Where a learner starts: from the newest checkpoint that journal and log support, or from nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from numpy.typing import NDArray

from distrl.accelerator import kind_of
from distrl.broker.connect import admin
from distrl.broker.duplicates import IdSet
from distrl.broker.journal import History
from distrl.broker.journal import history as read_history
from distrl.broker.reader import LogReader, decoded
from distrl.broker.topic_admin import topic_id
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.errors import BrokerError, ConfigError, StoreError, WireError
from distrl.learner.adapters import NamedVersions
from distrl.learner.choose_checkpoint import OffsetRanges, Saved, is_void, marks, not_in_log, not_of_journal
from distrl.learner.reading import TOPICS, reached, window_sha256
from distrl.learner.skipped import SkippedRecords
from distrl.learner.state import LearnerState, needed
from distrl.replay.circular import OtherRecordError
from distrl.runs.recorded import refuse_other_settings
from distrl.runs.settings import learning_fingerprint
from distrl.store.checkpoints import checkpoint_meta, checkpoints, load_checkpoint
from distrl.store.objects import ObjectStore
from distrl.types import LoggedTrajectory, LogPosition, Trajectory, Update, Watermark
from distrl.wire.gc_paused import gc_paused

LOG = logging.getLogger("distrl.learner.recover")


FORMAT = 1
"""Format of manifests; a manifest that names none has 1. Raise it for changes that older code cannot restore."""
UNUSABLE = "it is damaged, or of a later version"
NARROW_WINDOW = 0.8
"""Share of learner.rebuild_window that the buffer may span before the learner warns."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """What a learner starts with."""

    state: LearnerState
    """Restored from a checkpoint, or fresh."""
    seen: IdSet
    """The ids folded so far."""
    named: NamedVersions = field(default_factory=NamedVersions)
    """The versions that the trajectories read so far name."""
    refused: Mapping[int, str] = field(default_factory=dict)
    """Number of updates of each newer checkpoint -> why it was refused; damaged ones included."""


@dataclass(frozen=True, slots=True)
class Log:
    """What the broker has of the folded topics."""

    ranges: OffsetRanges
    id: str
    """The topics' ids, joined by commas; empty: unknown."""


def log_of(config: Config, history: History) -> Log:
    """The run's log as the broker has it now. history: of the journal, whose watermarks say how far the log once
    reached. Raises BrokerError where a topic is missing or no broker answers."""
    ranges, client = {}, admin(config.kafka)
    for name in TOPICS:
        with LogReader(config, name, reach=reached(config, name, history.watermarks)) as reader:
            for partition, first in reader.next_offsets.items():
                ranges[reader.topic, partition] = (first, reader.ends[partition])
    ids = [topic_id(client, config, topic_name(config.run, name)) for name in TOPICS]
    return Log(ranges, ",".join(ids) if all(ids) else "")


def recover(
    config: Config,
    store: ObjectStore,
    at_most: int | None = None,
    history: History | None = None,
    log: Log | None = None,
) -> Recovered:
    """The newest checkpoint that journal and log support, its buffer refilled from the log; without one a fresh state.

    at_most: the most updates that the checkpoint may have. history, log: read now if not given. Raises StoreError,
    ConfigError where the run was begun with other learning settings, and BrokerError where the broker fails or the log
    is not the one that the journal describes.
    """
    history = history or read_history(config)
    log = log or log_of(config, history)
    refused: dict[int, str] = {}
    for u, meta in manifests(config, store, at_most):
        saved = None if meta is None else saved_as(meta)
        if meta is None or saved is None:
            refused[u] = UNUSABLE
            LOG.warning("the checkpoint of %d updates is refused: %s", u, UNUSABLE)
            continue
        other_journal = not_of_journal(saved, history.updates)
        why = other_journal or not_in_log(saved, log.ranges)
        if why is None:
            refuse_other_settings(meta["config_fingerprint"], config, f"the checkpoint of update {u}")
            found = load_checkpoint(store, config.run, u)
            if found is None:
                refused[u] = UNUSABLE  # otherwise pruning would count it, and delete the last sound one in its place
                continue
            try:
                state = LearnerState.restore(config, meta, found[1], read_back(config, needed(meta)))
                why = _other_content(config, state, meta, history, log.ranges)
            except (WireError, MissingRecordError, OtherRecordError) as error:
                why = error.what
            if why is None:
                LOG.info("restored the checkpoint of %d updates; %d transitions refilled", u, state.transitions)
                return Recovered(state, IdSet.of(meta["seen"]), _named(config, meta, state), refused)
            refuse_other_log(config, history, log, why, content=True)
        elif other_journal is None or not is_void(saved, history):
            saved_on = str(meta.get("log_id", ""))
            if other_journal is not None:
                _refuse_shorter_copy(config, history, log, why, saved_on)
            refuse_other_log(config, history, log, why, saved_on=saved_on)
        refused[u] = why
        LOG.warning("the checkpoint of %d updates is refused: %s", u, why)
    return Recovered(LearnerState(config), IdSet(), refused=refused)


def _named(config: Config, meta: Mapping[str, Any], state: LearnerState) -> NamedVersions:
    """The versions that the trajectories before a checkpoint name. A checkpoint of earlier software does not hold them:
    they are then unknown for the records that it folded."""
    if "named" in meta:
        return NamedVersions.of(meta["named"])
    topic = topic_name(config.run, "trajectories")
    return NamedVersions({mark.partition: mark.offset for mark in state.watermarks if mark.topic == topic})


def refuse_other_log(
    config: Config, history: History, log: Log, why: str, *, content: bool = False, saved_on: str = ""
) -> None:
    """Raises BrokerError where the log's topics are not those of the journal, so that no tail was lost.

    why: what the log lacks. content: whether the log has other records in that place. Where the journal names no topic
    ids, a log with other records is refused, and one that ends too soon counts as one that lost its tail. saved_on: the
    topics' ids in a checkpoint's manifest, for the case that the journal itself is new and empty.
    """
    known = saved_on or history.log_id
    if log.id and known == log.id:
        return
    if (log.id and known) or content:
        names = " and ".join(topic_name(config.run, name) for name in TOPICS)
        raise BrokerError(
            names,
            f"are not the topics of the journal (made again or mirrored), and their records differ: {why}",
            "set kafka.bootstrap and `run` to those of the whole run, bring the records back, or choose a new `run`; "
            f"where the topics were deleted on purpose, delete runs/{config.run}/ from the store",
        )


def _refuse_shorter_copy(config: Config, history: History, log: Log, why: str, saved_on: str) -> None:
    """Raises BrokerError where the run was copied here, and its journal is shorter than that of a copied checkpoint.

    Journal and checkpoint then name the same topics, which are not the ones of this broker. why: what the journal
    lacks. saved_on: as in `refuse_other_log`.
    """
    if log.id and saved_on and saved_on == history.log_id != log.id:
        raise BrokerError(
            topic_name(config.run, "updates"),
            f"was copied or mirrored here, and is not the whole journal of a checkpoint that was copied with it: {why}",
            "either the copy was interrupted or has lost its end: copy the run again (`distrl runs copy` names the "
            "command that removes what is there); or both use one store: give the copy one of its own",
        )


def manifests(config: Config, store: ObjectStore, at_most: int | None) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """The run's checkpoints, newest first: their number of updates and their manifest, None for a damaged one."""
    for u in checkpoints(store, config.run):
        if at_most is None or u <= at_most:
            yield u, checkpoint_meta(store, config.run, u)


def saved_as(meta: Mapping[str, Any]) -> Saved | None:
    """The checkpoint that a manifest describes; None where this version cannot read it, as it is of a later one."""
    if (found := meta.get("format", 1)) != FORMAT:
        LOG.warning("a checkpoint's manifest has format %r, and this version reads %d", found, FORMAT)
        return None
    try:
        return Saved.of(meta, needed(meta))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        LOG.warning("a checkpoint's manifest cannot be read: %r", error)
        return None


def _other_content(
    config: Config, state: LearnerState, meta: Mapping[str, Any], history: History, ranges: OffsetRanges
) -> str | None:
    """Why the restored `state` is not the one that was saved; None where it is.

    Compares the digests of the checkpoint, then the last window of each partition with the log: if a tail was lost and
    new records took its offsets, the window differs. A window that retention has begun to delete is not compared, as it
    is not at the log's end. Raises StoreError where another part than the buffer differs.
    """
    saved, found = meta.get("digests", {}), state.digests()
    differing = sorted(name for name in saved.keys() & found.keys() if saved[name] != found[name])
    if differing == ["buffer"]:
        return "the log holds other records at the offsets of its replay buffer"
    if differing:
        raise StoreError(
            f"checkpoint {state.u} of run {config.run}",
            f"restores to another {', '.join(differing)} than was saved",
            f"delete runs/{config.run}/checkpoints/{state.u:08d}.json; the one before it is used then",
        )
    skipped = SkippedRecords(history.updates, history.skipped)
    for update in _last_windows(history.updates[: state.u]):
        begin = history.updates[update.u - 1].watermarks if update.u else ()
        if not retains(ranges, begin):
            continue
        if window_sha256(config, begin, update.watermarks, skipped) != update.window_sha256:
            return f"the log holds other records than update {update.u} folded"
    return None


def retains(ranges: OffsetRanges, begin: Iterable[Watermark]) -> bool:
    """Whether the log still has all records from `begin` on; of a partition that `begin` does not name, all records."""
    begun = marks(begin)
    return all(first <= begun.get(place, 0) for place, (first, _) in ranges.items())


def _last_windows(updates: Sequence[Update]) -> list[Update]:
    """For each partition, the last of `updates` that folded records of it and names its window's sha256."""
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


class Snapshot(NamedTuple):
    """A copy of a state: the arguments of `save_checkpoint`."""

    u: int
    tensors: Mapping[str, NDArray[Any]]
    meta: Mapping[str, Any]


def snapshot(
    state: LearnerState,
    seen: IdSet,
    history: str = "",
    version: int = -1,
    log_id: str = "",
    named: NamedVersions | None = None,
) -> Snapshot:
    """What `recover` reads, and the digests that it compares. A copy: `state`, `seen` and `named` may change later.

    history: `choose_checkpoint.chain` of the folded updates. version: the highest version number reserved so far.
    log_id: the ids of the folded topics, as in the journal. named: the versions that the trajectories read name.
    """
    meta = state.meta() | {
        "format": FORMAT,
        "config_fingerprint": state.fingerprint,
        "seen": seen.to_json(),
        "digests": state.digests(),
        "history": history,
        "version": version,
        "log_id": log_id,
        "named": (named or NamedVersions()).to_json(),
    }
    return Snapshot(state.u, state.tensors(), meta)


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
    start, reach = dict[int, int](), dict[int, int]()
    for place in wanted:
        start[place.partition] = min(place.offset, start.get(place.partition, place.offset))
        reach[place.partition] = max(place.offset + 1, reach.get(place.partition, 0))
    with LogReader(config, name, start, reach=reach) as reader:
        for batch in reader.to_end():
            with gc_paused():
                found += [
                    LoggedTrajectory(raw.position, decoded(raw, Trajectory)) for raw in batch if raw.position in wanted
                ]
            if len(found) == len(wanted):
                break
    if len(found) < len(wanted):
        raise MissingRecordError(
            topic_name(config.run, name), f"has {len(found)} of the {len(wanted)} records of the replay buffer", ""
        )
    return found


def _refuse_too_far(config: Config, wanted: set[LogPosition]) -> None:
    span = records_spanned(wanted)
    if span > config.learner.rebuild_window:
        raise ConfigError(
            "learner.rebuild_window",
            f"the replay buffer spans {span} records of the log, and a restart may read back "
            f"{config.learner.rebuild_window}",
            f"set learner.rebuild_window to {span} or more",
        )


def records_spanned(wanted: Iterable[LogPosition]) -> int:
    """Records from the first to the last of `wanted`, summed over the partitions: what a restart reads back."""
    found: dict[tuple[str, int], list[int]] = {}
    for place in wanted:
        found.setdefault((place.topic, place.partition), []).append(place.offset)
    return sum(max(offsets) - min(offsets) + 1 for offsets in found.values())


def warn_if_window_is_narrow(config: Config, state: LearnerState) -> None:
    """Warn early that the next start may need a larger learner.rebuild_window.

    The buffer's records are interspersed with records that are not learned from (interrupted, not judged), whose number
    no setting bounds.
    """
    widest = max(
        records_spanned(
            logged.position for logged in state.held() if logged.position.topic == topic_name(config.run, name)
        )
        for name in TOPICS
    )
    if widest > NARROW_WINDOW * config.learner.rebuild_window:
        LOG.warning(
            "the replay buffer spans %d records of the log, and a restart reads back at most "
            "learner.rebuild_window=%d: set it to %d or more before the next start (it may change within a run)",
            widest,
            config.learner.rebuild_window,
            2 * widest,
        )


def unfolded(entries: Sequence[Update], state: LearnerState, config: Config) -> list[Update]:
    """The journalled updates that `state` has not folded, in order. entries: those in force, not void.

    Raises ConfigError for other settings or another kind of processor, and BrokerError where the journal is not the one
    of `state`.
    """
    refuse_other_journal(entries, config)
    refuse_other_device(entries, kind_of(state.policy.device), config)
    if state.u > len(entries):
        raise _foreign_journal(config, f"it ends after {len(entries)} updates; the checkpoint has folded {state.u}")
    if state.u and marks(entries[state.u - 1].watermarks) != marks(state.watermarks):
        raise _foreign_journal(config, f"its update {state.u - 1} has other watermarks than the checkpoint")
    return list(entries[state.u :])


def refuse_other_journal(entries: Sequence[Update], config: Config) -> None:
    """Raises ConfigError where the journal was written with other settings, BrokerError where it has a gap."""
    here = learning_fingerprint(config)
    for index, update in enumerate(entries):
        if update.u != index:
            raise _foreign_journal(config, f"its update {update.u} stands at place {index}")
        if update.config_fingerprint != here:
            refuse_other_settings(update.config_fingerprint, config, f"update {update.u} in the journal")


def refuse_other_device(entries: Iterable[Update], here: str, config: Config) -> None:
    """Raises ConfigError where an update was computed on another kind of processor than `here`: the same update gives
    other bits there, so no version could be verified any more."""
    if (update := computed_elsewhere(entries, here)) is not None:
        raise ConfigError(
            "learner.device",
            f"update {update.u} of run {config.run} was computed on {update.device}, and this is {here}: the same log "
            "gives the same weights bit for bit on one kind of processor alone",
            f"name a processor of the kind {update.device} in learner.device, or choose a new `run`",
        )


def computed_elsewhere(entries: Iterable[Update], here: str) -> Update | None:
    """The first update that was computed on another kind of processor than `here`, if its journal line names one."""
    return next((update for update in entries if update.device and update.device != here), None)


def _foreign_journal(config: Config, what: str) -> BrokerError:
    return BrokerError(
        topic_name(config.run, "updates"),
        f"is not the journal of this checkpoint: {what}",
        f"delete runs/{config.run}/ from the store if its topics were deleted, or choose a new `run`",
    )
