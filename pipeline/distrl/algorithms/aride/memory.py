"""A-RIDE's replay buffer, and its draws (DistRL, section 5.3). Pure: no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from distrl import config as settings
from distrl.algorithms.protocol import Phase, too_long
from distrl.config import Config
from distrl.replay import dper
from distrl.replay.circular import CircularBuffer, Entry
from distrl.seeds import generator
from distrl.types import LoggedTrajectory, Trajectory

COLUMNS: Final = ("td", "ratio", "nll", "target", "advantage", "v_traj")
"""What is computed for each transition: td error, π/μ, −log π of the action, target of V(s), advantage, and V_traj of
the whole trajectory (the same on all its steps). 0 until computed."""

CRITICS: Final = Phase("critics", trains_policy=False)
"""Trains only the critics: a policy that follows a fresh critic unlearns what it was cloned to do."""
ARIDE: Final = Phase("a-ride", trains_policy=True)


@dataclass(frozen=True, slots=True)
class Draw:
    """The transitions of one minibatch.

    rows: B pairs of an entry and one of its steps. weights: (B,) under which they are uniform over transitions.
    mean_length: steps of a trajectory, over the whole buffer.
    """

    rows: Sequence[tuple[Entry, int]]
    weights: NDArray[np.float64]
    mean_length: float


class ArideMemory:
    """The circular buffer of one run. config.algorithm must be A-RIDE's."""

    def __init__(self, config: Config) -> None:
        assert isinstance(config.algorithm, settings.ArideSettings)
        self._config, self._settings = config, config.algorithm
        self.buffer = CircularBuffer(self._settings.replay.capacity, COLUMNS)
        self._new: list[Entry] = []

    @property
    def buffers(self) -> Mapping[str, CircularBuffer]:
        return {"buffer": self.buffer}

    def phase(self, u: int) -> Phase:
        return CRITICS if self._since(u) < self._settings.critic_warmup_updates else ARIDE

    def refuses(self, trajectory: Trajectory) -> str | None:
        return too_long(trajectory, self.buffer.capacity)

    def admit(self, logged: LoggedTrajectory) -> None:
        if not logged.trajectory.is_expert or self._settings.replay.demonstrations:
            self._new.append(self.buffer.add(logged))

    def uses(self, u: int) -> Sequence[Entry]:
        return self.buffer.entries

    def draws(self, u: int) -> None:
        """None: draws follow priorities, which depend on the networks."""
        return

    def outdated(self, u: int) -> Sequence[Entry]:
        """The entries whose columns update `u` computes: all of them every few updates (A.4.2), else the new ones."""
        every = self.phase(u) is CRITICS or self._since(u) % self._settings.replay.refresh_every == 0
        new, self._new = self._new, []
        return self.buffer.entries if every else new  # fresh critics change fast

    def draw(self, u: int) -> list[Draw]:
        """The minibatches of update `u`: transitions through trajectories, by DPER. None of an empty buffer."""
        entries, replay = self.buffer.entries, self._settings.replay
        if not entries:
            return []
        first_slots = [entry.start % self.buffer.capacity for entry in entries]
        priority = dper.filtered(
            dper.priorities(self.buffer, replay), self.buffer.columns["v_traj"][first_slots], replay.value_filter
        )
        probability = dper.probabilities(priority, replay.alpha)
        lengths = np.array([len(entry) for entry in entries], dtype=np.int64)
        size = self._settings.minibatches * self._settings.batch_size
        drawn = dper.sample(generator(self._config, "replay", u), probability, lengths, size)
        weights = dper.importance_weights(probability, lengths)
        return [
            Draw([(entries[entry], int(step)) for entry, step in rows], weights[rows[:, 0]], float(lengths.mean()))
            for rows in np.split(drawn, self._settings.minibatches)
        ]

    def _since(self, u: int) -> int:
        """Updates since the warm-up."""
        return u - self._config.warmup.updates
