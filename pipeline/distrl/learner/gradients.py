"""One gradient step: score recorded steps under the present weights, and descend."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from distrl.learner.state import LearnerState
from distrl.policy.agent import Score
from distrl.types import Step


def score(state: LearnerState, steps: Sequence[Step]) -> Score:
    """log π, entropy and encoder states of B recorded steps; their screenshots must be loaded."""
    return state.agent.score(
        state.features.stack(steps), [step.prompt_ids for step in steps], [step.action_ids for step in steps]
    )


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
