"""Drawing a token: what is drawn has the probability that is recorded, at the ends of the interval too."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt
import pytest
import torch
from distrl.config import load
from distrl.errors import ConfigError
from distrl.policy.sampling import FULL, Sampling, draw, drawing, drawn_from, entropies, scores
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


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(top_p=0.9), Sampling(top_k=2), Sampling(0.5, 0.9, 3)])
def test_logits_that_are_no_numbers_give_log_probabilities_that_are_none(sampling: Sampling) -> None:
    """Who draws by them sees that, and says so."""
    found = sampling.log_probabilities(torch.full((2, 5), torch.nan))
    assert found.isnan().all()
