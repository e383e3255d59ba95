"""What a version learned from, and what became of a trajectory: a function of the journal and the log.

    journal ──▶ window of each update ──▶ admitted or left out ──▶ circular buffer ──▶ resident from u to u'

Words. *Admitted* at update u: the journal says that u folds its record, the first of its id. *Left out*: admitted and
not learned from (`learner.fold.is_usable`). *Resident* at u: what the run's algorithm may learn from in update u; which
residents were drawn may depend on the networks, and then only a fold tells. *Cloned* at u: among the demonstrations of
warm-up update u, whose draws depend on the seed only and are listed one by one.

The memories of warm-up and algorithm, without their networks, tell what is resident. Pure: records come in as windows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from distrl.algorithms.cloning import warmup_memory
from distrl.algorithms.registry import cloning_updates, memory_of
from distrl.config import Config
from distrl.types import LoggedTrajectory, LogPosition, Outcome, Trajectory, Update, Version, Watermark

UpdateInterval = tuple[int, int]
"""First and last update, both included."""


@dataclass(frozen=True, slots=True)
class Window:
    """The records [first, to) of one partition that an update takes in."""

    topic: str
    partition: int
    first: int
    to: int


@dataclass(slots=True)
class Learned:
    """What became of one trajectory."""

    position: LogPosition
    task_id: str
    is_expert: bool
    outcome: Outcome
    steps: int
    admitted: int
    left_out: str | None = None
    """Why it was not learned from; None if it was."""
    resident: UpdateInterval | None = None
    """The updates after the cloning that could learn from it; None: none."""
    cloned: UpdateInterval | None = None
    """The warm-up updates that it was a demonstration of."""
    drawn: dict[int, list[int]] = field(default_factory=dict)
    """Update -> how often each of its steps was drawn, where that is known without the networks."""
    in_policy_since: int | None = None
    """The first update that trained the policy on it, or on networks that had learned from it; None: none yet."""

    @property
    def learned(self) -> UpdateInterval | None:
        """First and last of the updates that learned from it, or could. So did those between them, but for an episode
        that a group of GRPO has beyond `algorithm.group_size`: it may be in, out, and in again."""
        intervals = [interval for interval in (self.cloned, self.resident) if interval is not None]
        return (min(first for first, _ in intervals), max(last for _, last in intervals)) if intervals else None

    def in_weights(self, u: int) -> bool:
        """Whether the policy after update `u` has learned from it, or could."""
        return self.in_policy_since is not None and self.in_policy_since <= u


@dataclass(frozen=True, slots=True)
class UpdateAdmission:
    """One update, and what it admitted."""

    update: Update
    phase: str
    windows: tuple[Window, ...]
    admitted: int
    """Records taken in."""
    left_out: int
    """How many of them are not learned from."""
    resident: int
    """Trajectories in the buffer that it drew from; while it clones, demonstrations."""
    transitions: int
    """Steps of those."""


@dataclass(frozen=True, slots=True)
class Trace:
    """All updates of a run and their trajectories."""

    updates: Sequence[UpdateAdmission]
    """In order."""
    trajectories: Sequence[Learned]
    """Every admitted one, in the order of admission."""


@dataclass(frozen=True, slots=True)
class VersionLineage:
    """Where one version comes from."""

    version: Version
    parents: Sequence[Version]
    """Its ancestors, parent first."""
    updates: Sequence[UpdateAdmission]
    """Those in its weights."""
    trajectories: Sequence[Learned]
    """Those that they admitted."""

    @property
    def used(self) -> Sequence[Learned]:
        """The trajectories that its weights have learned from, or could."""
        return [each for each in self.trajectories if each.in_weights(self.version.update)]

    @property
    def critics_alone(self) -> Sequence[Learned]:
        """The trajectories that only the critics have learned from until then, or could."""
        learned = [each for each in self.trajectories if each.learned is not None]
        return [each for each in learned if not each.in_weights(self.version.update)]

    @property
    def gone(self) -> Sequence[Learned]:
        """The usable trajectories that were in no buffer when an update drew from it."""
        return [each for each in self.trajectories if each.left_out is None and each.learned is None]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One record of a task id, and what became of it."""

    logged: LoggedTrajectory
    folded: bool
    skipped: bool
    """Whether the journal names it as one that is never folded."""
    learned: Learned | None
    """None where it is skipped, a later record of its id, or not folded yet."""
    learned_by: Sequence[int]
    """Numbers of the versions made by an update that learned from it, or could."""
    in_weights_of: Sequence[int]
    """Numbers of all versions whose weights come from such an update. (While the critics learn alone, a version has the
    weights of the one before.)"""

    @property
    def is_duplicate(self) -> bool:
        """Whether an earlier record of its id counts."""
        return self.folded and self.learned is None and not self.skipped


def trace(
    windows: Iterable[tuple[Update, Sequence[LoggedTrajectory]]],
    config: Config,
    left_out: Callable[[Trajectory], str | None],
) -> Trace:
    """Follow every trajectory through the updates. windows: as the learner folds them, from update 0 on.

    left_out: why a trajectory is not learned from, None if it is.
    """
    updates: list[UpdateAdmission] = []
    known: dict[LogPosition, Learned] = {}
    beside: list[Learned] = []  # only networks other than the policy have learned from these so far
    warmup, algorithm, cloned = warmup_memory(config), memory_of(config), cloning_updates(config)
    before: tuple[Watermark, ...] = ()
    for update, window in windows:
        u, warming = update.u, update.u < cloned
        skipped = 0
        for logged in window:
            record = logged.trajectory
            why_not = left_out(record) or algorithm.refuses(record)
            known[logged.position] = Learned(
                logged.position, record.task_id, record.is_expert, record.outcome, len(record.steps), u, why_not
            )
            if why_not is not None:
                skipped += 1
                continue
            for memory in (warmup, algorithm) if warming else (algorithm,):
                memory.admit(logged)
        used = warmup if warming else algorithm
        present, phase = [known[entry.logged.position] for entry in used.uses(u)], used.phase(u)
        for learned in present:
            if warming:
                learned.cloned = _longer(learned.cloned, u)
            else:
                learned.resident = _longer(learned.resident, u)
        beside = [*beside, *(learned for learned in present if learned.in_policy_since is None)]
        if phase.trains_policy:
            for learned in beside:
                learned.in_policy_since = u
            beside = []
        _count_draws(u, present, used.draws(u))
        transitions = sum(each.steps for each in present)
        taken = _windows(before, update.watermarks)
        updates.append(UpdateAdmission(update, phase.name, taken, len(window), skipped, len(present), transitions))
        before = update.watermarks
    return Trace(updates, list(known.values()))


def of_version(number: int, versions: Sequence[Version], followed: Trace) -> VersionLineage | None:
    """The lineage of version `number`; None where there is no such version."""
    by_number = {version.version: version for version in versions}
    version = by_number.get(number)
    if version is None:
        return None
    parents: list[Version] = []
    parent = version.parent
    while parent is not None and parent in by_number and all(parent != each.version for each in parents):
        parents.append(by_number[parent])
        parent = parents[-1].parent
    return VersionLineage(
        version,
        parents,
        [each for each in followed.updates if each.update.u <= version.update],
        [each for each in followed.trajectories if each.admitted <= version.update],
    )


def of_trajectory(
    records: Sequence[LoggedTrajectory],
    versions: Sequence[Version],
    followed: Trace,
    skipped: Container[LogPosition] = (),
) -> list[Attempt]:
    """What became of the records of one task id, in the order given. skipped: those that the journal leaves out."""
    at = {each.position: each for each in followed.trajectories}
    ends = {(mark.topic, mark.partition): mark.offset for mark in _last(followed)}
    found = []
    for logged in records:
        place = logged.position
        learned = at.get(place)
        interval = None if learned is None else learned.learned
        by = [v.version for v in versions if interval is not None and interval[0] <= v.update <= interval[1]]
        weights = [v.version for v in versions if learned is not None and learned.in_weights(v.update)]
        folded = place.offset < ends.get((place.topic, place.partition), 0)
        found.append(Attempt(logged, folded, place in skipped, learned, by, weights))
    return found


def _last(followed: Trace) -> tuple[Watermark, ...]:
    return followed.updates[-1].update.watermarks if followed.updates else ()


def _longer(interval: UpdateInterval | None, u: int) -> UpdateInterval:
    return (u if interval is None else interval[0], u)


def _count_draws(u: int, present: Sequence[Learned], draws: NDArray[np.int64] | None) -> None:
    if draws is None:
        return
    owners = [(learned, step) for learned in present for step in range(learned.steps)]
    for learned in present:
        learned.drawn[u] = [0] * learned.steps
    for row in draws.ravel():
        learned, step = owners[int(row)]
        learned.drawn[u][step] += 1


def _windows(before: Iterable[Watermark], after: Iterable[Watermark]) -> tuple[Window, ...]:
    begun = {(mark.topic, mark.partition): mark.offset for mark in before}
    windows = (Window(m.topic, m.partition, begun.get((m.topic, m.partition), 0), m.offset) for m in after)
    return tuple(window for window in windows if window.first < window.to)


def grouped(each: Iterable[Learned]) -> Mapping[int, list[Learned]]:
    """Trajectories by the update that admitted them."""
    found: dict[int, list[Learned]] = defaultdict(list)
    for learned in each:
        found[learned.admitted].append(learned)
    return found
