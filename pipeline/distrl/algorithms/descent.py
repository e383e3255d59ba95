"""One gradient step, and scores of more steps than fit into one pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch.nn.utils import clip_grad_norm_

from distrl.algorithms.protocol import Optimised
from distrl.compute import Gradients
from distrl.types import Step

PASS_ROWS = 128
"""Steps in one forward pass without gradient. It changes results: the number of rows in a pass decides their last
bits."""


def passes(steps: Sequence[Step]) -> Iterator[slice]:
    """The rows of each pass over `steps`."""
    return (slice(begin, begin + PASS_ROWS) for begin in range(0, len(steps), PASS_ROWS))


def descend(optimised: Optimised, gradients: Gradients, *, rate: float, decay: float, grad_norm: float) -> None:
    """One optimiser step down `gradients`, scaled down to norm `grad_norm` where they are longer.

    rate and decay are set at each step, so that no schedule is part of the state.
    """
    for group in optimised.optimiser.param_groups:
        group["lr"], group["weight_decay"] = rate, decay
    parameters = list(optimised.parameters.values())
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    clip_grad_norm_(parameters, grad_norm)
    optimised.optimiser.step()
    optimised.optimiser.zero_grad(set_to_none=True)
