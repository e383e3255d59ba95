"""One gradient step, and how many steps are split into forward passes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import AdamW

from distrl.algorithms.protocol import Optimised
from distrl.compute import Gradients
from distrl.errors import PolicyError
from distrl.types import Step

PASS_ROWS = 128
"""Most steps in one forward pass without gradient, where learner.microbatch does not say less. It changes results: the
number of rows in a pass decides their last bits."""
LEAST_ROWS = 32
"""A pass this long ends where the prompts get longer: rows of one length need no padding, and no mask for it, which
takes a quarter of the time of a pass."""


def passes(steps: Sequence[Step], most: int | None = None) -> Iterator[NDArray[np.int64]]:
    """The rows of each pass over `steps`, sorted by the length of their prompts. Each row is in exactly one pass.

    most: `learner.microbatch`, the most rows of a pass.
    """
    most = min(PASS_ROWS, most or PASS_ROWS)
    lengths = np.array([len(step.prompt_ids) for step in steps], dtype=np.int64)
    order = np.argsort(lengths, kind="stable")
    begin = 0
    for end in range(1, len(order) + 1):
        rows = end - begin
        longer = end == len(order) or lengths[order[end]] > lengths[order[end - 1]]
        if end == len(order) or rows == most or (longer and rows >= LEAST_ROWS):
            yield order[begin:end]
            begin = end


def adamw(parameters: Mapping[str, nn.Parameter]) -> Optimised:
    """AdamW over the parameters; `descend` sets its rate and decay."""
    return Optimised(AdamW(parameters.values()), parameters)


def descend(optimised: Optimised, gradients: Gradients, *, rate: float, decay: float, grad_norm: float) -> None:
    """One optimiser step down `gradients`, scaled down to norm `grad_norm` where they are longer.

    rate and decay are set at each step, so that no schedule is part of the state. Raises PolicyError where none of the
    parameters has a gradient: torch would make the step without a word, and nothing would be learned.
    """
    if all(gradient is None for gradient in gradients):
        raise PolicyError(
            "Policy.parameters",
            f"none of the weights that are trained ({', '.join(list(optimised.parameters)[:2])}, ...) takes part in "
            "what is minimised",
            "it must return those that Policy.score reads, and a module of an algorithm those that its loss reads",
        )
    for group in optimised.optimiser.param_groups:
        group["lr"], group["weight_decay"] = rate, decay
    parameters = list(optimised.parameters.values())
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    clip_grad_norm_(parameters, grad_norm)
    optimised.optimiser.step()
    optimised.optimiser.zero_grad(set_to_none=True)


def mean_metrics(each: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each metric; empty for no metrics."""
    return {name: float(np.mean([one[name] for one in each])) for name in each[0]} if each else {}
