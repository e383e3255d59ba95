"""A memory of selected trajectories whose steps are all drawn with equal probability."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from distrl.algorithms.protocol import Phase, too_long
from distrl.config import Config, DescentSettings
from distrl.replay.circular import CircularBuffer, Entry
from distrl.seeds import generator
from distrl.types import LoggedTrajectory, Trajectory


@dataclass(frozen=True, slots=True)
class Drawn:
    """buffer: its name in checkpoints and digests. purpose: seeds the draws. Changing either changes results."""

    buffer: str
    purpose: str


REPLAY: Final = Drawn("buffer", "replay")


class UniformMemory:
    """Trajectories in a circular buffer; each step is drawn with equal probability.

    admits: selects the trajectories. phase: returns the phase of an update. capacity: in transitions;
    algorithm.replay.capacity if None.
    """

    def __init__(
        self,
        config: Config,
        descent: DescentSettings,
        admits: Callable[[Trajectory], bool],
        phase: Callable[[int], Phase],
        drawn: Drawn,
        capacity: int | None = None,
    ) -> None:
        self._config, self._descent, self._admits, self._phase, self._drawn = config, descent, admits, phase, drawn
        self.buffer = CircularBuffer(config.algorithm.replay.capacity if capacity is None else capacity)

    @property
    def buffers(self) -> Mapping[str, CircularBuffer]:
        return {self._drawn.buffer: self.buffer}

    def phase(self, u: int) -> Phase:
        return self._phase(u)

    def refuses(self, trajectory: Trajectory) -> str | None:
        return too_long(trajectory, self.buffer.capacity)

    def admit(self, logged: LoggedTrajectory) -> None:
        if self._admits(logged.trajectory):
            self.buffer.add(logged)

    def uses(self, u: int) -> Sequence[Entry]:
        return self.buffer.entries

    def draws(self, u: int) -> NDArray[np.int64] | None:
        """(minibatches, batch_size) indices of the buffer's steps that update `u` learns from; None where it is
        empty."""
        steps = len(self.buffer)
        size = (self._descent.minibatches, self._descent.batch_size)
        return generator(self._config, self._drawn.purpose, u).integers(steps, size=size) if steps else None
