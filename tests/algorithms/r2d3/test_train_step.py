"""The loss of a minibatch against its definition, one sequence and one step at a time, in float64."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from distrl.algorithms.r2d3.losses import LossSettings, l2, margin_loss, td_loss
from distrl.algorithms.r2d3.sequences import Episode, SequenceBatch, batch_of, inputs_of
from distrl.algorithms.r2d3.train_step import sequence_loss
from distrl.algorithms.returns import rescaled, unscaled
from distrl.policy.recurrent_q.network import RecurrentQ
from distrl.replay.sequences import Shape, Window, windows
from torch import Tensor

ACTIONS, FEATURES, WIDTH = 3, 4, 5
CONFIG = LossSettings(gamma=0.9, n=3, one_step_weight=0.5, margin_weight=0.7, margin=0.3, l2_weight=0.01)
SHAPE = Shape(burn_in=2, length=3, ahead=3, stride=2)
LENGTHS = (1, 4, 7, 11)


def network(seed: int, *, recurrent: bool = True) -> RecurrentQ:
    torch.manual_seed(seed)
    return RecurrentQ(FEATURES + ACTIONS, ACTIONS, WIDTH, recurrent=recurrent).double()


def episode(seed: int, steps: int) -> Episode:
    """Its stored states are noise: what an older network may have made of it."""
    rng = np.random.default_rng(seed)
    actions = rng.integers(ACTIONS, size=steps)
    observations = rng.normal(size=(steps, FEATURES)).astype(np.float32)
    states = rng.normal(size=(steps, 2 * WIDTH)).astype(np.float32)
    return Episode(inputs_of(observations, actions.tolist(), ACTIONS), actions, rng.normal(size=steps), states)


def rows() -> tuple[list[Episode], list[Window]]:
    """Every sequence of episodes of different lengths."""
    found = [(each, window) for i, n in enumerate(LENGTHS) for each in [episode(i, n)] for window in windows(n, SHAPE)]
    return [each for each, _ in found], [window for _, window in found]


def batch(shape: Shape = SHAPE) -> SequenceBatch:
    episodes, cut = rows()
    rng = np.random.default_rng(9)
    made = batch_of(episodes, cut, rng.random(len(cut)) < 0.5, rng.uniform(0.1, 1.0, len(cut)), shape)
    return replace(made, inputs=made.inputs.double(), state=made.state.double())


def q_of(net: RecurrentQ, each: Episode, window: Window) -> Tensor:
    """(steps, A) of the episode's steps from the window's first one on, from its stored state."""
    first = window.start - window.burn_in
    state, found = torch.from_numpy(each.states[first : first + 1]).double(), []
    for t in range(first, len(each)):
        inputs = torch.from_numpy(each.inputs[t]).double()[None, None]
        q, state = net(inputs, state, torch.ones(1, 1, dtype=torch.bool))
        if t < window.start:
            state = state.detach()
        found.append(q[0, 0])
    return torch.stack(found)


def target(each: Episode, t: int, first: int, online: Tensor, older: Tensor, n: int) -> float:
    """y_t in the whole episode."""
    online, older = online.detach(), older.detach()
    steps = min(n, len(each) - t)
    total = sum(CONFIG.gamma**k * each.rewards[t + k] for k in range(steps))
    if t + steps < len(each):
        best = int(online[t + steps - first].argmax())
        total += CONFIG.gamma**steps * float(unscaled(float(older[t + steps - first, best]), CONFIG.epsilon))
    return float(rescaled(total, CONFIG.epsilon))


def as_defined(online: RecurrentQ, older: RecurrentQ) -> tuple[Tensor, list[float]]:
    """The loss, and each sequence's priority."""
    made = batch()
    terms: dict[str, list[Tensor]] = {"n": [], "1": [], "margin": []}
    priorities = []
    for row, (each, window) in enumerate(zip(*rows(), strict=True)):
        first = window.start - window.burn_in
        q, old = q_of(online, each, window), q_of(older, each, window)
        weight, sizes = float(made.weights[row]), []
        for t in range(window.start, min(window.start + SHAPE.length, len(each))):
            chosen = q[t - first, each.actions[t]]
            for name, n in (("n", CONFIG.n), ("1", 1)):
                td = chosen - target(each, t, first, q, old, n)
                terms[name].append(weight * 0.5 * td**2)
                if name == "n":
                    sizes.append(abs(float(td.detach())))
            if made.is_expert[row]:
                margins = [CONFIG.margin * (a != each.actions[t]) for a in range(ACTIONS)]
                ahead = torch.stack([q[t - first, a] + m for a, m in enumerate(margins)]).max()
                terms["margin"].append(weight * (ahead - chosen))
        priorities.append(0.9 * max(sizes) + 0.1 * sum(sizes) / len(sizes))
    mean = {name: torch.stack(each).mean() for name, each in terms.items()}
    squares = torch.stack([(each**2).sum() for each in online.parameters()]).sum()
    return mean["n"] + 0.5 * mean["1"] + 0.7 * mean["margin"] + 0.01 * squares, priorities


@pytest.mark.parametrize("recurrent", [True, False])
def test_loss_gradient_and_priorities_are_those_of_the_definition(recurrent: bool) -> None:
    """Sequences of whole episodes: with `ahead` of n no target is shortened by where a sequence is cut."""
    online, older = network(1, recurrent=recurrent), network(2, recurrent=recurrent)
    expected, priorities = as_defined(online, older)
    wanted = torch.autograd.grad(expected, list(online.parameters()))
    found = sequence_loss(online, older, batch(), CONFIG)
    assert float(found.loss.detach()) == pytest.approx(float(expected.detach()), rel=1e-9)
    assert found.priorities == pytest.approx(priorities, rel=1e-9)
    for got, each in zip(torch.autograd.grad(found.loss, list(online.parameters())), wanted, strict=True):
        assert torch.allclose(got, each, rtol=1e-8, atol=1e-12)


def test_the_loss_of_a_minibatch_is_the_mean_of_its_parts_by_their_rows() -> None:
    """Although some have more steps to learn from, or more demonstrations, than others."""
    online, older, made = network(1), network(2), batch()
    rows = len(made.weights)
    parts = [made.part(slice(begin, min(begin + 3, rows))) for begin in range(0, rows, 3)]
    found = [sequence_loss(online, older, part, CONFIG, made) for part in parts]
    whole = sequence_loss(online, older, made, CONFIG)
    total = sum(each.loss.item() * len(part.weights) / rows for each, part in zip(found, parts, strict=True))
    assert total == pytest.approx(whole.loss.item(), rel=1e-9)
    assert np.concatenate([each.priorities for each in found]) == pytest.approx(whole.priorities)


def test_no_gradient_goes_through_the_burn_in_nor_into_the_older_network() -> None:
    online, older, made = network(1), network(2), batch()
    inputs = made.inputs.clone().requires_grad_()
    sequence_loss(online, older, replace(made, inputs=inputs), CONFIG).loss.backward()
    assert inputs.grad is not None
    size = inputs.grad.abs().sum((0, 2))
    assert (size[: SHAPE.burn_in] == 0).all()
    assert (size[SHAPE.burn_in : SHAPE.burn_in + SHAPE.length] > 0).all()
    assert all(each.grad is None for each in older.parameters())


def test_a_burn_in_over_all_that_came_before_makes_any_stored_state_of_a_start_exact() -> None:
    """From an episode's first step the state is that of the present network, however old the stored ones are."""
    online, shape = network(1), Shape(burn_in=11, length=3, ahead=3, stride=3)
    whole = episode(3, 11)
    fresh = Episode(whole.inputs, whole.actions, whole.rewards, np.zeros_like(whole.states))
    window = windows(11, shape)[-1]
    made = batch_of([fresh], [window], np.array([False]), np.ones(1), shape)
    q = q_of(online, fresh, Window(0, 0))
    chosen = q[np.arange(8, 11), fresh.actions[8:]].detach().numpy()
    expected = [target(fresh, t, 0, q, q, CONFIG.n) for t in range(8, 11)]
    td = np.abs(chosen - expected)
    made = replace(made, inputs=made.inputs.double(), state=made.state.double())
    assert sequence_loss(online, online, made, CONFIG).priorities == pytest.approx([0.9 * td.max() + 0.1 * td.mean()])


def test_margin_loss_by_hand() -> None:
    """The demonstrated action is 0. Ahead by the margin: no loss; behind: what it lacks, margin included."""
    q = torch.tensor([[[1.0, 0.1, 0.2], [0.5, 0.4, 0.0], [0.0, 0.3, 0.6]]])
    actions, each = torch.zeros(1, 3, dtype=torch.long), torch.eye(3)
    found = [float(margin_loss(q, actions, one[None], 0.8)) for one in each]
    assert found == pytest.approx([0.0, 0.7, 1.4])
    assert float(margin_loss(q, actions, torch.zeros(1, 3), 0.8)) == 0.0


def test_td_loss_and_l2_by_hand() -> None:
    found = td_loss(torch.tensor([[1.0, 2.0, 9.0]]), torch.tensor([[0.0, 4.0, 0.0]]), torch.tensor([[1.0, 0.5, 0.0]]))
    assert float(found) == pytest.approx((0.5 + 0.5 * 2.0) / 2)
    assert float(l2([torch.tensor([1.0, 2.0]), torch.tensor([[3.0]])])) == pytest.approx(14.0)


def test_inputs_have_the_action_before() -> None:
    observations = np.array([[5.0], [6.0], [7.0]], dtype=np.float32)
    assert inputs_of(observations, [1, 0, 1], 2).tolist() == [[5, 0, 0], [6, 0, 1], [7, 1, 0]]
