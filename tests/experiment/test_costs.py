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


@pytest.mark.parametrize("sigma", [0.0, 0.8])
def test_the_mean_is_the_one_that_is_named(sigma: float) -> None:
    rng = random.Random(0)
    found = [Latency(20.0, sigma).draw(rng) for _ in range(40_000)]
    assert statistics.fmean(found) == pytest.approx(20.0, rel=0.02)
    assert statistics.median(found) <= 20.0


def test_no_latency_is_longer_than_the_cut() -> None:
    rng = random.Random(0)
    latency = Latency(1.0, 3.0, most=10.0)
    median = Latency(1.0, 3.0, most=1.0)
    found = [latency.draw(rng) for _ in range(2000)]
    assert max(found) == pytest.approx(10 * max(median.draw(rng) for _ in range(2000)))


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
    assert (heavy.look.mean_s, heavy.act.mean_s, heavy.reset.mean_s) == (
        PAPER.look.mean_s, PAPER.act.mean_s, PAPER.reset.mean_s,
    )  # fmt: skip
    assert {heavy.look.sigma, heavy.act.sigma, heavy.reset.sigma} == {2.2}
    assert heavy.update == PAPER.update
