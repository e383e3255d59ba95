from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from distrl.algorithms.returns import (
    Array,
    Mask,
    advantages,
    gae,
    monte_carlo,
    n_step_returns,
    next_values,
    outcome_rewards,
    penalties,
    rescaled,
    retrace_correction,
    retrace_targets,
    td_errors,
    unscaled,
    vtrace_targets,
)
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

unit = st.floats(0.0, 1.0, width=32)


@st.composite
def steps(draw: st.DrawFn) -> tuple[Array, Array, Array, float, float]:
    """rewards, values, ratios (all (T,)), gamma, lambda of one trajectory."""
    count = draw(st.integers(1, 12))

    def row(each: st.SearchStrategy[float]) -> Array:
        return np.array(draw(st.lists(each, min_size=count, max_size=count)))

    return row(unit), row(unit), row(st.floats(0.0, 5.0, width=32)), draw(unit), draw(unit)


def retrace_as_printed(td: Array, ratios: Array, gamma: float, lam: float) -> Array:
    """The double sum of section 5.2, literally."""
    count = len(td)
    traces = lam * np.minimum(1.0, ratios)
    return np.array(
        [sum(gamma ** (k - t) * np.prod(traces[t + 1 : k + 1]) * td[k] for k in range(t, count)) for t in range(count)]
    )


@given(steps())
def test_monte_carlo_is_the_printed_sum(given_steps: tuple[Array, Array, Array, float, float]) -> None:
    rewards, _, _, gamma, _ = given_steps
    printed = [sum(gamma ** (k - t) * rewards[k] for k in range(t, len(rewards))) for t in range(len(rewards))]
    assert monte_carlo(rewards, gamma) == pytest.approx(np.array(printed), abs=1e-12)


@given(steps())
def test_retrace_backwards_is_the_printed_double_sum(given_steps: tuple[Array, Array, Array, float, float]) -> None:
    rewards, values, ratios, gamma, lam = given_steps
    td = td_errors(rewards, values, gamma)
    printed = retrace_as_printed(td, ratios, gamma, lam)
    assert retrace_correction(td, ratios, gamma, lam) == pytest.approx(printed, abs=1e-9)


@given(steps())
def test_lambda_0_leaves_the_td_error(given_steps: tuple[Array, Array, Array, float, float]) -> None:
    rewards, values, ratios, gamma, _ = given_steps
    td = td_errors(rewards, values, gamma)
    assert np.array_equal(retrace_correction(td, ratios, gamma, 0.0), td)


@given(steps())
def test_on_policy_and_lambda_1_it_is_the_monte_carlo_return(
    given_steps: tuple[Array, Array, Array, float, float],
) -> None:
    rewards, values, _, gamma, _ = given_steps
    correction = retrace_correction(td_errors(rewards, values, gamma), np.ones(len(values)), gamma, 1.0)
    assert values + correction == pytest.approx(monte_carlo(rewards, gamma), abs=1e-9)


@given(steps())
def test_ratios_above_1_and_the_first_one_change_nothing(
    given_steps: tuple[Array, Array, Array, float, float],
) -> None:
    rewards, values, ratios, gamma, lam = given_steps
    td = td_errors(rewards, values, gamma)
    other = np.where(ratios > 1, 1.0, ratios)
    other[0] = 7.0
    assert np.array_equal(retrace_correction(td, ratios, gamma, lam), retrace_correction(td, other, gamma, lam))


@given(steps())
def test_targets_are_probabilities(given_steps: tuple[Array, Array, Array, float, float]) -> None:
    rewards, values, ratios, gamma, lam = given_steps
    targets = retrace_targets(values, td_errors(rewards, values, gamma), ratios, gamma, lam)
    assert ((targets >= 0) & (targets <= 1)).all()


def test_a_perfect_critic_is_left_alone() -> None:
    rewards = outcome_rewards(4, success=True)
    values = monte_carlo(rewards, 0.9)
    assert values == pytest.approx([0.729, 0.81, 0.9, 1.0])
    assert td_errors(rewards, values, 0.9) == pytest.approx(np.zeros(4))


def test_td_bootstraps_from_what_follows_the_last_step() -> None:
    assert td_errors([0.0], [0.5], 0.9, bootstrap=1.0) == pytest.approx([0.4])


@given(steps(), st.sampled_from(["paper", "retrace", "td"]))
def test_advantages_as_printed(given_steps: tuple[Array, Array, Array, float, float], form: str) -> None:
    rewards, values, _, gamma, _ = given_steps
    count = len(values)
    penalty, targets = -rewards[::-1], values[::-1].copy()
    found = advantages(form, rewards, penalty, values, targets, gamma)  # type: ignore[arg-type]
    for t in range(count):
        last = t == count - 1
        if form == "paper":
            earned = sum(gamma ** (k - t) * rewards[k] for k in range(t, count))
            following = 0.0 if last else values[t + 1]
        else:
            earned = rewards[t]
            following = 0.0 if last else (targets if form == "retrace" else values)[t + 1]
        assert found[t] == pytest.approx(earned + penalty[t] + gamma * following - values[t], abs=1e-9)


def test_last_action_of_a_success_is_encouraged_and_of_a_failure_discouraged() -> None:
    values = np.array([0.5, 0.5])
    for form in ("paper", "retrace", "td"):
        for success in (True, False):
            rewards = outcome_rewards(2, success)
            found = advantages(form, rewards, np.zeros(2), values, values, 0.9)  # type: ignore[arg-type]
            assert (found[-1] > 0) == success


def test_repetition_accumulates_and_starts_again_when_the_screen_moves() -> None:
    texts = ["tap", "tap", "tap", "tap", "tap", "back", "back"]
    seen = ["a", "a", "a", "b", "b", "b", "c"]
    found = penalties(texts, seen, [False] * 7, 0.4, 1.0)
    assert found == pytest.approx([0.0, -0.4, -0.8, 0.0, -0.4, 0.0, 0.0])


def test_an_invalid_action_costs_beside_its_repetition() -> None:
    assert penalties(["?", "?"], ["a", "a"], [True, True], 0.4, 1.0) == pytest.approx([-1.0, -1.4])


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.booleans()), max_size=20))
def test_penalties_never_reward_and_come_only_with_cause(rows: list[tuple[str, str, bool]]) -> None:
    texts, seen, invalid = [list(column) for column in zip(*rows, strict=True)] if rows else ([], [], [])
    found = penalties(texts, seen, invalid, 0.25, 0.5)
    assert (found <= 0).all()
    repeats = [False] + [one[:2] == two[:2] for one, two in pairwise(rows)]
    assert [value < 0 for value in found] == [a or b for a, b in zip(invalid, repeats[: len(rows)], strict=True)]


def test_a_trajectory_without_steps_has_no_returns() -> None:
    empty: list[float] = []
    assert len(monte_carlo(empty, 0.9)) == len(td_errors(empty, empty, 0.9)) == len(next_values(empty)) == 0
    assert len(outcome_rewards(0, success=True)) == len(penalties([], [], [], 1.0, 1.0)) == 0


@given(steps(), st.integers(1, 14), unit)
def test_n_step_returns_are_the_printed_sum(
    given_steps: tuple[Array, Array, Array, float, float], n: int, after: float
) -> None:
    rewards, values, _, gamma, _ = given_steps
    count, following = len(rewards), [*values, after]
    printed = [
        sum(gamma ** (k - t) * rewards[k] for k in range(t, min(t + n, count)))
        + gamma ** (min(t + n, count) - t) * following[min(t + n, count)]
        for t in range(count)
    ]
    assert n_step_returns(rewards, values, gamma, n, after) == pytest.approx(np.array(printed), abs=1e-9)


@given(steps())
def test_gae_is_the_printed_sum(given_steps: tuple[Array, Array, Array, float, float]) -> None:
    rewards, values, _, gamma, lam = given_steps
    td = td_errors(rewards, values, gamma)
    printed = [sum((gamma * lam) ** (k - t) * td[k] for k in range(t, len(td))) for t in range(len(td))]
    assert gae(td, gamma, lam) == pytest.approx(np.array(printed), abs=1e-9)


@given(steps(), st.floats(0.5, 3.0), st.floats(0.1, 1.0))
def test_vtrace_backwards_is_the_printed_double_sum(
    given_steps: tuple[Array, Array, Array, float, float], rho_max: float, share: float
) -> None:
    rewards, values, ratios, gamma, lam = given_steps
    td, c = td_errors(rewards, values, gamma), lam * np.minimum(rho_max * share, ratios)
    rho, count = np.minimum(rho_max, ratios), len(rewards)
    printed = [
        values[t] + sum(gamma ** (k - t) * np.prod(c[t:k]) * rho[k] * td[k] for k in range(t, count))
        for t in range(count)
    ]
    found = vtrace_targets(values, td, ratios, gamma, lam, rho_max, rho_max * share)
    assert found == pytest.approx(np.array(printed), abs=1e-9)


@given(steps())
def test_on_policy_vtrace_is_the_return_of_as_many_steps_as_are_left(
    given_steps: tuple[Array, Array, Array, float, float],
) -> None:
    """IMPALA, section 4.1: at π = μ it is the on-policy n-step Bellman target."""
    rewards, values, _, gamma, _ = given_steps
    found = vtrace_targets(values, td_errors(rewards, values, gamma, 0.7), np.ones(len(values)), gamma)
    assert found == pytest.approx(n_step_returns(rewards, values, gamma, len(values), 0.7), abs=1e-9)


@given(steps())
def test_on_policy_retrace_is_td_lambda(given_steps: tuple[Array, Array, Array, float, float]) -> None:
    """The λ-return as Sutton and Barto (2018, equation 12.3) have it: a mean of n-step returns."""
    rewards, values, _, gamma, lam = given_steps
    count = len(rewards)
    by_n = [n_step_returns(rewards, values, gamma, n) for n in range(1, count + 1)]
    td = td_errors(rewards, values, gamma)
    found = values + retrace_correction(td, np.ones(count), gamma, lam)
    for t in range(count):
        left = count - t
        short = sum((1 - lam) * lam ** (n - 1) * by_n[n - 1][t] for n in range(1, left))
        assert found[t] == pytest.approx(short + lam ** (left - 1) * by_n[left - 1][t], abs=1e-9)


def test_vtrace_by_hand() -> None:
    """γ = 0.5, ρ̄ = 1, c̄ = 1: the first action was half as likely, the second one is twice as likely now."""
    td = td_errors([0.0, 1.0], [0.4, 0.6], 0.5)
    assert td == pytest.approx([-0.1, 0.4])
    found = vtrace_targets([0.4, 0.6], td, [0.5, 2.0], 0.5)
    assert found == pytest.approx([0.4 - 0.5 * 0.1 + 0.5 * 0.5 * 0.4, 1.0])


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 0.1))
def test_rescaling_is_undone_keeps_order_and_sign(x: float, epsilon: float) -> None:
    there = rescaled(x, epsilon)
    assert unscaled(there, epsilon) == pytest.approx(x, rel=1e-6, abs=1e-6)
    assert rescaled(-x, epsilon) == pytest.approx(-there)
    assert rescaled(x + 1, epsilon) > there


def test_rescaling_by_hand() -> None:
    assert rescaled([0.0, 3.0, -8.0], 0.01) == pytest.approx([0.0, 1.03, -2.08])


@given(st.lists(steps(), min_size=1, max_size=5))
def test_trajectories_one_after_the_other_are_as_each_alone(
    episodes: list[tuple[Array, Array, Array, float, float]],
) -> None:
    """Each form, with a bootstrap of its own at each end: nothing of one trajectory reaches the next."""
    gamma, lam = episodes[0][3:]
    ends = [0.1 * number for number in range(len(episodes))]
    rewards, values, ratios = (np.concatenate([each[column] for each in episodes]) for column in range(3))
    last = np.concatenate([np.arange(len(each[0])) == len(each[0]) - 1 for each in episodes])
    after = np.zeros(len(last))
    after[last] = ends

    def forms(reward: Array, value: Array, ratio: Array, end: ArrayLike, mask: Mask | None) -> list[Array]:
        td = td_errors(reward, value, gamma, end, mask)
        return [
            td,
            monte_carlo(reward, gamma, mask),
            n_step_returns(reward, value, gamma, 3, end, mask),
            gae(td, gamma, lam, mask),
            retrace_correction(td, ratio, gamma, lam, mask),
            vtrace_targets(value, td, ratio, gamma, lam, last=mask),
        ]

    together = forms(rewards, values, ratios, after, last)
    alone = [forms(r, v, ratio, end, None) for (r, v, ratio, _, _), end in zip(episodes, ends, strict=True)]
    for number, whole in enumerate(together):
        assert whole == pytest.approx(np.concatenate([each[number] for each in alone]), abs=1e-12)
