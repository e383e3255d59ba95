from __future__ import annotations

import statistics

from simphone.fleet import FleetSettings
from simphone.latency import Latency


def draws(settings: FleetSettings, number: int = 0, count: int = 4000) -> list[float]:
    latency = Latency(settings, number)
    return [latency.draw() for _ in range(count)]


def test_the_median_is_as_set_and_the_tail_is_heavy_and_cut() -> None:
    seconds = draws(FleetSettings(latency_median_ms=60, latency_sigma=0.8, latency_max_ms=500))
    assert 0.055 < statistics.median(seconds) < 0.065
    assert 0.20 < statistics.quantiles(seconds, n=100)[94] < 0.25  # 60 ms · exp(0.8 · 1.645) = 224 ms
    assert max(seconds) == 0.5


def test_each_phone_draws_its_own_times_and_the_same_ones_again() -> None:
    settings = FleetSettings(seed=3)
    assert draws(settings, 0, 10) == draws(settings, 0, 10)
    assert draws(settings, 0, 10) != draws(settings, 1, 10)


def test_no_median_is_no_latency() -> None:
    assert set(draws(FleetSettings(latency_median_ms=0), count=10)) == {0.0}
