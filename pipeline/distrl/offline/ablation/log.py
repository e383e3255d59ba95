"""Reads the part of a run's log that every arm folds, once for all arms, and the state that it begins with.

Words. An *update range* is [first, to) in update numbers. The last `hold_out` updates of what is asked for are held
out: no arm folds them, and their trajectories serve for estimates only. A *branch* is a saved state from which several
arms go on.

A range from update 0 begins with a fresh state; a later one with the run's own: the newest checkpoint at or before it,
folded on under the run's settings.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distrl.broker.duplicates import IdSet
from distrl.broker.journal import History, in_force
from distrl.broker.reader import LogReader
from distrl.broker.topics import topic_name
from distrl.broker.versions import lineage
from distrl.config import Config
from distrl.errors import ConfigError
from distrl.learner.fold import fold
from distrl.learner.pending import PendingLog
from distrl.learner.reading import TOPICS, pending_log_at
from distrl.learner.recover import Recovered, recover, unfolded
from distrl.learner.state import Arrays, LearnerState, needed
from distrl.learner.verify import windows
from distrl.runs.settings import learning_fingerprint
from distrl.store.checkpoints import checkpoints, latest_checkpoint
from distrl.store.objects import ObjectStore
from distrl.types import LoggedTrajectory, Update, Watermark

Window = tuple[Update, Sequence[LoggedTrajectory]]
Place = tuple[str, int]


@dataclass(frozen=True, slots=True)
class UpdateRange:
    """Which updates are folded, and which are held out."""

    first: int
    """First update to fold."""
    to: int
    """One past the last."""
    hold_out: int = 0
    """How many updates from `to` on are held out."""


@dataclass(frozen=True, slots=True)
class Branch:
    """A saved state of a learner."""

    u: int
    """Updates folded."""
    meta: Mapping[str, Any]
    tensors: Arrays
    held: Sequence[LoggedTrajectory]

    @classmethod
    def of(cls, state: LearnerState) -> Branch:
        return cls(state.u, state.meta(), state.tensors(), state.held())

    def restore(self, config: Config) -> LearnerState:
        """The state, on a base model of its own and under `config`."""
        return LearnerState.restore(config, self.meta, self.tensors, self.held)


@dataclass(frozen=True, slots=True)
class RunLog:
    """The records of an update range."""

    range: UpdateRange
    begin: Branch | None
    """The state that it begins with; None: a fresh one."""
    windows: Sequence[Window]
    """What each update of the range folds."""
    held_out: Sequence[LoggedTrajectory]
    """The trajectories of the held-out updates, for estimates only."""
    versions: Mapping[int, str]
    """Update -> sha256 of the adapter that the run published after it."""
    demonstrations: int
    """warmup.demonstrations of the run."""

    @property
    def records(self) -> list[LoggedTrajectory]:
        """Every record that the range folds, in the order of the updates."""
        return [logged for _, window in self.windows for logged in window]

    @property
    def begins(self) -> tuple[Watermark, ...]:
        return () if self.begin is None else tuple(Watermark(*mark) for mark in self.begin.meta["watermarks"])

    @property
    def ends(self) -> tuple[Watermark, ...]:
        return self.windows[-1][0].watermarks


def update_range(length: int, first: int, to: int | None, hold_out: int) -> UpdateRange:
    """The update range that a command line asks for, in a journal of `length` updates. to: None is the journal's end.

    Raises ConfigError with numbers that work.
    """
    if not length:
        raise ConfigError("the journal", "holds no update yet", "start `distrl learner` and wait for its first updates")
    end = length if to is None else to
    if end > length:
        raise ConfigError(f"--to {end}", f"the journal ends after {length} updates", f"--to {length}, or leave it out")
    if not 0 <= first < end:
        raise ConfigError(f"--from {first}", f"does not lie before --to {end}", f"--from 0 to {end - 1}")
    if not 0 <= hold_out < end - first:
        raise ConfigError(
            f"--hold-out {hold_out}", f"leaves nothing of {end - first} updates to fold", f"0 to {end - first - 1}"
        )
    return UpdateRange(first, end - hold_out, hold_out)


def read_log(config: Config, store: ObjectStore, history: History, chosen: UpdateRange) -> RunLog:
    """Read the range from the run's topics. history: the journal's. Joins no group and writes nothing.

    Raises ConfigError for a range that the log does not hold, or that was made with other settings.
    """
    begun = _begin(config, store, chosen.first, history)
    updates = unfolded(history.updates, begun.state, config)[: chosen.to + chosen.hold_out - begun.state.u]
    pending_log = pending_log_at(config, begun.state.watermarks, begun.seen)
    read: list[Window] = list(windows(config, updates, pending_log, begun.state.watermarks, history.skipped))
    before = chosen.first - begun.state.u
    for update, window in read[:before]:
        fold(begun.state, window, update, store.get, config)
        begun.state.forget_screens()
    held_out = (
        [logged for _, window in read[chosen.to - begun.state.u :] for logged in window] if chosen.hold_out else []
    )
    return RunLog(
        chosen,
        begin=Branch.of(begun.state) if chosen.first else None,
        windows=read[before : before + chosen.to - chosen.first],
        held_out=held_out,
        versions=_published(config, history),
        demonstrations=config.warmup.demonstrations,
    )


def cut(log: RunLog, config: Config) -> list[Window]:
    """The range's records, cut into updates as a learner under `config` would (`PendingLog.due`).

    Under another warmup.demonstrations than the run's, that many are folded: the learner would take the others in its
    second update, and learn from as many as the run did. Under the run's, update 0 folds those that it folded in the
    run, where some may be left out. Records at the end that do not fill an update are left out.
    Raises ConfigError where not even one update is filled.
    """
    demonstrations, trajectories = (topic_name(config.run, name) for name in TOPICS)
    pending_log = PendingLog(demonstrations, trajectories, log.begins)
    experts = [logged.position for logged in log.records if logged.position.topic == demonstrations]
    most = config.warmup.demonstrations
    beyond = set() if most == log.demonstrations else {*experts[most:]}
    if most == log.demonstrations and log.range.first == 0:
        most = sum(logged.position.topic == demonstrations for logged in log.windows[0][1])
    waiting = config.model_copy(update={"warmup": config.warmup.model_copy(update={"demonstrations": most})})
    for logged in log.records:
        if logged.position not in beyond:
            pending_log.push(logged)
    found: list[Window] = []
    while (due := pending_log.due(log.range.first + len(found), waiting)) is not None:
        update = Update(log.range.first + len(found), due, learning_fingerprint(config), 0)
        found.append((update, pending_log.window(due)))
        pending_log.folded(due)
    if not found:
        raise ConfigError(
            "warmup.demonstrations",
            f"{len(log.records)} records of the range do not fill one update",
            "lower warmup.demonstrations or learner.trajectories_per_update of the arm, or take a longer range",
        )
    return found


def _begin(config: Config, store: ObjectStore, first: int, history: History) -> Recovered:
    """The state from which folding can reach update `first`."""
    oldest = _oldest(config)
    starts = [0] if not any(oldest.values()) else []
    starts += [u for u in sorted(checkpoints(store, config.run)) if _restorable(store, config.run, u, oldest)]
    possible = [u for u in starts if u == 0 or u <= first] if first else [u for u in starts if u == 0]
    if not possible:
        left = ", ".join(f"{topic}[{partition}] from {offset}" for (topic, partition), offset in sorted(oldest.items()))
        raise ConfigError(
            f"--from {first}",
            f"what was folded before is no longer in the log (it has {left}), and no usable checkpoint lies before it",
            f"distrl ablate --run {config.run} --from {starts[0]} …"
            if starts
            else "ablate a run whose topics keep their records (retention.ms=-1)",
        )
    if possible[-1] == 0:
        return Recovered(LearnerState(config), IdSet())
    return recover(config, store, at_most=possible[-1], history=history)


def _oldest(config: Config) -> dict[Place, int]:
    """Offset of the first record that the broker has of each folded partition."""
    found: dict[Place, int] = {}
    for name in TOPICS:
        with LogReader(config, name) as reader:
            found |= {(reader.topic, partition): offset for partition, offset in reader.next_offsets.items()}
    return found


def _restorable(store: ObjectStore, run: str, u: int, oldest: Mapping[Place, int]) -> bool:
    """Whether the checkpoint of `u` updates is whole and the log still has the records of its buffer and all later."""
    found = latest_checkpoint(store, run, u)
    if found is None or found[0]["u"] != u:
        return False
    marks = {(topic, partition): offset for topic, partition, offset in found[0]["watermarks"]}
    follows = all(marks.get(place, 0) >= offset for place, offset in oldest.items())
    return follows and all(place.offset >= oldest[place.topic, place.partition] for place in needed(found[0]))


def _published(config: Config, history: History) -> dict[int, str]:
    """Update -> sha256 of the adapter of the first version made after it; without void versions."""
    found: dict[int, str] = {}
    for version in in_force(lineage(config), history):
        found.setdefault(version.update, version.adapter.sha256)
    return found
