"""The network of R2D3: what its state is, and dueling."""

from __future__ import annotations

import pytest
import torch
from distrl.policy.recurrent_q.network import RecurrentQ, lstm_step
from torch import Tensor, nn

INPUTS, ACTIONS, WIDTH = 5, 3, 4


@pytest.fixture(params=[True, False], ids=["recurrent", "feed-forward"])
def network(request: pytest.FixtureRequest) -> RecurrentQ:
    torch.manual_seed(0)
    return RecurrentQ(INPUTS, ACTIONS, WIDTH, recurrent=request.param).double()


def episode(steps: int) -> Tensor:
    return torch.randn(1, steps, INPUTS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def test_a_step_of_the_memory_is_that_of_an_lstm() -> None:
    torch.manual_seed(0)
    cell = nn.LSTMCell(INPUTS, WIDTH).double()
    inputs, unit, memory = (torch.randn(6, size, dtype=torch.float64) for size in (INPUTS, WIDTH, WIDTH))
    for found, expected in zip(lstm_step(cell, inputs, unit, memory), cell(inputs, (unit, memory)), strict=True):
        assert torch.allclose(found, expected, atol=1e-12)


def test_step_by_step_is_all_at_once(network: RecurrentQ) -> None:
    inputs, state, found = episode(6), network.start(1), []
    for t in range(6):
        q, state = network(inputs[:, t : t + 1], state, torch.ones(1, 1, dtype=torch.bool))
        found.append(q)
    whole, after = network(inputs, network.start(1), torch.ones(1, 6, dtype=torch.bool))
    assert torch.allclose(torch.cat(found, 1), whole)
    assert torch.allclose(state, after)


def test_padding_leaves_the_state_alone(network: RecurrentQ) -> None:
    inputs = episode(4)
    padded = torch.cat([torch.full((1, 2, INPUTS), 9.0, dtype=torch.float64), inputs, inputs[:, :1]], 1)
    present = torch.tensor([[False, False, True, True, True, True, False]])
    alone, after = network(inputs, network.start(1), present[:, 2:6])
    beside, same = network(padded, network.start(1), present)
    assert torch.allclose(beside[:, 2:6], alone)
    assert torch.allclose(same, after)


def test_only_a_recurrent_one_remembers(network: RecurrentQ) -> None:
    """The last step's Q, after different first steps."""
    inputs = episode(3)
    other = inputs.clone()
    other[:, 0] += 1.0
    present = torch.ones(1, 3, dtype=torch.bool)
    first, second = (network(each, network.start(1), present)[0][:, -1] for each in (inputs, other))
    assert torch.equal(first, second) != network.recurrent


def test_heads_are_dueling(network: RecurrentQ) -> None:
    """Q − V has a mean of 0 over actions, whatever the heads say: the mean of Q is V."""
    present = torch.ones(1, 3, dtype=torch.bool)
    before = network(episode(3), network.start(1), present)[0]
    with torch.no_grad():
        network.value.bias += 2.0
        network.advantage.bias += 5.0  # alike for all actions, so it is no advantage
    assert torch.allclose(network(episode(3), network.start(1), present)[0], before + 2.0)
