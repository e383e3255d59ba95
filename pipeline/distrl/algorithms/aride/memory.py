"""A-RIDE's replay buffer, the scores of its transitions and their age, and draws (DistRL, section 5.3). Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from distrl import config as settings
from distrl.algorithms import losses
from distrl.algorithms.aride.credit import credit, penalties_of
from distrl.algorithms.aride.truncation import screen_after
from distrl.algorithms.episodes import rewards_and_ends
from distrl.algorithms.protocol import CRITICS, DrawnSteps, Phase, critics_first, is_replayed, too_long
from distrl.algorithms.returns import Array, Mask
from distrl.config import Config
from distrl.replay import dper
from distrl.replay.circular import CircularBuffer, Entry, Rows
from distrl.seeds import generator
from distrl.types import LoggedTrajectory, Trajectory

SCORES: Final = ("value", "ratio", "nll", "v_traj", "after", "scored")
"""The scores of a transition from when it was last scored: V(s), π/μ, −log π of the action; on last steps also V_traj,
and V of the screen after it if that is bootstrapped from. scored: 1 + the number of that update; 0 if never scored."""
CREDIT: Final = ("td", "target", "advantage")
"""What follows from the scores of a trajectory for each of its steps: td error, target of V(s), advantage."""
COLUMNS: Final = (*SCORES, "penalty", *CREDIT)
"""The columns of the buffer. penalty: the immediate one, which follows from the record alone."""

ARIDE: Final = Phase("a-ride", trains_policy=True)


@dataclass(frozen=True, slots=True)
class Draw:
    """B transitions: those of all minibatches of an update, one minibatch after the other, or of one of them.

    weights: (B,) importance weights that make the draws uniform over transitions. mean_length: mean number of steps of
    the buffer's trajectories. priority: (B,) of the trajectories, after V_traj's filter.
    """

    rows: Rows
    weights: NDArray[np.float64]
    mean_length: float
    priority: NDArray[np.float64]

    def __getitem__(self, part: slice) -> Draw:
        return Draw(self.rows[part], self.weights[part], self.mean_length, self.priority[part])


@dataclass(frozen=True, slots=True)
class Scores:
    """The networks' scores of n transitions; each (n,).

    v_traj is read on last steps only. after: V of the screen after a last step that is bootstrapped from, 0 elsewhere;
    None where it was not computed.
    """

    value: Array
    logprob: Array
    v_traj: Array
    after: Array | None = None

    @staticmethod
    def joined(parts: Sequence[Scores]) -> Scores:
        """The scores of all parts, one after the other, without `after`."""

        def whole(name: str) -> Array:
            return np.concatenate([np.zeros(0), *(getattr(part, name) for part in parts)])

        return Scores(whole("value"), whole("logprob"), whole("v_traj"))


class ArideMemory:
    """The circular buffer of one run. config.algorithm must be A-RIDE's."""

    def __init__(self, config: Config) -> None:
        assert isinstance(config.algorithm, settings.ArideSettings)
        self._config, self._settings = config, config.algorithm
        self._phase = critics_first(config, self._settings.critic_warmup_updates, ARIDE)
        self.buffer = CircularBuffer(self._settings.replay.capacity, COLUMNS)

    @property
    def buffers(self) -> Mapping[str, CircularBuffer]:
        return {"buffer": self.buffer}

    def phase(self, u: int) -> Phase:
        return self._phase(u)

    def refuses(self, trajectory: Trajectory) -> str | None:
        return too_long(trajectory, self.buffer.capacity)

    def admit(self, logged: LoggedTrajectory) -> None:
        if is_replayed(logged.trajectory, self._settings.replay):
            entry = self.buffer.add(logged)
            self.buffer.columns["penalty"][self.buffer.slots(entry)] = penalties_of(entry.steps, self._settings)

    def uses(self, u: int) -> Sequence[Entry]:
        return self.buffer.entries

    def draws(self, u: int) -> None:
        """None: draws follow priorities, which depend on the networks."""
        return

    def outdated(self, u: int) -> Rows:
        """The transitions that update `u` scores again before it draws.

        First come those never scored, and one step of each trajectory that would otherwise have had no new score for
        `refresh_within` updates. Then come those scored longest ago: enough that all are scored within `refresh_within`
        updates, but at most `refresh_share` of the transitions in the minibatches. While the critics train alone, all
        transitions are scored, since untrained critics change fast.
        """
        layout, replay = self.buffer.layout, self._settings.replay
        scored = layout.of(self.buffer.columns["scored"])
        chosen = np.arange(len(scored))
        if self.phase(u) is not CRITICS:
            due = (scored == 0) | self._overdue(u, scored)
            most = int(replay.refresh_share * self._settings.minibatches * self._settings.batch_size)
            count = max(int(due.sum()), min(most, math.ceil(len(scored) / replay.refresh_within)))
            chosen = np.sort(np.lexsort((scored, ~due))[:count])
        owner = layout.owner[chosen]
        return Rows(layout, owner, chosen - layout.begins[owner])

    def take(self, u: int, rows: Rows, scores: Scores) -> None:
        """Store the scores that update `u` computed for `rows`; of a transition that comes twice, the last scores."""
        columns, slots, last = self.buffer.columns, rows.slots, rows.last
        behaviour = self.buffer.logprobs[slots]
        columns["value"][slots] = scores.value
        low, high = losses.LOG_RATIO_BOUNDS
        columns["ratio"][slots] = np.exp(np.minimum(np.maximum(scores.logprob - behaviour, low), high))
        columns["nll"][slots] = -scores.logprob
        columns["v_traj"][slots[last]] = scores.v_traj[last]
        if scores.after is not None:
            columns["after"][slots] = scores.after
        elif self._settings.truncation != "terminal":  # their `after` is not new, so they do not count as scored
            slots = slots[~_are_bootstrapped(rows)]
        columns["scored"][slots] = u + 1

    def assign_credit(self) -> None:
        """Credit of every transition, from the newest scores of its trajectory."""
        slots, columns = self.buffer.live(), self.buffer.columns
        rewards, last = rewards_and_ends(self.buffer.entries)
        worth = credit(
            columns["value"][slots],
            columns["ratio"][slots],
            columns["penalty"][slots],
            rewards,
            self._settings,
            columns["after"][slots],
            last,
        )
        columns["td"][slots], columns["target"][slots] = worth.td, worth.targets
        columns["advantage"][slots] = worth.advantages

    def draw(self, u: int) -> Draw:
        """The minibatches of update `u`: transitions through trajectories, by DPER. None of an empty buffer."""
        layout, replay = self.buffer.layout, self._settings.replay
        if not layout.entries:
            return Draw(Rows(layout, layout.owner, layout.slots), np.zeros(0), 0.0, np.zeros(0))
        lengths = layout.lengths
        last = layout.slots[layout.begins + lengths - 1]
        priority = dper.filtered(
            dper.priorities(self.buffer, replay), self.buffer.columns["v_traj"][last], replay.value_filter
        )
        probability = dper.probabilities(priority, replay.alpha)
        size = self._settings.minibatches * self._settings.batch_size
        owner, steps = dper.sample(generator(self._config, "replay", u), probability, lengths, size).T
        weights = dper.importance_weights(probability, lengths)
        return Draw(Rows(layout, owner, steps), weights[owner], float(lengths.mean()), priority[owner])

    def drawn(self, draw: Draw) -> DrawnSteps:
        """What an update learns from: the scores and the credit of its draws as they are now."""
        slots, columns = draw.rows.slots, self.buffer.columns
        return DrawnSteps(
            list(draw.rows),
            value=columns["value"][slots],
            advantage=columns["advantage"][slots],
            td_error=columns["td"][slots],
            ratio=columns["ratio"][slots],
            priority=draw.priority,
        )

    def ages(self, u: int) -> dict[str, float]:
        """score_age: mean updates since a transition was scored. priority_age: most updates since any step of one
        trajectory was. Nothing of an empty buffer."""
        layout = self.buffer.layout
        if not layout.entries:
            return {}
        age = u + 1 - layout.of(self.buffer.columns["scored"])
        youngest = np.minimum.reduceat(age, layout.begins)
        return {"score_age": float(age.mean()), "priority_age": float(youngest.max())}

    def _overdue(self, u: int, scored: Array) -> Mask:
        """Of each trajectory without a score since update u − refresh_within, the step that was scored longest ago."""
        overdue = np.zeros(len(scored), dtype=bool)
        if len(scored):
            owner, begins = self.buffer.layout.owner, self.buffer.layout.begins
            waiting = u + 1 - np.maximum.reduceat(scored, begins) >= self._settings.replay.refresh_within
            oldest = waiting[owner] & (scored == np.minimum.reduceat(scored, begins)[owner])
            overdue[np.flatnonzero(oldest)[np.unique(owner[oldest], return_index=True)[1]]] = True
        return overdue


def _are_bootstrapped(rows: Rows) -> Mask:
    """(B,) whether a row is a last step that is bootstrapped from the screen after it."""
    entries, found = rows.layout.entries, rows.last.copy()
    owners = rows.owner[found].tolist()
    found[found] = [screen_after(entries[owner].logged.trajectory) is not None for owner in owners]
    return found
