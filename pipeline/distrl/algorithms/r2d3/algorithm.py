"""R2D3 as an algorithm of the registry, over a policy that is a recurrent Q (docs/adr/0028).

In the warm-up it learns from demonstrations alone, by the same loss, with the warm-up's steps and learning rates: this
is DQfD's pre-training. Workers record no recurrent states. The state stored with each step is computed by the network
of the update that admits the episode; the burn-in brings it nearer to that of the present network.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from distrl.algorithms.cloning import learning_rate
from distrl.algorithms.descent import adamw, descend, mean_metrics
from distrl.algorithms.episodes import rewards_and_ends
from distrl.algorithms.protocol import NOTHING_DRAWN, Context, DrawnSteps, Metrics, Optimised, seen
from distrl.algorithms.r2d3.losses import LossSettings
from distrl.algorithms.r2d3.memory import PRETRAINING, Drawn, R2d3Memory, settings_of
from distrl.algorithms.r2d3.needs import refuse_other
from distrl.algorithms.r2d3.sequences import Episode, SequenceBatch, batch_of
from distrl.algorithms.r2d3.train_step import sequence_loss
from distrl.algorithms.returns import Array, unscaled
from distrl.compute import ShardResult
from distrl.config import DescentSettings
from distrl.config.algorithms import R2d3Settings
from distrl.policy.protocol import TrajectoryStep
from distrl.policy.recurrent_q.policy import RecurrentQPolicy
from distrl.replay.circular import Entry
from distrl.seeds import generator
from distrl.types import LogPosition, ObjectRef, Trajectory

CACHED_EPISODES: Final = 256
"""Episodes whose inputs are cached. Inputs follow from the record and the frozen base model; a step takes 15 kB with
the shipped one."""


class R2d3:
    """R2D3. context.config.algorithm must be its settings. Raises ConfigError for a policy that is no recurrent Q."""

    def __init__(self, context: Context) -> None:
        refuse_other(context.policy.tokenizer)
        assert isinstance(context.policy, RecurrentQPolicy)
        self._context, self._policy = context, context.policy
        self._settings = settings_of(context.config)
        self._network = context.policy.network
        self._older = copy.deepcopy(self._network).requires_grad_(False)
        self._loss = loss_settings(self._settings)
        self.memory = R2d3Memory(context.config, self._network.start(1).shape[1])
        self._optimised = adamw(context.policy.parameters())
        self._inputs: OrderedDict[LogPosition, Tensor] = OrderedDict()
        self.drawn = NOTHING_DRAWN

    def modules(self) -> Mapping[str, nn.Module]:
        return {"older": self._older}

    def optimisers(self) -> Mapping[str, Optimised]:
        return {"policy_optimiser": self._optimised}

    def screens(self, trajectory: Trajectory) -> Iterator[ObjectRef]:
        return seen(trajectory)

    def update(self, u: int) -> Metrics:
        if u % self._settings.target_updates == 0:
            self._older.load_state_dict(self._network.state_dict())
        for buffer, entry in self.memory.unscored():
            buffer.columns["state"][buffer.slots(entry)] = self._states(entry)
            self.memory.score(buffer, entry)
        self.drawn = NOTHING_DRAWN
        if not self.memory.uses(u):
            return {}
        descent, rng = self._descent(u), generator(self._context.config, "replay", u)
        return mean_metrics([self._step(rng, index, u) for index in range(descent.minibatches)])

    def values(self, steps: Sequence[TrajectoryStep]) -> Array:
        """(B,) the largest Q of each step as a return: the rescaling is undone."""
        with torch.no_grad():
            screens = self._context.features.of(steps, self._policy.earlier_screens)
            found = [
                self._policy.q(self._policy.seen(each.step.prompt_ids, screen)).max().item()
                for each, screen in zip(steps, screens, strict=True)
            ]
        return np.clip(unscaled(np.array(found), self._settings.rescaling), 0.0, 1.0)

    def _descent(self, u: int) -> DescentSettings:
        return self._context.config.warmup if self.memory.phase(u) is PRETRAINING else self._settings

    def _step(self, rng: np.random.Generator, index: int, u: int) -> dict[str, float]:
        """Gradient step number `index` of update `u`."""
        descent, warmup = self._descent(u), self._context.config.warmup
        drawn, draws = self.memory.drawn(rng, u, descent.batch_size)
        self._add_drawn(drawn)
        batch = batch_of(
            [self._episode(each) for each in drawn],
            [each.window for each in drawn],
            draws.is_expert,
            draws.weights,
            self.memory.shape,
        )
        gradients, rows = self._context.compute.gradients(
            list(self._optimised.parameters.values()),
            len(drawn),
            lambda piece: self._part(batch, piece),
            f"minibatch {index}",
            u,
        )
        rate = learning_rate(u * warmup.minibatches + index, warmup) if descent is warmup else descent.lr
        descend(self._optimised, gradients, rate=rate, decay=0.0, grad_norm=descent.grad_norm)
        priorities = rows["priority"].cpu().numpy()
        self.memory.update_priorities(drawn, priorities)
        return {"td_error": float(priorities.mean()), "demonstrated": float(draws.is_expert.mean())}

    def _add_drawn(self, drawn: Sequence[Drawn]) -> None:
        """Note the steps that a minibatch learns from, each with the present priority of its sequence."""
        found = [
            ((each.entry, step), each.buffer.columns["priority"][each.slot])
            for each in drawn
            for step in range(each.window.start, min(each.window.start + self._settings.length, len(each.entry)))
        ]
        before = np.zeros(0) if self.drawn.priority is None else self.drawn.priority
        self.drawn = DrawnSteps(
            [*self.drawn.rows, *(row for row, _ in found)],
            priority=np.concatenate([before, [priority for _, priority in found]]),
        )

    def _part(self, whole: SequenceBatch, piece: slice) -> ShardResult:
        batch = whole.part(piece).to(self._policy.device)
        found = sequence_loss(self._network, self._older, batch, self._loss, whole)
        return ShardResult(found.loss, {"priority": torch.from_numpy(found.priorities)})

    def _episode(self, drawn: Drawn) -> Episode:
        buffer, entry = drawn.buffer, drawn.entry
        return Episode(
            self._inputs_of(entry).numpy(),
            np.array([self._policy.number(step) for step in entry.steps], dtype=np.int64),
            rewards_and_ends([entry])[0],
            buffer.columns["state"][buffer.slots(entry)],
        )

    def _states(self, entry: Entry) -> Array:
        """(T, 2H) the network's state before each step of an episode."""
        inputs, state = self._inputs_of(entry).to(self._policy.device), self._network.start(1)
        found, present = [], torch.ones(1, 1, dtype=torch.bool, device=state.device)
        with torch.no_grad():
            for each in inputs:
                found.append(state[0].cpu().numpy())
                _, state = self._network(each[None, None], state, present)
        return np.stack(found)

    def _inputs_of(self, entry: Entry) -> Tensor:
        """(T, F + A) the network's inputs of an episode, on the CPU. They are computed for the whole episode at once,
        so that their bits do not depend on what was cached."""
        position = entry.logged.position
        if position not in self._inputs:
            last = TrajectoryStep(entry.steps, len(entry) - 1)
            (screens,) = self._context.features.of([last], self._policy.earlier_screens)
            self._inputs[position] = self._policy.seen(last.step.prompt_ids, screens).inputs.cpu()
            while len(self._inputs) > CACHED_EPISODES:
                self._inputs.popitem(last=False)
        self._inputs.move_to_end(position)
        return self._inputs[position]


def loss_settings(settings: R2d3Settings) -> LossSettings:
    return LossSettings(
        settings.gamma,
        settings.n,
        settings.rescaling,
        settings.one_step_weight,
        settings.margin_weight,
        settings.margin,
        settings.l2_weight,
        settings.eta,
    )
