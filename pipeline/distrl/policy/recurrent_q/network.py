"""The network of R2D3: a recurrent Q with dueling heads, and DQfD's, which has no memory.

Q(s, a) = V(s) + A(s, a) − mean_b A(s, b)   (dueling, arXiv 1511.06581, equation 9)

Symbols: B sequences, T steps, F inputs, H units, A actions.
"""

from __future__ import annotations

from typing import Final, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NEVER: Final = -1e3
"""Q of an action that is not possible: below any return, and finite, as padding is computed with, too."""


class RecurrentQ(nn.Module):
    """Q of each step of a sequence, rescaled by h. recurrent: False gives a layer of the same width in place of the
    LSTM, which hands on no state."""

    def __init__(self, inputs: int, actions: int, width: int, *, recurrent: bool = True) -> None:
        super().__init__()
        self.width = width
        self.recurrent = recurrent
        self.encoder = nn.Sequential(nn.Linear(inputs, width), nn.ReLU())
        self.cell = nn.LSTMCell(width, width) if recurrent else nn.Linear(width, width)
        self.value, self.advantage = nn.Linear(width, 1), nn.Linear(width, actions)

    def start(self, sequences: int) -> Tensor:
        """(B, 2H) the state before an episode's first step: the LSTM's h and c, side by side."""
        return self.value.weight.new_zeros(sequences, 2 * self.width)

    def forward(self, inputs: Tensor, state: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, A) Q, and (B, 2H) the state after the last step.

        inputs: (B, T, F). state: (B, 2H) before the first step. present: (B, T) bool; padding leaves the state alone.
        """
        encoded = self.encoder(inputs)
        units = []
        for t in range(inputs.shape[1]):
            unit, after = self._step(encoded[:, t], state)
            state = torch.where(present[:, t, None], after, state)
            units.append(unit)
        found = torch.stack(units, 1) if units else encoded
        advantage = self.advantage(found)
        return self.value(found) + advantage - advantage.mean(-1, keepdim=True), state

    def _step(self, encoded: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        if not isinstance(self.cell, nn.LSTMCell):
            return cast(Tensor, self.cell(encoded)).relu(), state
        before, memory = state.chunk(2, -1)
        unit, memory = lstm_step(self.cell, encoded, before, memory)
        return unit, torch.cat([unit, memory], -1)


def lstm_step(cell: nn.LSTMCell, inputs: Tensor, unit: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
    """`cell`'s h and c after one step, each (B, H). Written out: torch's own has a fused kernel off the CPU, which not
    every kind of device has."""
    gates = F.linear(inputs, cell.weight_ih, cell.bias_ih) + F.linear(unit, cell.weight_hh, cell.bias_hh)
    enter, forget, new, leave = gates.chunk(4, -1)
    memory = forget.sigmoid() * memory + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * memory.tanh(), memory


class GridQ(nn.Module):
    """`RecurrentQ` over a grid of which each step offers a part: the last A of its inputs say which, 1 or 0."""

    def __init__(self, inputs: int, actions: int, width: int, *, recurrent: bool = True) -> None:
        """inputs: F, without the last A."""
        super().__init__()
        self.actions = actions
        self.q = RecurrentQ(inputs, actions, width, recurrent=recurrent)

    def start(self, sequences: int) -> Tensor:
        return self.q.start(sequences)

    def forward(self, inputs: Tensor, state: Tensor, present: Tensor) -> tuple[Tensor, Tensor]:
        """As `RecurrentQ`'s, with NEVER for what is not possible. inputs: (B, T, F + A)."""
        read, possible = inputs[..., : -self.actions], inputs[..., -self.actions :]
        q, after = self.q(read, state, present)
        return q.masked_fill(possible == 0, NEVER), after
