"""How every policy draws a token."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


def draw(logp: npt.NDArray[np.float64], rule: np.random.Generator, *, greedy: bool) -> int:
    """A token of log-probabilities (V,) by inverse distribution function in float64, or the likeliest one."""
    if greedy:
        return int(logp.argmax())
    ladder = np.cumsum(np.exp(logp))
    return min(int(np.searchsorted(ladder, rule.random() * ladder[-1], side="right")), len(ladder) - 1)


def log_softmax(logits: npt.NDArray[np.float64], temperature: float | None) -> npt.NDArray[np.float64]:
    """Rows of logits (B, V) to log-probabilities; of temperature 1 where it is None."""
    scaled = logits / (temperature or 1.0)
    found: npt.NDArray[np.float64] = scaled - np.logaddexp.reduce(scaled, axis=-1, keepdims=True)
    return found
