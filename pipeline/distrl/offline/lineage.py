"""What a version learned from, and what became of a trajectory: a function of the journal and the log.

    journal ──▶ window of each update ──▶ admitted or left out ──▶ circular buffer ──▶ resident from u to u'

Words. *Admitted* at update u: the journal says that u folds its record, first of its id. *Left out*: admitted and not
learned from (`learner.fold.is_usable`). *Resident* at u: in the replay buffer while u draws from it, so it could be
drawn; which of the residents were drawn depends on priorities, thus on the networks, and only a fold tells. *Cloned* at
u: among the demonstrations of warm-up update u, whose draws are seeded alone and are named one by one.

The buffer is the learner's own (`replay.circular`), run without networks. Pure: records come in as windows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from numpy.typing import NDArray

from distrl.config import Config
from distrl.replay.circular import CircularBuffer
from distrl.types import LoggedTrajectory, LogPosition, Outcome, Trajectory, Update, Version, Watermark

Span = tuple[int, int]
"""Updates first..last, both in."""

Draws = Callable[[int, int], NDArray[Any]]
"""(u, steps) -> which of so many steps warm-up update u drew, with repetition (`learner.clone.draws`)."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The settings that decide where a trajectory is kept."""

    capacity: int
    warmup_updates: int
    critic_warmup_updates: int
    keeps_demonstrations: bool

    @classmethod
    def of(cls, config: Config) -> Rules:
        learner, replay = config.learner, config.replay
        return cls(replay.capacity, learner.warmup_updates, learner.critic_warmup_updates, replay.demonstrations)

    def phase(self, u: int) -> str:
        """What update `u` trains: `cloning`, `critics` (the policy stays as it is) or `a-ride`."""
        if u < self.warmup_updates:
            return "cloning"
        return "critics" if u < self.warmup_updates + self.critic_warmup_updates else "a-ride"


@dataclass(frozen=True, slots=True)
class Window:
    """The records [first, to) of one partition that an update takes in."""

    topic: str
    partition: int
    first: int
    to: int


@dataclass(slots=True)
class Learned:
    """What became of one trajectory. left_out: why it was not learned from; None if it was.

    resident: the updates that could draw it from the replay buffer; None: never. cloned: the warm-up updates that it
    was a demonstration of. drawn: warm-up update -> how often each of its steps was drawn.
    """

    position: LogPosition
    task_id: str
    is_expert: bool
    outcome: Outcome
    steps: int
    admitted: int
    left_out: str | None = None
    resident: Span | None = None
    cloned: Span | None = None
    drawn: dict[int, list[int]] = field(default_factory=dict)

    @property
    def learned(self) -> Span | None:
        """The updates that learned from it or could: none between them did without it."""
        spans = [span for span in (self.cloned, self.resident) if span is not None]
        return (min(first for first, _ in spans), max(last for _, last in spans)) if spans else None

    def in_weights(self, u: int, a_ride: int | None) -> bool:
        """Whether the policy after update `u` has learned from it, or could.

        a_ride: the first update of A-RIDE, None where there was none yet: before it, only the critics learn from what
        is in the buffer, and the policy learns from them afterwards.
        """
        if self.cloned is not None and self.cloned[0] <= u:
            return True
        return self.resident is not None and a_ride is not None and max(self.resident[0], a_ride) <= u


@dataclass(frozen=True, slots=True)
class Admission:
    """One update. admitted: records taken in, `left_out` of them not learned from. resident, transitions: in the buffer
    that it drew from (in the warm-up: the demonstrations that it cloned)."""

    update: Update
    phase: str
    windows: tuple[Window, ...]
    admitted: int
    left_out: int
    resident: int
    transitions: int


@dataclass(frozen=True, slots=True)
class Trace:
    """All updates in order, and every admitted trajectory in the order of admission."""

    updates: Sequence[Admission]
    trajectories: Sequence[Learned]


@dataclass(frozen=True, slots=True)
class VersionLineage:
    """Behind one version: its ancestors (parent first), the updates in its weights, what they learned from."""

    version: Version
    parents: Sequence[Version]
    updates: Sequence[Admission]
    trajectories: Sequence[Learned]

    @property
    def used(self) -> Sequence[Learned]:
        """What its weights have learned from, or could."""
        first = first_of_a_ride(self.updates)
        return [each for each in self.trajectories if each.in_weights(self.version.update, first)]

    @property
    def critics_alone(self) -> Sequence[Learned]:
        """What only the critics have learned from until then, or could."""
        first = first_of_a_ride(self.updates)
        learned = [each for each in self.trajectories if each.learned is not None]
        return [each for each in learned if not each.in_weights(self.version.update, first)]

    @property
    def gone(self) -> Sequence[Learned]:
        """What was usable, and had left the buffer, or was still ahead of its use, whenever an update drew."""
        return [each for each in self.trajectories if each.left_out is None and each.learned is None]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One record of a task id. learned: None where it is a later record of its id, or not folded yet (`folded`).

    learned_by: numbers of the versions made by an update that learned from it, or could. in_weights_of: of all versions
    whose weights come from such an update; while the critics learn alone, a version has the weights of the one before.
    """

    logged: LoggedTrajectory
    folded: bool
    learned: Learned | None
    learned_by: Sequence[int]
    in_weights_of: Sequence[int]


def trace(
    windows: Iterable[tuple[Update, Sequence[LoggedTrajectory]]],
    rules: Rules,
    left_out: Callable[[Trajectory], str | None],
    draws: Draws,
) -> Trace:
    """Follow every trajectory through the updates. windows: as the learner folds them, from update 0 on.

    left_out: why a trajectory is not learned from, None if it is.
    """
    updates: list[Admission] = []
    trajectories: list[Learned] = []
    buffer, demonstrations = _Residents(rules.capacity), _Residents(rules.capacity)
    before: tuple[Watermark, ...] = ()
    for update, window in windows:
        u, phase = update.u, rules.phase(update.u)
        cloning = phase == "cloning"
        skipped = 0
        for logged in window:
            learned = _admitted(logged, u, left_out(logged.trajectory), rules.capacity)
            trajectories.append(learned)
            if learned.left_out is not None:
                skipped += 1
                continue
            if learned.is_expert and cloning:
                demonstrations.add(logged, learned)
            if not learned.is_expert or rules.keeps_demonstrations:
                buffer.add(logged, learned)
        if cloning:
            for learned in demonstrations.present():
                learned.cloned = (u if learned.cloned is None else learned.cloned[0], u)
            _count_draws(u, demonstrations.present(), draws)
            drawn_from = demonstrations
        else:
            for learned in buffer.present():
                learned.resident = (u if learned.resident is None else learned.resident[0], u)
            drawn_from = buffer
        present = drawn_from.present()
        updates.append(
            Admission(
                update, phase, _windows(before, update.watermarks), len(window), skipped, len(present),
                sum(each.steps for each in present),
            )
        )  # fmt: skip
        before = update.watermarks
    return Trace(updates, trajectories)


def of_version(number: int, versions: Sequence[Version], followed: Trace) -> VersionLineage | None:
    """What is behind version `number`; None where there is none of that number."""
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


def of_trajectory(records: Sequence[LoggedTrajectory], versions: Sequence[Version], followed: Trace) -> list[Attempt]:
    """What became of the records of one task id, in the order given."""
    at = {each.position: each for each in followed.trajectories}
    ends = {(mark.topic, mark.partition): mark.offset for mark in _last(followed)}
    first = first_of_a_ride(followed.updates)
    found = []
    for logged in records:
        place = logged.position
        learned = at.get(place)
        span = None if learned is None else learned.learned
        by = [v.version for v in versions if span is not None and span[0] <= v.update <= span[1]]
        weights = [v.version for v in versions if learned is not None and learned.in_weights(v.update, first)]
        folded = place.offset < ends.get((place.topic, place.partition), 0)
        found.append(Attempt(logged, folded, learned, by, weights))
    return found


def first_of_a_ride(updates: Iterable[Admission]) -> int | None:
    """The first update that trains the policy on the replay buffer; None where there is none yet."""
    return next((each.update.u for each in updates if each.phase == "a-ride"), None)


def _last(followed: Trace) -> tuple[Watermark, ...]:
    return followed.updates[-1].update.watermarks if followed.updates else ()


class _Residents:
    """The learner's buffer, and what is known of each trajectory that is whole in it, oldest first."""

    def __init__(self, capacity: int) -> None:
        self._buffer = CircularBuffer(capacity)
        self._order: list[Learned] = []

    def add(self, logged: LoggedTrajectory, learned: Learned) -> None:
        self._buffer.add(logged)
        self._order.append(learned)

    def present(self) -> list[Learned]:
        """Entries leave oldest first, so those that are left are the last ones added."""
        self._order = self._order[len(self._order) - len(self._buffer.entries) :]
        return self._order


def _admitted(logged: LoggedTrajectory, u: int, why_not: str | None, capacity: int) -> Learned:
    record = logged.trajectory
    if why_not is None and len(record.steps) > capacity:
        why_not = f"longer than the buffer's {capacity} transitions"
    return Learned(
        logged.position, record.task_id, record.is_expert, record.outcome, len(record.steps), u, left_out=why_not
    )


def _count_draws(u: int, present: Sequence[Learned], draws: Draws) -> None:
    owners = [(learned, step) for learned in present for step in range(learned.steps)]
    if not owners:
        return
    for learned in present:
        learned.drawn[u] = [0] * learned.steps
    for row in draws(u, len(owners)).ravel():
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
