"""Returns, corrections and penalties of trajectories: pure functions over arrays of their steps, in float64.

A trajectory has T = H+1 steps, 0..H. `rewards[t]` is what action a_t earned, seen on the screen that followed it:
with sparse outcomes it is 1 on the last step of a success and 0 elsewhere. Penalties are at most 0 and are not part of
the rewards, because V(s) estimates the probability of success, which penalties do not change.

Arrays of N steps hold whole trajectories one after the other, and `last` (N,) is True on the last step of each; with
`last` None they hold one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]
AdvantageForm = Literal["paper", "retrace", "td"]


def outcome_rewards(steps: int, success: bool) -> Array:
    """(T,) the sparse reward: 1 on the last step of a success, 0 elsewhere."""
    rewards = np.zeros(steps)
    if steps and success:
        rewards[-1] = 1.0
    return rewards


def monte_carlo(rewards: ArrayLike, gamma: float, last: Mask | None = None) -> Array:
    """G_t = Σ_{k=t..H} γ^{k-t} r_k, the Monte-Carlo return (DistRL, section 5.1).

    rewards: (N,). Returns (N,). Runs backwards in O(N): G_t = r_t + γ G_{t+1}.
    """
    following = np.full_like(_array(rewards), gamma)
    return _backwards(_array(rewards), following if last is None else np.where(last, 0.0, following))


def td_errors(
    rewards: ArrayLike, values: ArrayLike, gamma: float, bootstrap: ArrayLike = 0.0, last: Mask | None = None
) -> Array:
    """td_t = r_t + γ V(s_{t+1}) − V(s_t) (DistRL, equation 3).

    rewards, values: (N,). bootstrap: V(s_{H+1}) on last steps, a number or (N,); 0 at a real end. Returns (N,).
    """
    return _array(rewards) + gamma * next_values(values, bootstrap, last) - _array(values)


def n_step_returns(
    rewards: ArrayLike,
    values: ArrayLike,
    gamma: float,
    n: int,
    bootstrap: ArrayLike = 0.0,
    last: Mask | None = None,
) -> Array:
    """G_t^(n) = Σ_{k=0..m-1} γ^k r_{t+k} + γ^m V(s_{t+m}), m = min(n, H+1−t) (Sutton and Barto 2018, equation 7.1).

    rewards, values: (N,). n: at least 1. bootstrap: V(s_{H+1}) on last steps, a number or (N,). Returns (N,).
    """
    following = _array(values)
    for _ in range(n):  # G_t^(n) = r_t + γ G_{t+1}^(n-1), and G^(0) = V
        following = _array(rewards) + gamma * next_values(following, bootstrap, last)
    return following


def gae(td: ArrayLike, gamma: float, lam: float, last: Mask | None = None) -> Array:
    """Â_t = Σ_{k=t..H} (γ λ)^{k-t} td_k (Schulman 2015, arXiv 1506.02438, equation 16).

    td: (N,) `td_errors`. Returns (N,). It is Retrace's correction where π = μ.
    """
    return retrace_correction(td, np.ones_like(_array(td)), gamma, lam, last)


def vtrace_targets(
    values: ArrayLike,
    td: ArrayLike,
    ratios: ArrayLike,
    gamma: float,
    lam: float = 1.0,
    rho_max: float = 1.0,
    c_max: float = 1.0,
    last: Mask | None = None,
) -> Array:
    """v_t, the V-trace target of V(s_t) (IMPALA, arXiv 1802.01561, equation 1 and remark 2).

    v_t = V(s_t) + Σ_{k=t..H} γ^{k-t} (Π_{i=t..k-1} c_i) min(ρ̄, ρ_k) td_k,   c_i = λ min(c̄, ρ_i)

    Unlike Retrace's, the product begins at t, and each td error is weighted by its own action's ratio.
    values, td, ratios: (N,). rho_max: ρ̄, which decides of which policy these are the values. c_max: c̄ <= ρ̄, which
    decides how far later td errors count.
    Returns (N,). Runs backwards in O(N): v_t − V(s_t) = min(ρ̄, ρ_t) td_t + γ c_t (v_{t+1} − V(s_{t+1})).
    """
    ratio = _array(ratios)
    weighted, traces = np.minimum(rho_max, ratio) * _array(td), gamma * lam * np.minimum(c_max, ratio)
    return _array(values) + _backwards(weighted, traces if last is None else np.where(last, 0.0, traces))


def rescaled(values: ArrayLike, epsilon: float = 1e-3) -> Array:
    """h(x) = sign(x) (√(|x| + 1) − 1) + ε x: makes large returns small and keeps their order (arXiv 1805.11593)."""
    x = _array(values)
    return np.asarray(np.sign(x) * (np.sqrt(np.abs(x) + 1.0) - 1.0) + epsilon * x)


def unscaled(values: ArrayLike, epsilon: float = 1e-3) -> Array:
    """h⁻¹ of `rescaled` with the same ε > 0."""
    y = _array(values)
    root = (np.sqrt(1.0 + 4.0 * epsilon * (np.abs(y) + 1.0 + epsilon)) - 1.0) / (2.0 * epsilon)
    return np.asarray(np.sign(y) * (root**2 - 1.0))


def retrace_correction(td: ArrayLike, ratios: ArrayLike, gamma: float, lam: float, last: Mask | None = None) -> Array:
    """Retrace(λ) correction δ_t of V(s_t) (DistRL, section 5.2).

    δ_t = Σ_{k=t..H} γ^{k-t} (Π_{i=t+1..k} λ min(1, ρ_i)) td_k

    td: (N,) `td_errors`. ratios: (N,) ρ_i = π(a_i|s_i) / μ(a_i|s_i); those of first steps are never used.
    Returns (N,). Runs backwards in O(N): δ_t = td_t + γ c_{t+1} δ_{t+1}, c_i = λ min(1, ρ_i).
    """
    traces = lam * np.minimum(1.0, _array(ratios))
    return _backwards(_array(td), gamma * next_values(traces, 0.0, last))


def retrace_targets(
    values: ArrayLike, td: ArrayLike, ratios: ArrayLike, gamma: float, lam: float, last: Mask | None = None
) -> Array:
    """clip(V(s_t) + δ_t, 0, 1): what V(s_t), a probability, is fitted to (DistRL, section 5.2).

    values, td, ratios: (N,). Returns (N,), each in [0, 1].
    """
    return np.clip(_array(values) + retrace_correction(td, ratios, gamma, lam, last), 0.0, 1.0)


def penalties(
    action_texts: Sequence[str],
    screens: Sequence[str],
    invalid: Sequence[bool],
    repetition_penalty: float,
    invalid_reward: float,
) -> Array:
    """Immediate penalties of each step (DistRL, A.2.2): repetition accumulates, an invalid action costs at once.

    A step repeats when the action before it was the same text and changed nothing on the screen; the n-th such step
    in a row costs n · repetition_penalty. screens: the sha256 of what each step saw. All (T,).
    Returns (T,), each at most 0.
    """
    result = np.zeros(len(action_texts))
    run = 0
    for t, (text, screen) in enumerate(zip(action_texts, screens, strict=True)):
        repeated = t > 0 and text == action_texts[t - 1] and screen == screens[t - 1]
        run = run + 1 if repeated else 0
        result[t] = -repetition_penalty * run - (invalid_reward if invalid[t] else 0.0)
    return result


def advantages(
    form: AdvantageForm,
    rewards: ArrayLike,
    penalty: ArrayLike,
    values: ArrayLike,
    targets: ArrayLike,
    gamma: float,
    bootstrap: ArrayLike = 0.0,
    last: Mask | None = None,
) -> Array:
    """A(s_t, a_t) = r + γ V(s_{t+1}) − V(s_t), in one of three readings of r and V(s_{t+1}).

    paper:   r = G + penalty, V(s_{t+1}) as estimated. The text of A.4.2: r is the Monte-Carlo return "from t+1 to the
             terminal state" plus penalties, where the reward of a_t is the one seen on screen t+1; so G = G_t here.
             (Were it left out, the last action of every success would be pushed down by −V.)
    retrace: r = r_t + penalty, V(s_{t+1}) replaced by its Retrace target y_{t+1}.
    td:      r = r_t + penalty, V(s_{t+1}) as estimated.

    rewards, penalty, values, targets: (N,). bootstrap: V(s_{H+1}) on last steps, a number or (N,); 0 at a real end.
    Returns (N,).
    """
    earned, following = {
        "paper": (monte_carlo(rewards, gamma, last), next_values(values, bootstrap, last)),
        "retrace": (_array(rewards), next_values(targets, bootstrap, last)),
        "td": (_array(rewards), next_values(values, bootstrap, last)),
    }[form]
    return earned + _array(penalty) + gamma * following - _array(values)


def next_values(values: ArrayLike, bootstrap: ArrayLike = 0.0, last: Mask | None = None) -> Array:
    """(N,) x_{t+1}; on last steps `bootstrap`, a number or (N,)."""
    following = np.roll(_array(values), -1)
    return np.where(np.arange(len(following)) == len(following) - 1 if last is None else last, bootstrap, following)


def _array(values: ArrayLike) -> Array:
    return np.asarray(values, dtype=np.float64)


def _backwards(terms: Array, weights: Array) -> Array:
    """x_t = terms_t + weights_t · x_{t+1}, with x_{H+1} = 0."""
    result = np.empty_like(terms)
    following = 0.0
    for t in range(len(terms) - 1, -1, -1):
        following = float(terms[t] + weights[t] * following)
        result[t] = following
    return result
