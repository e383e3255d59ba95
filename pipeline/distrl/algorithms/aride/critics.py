"""V(s) and V_traj(s_H, a_H): small heads on the policy's own encoder states, which they do not train."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from distrl.algorithms.head import Head


class Critics(nn.Module):
    """Both critics, trained by one optimiser. All results are logits (B,).

    V(s): the probability that the return from s is positive. V_traj(s_H, a_H): the probability that a trajectory
    whose last step is this one succeeded; the action enters as the mean of its tokens' embeddings.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.value = Head(width)
        self.trajectory = Head(width, extra=width)

    def values(self, states: Tensor, mask: Tensor) -> Tensor:
        return cast(Tensor, self.value(states.detach(), mask))

    def trajectory_values(self, states: Tensor, mask: Tensor, action: Tensor) -> Tensor:
        return cast(Tensor, self.trajectory(states.detach(), mask, action.detach()))
