"""The latency of a simulated phone's actions: log-normal with a heavy tail, cut at a maximum, seeded per phone."""

from __future__ import annotations

import math
import random

from simphone.fleet import FleetSettings


class Latency:
    """Draws the time of one action. The same seed and phone number draw the same times in the same order."""

    def __init__(self, settings: FleetSettings, number: int) -> None:
        self._median_s = settings.latency_median_ms / 1000
        self._sigma = settings.latency_sigma
        self._max_s = settings.latency_max_ms / 1000
        self._random = random.Random(f"latency {settings.seed} {number}")

    def draw(self) -> float:
        """Seconds: min(max, median · exp(σ z)) with z standard normal."""
        return min(self._max_s, self._median_s * math.exp(self._sigma * self._random.gauss(0.0, 1.0)))
