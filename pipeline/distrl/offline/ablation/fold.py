"""One arm over the range: the learner's own fold, what it measured at each update, and what its policy is worth.

The baseline is also held against the run itself: the adapter after every update that published a version, and the
whole state where a checkpoint is kept of the last one. Ablating nothing is the run, bit for bit.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch

from distrl.algorithms.gradients import passes
from distrl.algorithms.returns import outcome_rewards
from distrl.compute import reproducible
from distrl.config import Config
from distrl.learner.fold import fold, is_usable
from distrl.learner.state import LearnerState
from distrl.offline import estimates
from distrl.offline.ablation.arms import Arm
from distrl.offline.ablation.log import Branch, RunLog, cut
from distrl.offline.estimates import Array, Episodes, Estimate
from distrl.policy.features import Features, Images
from distrl.seeds import seed_of
from distrl.store.checkpoints import Tensors, latest_checkpoint
from distrl.store.objects import ObjectStore
from distrl.types import LoggedTrajectory, Outcome

SEEN: Final = "range"
HELD_OUT: Final = "held_out"

OnUpdate = Callable[[LearnerState], None]
Estimates = Mapping[str, Mapping[str, Estimate]]
"""What the estimates were made on (SEEN, HELD_OUT) -> name of the estimate -> estimate."""


@dataclass(frozen=True, slots=True)
class Folded:
    """What became of an arm.

    updates: (u, metrics) in order. trajectories: records folded. diverged: its weights or its probabilities are no
    longer numbers, and it has no estimates then. seconds: of folding and scoring, measured.
    """

    arm: Arm
    updates: Sequence[tuple[int, Mapping[str, float]]]
    trajectories: int
    digests: Mapping[str, str]
    adapter: bytes
    base_sha256: str
    estimates: Estimates
    diverged: bool
    seconds: float

    @property
    def adapter_sha256(self) -> str:
        return hashlib.sha256(self.adapter).hexdigest()


@dataclass
class Identity:
    """The baseline held against the run. versions: published ones compared, by update -> equal. checkpoint: None where
    none is kept of the last update."""

    versions: dict[int, bool] = field(default_factory=dict)
    checkpoint: bool | None = None

    @property
    def holds(self) -> bool | None:
        """None: the run has left nothing to compare with."""
        compared = [*self.versions.values(), *([] if self.checkpoint is None else [self.checkpoint])]
        return all(compared) if compared else None

    def compare(self, state: LearnerState, published: Mapping[int, str]) -> None:
        """Compare with the version that the run made of the same update, if it made one."""
        update = state.u - 1
        if update in published:
            self.versions[update] = hashlib.sha256(state.policy.adapter()).hexdigest() == published[update]

    def compare_checkpoint(self, state: LearnerState, store: ObjectStore, run: str) -> None:
        """Compare every array and the buffers' bounds with those of the run's checkpoint of the same update."""
        found = checkpoint_of(store, run, state.u)
        if found is None:
            return
        meta, tensors = found
        same_meta = all(meta[name] == value for name, value in state.meta().items())
        self.checkpoint = same_meta and all(
            name in tensors and value.dtype == tensors[name].dtype and value.tobytes() == tensors[name].tobytes()
            for name, value in state.tensors().items()
        )


def checkpoint_of(store: ObjectStore, run: str, u: int) -> tuple[dict[str, Any], Tensors] | None:
    """Meta and tensors of the run's checkpoint after `u` updates; None where it has none that is whole."""
    found = latest_checkpoint(store, run, u)
    return found if found is not None and found[0]["u"] == u else None


@dataclass
class Shared:
    """What one arm leaves for the next: tokens of screenshots, which the frozen tower makes alike for all of them, and
    the state after the warm-up of the first arm that changes nothing which the warm-up reads."""

    features: Features | None = None
    after_warmup: Branch | None = None
    warmup_updates: Sequence[tuple[int, Mapping[str, float]]] = ()


def fold_arm(arm: Arm, log: RunLog, shared: Shared, images: Images, on_update: OnUpdate) -> tuple[Folded, LearnerState]:
    """Fold the range under the arm's settings and estimate what its policy is worth. Reads `images`, writes nothing."""
    began = time.perf_counter()
    windows = cut(log, arm.config) if arm.other_windows else log.windows
    state, rows = begin(arm, log, shared)
    shared.features = state.features
    for update, window in windows[len(rows) :]:
        if state.u == arm.config.warmup.updates and shared.after_warmup is None and arm.shares_warmup:
            shared.after_warmup, shared.warmup_updates = Branch.of(state), tuple(rows)
        rows.append((update.u, dict(fold(state, window, update, images, arm.config))))
        on_update(state)
    found = {} if not finite(state) else estimated(state, log, images, arm.config)
    folded = Folded(
        arm,
        rows,
        sum(len(window) for _, window in windows),
        state.digests(),
        state.policy.adapter(),
        state.policy.base_sha256,
        found or {},
        diverged=not finite(state) or found is None,
        seconds=time.perf_counter() - began,
    )
    return folded, state


def begin(arm: Arm, log: RunLog, shared: Shared) -> tuple[LearnerState, list[tuple[int, Mapping[str, float]]]]:
    """The state that an arm starts with, and the updates that are folded in it already."""
    if log.begin is not None:
        return log.begin.grow(arm.config, shared.features), []
    if shared.after_warmup is not None and arm.shares_warmup:
        return shared.after_warmup.grow(arm.config, shared.features), list(shared.warmup_updates)
    state = LearnerState(arm.config)
    state.features = shared.features or state.features
    return state, []


def finite(state: LearnerState) -> bool:
    """Every weight of the policy and of what is learned beside it is a number."""
    return all(bool(torch.isfinite(each).all()) for each in state.parameters())


def estimated(state: LearnerState, log: RunLog, images: Images, config: Config) -> Estimates | None:
    """Estimates on the folded trajectories, and on the held-out ones with V, which has not seen those.

    None where the policy gives a recorded action a probability that is no number.
    """
    found: dict[str, Mapping[str, Estimate]] = {}
    seed = seed_of(config, "bootstrap")
    for name, records in ((SEEN, log.records), (HELD_OUT, log.held_out)):
        acted = [
            each
            for each in records
            if not each.trajectory.is_expert and is_usable(each.trajectory, state.policy.tokenizer)
        ]
        state.features.load(state.screens(acted), images)
        acted = [each for each in acted if state.features.readable(each.trajectory)]
        if not acted:
            continue
        made = episodes(state, acted, config, with_values=name == HELD_OUT)
        if not np.isfinite(made.log_ratios).all():
            return None
        found[name] = estimates.estimates(made, seed)
    return found


def episodes(state: LearnerState, acted: Sequence[LoggedTrajectory], config: Config, *, with_values: bool) -> Episodes:
    """The trajectories under the state's policy and V, if its algorithm has one; their screenshots must be loaded."""
    steps = [step for logged in acted for step in logged.trajectory.steps]
    logprobs = np.zeros(len(steps))
    with torch.no_grad(), reproducible(config.learner.torch_threads):
        for rows in passes(steps):
            logprobs[rows] = state.context.score(steps[rows]).logprob.numpy()
        values = state.algorithm.values(steps) if with_values else None
    lengths = [len(logged.trajectory.steps) for logged in acted]
    rewards = [
        outcome_rewards(length, logged.trajectory.outcome is Outcome.SUCCESS)
        for length, logged in zip(lengths, acted, strict=True)
    ]
    log_ratios = logprobs - np.array([step.logprob for step in steps])
    return Episodes.of(_rows(log_ratios, lengths), rewards, None if values is None else _rows(values, lengths))


def _rows(flat: Array, lengths: Sequence[int]) -> list[Array]:
    return list(np.split(flat, np.cumsum(lengths)[:-1]))
