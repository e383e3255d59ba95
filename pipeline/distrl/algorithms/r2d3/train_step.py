"""The loss of one minibatch of sequences, by the network that learns and its older copy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from distrl.algorithms.r2d3 import losses
from distrl.algorithms.r2d3.losses import LossSettings
from distrl.algorithms.r2d3.sequences import SequenceBatch
from distrl.algorithms.r2d3.targets import double_q_targets, has_target, sequence_priorities
from distrl.algorithms.returns import Array, Mask


@dataclass(frozen=True, slots=True)
class Found:
    """loss: a scalar, differentiable in the learning network's parameters. priorities: (B,) the sequences' new ones."""

    loss: Tensor
    priorities: Array


class Network(Protocol):
    """`RecurrentQ`, or a wrapper around it."""

    def __call__(self, inputs: Tensor, state: Tensor, present: Tensor) -> tuple[Tensor, Tensor]: ...
    def parameters(self) -> Iterator[nn.Parameter]: ...


def sequence_loss(
    online: Network, older: Network, batch: SequenceBatch, config: LossSettings, whole: SequenceBatch | None = None
) -> Found:
    """The whole loss of a batch, whose tensors are on the networks' device. If the batch has fewer than n columns
    ahead, its last targets bootstrap sooner.

    whole: the minibatch that the batch is a part of. Its loss is the mean of the parts' losses weighted by their rows,
    although some parts have more steps than others.

    Both networks go through the burn-in from the stored state, without a gradient (R2D2, section 3): its steps are not
    learned from, they bring the state nearer to what the present weights would have made of the episode.
    """
    burn_in = batch.shape.burn_in
    with torch.no_grad():
        before = _unrolled(online, batch, batch.state, slice(0, burn_in))[1]
        old, _ = _unrolled(older, batch, batch.state, slice(None))
    q, _ = _unrolled(online, batch, before, slice(burn_in, None))
    ends, present = batch.ends[:, burn_in:], batch.present[:, burn_in:]
    learned = learned_steps(batch)
    steps, shown = _counts(batch, whole or batch)
    actions = batch.actions[:, burn_in:]
    chosen = q.gather(-1, actions[..., None])[..., 0]
    weights = _placed(learned * batch.weights[:, None], q)
    seen, older_q = _array(q), _array(old[:, burn_in:])
    by_steps = {
        n: double_q_targets(batch.rewards[:, burn_in:], ends, present, seen, older_q, config.gamma, n, config.epsilon)
        for n in (config.n, 1)
    }
    terms = [
        losses.td_loss(chosen, _placed(by_steps[config.n], q), weights, steps),
        config.one_step_weight * losses.td_loss(chosen, _placed(by_steps[1], q), weights, steps),
        config.margin_weight
        * losses.margin_loss(q, actions, weights * _placed(batch.is_expert[:, None], q), config.margin, shown),
        config.l2_weight * losses.l2(online.parameters()),
    ]
    td = _array(chosen) - by_steps[config.n]
    return Found(torch.stack(terms).sum(), sequence_priorities(td, learned, config.eta))


def learned_steps(batch: SequenceBatch) -> Mask:
    """(B, T) the steps after the burn-in that are learned from."""
    learned = has_target(batch.ends, batch.present)[:, batch.shape.burn_in :]
    learned[:, batch.shape.length :] = False
    return learned


def _counts(batch: SequenceBatch, whole: SequenceBatch) -> tuple[float, float]:
    """What the sums of a batch are divided by, for all steps and for those of demonstrations: its share of the whole
    minibatch's number of such steps."""
    learned, share = learned_steps(whole), len(batch.weights) / len(whole.weights)
    shown = learned[whole.is_expert]
    return share * max(int(learned.sum()), 1), share * max(int(shown.sum()), 1)


def _unrolled(network: Network, batch: SequenceBatch, state: Tensor, columns: slice) -> tuple[Tensor, Tensor]:
    present = torch.from_numpy(batch.present[:, columns]).to(state.device)
    return network(batch.inputs[:, columns], state, present)


def _placed(values: NDArray[np.generic], like: Tensor) -> Tensor:
    return torch.from_numpy(values).to(like)


def _array(tensor: Tensor) -> Array:
    found: Array = tensor.detach().double().cpu().numpy()
    return found
