"""Where a learner starts: from its newest checkpoint and the log, or from nothing."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from distrl.broker.identity import IdSet
from distrl.broker.reader import LogReader, decoded
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.errors import BrokerError, ConfigError
from distrl.learner.state import LearnerState, needed
from distrl.policy.base import load_base
from distrl.store.checkpoints import latest_checkpoint, save_checkpoint
from distrl.store.objects import ObjectStore
from distrl.types import LoggedTrajectory, LogPosition, Trajectory, Update, Watermark
from distrl.wire.collector import uncollected

LOG = logging.getLogger("distrl.learner.recover")

TOPICS = ("demonstrations", "trajectories")
"""What the learner folds."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """state: as of its checkpoint. seen: the ids folded until then, for the inbox."""

    state: LearnerState
    seen: IdSet


def recover(config: Config, store: ObjectStore, at_most: int | None = None) -> Recovered:
    """The newest checkpoint (of `at_most` updates) with its buffer refilled from the log; a fresh state without one.

    Raises ConfigError where the run was begun with other learning settings, StoreError and BrokerError.
    """
    base = load_base(config.policy.base_model)
    found = latest_checkpoint(store, config.run, at_most)
    if found is None:
        return Recovered(LearnerState.create(base, config), IdSet())
    meta, tensors = found
    refuse_other_settings(meta["config_fingerprint"], config, f"the checkpoint of update {meta['u']}")
    state = LearnerState.restore(base, config, meta, tensors, read_back(config, needed(meta)))
    LOG.info("restored the checkpoint of %d updates; %d transitions refilled", state.u, len(state.buffer))
    return Recovered(state, IdSet.of(meta["seen"]))


def checkpoint(config: Config, store: ObjectStore, state: LearnerState, seen: IdSet) -> None:
    """Save what `recover` reads, and the digests for people: without the log, a checkpoint's reader cannot make them.

    Raises StoreError; the checkpoint before is then still the newest.
    """
    meta = state.meta() | {
        "config_fingerprint": config.learning_fingerprint(),
        "seen": seen.ranges(),
        "digests": state.digests(),
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
            with uncollected():
                found += [
                    LoggedTrajectory(raw.position, decoded(raw, Trajectory, seen=True))  # it was folded once
                    for raw in batch
                    if raw.position in wanted
                ]
            if len(found) == len(wanted):
                break
    return found


def _refuse_too_far(config: Config, wanted: set[LogPosition]) -> None:
    span = 0
    for partition in {place.partition for place in wanted}:
        offsets = [place.offset for place in wanted if place.partition == partition]
        span += max(offsets) - min(offsets) + 1
    if span > config.learner.rebuild_window:
        raise ConfigError(
            "learner.rebuild_window",
            f"the replay buffer spans {span} records of the log, and a restart may read back "
            f"{config.learner.rebuild_window}",
            f"set learner.rebuild_window to {span} or more",
        )


def refuse_other_settings(fingerprint: str, config: Config, what: str) -> None:
    """Raises ConfigError where `what` was made with other learning settings than `config` has."""
    if fingerprint != config.learning_fingerprint():
        raise ConfigError(
            f"run {config.run}",
            f"{what} was made with other settings under policy, replay, aride or learner",
            "start with the settings that the run began with, or choose a new `run`",
        )


def unfolded(entries: Sequence[Update], state: LearnerState, config: Config) -> list[Update]:
    """The journalled updates that `state` has not folded, in order.

    Raises ConfigError for other settings, and BrokerError where the journal is not the one that `state` came from.
    """
    for index, update in enumerate(entries):
        if update.u != index:
            raise _foreign_journal(config, f"its update {update.u} stands at place {index}")
        refuse_other_settings(update.config_fingerprint, config, f"update {update.u} in the journal")
    if state.u > len(entries):
        raise _foreign_journal(config, f"it ends after {len(entries)} updates, and the checkpoint has folded {state.u}")
    if state.u and _marks(entries[state.u - 1].watermarks) != _marks(state.watermarks):
        raise _foreign_journal(config, f"its update {state.u - 1} has other watermarks than the checkpoint")
    return list(entries[state.u :])


def _marks(watermarks: Iterable[Watermark]) -> Mapping[tuple[str, int], int]:
    return {(mark.topic, mark.partition): mark.offset for mark in watermarks}


def _foreign_journal(config: Config, what: str) -> BrokerError:
    return BrokerError(
        topic_name(config.run, "updates"),
        f"is not the journal of this checkpoint: {what}",
        f"delete runs/{config.run}/ from the store if its topics were deleted, or choose a new `run`",
    )
