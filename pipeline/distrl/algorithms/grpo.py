"""GRPO (DeepSeekMath, arXiv 2402.03300, section 4.1): the advantage of an episode is relative to others of its task.

A_i = (R_i − mean R) / (std R + ε)     over the episodes of one group, R = 1[success]; every step of episode i has A_i
L   = −1/G Σ_i 1/T_i Σ_t min(ρ_it A_i, clip(ρ_it, 1 − c, 1 + c) A_i)     ρ = π/μ of a whole action

A group is all episodes of one task in the buffer, if there are `algorithm.group_size` or more. So groups depend on the
order of the log alone. A group is learned from only while it is complete:

- A group that lacks episodes waits until they come or its own leave the buffer. Episodes that were interrupted for good
  or could not be judged are in no group.
- A group whose outcomes are all equal has A = 0 everywhere. It is left out, as its rows would only dilute a minibatch.
- The episodes of a group may be of several versions. Each step has the ratio to the policy that took it, and the mean
  that is subtracted is over all versions that played. `feeder.max_lag` bounds how old each episode is when it comes
  into the buffer, not how far the versions of a group are apart: some episodes are fed, or fed again after an
  interruption, under a newer version than others.

Unlike in the paper, ρ is that of a whole action and not of a token: the log records the probability of the action, and
the phone reacts to the action. The paper's term −β KL(π ‖ π_ref) is left out: it would need the weights after the
warm-up as a second model, evaluated at every step. DAPO (arXiv 2503.14476) leaves it out, too.

`form=dr_grpo` (arXiv 2503.20783): A_i = R_i − mean R and no 1/T_i. Dividing by the deviation overweights tasks that
nearly always or nearly never succeed, and 1/T_i makes each step of a long failure cheaper.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from distrl.algorithms import losses
from distrl.algorithms.descent import adamw, descend, mean_metrics
from distrl.algorithms.episodes import outcomes, rows_of, steps_of
from distrl.algorithms.protocol import NOTHING_DRAWN, Context, DrawnSteps, Metrics, Optimised, Phase, seen
from distrl.algorithms.returns import Array
from distrl.algorithms.uniform import REPLAY, UniformMemory
from distrl.compute import ShardResult
from distrl.config import Config
from distrl.config.algorithms import GrpoSettings
from distrl.policy.protocol import TrajectoryStep
from distrl.replay.circular import Entry
from distrl.replay.dper import sample
from distrl.seeds import generator
from distrl.types import ObjectRef, Task, Trajectory

GRPO: Final = Phase("grpo", trains_policy=True)

Group = Sequence[Entry]
"""The episodes of one task, oldest first."""


def asked(task: Task) -> Hashable:
    """A task's key, by what it asks on which phone: equal for all its episodes, whatever id and version each has."""
    where = task.phone_seed, task.setup, tuple(sorted(task.params.items()))
    return task.suite, task.family, task.split, task.instruction, task.max_steps, where


def groups(entries: Iterable[Entry], size: int) -> list[Group]:
    """The groups of `size` episodes or more, in the order of their first episodes."""
    found: dict[Hashable, list[Entry]] = {}
    for entry in entries:
        found.setdefault(asked(entry.logged.trajectory.task), []).append(entry)
    return [group for group in found.values() if len(group) >= size]


def advantages(rewards: Array, divided: bool) -> Array:
    """(G,) A_i of the episodes of one group. divided: whether by the deviation, which is that of a population, not of a
    sample."""
    excess: Array = rewards - rewards.mean()
    return excess / (rewards.std() + losses.DEVIATION_FLOOR) if divided else excess


def shares(lengths: Sequence[NDArray[np.int64]], per_episode: bool) -> Array:
    """(n,) the probability with which each episode is drawn; one of its steps is then drawn uniformly.

    lengths: T_i, by group. All groups have the same weight. per_episode: the episodes of a group have the same
    probability (1/G Σ_i 1/T_i Σ_t); otherwise its steps have (1/G Σ_i Σ_t).
    """
    if per_episode:
        return np.concatenate([np.full(len(each), 1.0 / (len(lengths) * len(each))) for each in lengths])
    most = max(map(len, lengths))
    weights = np.concatenate([each * (most / len(each)) for each in lengths])
    return np.asarray(weights / weights.sum())


class GroupMemory(UniformMemory):
    """The judged trajectories of workers. An update learns from complete groups whose outcomes are not all equal."""

    def __init__(self, config: Config) -> None:
        self._settings = _settings(config)
        super().__init__(config, self._settings, lambda each: not each.is_expert, lambda u: GRPO, REPLAY)

    def whole(self) -> list[Group]:
        return groups(self.buffer.entries, self._settings.group_size)

    def informative(self) -> list[Group]:
        """The complete groups whose outcomes are not all equal."""
        return [group for group in self.whole() if len(set(outcomes(group))) > 1]

    def uses(self, u: int) -> Sequence[Entry]:
        """The episodes of the informative groups, group after group."""
        return [entry for group in self.informative() for entry in group]

    def draws(self, u: int) -> NDArray[np.int64] | None:
        found = self.informative()
        if not found:
            return None
        by_group = [np.array([len(entry) for entry in group], dtype=np.int64) for group in found]
        lengths, size = np.concatenate(by_group), (self._settings.minibatches, self._settings.batch_size)
        rule = generator(self._config, self._drawn.purpose, u)
        drawn = sample(rule, shares(by_group, self._settings.form == "grpo"), lengths, size[0] * size[1])
        first = np.cumsum(lengths) - lengths
        return np.asarray(first[drawn[:, 0]] + drawn[:, 1]).reshape(size)


@dataclass(frozen=True, slots=True)
class Batch:
    """B transitions; each tensor (B,) float32."""

    steps: Sequence[TrajectoryStep]
    behaviour_logprob: Tensor
    advantage: Tensor


class Grpo:
    """GRPO over a policy. context.config.algorithm must be its settings."""

    def __init__(self, context: Context) -> None:
        self._context, self._settings = context, _settings(context.config)
        self.memory = GroupMemory(context.config)
        self._policy = adamw(context.policy.parameters())
        self.drawn = NOTHING_DRAWN

    def modules(self) -> Mapping[str, nn.Module]:
        return {}

    def optimisers(self) -> Mapping[str, Optimised]:
        return {"policy_optimiser": self._policy}

    def screens(self, trajectory: Trajectory) -> Iterator[ObjectRef]:
        return seen(trajectory)

    def update(self, u: int) -> Metrics:
        whole, found, draws = self.memory.whole(), self.memory.informative(), self.memory.draws(u)
        self.drawn = NOTHING_DRAWN
        if not whole:
            return {}
        counts = {"groups": float(len(found)), "groups_alike": 1.0 - len(found) / len(whole)}
        if draws is None:
            return counts
        divided, entries = self._settings.form == "grpo", self.memory.uses(u)
        of_episode = np.concatenate([advantages(outcomes(group), divided) for group in found])
        steps, of_step = steps_of(entries), np.repeat(of_episode, [len(entry) for entry in entries])
        self.drawn = DrawnSteps(rows_of(entries, draws.ravel()), advantage=of_step[draws.ravel()])
        each = [
            self._step(self._batch([steps[row] for row in rows], of_step[rows]), f"minibatch {index}", u)
            for index, rows in enumerate(draws)
        ]
        return {**counts, **mean_metrics(each)}

    def values(self, steps: Sequence[TrajectoryStep]) -> None:
        """None: it estimates no values."""
        return

    def _batch(self, steps: Sequence[TrajectoryStep], advantage: Array) -> Batch:
        device = self._context.policy.device
        behaviour = torch.tensor([each.step.logprob for each in steps], device=device)
        return Batch(steps, behaviour, torch.from_numpy(advantage).float().to(device))

    def _step(self, batch: Batch, purpose: str, u: int) -> dict[str, float]:
        """One gradient step of the policy; returns the metrics of the minibatch before it."""
        chosen = self._settings
        gradients, rows = self._context.compute.gradients(
            list(self._policy.parameters.values()), len(batch.steps), lambda piece: self._part(batch, piece), purpose, u
        )
        descend(self._policy, gradients, rate=chosen.lr, decay=0.0, grad_norm=chosen.grad_norm)
        ratio = losses.importance_ratio(rows["logprob"], batch.behaviour_logprob)
        stopped = torch.where(batch.advantage > 0, ratio > 1 + chosen.clip, ratio < 1 - chosen.clip)
        found = {
            "policy_loss": self._loss(rows["logprob"], batch, slice(None)),
            "entropy": -rows["logprob"].mean(),
            "token_entropy": rows["entropy"].mean(),
            "ratio": ratio.mean(),
            "clipped": stopped.float().mean(),
        }
        return {name: float(value) for name, value in found.items()}

    def _part(self, batch: Batch, piece: slice) -> ShardResult:
        scored = self._context.score(batch.steps[piece])
        loss = self._loss(scored.logprob, batch, piece)
        return ShardResult(loss, {"logprob": scored.logprob.detach(), "entropy": scored.entropy.detach()})

    def _loss(self, logprob: Tensor, batch: Batch, piece: slice) -> Tensor:
        return losses.clipped_loss(logprob, batch.behaviour_logprob[piece], batch.advantage[piece], self._settings.clip)


def _settings(config: Config) -> GrpoSettings:
    assert isinstance(config.algorithm, GrpoSettings)
    return config.algorithm
