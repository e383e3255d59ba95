"""One gradient step, and scores of more steps than fit into one pass."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from distrl.types import Step

PASS_ROWS = 128
"""Steps in one forward pass without gradient. A part of the result: how many rows share a pass decides their last
bits."""


def passes(steps: Sequence[Step]) -> Iterator[slice]:
    """The rows of each pass over `steps`."""
    return (slice(begin, begin + PASS_ROWS) for begin in range(0, len(steps), PASS_ROWS))


def descend(
    optimiser: Optimizer,
    parameters: Iterable[nn.Parameter],
    loss: Tensor,
    *,
    rate: float,
    decay: float,
    grad_norm: float,
) -> None:
    """One step of `optimiser` on `loss`. rate and decay are set anew each time, so that no schedule is state."""
    for group in optimiser.param_groups:
        group["lr"], group["weight_decay"] = rate, decay
    optimiser.zero_grad(set_to_none=True)
    loss.backward()  # type: ignore[no-untyped-call]
    clip_grad_norm_(parameters, grad_norm)
    optimiser.step()
