"""What the fold carries from one update to the next, its digests, and its way into and out of a checkpoint.

A checkpoint holds tensors and the buffers' bounds; the recorded steps themselves are read back from the log. So
`LearnerState.restore(base, config, state.meta(), state.tensors(), log)` equals `state`, bit by bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from distrl.config import Config
from distrl.errors import StoreError
from distrl.learner.critics import Critics
from distrl.learner.features import Features
from distrl.learner.seeds import seed_of, torch_seed
from distrl.learner.truncation import Truncation, screen_after
from distrl.policy.agent import Agent
from distrl.policy.base import Base
from distrl.policy.lora import lora_parameters
from distrl.replay.circular import CircularBuffer
from distrl.types import LoggedTrajectory, LogPosition, ObjectRef, Watermark

Arrays = dict[str, NDArray[Any]]
MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""What AdamW keeps of each parameter."""


class LearnerState:
    """Everything that F reads and writes.

    u: updates folded so far, which is the number of the next one. watermarks: how far the log is folded.
    buffer: what A-RIDE learns from. demonstrations: what behaviour cloning learns from; emptied after the warm-up.
    features: a cache, no part of the state.
    """

    def __init__(self, base: Base, config: Config) -> None:
        """The state before update 0. Takes `base` over: its model is given the adapter."""
        self.agent = Agent(base, config.policy, seed_of(config, "adapter"))
        with torch_seed(seed_of(config, "critics")):
            self.critics = Critics(base.model.shape.d_model)
        self.policy_optimiser = AdamW(self.policy_parameters().values())
        self.critic_optimiser = AdamW(self.critics.parameters(), config.learner.critic_lr, weight_decay=0.0)
        self.buffer = CircularBuffer(config.replay.capacity)
        self.demonstrations = CircularBuffer(config.replay.capacity)
        self.features = Features(self.agent.image_features, config.learner.torch_threads)
        self.truncation = config.aride.truncation
        self.u = 0
        self.watermarks: tuple[Watermark, ...] = ()

    @classmethod
    def create(cls, base: Base, config: Config) -> LearnerState:
        return cls(base, config)

    def held(self) -> list[LoggedTrajectory]:
        """The trajectories in the buffer and among the demonstrations."""
        return [entry.logged for entry in (*self.buffer.entries, *self.demonstrations.entries)]

    def forget_screens(self, but: Iterable[LoggedTrajectory] = ()) -> None:
        """Drop the cached features of screenshots that neither the state nor `but` holds; whoever folds calls it."""
        self.features.keep({ref.sha256 for ref in screens([*self.held(), *but], self.truncation)})

    def policy_parameters(self) -> dict[str, nn.Parameter]:
        return lora_parameters(self.agent.model)

    def critic_parameters(self) -> dict[str, nn.Parameter]:
        return dict(sorted(self.critics.named_parameters()))

    def end_warmup(self) -> None:
        """Leave behaviour cloning behind: its demonstrations, and the moments that its gradients built up."""
        self.demonstrations = CircularBuffer(self.demonstrations.capacity)
        self.policy_optimiser = AdamW(self.policy_parameters().values())

    def digests(self) -> dict[str, str]:
        """sha256 (hex) of each part: equal states have equal digests.

        adapter: of the file that a version ships, so it is the version's. critic, optimisers: over their arrays sorted
        by name. buffer: over what it and the demonstrations hold.
        """
        return {
            "adapter": hashlib.sha256(self.agent.adapter()).hexdigest(),
            "critic": _digest(_arrays(self.critic_parameters())),
            **{each[0]: _digest(_moments(*each)) for each in self._optimisers()},
            "buffer": hashlib.sha256(f"{self.buffer.digest()}{self.demonstrations.digest()}".encode()).hexdigest(),
        }

    def tensors(self) -> Arrays:
        """Every array of a checkpoint, by name."""
        return {
            **{f"adapter/{name}": value for name, value in _arrays(self.policy_parameters()).items()},
            **{f"critic/{name}": value for name, value in _arrays(self.critic_parameters()).items()},
            **{name: value for each in self._optimisers() for name, value in _moments(*each).items()},
            **{f"buffer/{name}": column.copy() for name, column in self.buffer.columns.items()},
        }

    def meta(self) -> dict[str, Any]:
        """The rest of a checkpoint, JSON-able."""
        return {
            "u": self.u,
            "base_model_sha256": self.agent.base_sha256,
            "watermarks": [[mark.topic, mark.partition, mark.offset] for mark in self.watermarks],
            "buffer": self.buffer.bounds(),
            "demonstrations": self.demonstrations.bounds(),
        }

    @classmethod
    def restore(
        cls,
        base: Base,
        config: Config,
        meta: Mapping[str, Any],
        tensors: Mapping[str, NDArray[Any]],
        log: Iterable[LoggedTrajectory],
    ) -> LearnerState:
        """The state that `meta` and `tensors` were taken of. log: at least the records at `needed(meta)`.

        Raises StoreError where the checkpoint belongs to another base model or other settings, or the log is short.
        """
        state = cls(base, config)
        if meta["base_model_sha256"] != state.agent.base_sha256:
            raise StoreError(
                "checkpoint",
                f"belongs to base model {meta['base_model_sha256']}, this one is {state.agent.base_sha256}",
                "set policy.base_model to the one the run began with, or choose a new `run`",
            )
        records = list(log)
        _fill("adapter", state.policy_parameters(), tensors)
        _fill("critic", state.critic_parameters(), tensors)
        for kind, optimiser, parameters in state._optimisers():
            for name, parameter in parameters.items():
                found = {moment: tensors.get(f"{kind}/{name}/{moment}") for moment in MOMENTS}
                if found["step"] is not None:
                    optimiser.state[parameter] = {moment: _tensor(value) for moment, value in found.items()}
        columns = {name: tensors[f"buffer/{name}"] for name in state.buffer.columns}
        state.buffer = CircularBuffer.rebuild(meta["buffer"], records, columns)
        state.demonstrations = CircularBuffer.rebuild(meta["demonstrations"], records)
        state.u = int(meta["u"])
        state.watermarks = tuple(Watermark(*mark) for mark in meta["watermarks"])
        return state

    def _optimisers(self) -> list[tuple[str, Optimizer, dict[str, nn.Parameter]]]:
        return [
            ("policy_optimiser", self.policy_optimiser, self.policy_parameters()),
            ("critic_optimiser", self.critic_optimiser, self.critic_parameters()),
        ]


def screens(trajectories: Iterable[LoggedTrajectory], truncation: Truncation = "terminal") -> Iterator[ObjectRef]:
    """The screenshots that the fold reads, in order, repeated ones too: what each step saw, and what came after the
    last one where that is bootstrapped from.
    """
    for logged in trajectories:
        yield from (step.screenshot for step in logged.trajectory.steps)
        if truncation == "bootstrap" and (after := screen_after(logged.trajectory)) is not None:
            yield after


def needed(meta: Mapping[str, Any]) -> set[LogPosition]:
    """The records that a restore reads back from the log."""
    return {
        LogPosition(topic, partition, offset)
        for buffer in ("buffer", "demonstrations")
        for topic, partition, offset, _ in meta[buffer]["entries"]
    }


def _moments(kind: str, optimiser: Optimizer, parameters: Mapping[str, nn.Parameter]) -> Arrays:
    return {
        f"{kind}/{name}/{moment}": value.detach().numpy().copy()
        for name, parameter in parameters.items()
        for moment, value in optimiser.state.get(parameter, {}).items()
    }


def _arrays(parameters: Mapping[str, nn.Parameter]) -> Arrays:
    return {name: parameter.detach().numpy().copy() for name, parameter in parameters.items()}


def _tensor(value: NDArray[Any] | None) -> Tensor:
    if value is None:
        raise StoreError("checkpoint", "lacks a part of the optimiser", "start from an older checkpoint")
    return torch.from_numpy(np.array(value))


def _fill(kind: str, parameters: Mapping[str, nn.Parameter], tensors: Mapping[str, NDArray[Any]]) -> None:
    with torch.no_grad():
        for name, parameter in parameters.items():
            value = tensors.get(f"{kind}/{name}")
            if value is None or value.shape != tuple(parameter.shape):
                raise StoreError(
                    "checkpoint", f"{kind}/{name} is missing or of another shape", "keep policy.* as the run began"
                )
            parameter.copy_(_tensor(value))


def _digest(arrays: Arrays) -> str:
    total = hashlib.sha256()
    for name, value in sorted(arrays.items()):
        total.update(f"{name} {value.dtype.str} {value.shape}\n".encode())
        total.update(np.ascontiguousarray(value).tobytes())
    return total.hexdigest()
