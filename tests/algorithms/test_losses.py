from __future__ import annotations

import math

import pytest
import torch
from distrl.algorithms.losses import (
    clone_loss,
    critic_loss,
    importance_ratio,
    policy_loss,
    shape_advantages,
)
from torch import Tensor


def gradient(
    ratio: float = 1.0, advantage: float = 0.0, invalid: float = 0.0, *, beta: float = 0.0, lam: float = 0.0
) -> tuple[float, float]:
    """d loss / d log π and d loss / d H of one transition."""
    logprob, entropy = torch.tensor([-1.0], requires_grad=True), torch.tensor([0.5], requires_grad=True)
    policy_loss(
        logprob,
        entropy,
        torch.tensor([ratio]),
        torch.tensor([advantage]),
        torch.tensor([invalid]),
        beta=beta,
        lam=lam,
        ratio_clip=2.0,
    ).backward()
    assert logprob.grad is not None
    return float(logprob.grad), 0.0 if entropy.grad is None else float(entropy.grad)


def test_gradient_is_that_of_equation_4() -> None:
    assert gradient(ratio=0.5, advantage=3.0) == pytest.approx((-1.5, 0.0))
    assert gradient(beta=0.25) == pytest.approx((0.0, -0.25))


def test_ratio_is_clipped_and_carries_no_gradient() -> None:
    assert gradient(ratio=100.0, advantage=1.0)[0] == pytest.approx(-2.0)
    behaviour = torch.tensor([-2.0])
    logprob = torch.tensor([-1.0], requires_grad=True)
    assert not importance_ratio(logprob, behaviour).requires_grad


def test_penalty_pushes_an_invalid_action_down_and_no_other() -> None:
    assert gradient(invalid=1.0, lam=0.3)[0] == pytest.approx(0.3)
    assert gradient(invalid=0.0, lam=0.3)[0] == 0.0


def test_penalty_is_the_score_function_gradient_of_the_probability_of_invalid_actions() -> None:
    """Sampled from μ, ∇ λ E_μ[ρ P log π] must be ∇ λ Σ_a π(a) P(a), which can be differentiated exactly."""
    logits = torch.tensor([0.3, -0.2, 0.9], requires_grad=True)
    invalid, behaviour = torch.tensor([0.0, 1.0, 0.0]), torch.tensor([0.2, 0.5, 0.3])
    (exact,) = torch.autograd.grad((logits.softmax(0) * invalid).sum(), logits)
    logp = logits.log_softmax(0)
    ratio = importance_ratio(logp, behaviour.log())
    found: Tensor = torch.zeros(3)
    for action in range(3):
        loss = policy_loss(
            logp[action : action + 1],
            torch.zeros(1),
            ratio[action : action + 1],
            torch.zeros(1),
            invalid[action : action + 1],
            beta=0.0,
            lam=1.0,
            ratio_clip=100.0,
        )
        (each,) = torch.autograd.grad(loss, logits, retain_graph=True)
        found = found + behaviour[action] * each
    assert torch.allclose(found, exact, atol=1e-6)


def test_ratio_at_equal_weights_is_one_and_at_extremes_finite() -> None:
    assert importance_ratio(torch.tensor([-3.0]), torch.tensor([-3.0])).item() == 1.0
    found = importance_ratio(torch.tensor([-1e9, 0.0]), torch.tensor([0.0, -1e9]))
    assert found.isfinite().all()
    assert found[0] < 1e-4


def test_shaping_keeps_signs_scales_by_the_deviation_and_softens_the_negative() -> None:
    given = torch.tensor([2.0, 1.0, -1.0, 0.0])
    shaped = shape_advantages(given, normalise=True, negative_weight=0.1)
    assert torch.equal(shaped.sign(), given.sign())
    assert shaped[0] / shaped[1] == pytest.approx(2.0)
    assert shaped[2] / shaped[1] == pytest.approx(-0.1)
    assert torch.equal(shape_advantages(given, normalise=False, negative_weight=1.0), given)
    assert shape_advantages(torch.full((3,), 5.0), normalise=True, negative_weight=0.1).isfinite().all()


def test_critic_loss_is_least_at_its_soft_target() -> None:
    target = torch.tensor([0.3])
    at = {p: critic_loss(torch.tensor([math.log(p / (1 - p))]), target, torch.ones(1)).item() for p in (0.2, 0.3, 0.4)}
    assert at[0.3] < min(at[0.2], at[0.4])
    assert at[0.3] == pytest.approx(-0.3 * math.log(0.3) - 0.7 * math.log(0.7))


def test_critic_loss_is_a_weighted_mean_over_the_whole_minibatch() -> None:
    logits = torch.tensor([2.0, -3.0, 50.0], requires_grad=True)
    loss = critic_loss(logits, torch.tensor([1.0, 0.0, 0.0]), torch.tensor([0.5, 2.0, 0.0]))
    expected = (0.5 * math.log1p(math.exp(-2.0)) + 2.0 * math.log1p(math.exp(-3.0))) / 3
    assert loss.item() == pytest.approx(expected)
    loss.backward()
    assert logits.grad is not None
    assert logits.grad[2] == 0
    assert critic_loss(torch.ones(2), torch.ones(2), torch.zeros(2)).item() == 0.0


def test_clone_loss_is_the_negative_log_likelihood() -> None:
    assert clone_loss(torch.tensor([-1.0, -3.0])).item() == 2.0
