"""Drawing a token: what is drawn has the probability that is recorded, at the ends of the interval too."""

from __future__ import annotations

from collections import Counter
from typing import cast

import numpy as np
import numpy.typing as npt
import pytest
import torch
from distrl.config import load
from distrl.errors import ConfigError
from distrl.policy.sampling import FULL, Ladder, Sampling, by_episode, draw, drawing, drawn_from, entropies, scores
from distrl.policy.writing import write
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from policy.test_writing import END, Table


class At:
    """A generator that always draws the same number."""

    def __init__(self, number: float) -> None:
        self._number = number

    def random(self) -> float:
        return self._number


def drawn(shares: list[float], number: float, *, greedy: bool = False) -> int:
    with np.errstate(divide="ignore"):
        return draw(np.log(shares), cast(np.random.Generator, At(number)), greedy=greedy)


@pytest.mark.parametrize(
    ("number", "token"), [(0.0, 1), (0.2499, 1), (0.25, 3), (0.7499, 3), (0.75, 4), (1.0 - 2**-53, 4)]
)
def test_each_token_has_its_share_of_the_interval_and_an_impossible_one_none(number: float, token: int) -> None:
    assert drawn([0.0, 0.25, 0.0, 0.5, 0.25], number) == token


def test_shares_that_do_not_quite_sum_to_one_leave_no_gap() -> None:
    assert drawn([0.4, 0.4], 1.0 - 2**-53) == 1
    assert drawn([0.8, 0.8], 0.6) == 1


def test_the_likeliest_is_taken_whatever_is_drawn() -> None:
    assert drawn([0.2, 0.5, 0.3], 0.0, greedy=True) == 1
    assert drawn([0.4, 0.2, 0.4], 0.99, greedy=True) == 0, "of equals the first"


SHARES = torch.tensor([0.4, 0.1, 0.3, 0.2], dtype=torch.float64)


@pytest.mark.parametrize("temperature", [0.25, 1.0, 4.0])
def test_log_probabilities_sum_to_one_and_their_differences_scale(temperature: float) -> None:
    logits = np.array([[3.0, -1.0, 0.5], [800.0, 0.0, -800.0]])
    found = drawn_from(torch.tensor(logits), Sampling(temperature))
    assert np.allclose(np.exp(found).sum(-1), 1.0, atol=1e-12)
    assert np.allclose(found[:, :1] - found, (logits[:, :1] - logits) / temperature)


@pytest.mark.parametrize(
    ("sampling", "shares"),
    [
        (FULL, [0.4, 0.1, 0.3, 0.2]),
        (Sampling(top_k=2), [4 / 7, 0, 3 / 7, 0]),
        (Sampling(top_k=9), [0.4, 0.1, 0.3, 0.2]),
        (Sampling(top_p=0.69), [4 / 7, 0, 3 / 7, 0]),
        (Sampling(top_p=0.71), [4 / 9, 0, 3 / 9, 2 / 9]),
        (Sampling(top_p=1e-9), [1, 0, 0, 0]),
        (Sampling(top_p=0.5, top_k=2), [1, 0, 0, 0]),  # the first holds 4/7 of what top_k leaves
        (Sampling(0.5, top_k=2), [16 / 25, 0, 9 / 25, 0]),
    ],
)
def test_the_likeliest_tokens_are_left_and_sum_to_one_again(sampling: Sampling, shares: list[float]) -> None:
    """The same to the worker, in float64, and to what is scored in float32."""
    logits = SHARES.log()[None] + 3.0
    assert np.allclose(np.exp(drawn_from(logits, sampling)), [shares], atol=1e-12)
    found, entropy = scores(logits.float().expand(4, 1, 4), torch.arange(4)[:, None], torch.ones(4, 1), sampling)
    assert np.allclose(found.exp().numpy(), shares, atol=1e-6)
    exact = -sum(share * np.log(share) for share in shares if share)
    assert np.allclose(entropy.numpy(), exact, atol=1e-6)
    assert np.allclose(entropies(drawn_from(logits, sampling)), exact, atol=1e-6)


@given(
    hnp.arrays(np.float32, st.tuples(st.integers(1, 3), st.integers(1, 400)), elements=st.floats(-60, 60, width=32)),
    st.sampled_from([FULL, Sampling(0.5), Sampling(2.0)]),
)
def test_the_entropy_of_a_draw_is_that_of_its_score(rows: npt.NDArray[np.float32], sampling: Sampling) -> None:
    logits = torch.tensor(rows)
    count, vocabulary = logits.shape
    _, scored = scores(logits[:, None], torch.zeros(count, 1, dtype=torch.long), torch.ones(count, 1), sampling)
    found = entropies(drawn_from(logits, sampling))
    assert np.allclose(found, scored.numpy(), atol=1e-4)
    assert ((found >= 0) & (found <= np.log(vocabulary) + 1e-4)).all()


def test_tokens_as_likely_as_the_last_that_is_left_are_left_too() -> None:
    """So that what is left does not depend on how a processor sorts."""
    logits = torch.tensor([[0.0, 1.0, 0.0, 1.0]])
    for sampling in (Sampling(top_k=1), Sampling(top_p=0.1)):
        assert np.allclose(np.exp(drawn_from(logits, sampling)), [[0, 0.5, 0, 0.5]])


def test_what_is_left_out_has_no_gradient_and_spoils_none() -> None:
    logits = SHARES.log().repeat(1, 2, 1).requires_grad_()
    logprob, entropy = scores(logits, torch.tensor([[2, 1]]), torch.tensor([[1.0, 0.0]]), Sampling(top_k=2))
    assert logprob.isfinite(), "the token that was not drawn could not have been"
    (logprob.sum() + entropy.sum()).backward()
    assert logits.grad is not None
    assert logits.grad[0, 0].tolist()[1::2] == [0.0, 0.0]
    assert logits.grad.isfinite().all()
    assert logits.grad[0, 0, 2] > 0


@pytest.mark.parametrize("sampling", [FULL, Sampling(0.7, 0.75, 4), Sampling(1.3, top_p=0.6), Sampling(top_k=2)])
def test_actions_are_drawn_as_often_as_their_log_probabilities_say(sampling: Sampling) -> None:
    """Of actions of three tokens, by a chi-square test; rare ones are counted together."""
    table = torch.randn(5, 5, generator=torch.Generator().manual_seed(2))
    table[:, END] = -100.0
    drawn = write(Table(4000, table), ends=(END,), most=3, sampling=sampling, choices=drawing(sampling, range(4000)))
    shares = {row.ids: np.exp(row.logprob) for row in drawn}
    counts = {ids: sum(row.ids == ids for row in drawn) for ids in shares}
    common = [ids for ids, share in shares.items() if share * len(drawn) >= 10]
    seen = torch.tensor([*(counts[ids] for ids in common), 0.0])
    expected = torch.tensor([*(shares[ids] * len(drawn) for ids in common), 0.0])
    seen[-1], expected[-1] = len(drawn) - seen.sum(), len(drawn) - expected.sum() + 1e-3
    assert len(common) > 3
    distance = ((seen - expected) ** 2 / expected).sum()
    assert torch.special.gammaincc(torch.tensor(len(common) / 2), distance / 2) > 1e-3, "the p-value"


@pytest.mark.parametrize("setting", ["top_p=0", "top_p=1.1", "top_k=0", "top_p=.nan"])
def test_settings_that_leave_nothing_to_draw_are_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match=r"worker\.top_"):
        load(sets=[f"worker.{setting}"], environ={})


def test_a_worker_draws_by_its_settings() -> None:
    given = load(sets=["worker.temperature=0.5", "worker.top_p=0.9", "worker.top_k=7"], environ={})
    assert Sampling.of(given.worker) == Sampling(0.5, 0.9, 7)
    assert Sampling.of(load(environ={}).worker) == FULL


def test_a_ladder_of_eight_is_that_of_the_paper() -> None:
    """0.4^(1 + i), as α / (N − 1) is 1: multiplied out by hand, and so of two and three."""
    by_hand = [0.4, 0.16, 0.064, 0.0256, 0.01024, 0.004096, 0.0016384, 0.00065536]
    assert [Ladder(8).at(rung) for rung in range(8)] == pytest.approx(by_hand, rel=1e-12)
    assert Ladder(8).at(0) == 0.4
    assert [Ladder(2).at(rung) for rung in range(2)] == pytest.approx([0.4, 0.4**8])
    assert [Ladder(3, 0.25, 1.0).at(rung) for rung in range(3)] == pytest.approx([0.25, 0.125, 0.0625])


@given(st.integers(2, 4096), st.floats(0.0001, 0.9999), st.floats(0, 30))
def test_a_ladder_goes_down_within_what_is_a_probability(rungs: int, epsilon: float, alpha: float) -> None:
    """From epsilon to epsilon^(1 + alpha), by equal ratios; within all that the settings allow."""
    found = np.array([Ladder(rungs, epsilon, alpha).at(rung) for rung in range(rungs)])
    assert ((found > 0) & (found <= 1)).all()
    assert (np.diff(found) <= 0).all()
    assert found[0] == epsilon
    assert found[-1] == pytest.approx(epsilon ** (1 + alpha), rel=1e-9)
    assert np.allclose(np.diff(np.log(found)), alpha * np.log(epsilon) / (rungs - 1), atol=1e-9)
    if alpha * -np.log(epsilon) / (rungs - 1) > 1e-9:
        assert (np.diff(found) < 0).all()


def test_each_epsilon_has_its_share_of_the_tasks_and_of_each_family() -> None:
    """Suites give families out by a task's number, which is not to choose the ε, too: eight families of 500 tasks."""
    ladder = Ladder(8)
    for family in range(8):
        counts = Counter(ladder.of(f"home-train-0-{8 * number + family:06d}") for number in range(500))
        assert set(counts) == {ladder.at(rung) for rung in range(8)}
        assert sum((count - 62.5) ** 2 / 62.5 for count in counts.values()) < 24.3, "chi-square of 7, p = 0.001"


def test_an_episode_is_drawn_by_its_own_epsilon_which_its_task_alone_decides() -> None:
    names = ["a", "b", "a", "c", "d"]
    ladder = Ladder(4, 0.3, 2.0)
    found = by_episode(Sampling(0.5, 0.9, 7, ladder), names)
    assert sorted(row for rows in found.values() for row in rows) == list(range(5))
    for sampling, rows in found.items():
        for row in rows:
            assert sampling == Sampling(0.5, 0.9, 7, ladder.of(names[row]))
    assert len(found) > 1
    rungs = [2, 3, 1, 0]  # sha256 of the id, a line break and `ladder`: its first 64 bits, modulo 4
    assert [ladder.of(name) for name in "abcd"] == [ladder.at(rung) for rung in rungs], "records are scored by it"


@pytest.mark.parametrize("sampling", [None, FULL, Sampling(0.5, epsilon=0.2)])
def test_without_a_ladder_all_rows_are_drawn_together_and_greedy_ones_stay_so(sampling: Sampling | None) -> None:
    assert by_episode(sampling, ["b", "a", "c"]) == {sampling: [0, 1, 2]}


def test_a_worker_has_a_ladder_where_it_is_set() -> None:
    assert load(environ={}).worker.ladder.rungs is None
    given = load(sets=["worker.ladder.rungs=8"], environ={})
    assert Sampling.of(given.worker) == Sampling(epsilon=Ladder(8, 0.4, 7.0))
    other = load(sets=["worker.ladder={rungs: 3, epsilon: 0.2, alpha: 5}"], environ={})
    assert Sampling.of(other.worker) == Sampling(epsilon=Ladder(3, 0.2, 5.0))


@pytest.mark.parametrize("setting", ["rungs=1", "rungs=5000", "epsilon=0", "epsilon=1", "alpha=-1", "alpha=31"])
def test_a_ladder_that_cannot_be_is_refused(setting: str) -> None:
    with pytest.raises(ConfigError, match=r"worker\.ladder\."):
        load(sets=[f"worker.ladder.{setting}"], environ={})


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(top_p=0.9), Sampling(top_k=2), Sampling(0.5, 0.9, 3)])
def test_logits_that_are_no_numbers_give_log_probabilities_that_are_none(sampling: Sampling) -> None:
    """Who draws by them sees that, and says so."""
    found = sampling.log_probabilities(torch.full((2, 5), torch.nan))
    assert found.isnan().all()
