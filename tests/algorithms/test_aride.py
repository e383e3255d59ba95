from __future__ import annotations

import numpy as np
import pytest
import torch
from distrl.algorithms.aride.credit import Credit, credit, loss_and_ratio
from distrl.algorithms.returns import AdvantageForm, outcome_rewards
from distrl.config import ArideSettings
from hypothesis import given
from hypothesis import strategies as st

VALUES, RATIOS, PENALTY = np.array([0.2, 0.6, 0.4]), np.array([0.9, 0.5, 2.0]), np.array([0.0, -0.1, 0.0])


WON, LOST = outcome_rewards(3, success=True), outcome_rewards(3, success=False)


def test_credit_of_a_success_by_hand() -> None:
    found = credit(VALUES, RATIOS, PENALTY, WON, ArideSettings(gamma=0.5, retrace_lambda=0.8))
    td = np.array([0.5 * 0.6 - 0.2, 0.5 * 0.4 - 0.6, 1.0 - 0.4])
    delta_1 = td[1] + 0.5 * 0.8 * 1.0 * td[2]
    targets = [0.2 + td[0] + 0.5 * 0.8 * 0.5 * delta_1, 0.6 + delta_1, 1.0]
    assert found.td == pytest.approx(td)
    assert found.targets == pytest.approx(targets)
    assert found.advantages == pytest.approx([0.5 * targets[1] - 0.2, -0.1 + 0.5 * 1.0 - 0.6, 1.0 - 0.4])


@pytest.mark.parametrize("success", [True, False])
def test_without_retrace_the_critic_learns_whether_the_return_is_positive(success: bool) -> None:
    found = credit(VALUES, RATIOS, PENALTY, outcome_rewards(3, success), ArideSettings(retrace=False, gamma=0.5))
    won = float(success)
    assert found.targets.tolist() == [won] * 3
    following = np.array([0.5 * won, 0.5 * won, won])  # the outcome in the place of the Retrace target, then the reward
    assert found.advantages == pytest.approx(following + PENALTY - VALUES)


@pytest.mark.parametrize("form", ["paper", "retrace", "td"])
def test_a_failure_that_was_cut_off_is_worth_what_v_says_of_the_last_screen(form: AdvantageForm) -> None:
    found = credit(
        VALUES, RATIOS, PENALTY, LOST, ArideSettings(gamma=0.5, retrace_lambda=0.8, advantage=form), bootstrap=0.7
    )
    td = np.array([0.5 * 0.6 - 0.2, 0.5 * 0.4 - 0.6, 0.5 * 0.7 - 0.4])
    delta_1 = td[1] + 0.5 * 0.8 * 1.0 * td[2]
    assert found.td == pytest.approx(td)
    assert found.targets == pytest.approx([0.2 + td[0] + 0.5 * 0.8 * 0.5 * delta_1, 0.6 + delta_1, 0.5 * 0.7])
    assert found.advantages[-1] == pytest.approx(0.5 * 0.7 - 0.4)


def test_without_retrace_a_failure_that_was_cut_off_has_the_chance_that_v_gives_it() -> None:
    assert (
        credit(VALUES, RATIOS, PENALTY, LOST, ArideSettings(retrace=False), bootstrap=0.7).targets.tolist() == [0.7] * 3
    )


def test_penalties_move_advantages_and_never_targets() -> None:
    plain = credit(VALUES, RATIOS, np.zeros(3), WON, ArideSettings())
    punished = credit(VALUES, RATIOS, np.full(3, -0.3), WON, ArideSettings())
    assert np.array_equal(plain.targets, punished.targets)
    assert punished.advantages == pytest.approx(plain.advantages - 0.3)


unit = st.floats(0.0, 1.0, width=32)
steps = st.lists(st.tuples(unit, st.floats(0.0, 5.0, width=32), st.floats(-1.0, 0.0, width=32)), min_size=1, max_size=6)
"""V(s), ρ and penalty of each step of a trajectory."""


@given(
    st.lists(st.tuples(steps, st.booleans(), unit), min_size=1, max_size=6),
    st.sampled_from(["paper", "retrace", "td"]),
    st.booleans(),
)
def test_credit_of_many_trajectories_at_once_is_that_of_each(
    episodes: list[tuple[list[tuple[float, float, float]], bool, float]], form: AdvantageForm, retrace: bool
) -> None:
    settings = ArideSettings(advantage=form, retrace=retrace)
    columns: list[tuple[np.ndarray, ...]] = []
    for rows, success, worth_after in episodes:
        reward, after = outcome_rewards(len(rows), success), np.zeros(len(rows))
        after[-1] = 0.0 if success else worth_after
        columns.append((*np.array(rows).T, reward, after, np.arange(len(rows)) == len(rows) - 1))
    value, ratio, penalty, reward, after, last = (np.concatenate(each) for each in zip(*columns, strict=True))
    together = credit(value, ratio, penalty, reward, settings, after, last.astype(bool))
    alone = [credit(v, r, p, won, settings, float(a[-1])) for v, r, p, won, a, _ in columns]
    for name in Credit.__slots__:
        expected = np.concatenate([getattr(each, name) for each in alone])
        assert np.array_equal(getattr(together, name), expected), name


def test_one_step_of_the_policy_loss_raises_the_better_action() -> None:
    logits = torch.zeros(2, requires_grad=True)
    logp = logits.log_softmax(0)
    loss, ratio = loss_and_ratio(
        logp,
        -(logp.exp() * logp).sum().expand(2),
        logp.detach(),
        torch.tensor([1.0, -1.0]),
        torch.zeros(2),
        ArideSettings(),
    )
    loss.backward()
    assert logits.grad is not None
    assert logits.grad[0] < 0 < logits.grad[1]
    assert ratio.tolist() == [1.0, 1.0]
