"""Episodes as they were played, and batches of sequences that are cut from them.

    ┌ left padding ┬ burn-in ┬ learned ┬ ahead ┬ right padding ┐
      an episode's beginning              its end

A sequence has a column for each of burn_in + length + n steps; the learned ones begin at the same column in all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from distrl.algorithms.returns import Array, Mask
from distrl.replay.sequences import Shape, Window


@dataclass(frozen=True, slots=True)
class Episode:
    """T steps, of which the last one ended it.

    inputs: (T, F) float32, `inputs_of`. actions: (T,). rewards: (T,). states: (T, 2H) float32, the recurrent state
    before each step, of the network that admitted the episode.
    """

    inputs: NDArray[np.float32]
    actions: NDArray[np.int64]
    rewards: Array
    states: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.actions)


@dataclass(frozen=True, slots=True)
class SequenceBatch:
    """B sequences of T columns, padding included. What targets are computed from in float64 is in NumPy, the rest in
    torch."""

    inputs: Tensor
    """(B, T, F)"""
    state: Tensor
    """(B, 2H) before the first column that is no padding."""
    actions: Tensor
    """(B, T) int64"""
    rewards: Array
    """(B, T)"""
    ends: Mask
    """(B, T) whether a step was the last of its episode."""
    present: Mask
    """(B, T) False for padding."""
    is_expert: Mask
    """(B,)"""
    weights: Array
    """(B,) importance weight of each sequence in the loss, which corrects for draws by priority."""
    shape: Shape

    def part(self, rows: slice) -> SequenceBatch:
        """Some of its rows."""
        own = {each.name: getattr(self, each.name)[rows] for each in fields(self) if each.name != "shape"}
        return replace(self, **own)

    def to(self, device: torch.device) -> SequenceBatch:
        """With its tensors on a device."""
        return replace(
            self, inputs=self.inputs.to(device), state=self.state.to(device), actions=self.actions.to(device)
        )


def inputs_of(observations: NDArray[np.float32], actions: Sequence[int], count: int) -> NDArray[np.float32]:
    """(T, F + A) each observation beside the action before it, one-hot of `count`; none before the first.

    The networks of R2D3's paper also read the last reward. It is left out, as rewards come only at the end of an
    episode, so it would always be 0. observations: (T, F). actions: (T - 1,) or more; those without a step after them
    are not read.
    """
    before = np.zeros((len(observations), count), dtype=np.float32)
    before[np.arange(1, len(observations)), np.asarray(actions[: len(observations) - 1], dtype=np.int64)] = 1.0
    return np.concatenate([observations, before], axis=1)


def batch_of(
    episodes: Sequence[Episode], windows: Sequence[Window], is_expert: Mask, weights: Array, shape: Shape
) -> SequenceBatch:
    """Row b has window b of episode b."""
    rows, columns = len(windows), shape.columns
    inputs = np.zeros((rows, columns, episodes[0].inputs.shape[1]), dtype=np.float32)
    actions, rewards = np.zeros((rows, columns), dtype=np.int64), np.zeros((rows, columns))
    ends, present = np.zeros((rows, columns), dtype=bool), np.zeros((rows, columns), dtype=bool)
    for row, (episode, window) in enumerate(zip(episodes, windows, strict=True)):
        steps = slice(window.start - window.burn_in, min(len(episode), window.start + shape.length + shape.ahead))
        first = shape.burn_in - window.burn_in
        places = slice(first, first + steps.stop - steps.start)
        inputs[row, places], actions[row, places] = episode.inputs[steps], episode.actions[steps]
        rewards[row, places], present[row, places] = episode.rewards[steps], True
        ends[row, places.stop - 1] = steps.stop == len(episode)
    states = [episode.states[window.start - window.burn_in] for episode, window in zip(episodes, windows, strict=True)]
    return SequenceBatch(
        torch.from_numpy(inputs),
        torch.from_numpy(np.stack(states)),
        torch.from_numpy(actions),
        rewards,
        ends,
        present,
        is_expert,
        weights,
        shape,
    )
