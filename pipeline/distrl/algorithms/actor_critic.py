"""A policy with critics, and an optimiser for each: the base of every algorithm that estimates values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Generic, TypeVar

from torch import nn

from distrl.algorithms.descent import adamw
from distrl.algorithms.protocol import NOTHING_DRAWN, Context, Optimised, seen
from distrl.seeds import seed_of, torch_seed
from distrl.types import ObjectRef, Trajectory

C = TypeVar("C", bound=nn.Module)


class ActorCritic(Generic[C]):
    """The part of an Algorithm that declares what it trains. critics: builds the critics for a policy's width; they are
    initialised from the run's seed."""

    def __init__(self, context: Context, critics: Callable[[int], C]) -> None:
        self._context = context
        with torch_seed(seed_of(context.config, "critics")):
            self.critics = critics(context.policy.width).to(context.policy.device)
        self._policy = adamw(context.policy.parameters())
        self._critic = adamw(dict(sorted(self.critics.named_parameters())))
        self.drawn = NOTHING_DRAWN

    def modules(self) -> Mapping[str, nn.Module]:
        return {"critic": self.critics}

    def optimisers(self) -> Mapping[str, Optimised]:
        return {"policy_optimiser": self._policy, "critic_optimiser": self._critic}

    def screens(self, trajectory: Trajectory) -> Iterator[ObjectRef]:
        return seen(trajectory)
