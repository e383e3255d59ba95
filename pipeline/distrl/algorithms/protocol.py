"""The interface of an algorithm: a memory that takes trajectories in, and an update that learns from it.

    new trajectories ──▶ Memory.admit ──▶ buffers ──▶ Algorithm.update ──▶ weights of the policy, modules of its own

The fold knows nothing else of them. A memory needs no network, so that a version's lineage can ask it which
trajectories an update could learn from. Everything is a function of the log, the settings and the update's number: no
clock, no global random numbers, no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import Optimizer

from distrl.compute import Compute
from distrl.config import Config, ReplaySettings
from distrl.errors import PolicyError
from distrl.policy.feature_rows import Handles
from distrl.policy.features import Features
from distrl.policy.protocol import ImageFeatures, Policy, Score, TrajectoryStep
from distrl.replay.circular import CircularBuffer, Entry
from distrl.types import LoggedTrajectory, ObjectRef, Trajectory

Metrics = Mapping[str, float]
"""Names as in telemetry.metrics."""


@dataclass(frozen=True, slots=True)
class Phase:
    """What an update does."""

    name: str
    trains_policy: bool
    """Whether it trains the policy, and not only other networks."""


CRITICS: Final = Phase("critics", trains_policy=False)
"""Trains only the critics: a policy that follows an untrained critic unlearns what it has cloned."""


def critics_first(config: Config, updates: int, then: Phase) -> Callable[[int], Phase]:
    """The phase of each update: the critics alone for `updates` updates after the warm-up, then `then`."""
    return lambda u: CRITICS if u - config.warmup.updates < updates else then


class Memory(Protocol):
    """The trajectories that an algorithm learns from. Pure: no network, no I/O. A restart restores its `buffers`, and
    loses whatever else changes."""

    @property
    def buffers(self) -> Mapping[str, CircularBuffer]:
        """By name; part of checkpoints and digests."""
        ...

    def phase(self, u: int) -> Phase:
        """What update `u` does."""
        ...

    def refuses(self, trajectory: Trajectory) -> str | None:
        """Why it cannot be learned from, to complete "it is …"; None where it can."""
        ...

    def admit(self, logged: LoggedTrajectory) -> None:
        """Add a new trajectory, for which `refuses` is None, or ignore it where the algorithm has no use for it."""
        ...

    def uses(self, u: int) -> Sequence[Entry]:
        """The trajectories that update `u` may learn from, once its own are admitted."""
        ...

    def draws(self, u: int) -> NDArray[np.int64] | None:
        """(minibatches, batch) indices into the concatenated steps of `uses(u)` that update `u` draws; None where that
        depends on the networks."""
        ...


Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class DrawnSteps:
    """The n steps that an update drew, with the values that it had for each: for people, nothing is learned from it.

    A step that was drawn twice has two rows. Each column is (n,), or None where the algorithm has no such value; it is
    NaN for rows without one.
    """

    rows: Sequence[tuple[Entry, int]]
    """An entry and the number of one of its steps."""
    value: Floats | None = None
    """V(s_t)."""
    advantage: Floats | None = None
    """A(s_t, a_t), before it is shaped for a loss."""
    td_error: Floats | None = None
    ratio: Floats | None = None
    """ρ = π/μ of the action, not clipped as a loss may clip it."""
    priority: Floats | None = None
    """Priority of what was drawn: of the step's trajectory, or of its sequence."""


NOTHING_DRAWN: Final = DrawnSteps(())
STATES_AXES: Final = 3
"""Of `Score.states`: (B, S, d)."""


@dataclass(frozen=True, slots=True)
class Optimised:
    """An optimiser and the parameters that it steps, by name."""

    optimiser: Optimizer
    parameters: Mapping[str, nn.Parameter]


@dataclass
class Context:
    """What an algorithm works with."""

    config: Config
    policy: Policy
    """Trained in place."""
    features: Features
    """Of every screenshot that `screens` names."""
    compute: Compute
    """Computes gradients."""

    def score(self, steps: Sequence[TrajectoryStep], screens: Handles | None = None) -> Score:
        """log π, entropy and encoder states of B recorded steps; the screenshots that they read must be loaded.

        screens: (B,) `screens_of` the steps; with it no screenshot has to be looked up by name. Raises PolicyError
        where the policy gives other shapes or types than `Score` has.
        """
        if screens is None or self.policy.earlier_screens:
            seen: Sequence[ImageFeatures] = self.features.of(steps, self.policy.earlier_screens)
        else:
            seen = self.features.at(screens, steps)
        return checked(self.policy.score([each.step for each in steps], seen), len(steps))


def checked(score: Score, rows: int) -> Score:
    """Raises PolicyError for a score of other than `rows` steps, or not in float32: torch would broadcast it in a loss,
    to numbers that mean nothing."""
    states = (*score.states.shape, -1, -1)[1:STATES_AXES]
    wanted = {"states": (rows, *states), "mask": (rows, *states[:1]), "logprob": (rows,), "entropy": (rows,)}
    for name, shape in wanted.items():
        found: Tensor = getattr(score, name)
        is_float = found.dtype == torch.float32 or name == "mask"
        if found.shape != shape or not is_float:
            raise PolicyError(
                f"Score.{name}",
                f"is {tuple(found.shape)} in {found.dtype} for {rows} steps",
                "distrl.policy.protocol says which shape and type each has",
            )
    return score


class Algorithm(Protocol):
    """Learns from a memory. One object per learner state, used by one thread.

    A learner that starts again makes a new object, and restores `modules`, `optimisers`, the policy and the memory's
    `buffers` alone. Any other attribute that changes from update to update is lost then, as a running mean or a count
    would be, and the run goes on with other weights. Compute such a value from `u` and the buffers, or keep it in a
    module, as a parameter without gradient.
    """

    @property
    def memory(self) -> Memory: ...

    @property
    def drawn(self) -> DrawnSteps:
        """What the last update drew; nothing before the first. No part of checkpoints and digests."""
        ...

    def modules(self) -> Mapping[str, nn.Module]:
        """The networks other than the policy, by name; part of checkpoints and digests. Without buffers."""
        ...

    def optimisers(self) -> Mapping[str, Optimised]:
        """By name; their moments are part of checkpoints and digests. AdamW, as `descent.adamw` makes."""
        ...

    def screens(self, trajectory: Trajectory) -> Iterator[ObjectRef]:
        """The screenshots of a trajectory that it reads, in order, with repetitions."""
        ...

    def update(self, u: int) -> Metrics:
        """Learn from the memory as update `u` of the run. Returns metrics; empty where there is nothing to learn
        from."""
        ...

    def values(self, steps: Sequence[TrajectoryStep]) -> NDArray[np.float64] | None:
        """(B,) V(s) of each step's state, in [0, 1]; None where the algorithm estimates no values."""
        ...


def seen(trajectory: Trajectory) -> Iterator[ObjectRef]:
    """Each step's screenshot: what nearly every algorithm reads of a trajectory."""
    return (step.screenshot for step in trajectory.steps)


def too_long(trajectory: Trajectory, capacity: int) -> str | None:
    """Why a buffer of `capacity` transitions cannot hold it; None where it can."""
    return f"longer than the buffer's {capacity} transitions" if len(trajectory.steps) > capacity else None


def is_replayed(trajectory: Trajectory, replay: ReplaySettings) -> bool:
    """Whether a buffer with these settings takes `trajectory`; a demonstration only if `replay.demonstrations`."""
    return replay.demonstrations or not trajectory.is_expert
