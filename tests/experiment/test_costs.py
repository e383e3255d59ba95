"""Draws of latencies."""

from __future__ import annotations

import random
import statistics

import pytest
from distrl.experiment.costs import PAPER, TAILS, Draws, Latency
from hypothesis import given
from hypothesis import strategies as st
from simphone.fleet import FleetSettings
from simphone.profiles import PROFILES


class Evenly(random.Random):
    """The normal distribution's quantiles at the middles of `count` equal parts, one after the other."""

    def __init__(self, count: int) -> None:
        super().__init__(0)
        normal = statistics.NormalDist()
        self._left = [normal.inv_cdf((place + 0.5) / count) for place in range(count)]

    def gauss(self, mu: float = 0.0, sigma: float = 1.0) -> float:
        return mu + sigma * self._left.pop()


@pytest.mark.parametrize(("sigma", "most"), [(0.0, 1000.0), (0.8, 1000.0), (2.2, 1000.0), (0.8, 2.0), (2.2, 10.0)])
def test_the_mean_is_the_one_that_is_named_wherever_the_tail_is_cut(sigma: float, most: float) -> None:
    count = 40_000
    rng = Evenly(count)
    found = [Latency(20.0, sigma, most).draw(rng) for _ in range(count)]
    assert statistics.fmean(found) == pytest.approx(20.0, rel=0.001)
    assert max(found) <= most * statistics.median(found) * 1.001


def test_no_latency_is_longer_than_the_cut() -> None:
    rng = random.Random(0)
    latency = Latency(1.0, 3.0, most=10.0)
    found = [latency.draw(rng) for _ in range(2000)]
    assert max(found) == pytest.approx(10 * latency.median_s)
    assert statistics.median(found) == pytest.approx(latency.median_s, rel=0.2)


@given(st.integers(0, 9), st.integers(0, 600), st.integers(0, 50), st.integers(0, 20))
def test_a_draw_depends_on_whose_it_is_alone(seed: int, phone: int, episode: int, step: int) -> None:
    one, other = Draws(PAPER, seed), Draws(PAPER, seed)
    other.act(phone, episode, step)
    other.look(phone + 1, episode, step)
    assert one.look(phone, episode, step) == other.look(phone, episode, step)
    assert one.look(phone, episode, step) != one.look(phone + 1, episode, step)
    assert one.look(phone, episode, step) != Draws(PAPER, seed + 1).look(phone, episode, step)


def test_the_tails_are_those_of_the_profiles_of_simulated_phones() -> None:
    found = {name: PROFILES[name].sigma for name in ("steady", "plain", "heavy")}
    assert {**found, "plain": FleetSettings().latency_sigma} == dict(TAILS)


def test_another_tail_keeps_the_means() -> None:
    heavy = PAPER.with_tail(2.2)
    for ours, before in ((heavy.look, PAPER.look), (heavy.act, PAPER.act), (heavy.reset, PAPER.reset)):
        assert ours.mean_s == before.mean_s
        assert ours.median_s < before.median_s
    assert {heavy.look.sigma, heavy.act.sigma, heavy.reset.sigma} == {2.2}
    assert heavy.update == PAPER.update
