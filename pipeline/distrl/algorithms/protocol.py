"""What an algorithm is to the learner: a memory that takes trajectories in, and an update that learns from it.

    new trajectories ──▶ Memory.admit ──▶ buffers ──▶ Algorithm.update ──▶ weights of the policy, modules of its own

The fold calls both and knows nothing else of them. A memory needs no network, so that the lineage of a version can ask
it which trajectories an update could learn from. All of it is a function of the log, the settings and the update's
number: no clock, no global random numbers, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import nn
from torch.optim import Optimizer

from distrl.compute import Compute
from distrl.config import Config
from distrl.policy.features import Features
from distrl.policy.protocol import Policy, Score
from distrl.replay.circular import CircularBuffer, Entry
from distrl.types import LoggedTrajectory, ObjectRef, Step, Trajectory

Metrics = Mapping[str, float]
"""Names as in telemetry.metrics."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What an update does. trains_policy: not only networks beside the policy."""

    name: str
    trains_policy: bool


class Memory(Protocol):
    """What an algorithm keeps of the trajectories. Pure: no network, no I/O."""

    @property
    def buffers(self) -> Mapping[str, CircularBuffer]:
        """By name; checkpoints and digests hold them."""
        ...

    def phase(self, u: int) -> Phase:
        """What update `u` does."""
        ...

    def refuses(self, trajectory: Trajectory) -> str | None:
        """Why nothing can be learned from it, as the end of "it is …"; None where something can."""
        ...

    def admit(self, logged: LoggedTrajectory) -> None:
        """Take in a new trajectory that `refuses` does not, or pass it over where this algorithm has no use for it."""
        ...

    def uses(self, u: int) -> Sequence[Entry]:
        """What update `u` may learn from, once the trajectories before it are admitted."""
        ...

    def draws(self, u: int) -> NDArray[np.int64] | None:
        """(minibatches, batch) which steps of `uses(u)`, one after the other, update `u` draws; None where only the
        networks tell."""
        ...


@dataclass(frozen=True, slots=True)
class Optimised:
    """An optimiser and the parameters that it steps, by name."""

    optimiser: Optimizer
    parameters: Mapping[str, nn.Parameter]


@dataclass
class Context:
    """What an algorithm works with. policy: is trained in place. features: of every screenshot that `screens` names.
    compute: what gradients come from."""

    config: Config
    policy: Policy
    features: Features
    compute: Compute

    def score(self, steps: Sequence[Step]) -> Score:
        """log π, entropy and encoder states of B recorded steps; their screenshots must be loaded."""
        return self.policy.score(steps, self.features.of(steps))


class Algorithm(Protocol):
    """How to learn from a memory. One object for each state of a learner; one thread."""

    @property
    def memory(self) -> Memory: ...

    def modules(self) -> Mapping[str, nn.Module]:
        """The networks beside the policy, by name; checkpoints and digests hold them."""
        ...

    def optimisers(self) -> Mapping[str, Optimised]:
        """By name; checkpoints and digests hold their moments."""
        ...

    def screens(self, trajectory: Trajectory) -> Iterator[ObjectRef]:
        """The screenshots that it reads of a trajectory, in order, repeated ones too."""
        ...

    def update(self, u: int) -> Metrics:
        """Learn from the memory as update `u` of the run. Empty where there is nothing to learn from."""
        ...

    def values(self, steps: Sequence[Step]) -> NDArray[np.float64] | None:
        """(B,) V(s) of each step's state in [0, 1]; None where the algorithm estimates none."""
        ...


def seen(trajectory: Trajectory) -> Iterator[ObjectRef]:
    """What each step saw: the screenshots that nearly every algorithm reads."""
    return (step.screenshot for step in trajectory.steps)


def too_long(trajectory: Trajectory, capacity: int) -> str | None:
    """Why a buffer of so many transitions cannot hold it; None where it can."""
    return f"longer than the buffer's {capacity} transitions" if len(trajectory.steps) > capacity else None


def steps_of(entries: Iterable[Entry]) -> list[Step]:
    return [step for entry in entries for step in entry.steps]
