"""Folds one arm over the range with the learner's own fold, and estimates what its policy is worth.

The baseline is also compared with the run: the adapter after every update that published a version, and the whole state
where the run has a checkpoint of the last update. Ablating nothing gives the run, bit for bit.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch

from distrl.algorithms.descent import passes
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
from distrl.policy.protocol import ImageFeatures, Policy, trajectory_steps
from distrl.seeds import seed_of
from distrl.store.checkpoints import Tensors, latest_checkpoint
from distrl.store.objects import ObjectStore
from distrl.types import LoggedTrajectory, Outcome

SEEN: Final = "range"
HELD_OUT: Final = "held_out"

OnUpdate = Callable[[LearnerState], None]
Estimates = Mapping[str, Mapping[str, Estimate]]
"""Episodes that the estimates were made on (SEEN, HELD_OUT) -> name of the estimate -> estimate."""


@dataclass(frozen=True, slots=True)
class Folded:
    """The result of folding an arm."""

    arm: Arm
    updates: Sequence[tuple[int, Mapping[str, float]]]
    """(u, metrics), in order."""
    trajectories: int
    """Records folded."""
    digests: Mapping[str, str]
    adapter: bytes
    base_sha256: str
    estimates: Estimates
    diverged: bool
    """Weights or probabilities are not finite; there are no estimates then."""
    seconds: float
    """Measured, of folding and scoring."""

    @property
    def adapter_sha256(self) -> str:
        return hashlib.sha256(self.adapter).hexdigest()


@dataclass
class Identity:
    """Whether the baseline equals the run."""

    versions: dict[int, bool] = field(default_factory=dict)
    """Update of a published version -> whether the adapters are equal."""
    checkpoint: bool | None = None
    """Whether the state equals the run's checkpoint of the last update; None where it has none."""

    @property
    def holds(self) -> bool | None:
        """None: the run has nothing to compare with."""
        compared = [*self.versions.values(), *([] if self.checkpoint is None else [self.checkpoint])]
        return all(compared) if compared else None

    def compare(self, state: LearnerState, published: Mapping[int, str]) -> None:
        """Compare with the version that the run published after the same update, if any."""
        update = state.u - 1
        if update in published:
            self.versions[update] = hashlib.sha256(state.policy.adapter()).hexdigest() == published[update]

    def compare_checkpoint(self, state: LearnerState, store: ObjectStore, run: str) -> None:
        """Compare every array and the buffers' bounds with those of the run's checkpoint of the same update."""
        found = checkpoint_of(store, run, state.u)
        if found is None:
            return
        meta, tensors = found
        same_meta = all(meta.get(name) == value for name, value in state.meta().items())
        self.checkpoint = same_meta and all(
            name in tensors and value.dtype == tensors[name].dtype and value.tobytes() == tensors[name].tobytes()
            for name, value in state.tensors().items()
        )


def checkpoint_of(store: ObjectStore, run: str, u: int) -> tuple[dict[str, Any], Tensors] | None:
    """Manifest and tensors of the run's checkpoint of `u` updates; None where it has no whole one."""
    found = latest_checkpoint(store, run, u)
    return found if found is not None and found[0]["u"] == u else None


@dataclass
class Shared:
    """What arms share, so that it is computed once."""

    features: Features | None = None
    """Image tokens of screenshots: the tower is frozen, so they are the same for all arms."""
    policy: Policy | None = None
    """Of the arm that is folded now, which looks at new screenshots. None between two arms: a policy that stayed would
    be a whole base model in memory beside that of the next arm, and of the policy that plays."""
    after_warmup: Branch | None = None
    """The state after the warm-up of the first arm that changes nothing which the warm-up reads."""
    warmup_updates: Sequence[tuple[int, Mapping[str, float]]] = ()
    """(u, metrics) of that warm-up."""

    def lend(self, state: LearnerState) -> None:
        """Let `state` use the features, and look at new screenshots for them until `policy` is None again."""
        if self.features is None:
            threads = state.context.config.learner.torch_threads
            self.features = Features(self._look, threads, state.features.store)
        self.policy, state.features = state.policy, self.features

    def _look(self, png: bytes) -> ImageFeatures:
        assert self.policy is not None
        return self.policy.image_features(png)


def fold_arm(arm: Arm, log: RunLog, shared: Shared, images: Images, on_update: OnUpdate) -> tuple[Folded, LearnerState]:
    """Fold the range under the arm's settings and estimate what its policy is worth. Reads `images`, writes nothing.

    The state returned loads no further screenshots.
    """
    began = time.perf_counter()
    windows = cut(log, arm.config) if arm.other_windows else log.windows
    state, rows = begin(arm, log, shared)
    shared.lend(state)
    for update, window in windows[len(rows) :]:
        if state.u == arm.config.warmup.updates and shared.after_warmup is None and arm.shares_warmup:
            shared.after_warmup, shared.warmup_updates = Branch.of(state), tuple(rows)
        rows.append((update.u, dict(fold(state, window, update, images, arm.config))))
        on_update(state)
    found = {} if not state.is_finite else estimated(state, log, images, arm.config)
    shared.policy = None
    folded = Folded(
        arm,
        rows,
        sum(len(window) for _, window in windows),
        state.digests(),
        state.policy.adapter(),
        state.policy.base_sha256,
        found or {},
        diverged=not state.is_finite or found is None,
        seconds=time.perf_counter() - began,
    )
    return folded, state


def begin(arm: Arm, log: RunLog, shared: Shared) -> tuple[LearnerState, list[tuple[int, Mapping[str, float]]]]:
    """The state that an arm starts with, and (u, metrics) of the updates that it contains."""
    if log.begin is not None:
        return log.begin.restore(arm.config), []
    if shared.after_warmup is not None and arm.shares_warmup:
        return shared.after_warmup.restore(arm.config), list(shared.warmup_updates)
    return LearnerState(arm.config), []


def estimated(state: LearnerState, log: RunLog, images: Images, config: Config) -> Estimates | None:
    """Estimates on the folded trajectories, and on the held-out ones, there with V, which has not seen them.

    None where the policy gives a recorded action a probability that is not finite.
    """
    found: dict[str, Mapping[str, Estimate]] = {}
    seed = seed_of(config, "bootstrap")
    for name, records in ((SEEN, log.records), (HELD_OUT, log.held_out)):
        trajectories = [
            each
            for each in records
            if not each.trajectory.is_expert and is_usable(each.trajectory, state.policy.tokenizer)
        ]
        state.features.load(state.screens(trajectories), images)
        trajectories = [each for each in trajectories if state.features.readable(each.trajectory)]
        if not trajectories:
            continue
        made = episodes(state, trajectories, config, with_values=name == HELD_OUT)
        if not np.isfinite(made.log_ratios).all():
            return None
        found[name] = estimates.estimates(made, seed)
    return found


def episodes(
    state: LearnerState, trajectories: Sequence[LoggedTrajectory], config: Config, *, with_values: bool
) -> Episodes:
    """The trajectories scored by the state's policy, and by V if its algorithm has one. Load their screenshots
    first."""
    steps = [step for logged in trajectories for step in trajectory_steps(logged.trajectory)]
    logprobs = np.zeros(len(steps))
    with torch.no_grad(), reproducible(config.learner.torch_threads):
        for rows in passes([each.step for each in steps], config.learner.microbatch):
            logprobs[rows] = state.context.score([steps[row] for row in rows]).logprob.cpu().numpy()
        values = state.algorithm.values(steps) if with_values else None
    lengths = [len(logged.trajectory.steps) for logged in trajectories]
    rewards = [
        outcome_rewards(length, logged.trajectory.outcome is Outcome.SUCCESS)
        for length, logged in zip(lengths, trajectories, strict=True)
    ]
    log_ratios = logprobs - np.array([each.step.logprob for each in steps])
    return Episodes.of(_rows(log_ratios, lengths), rewards, None if values is None else _rows(values, lengths))


def _rows(flat: Array, lengths: Sequence[int]) -> list[Array]:
    return list(np.split(flat, np.cumsum(lengths)[:-1]))
