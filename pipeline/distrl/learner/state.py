"""The state that the fold carries from one update to the next, its digests, and how it is saved and restored.

A checkpoint holds tensors and the buffers' bounds; the buffers' steps are read back from the log.
`LearnerState.restore(config, state.meta(), state.tensors(), log)` equals `state` bit by bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.optim import AdamW

from distrl.accelerator import device_of
from distrl.algorithms.cloning import warmup
from distrl.algorithms.protocol import Algorithm, Context, Memory, Metrics, Optimised
from distrl.algorithms.registry import algorithm_of, cloning_updates, named_where_brought
from distrl.compute import Compute
from distrl.config import Config
from distrl.errors import ConfigError, StoreError
from distrl.policy.adapters import finite
from distrl.policy.feature_store import FeatureStore
from distrl.policy.features import Features
from distrl.policy.protocol import Policy
from distrl.policy.registry import policy_of
from distrl.replay.circular import CircularBuffer, Entry
from distrl.runs.settings import learning_fingerprint
from distrl.seeds import seed_of
from distrl.types import LoggedTrajectory, LogPosition, ObjectRef, Trajectory, Watermark

Arrays = dict[str, NDArray[Any]]
MOMENTS = ("step", "exp_avg", "exp_avg_sq")
"""AdamW's state of each parameter."""
WARMUP = "warmup/"
"""Prefix of the names of the warm-up's own buffers and optimisers."""


class LearnerState:
    """Everything that F reads and writes: the policy, other trained modules, optimisers and buffers.

    During the warm-up `warmup` makes the updates and both it and `algorithm` collect trajectories; after it `warmup` is
    dropped.
    """

    def __init__(self, config: Config) -> None:
        """The state before update 0. Raises PolicyError where the base model cannot be read, and ConfigError where
        learner.features_directory cannot be written or learner.device is not there."""
        device = device_of(config.learner.device, "learner.device")
        policy = policy_of(config.policy, seed_of(config, "adapter"), device)
        if config.learner.gradient_checkpointing:
            policy.save_memory()
        store = FeatureStore(config.learner.features_mb << 20, config.learner.features_directory)
        features = Features(policy.image_features, config.learner.torch_threads, store)
        self.context = Context(config, policy, features, Compute(config, policy.save_memory))
        self.algorithm: Algorithm = algorithm_of(self.context)
        self.warmup: Algorithm | None = warmup(self.context) if cloning_updates(config) else None
        for algorithm in filter(None, (self.algorithm, self.warmup)):
            refuse_unsaved(algorithm)
        self.fingerprint = learning_fingerprint(config, policy.base_sha256)
        """Fingerprint of the learning settings and of the base model as it was loaded, even if its files change later.
        Updates, versions and checkpoints are recorded with it."""
        self.u = 0
        """Number of the next update, which is the number of updates folded."""
        self.watermarks: tuple[Watermark, ...] = ()
        """How far the log is folded."""

    @property
    def policy(self) -> Policy:
        return self.context.policy

    @property
    def features(self) -> Features:
        """A cache, not part of the state. States of one base model may share it."""
        return self.context.features

    @features.setter
    def features(self, features: Features) -> None:
        self.context.features = features

    @property
    def learning(self) -> Algorithm:
        """The algorithm that makes the next update."""
        return self.warmup or self.algorithm

    def memories(self) -> list[Memory]:
        """The memories that new trajectories are offered to."""
        return [each.memory for each in (self.warmup, self.algorithm) if each is not None]

    def entries(self) -> list[Entry]:
        """Every trajectory of every buffer; a trajectory in two buffers appears twice."""
        return [entry for buffer in self._buffers().values() for entry in buffer.entries]

    def held(self) -> list[LoggedTrajectory]:
        return [entry.logged for entry in self.entries()]

    @property
    def transitions(self) -> int:
        """Steps in all buffers."""
        return sum(map(len, self._buffers().values()))

    def refuses(self, trajectory: Trajectory) -> str | None:
        """Why the algorithm cannot learn from `trajectory`; None where it can."""
        return self.algorithm.memory.refuses(trajectory)

    def learn(self, new: Iterable[LoggedTrajectory]) -> Metrics:
        """Offer the new trajectories to the memories and make the update. The caller increments `u`. Raises
        AlgorithmError where an algorithm of another package fails."""
        if self.u >= self.context.config.warmup.updates:
            self.warmup = None  # drops its demonstrations and its optimiser's moments too
        for logged in new:
            if self.warmup is not None:
                self.warmup.memory.admit(logged)
            with self._of_algorithm():
                self.algorithm.memory.admit(logged)
        if self.warmup is not None:
            return self.warmup.update(self.u)
        with self._of_algorithm():
            return self.algorithm.update(self.u)

    def _of_algorithm(self) -> AbstractContextManager[None]:
        return named_where_brought(self.context.config, self.u)

    def screens(self, trajectories: Iterable[LoggedTrajectory]) -> Iterator[ObjectRef]:
        """The screenshots that the fold reads, in order, with repetitions."""
        for logged in trajectories:
            yield from self.algorithm.screens(logged.trajectory)

    def forget_screens(self, but: Iterable[LoggedTrajectory] = ()) -> None:
        """Drop cached features of screenshots that neither the state nor `but` holds. Call it after each fold."""
        self.features.keep({ref.sha256 for ref in self.screens([*self.held(), *but])})

    def parameters(self) -> Iterator[nn.Parameter]:
        """Every trained weight, of the policy and the other modules."""
        yield from self.policy.parameters().values()
        for module in self.algorithm.modules().values():
            yield from module.parameters()

    @property
    def is_finite(self) -> bool:
        """Whether every trained weight is a finite number."""
        return all(map(finite, self.parameters()))

    def digests(self) -> dict[str, str]:
        """sha256 (hex) of each part: equal states have equal digests.

        adapter: of the file's bytes, so it equals the version's sha256. Each module and optimiser: over its arrays,
        sorted by name. buffer: over the contents of all buffers.
        """
        buffers = "".join(buffer.digest() for _, buffer in sorted(self._buffers().items()))
        return {
            "adapter": hashlib.sha256(self.policy.adapter()).hexdigest(),
            **{name: _digest(_arrays(_named(module))) for name, module in self.algorithm.modules().items()},
            **{name: _digest(_moments(name, each)) for name, each in self._optimisers().items()},
            "buffer": hashlib.sha256(buffers.encode()).hexdigest(),
        }

    def tensors(self) -> Arrays:
        """Every array of a checkpoint, by name."""
        trained = {"adapter": self.policy.parameters()}
        trained |= {name: _named(module) for name, module in self.algorithm.modules().items()}
        columns = {kind: buffer.columns for kind, buffer in self._buffers().items()}
        return {
            **{f"{kind}/{name}": value for kind, each in trained.items() for name, value in _arrays(each).items()},
            **{name: value for kind, o in self._optimisers().items() for name, value in _moments(kind, o).items()},
            **{f"{kind}/{name}": column.copy() for kind, each in columns.items() for name, column in each.items()},
        }

    def meta(self) -> dict[str, Any]:
        """The rest of a checkpoint, for its manifest. JSON-able."""
        return {
            "u": self.u,
            "base_model_sha256": self.policy.base_sha256,
            "watermarks": [[mark.topic, mark.partition, mark.offset] for mark in self.watermarks],
            "buffers": {name: buffer.bounds() for name, buffer in self._buffers().items()},
        }

    @classmethod
    def restore(
        cls,
        config: Config,
        meta: Mapping[str, Any],
        tensors: Mapping[str, NDArray[Any]],
        log: Iterable[LoggedTrajectory],
    ) -> LearnerState:
        """The state that `meta` and `tensors` were taken from. log: at least the records at `needed(meta)`.

        Raises StoreError where the checkpoint belongs to another base model or other settings, or records are missing.
        """
        state = cls(config)
        if meta["base_model_sha256"] != state.policy.base_sha256:
            raise StoreError(
                "checkpoint",
                f"belongs to base model {meta['base_model_sha256']}; policy.base_model is {state.policy.base_sha256}",
                "set policy.base_model to the one the run began with, or choose a new `run`",
            )
        state.u = int(meta["u"])
        state.watermarks = tuple(Watermark(*mark) for mark in meta["watermarks"])
        if not any(name.startswith(WARMUP) for name in meta["buffers"]):
            state.warmup = None
        records = list(log)
        _fill("adapter", state.policy.parameters(), tensors)
        for name, module in state.algorithm.modules().items():
            _fill(name, _named(module), tensors)
        for kind, optimised in state._optimisers().items():
            for name, parameter in optimised.parameters.items():
                found = {moment: tensors.get(f"{kind}/{name}/{moment}") for moment in MOMENTS}
                if found["step"] is not None:
                    optimised.optimiser.state[parameter] = {
                        moment: _tensor(value).to("cpu" if moment == "step" else parameter.device)
                        for moment, value in found.items()
                    }
        for kind, buffer in state._buffers().items():
            columns = {name: _column(f"{kind}/{name}", tensors) for name in buffer.columns}
            buffer.refill(meta["buffers"][kind], records, columns)
        return state

    def _buffers(self) -> dict[str, CircularBuffer]:
        found = dict(self.algorithm.memory.buffers)
        if self.warmup is not None:
            found |= {f"{WARMUP}{name}": buffer for name, buffer in self.warmup.memory.buffers.items()}
        return found

    def _optimisers(self) -> dict[str, Optimised]:
        found = dict(self.algorithm.optimisers())
        if self.warmup is not None:
            found |= {f"{WARMUP}{name}": each for name, each in self.warmup.optimisers().items()}
        return found


def refuse_unsaved(algorithm: Algorithm) -> None:
    """Raises ConfigError for what no checkpoint would hold, so that a restart would go on with other numbers: buffers
    of modules, and what other optimisers than a plain AdamW keep."""
    where = f"{type(algorithm).__module__}.{type(algorithm).__name__}"
    for name, module in algorithm.modules().items():
        if unsaved := sorted(dict(module.named_buffers()).keys() & module.state_dict().keys()):
            what = f"module {name} has the buffer {unsaved[0]}, which no checkpoint holds"
            raise ConfigError(where, what, "make it a parameter without gradient")
    for name, optimised in algorithm.optimisers().items():
        groups = optimised.optimiser.param_groups
        if type(optimised.optimiser) is not AdamW or any(group["amsgrad"] for group in groups):
            what = f"optimiser {name} is no plain AdamW, whose state alone a checkpoint holds"
            raise ConfigError(where, what, "use algorithms.descent.adamw")


def needed(meta: Mapping[str, Any]) -> set[LogPosition]:
    """The records that a restore reads back from the log."""
    return {
        LogPosition(topic, partition, offset)
        for bounds in meta.get("buffers", {}).values()  # older checkpoints have none; their settings are refused
        for topic, partition, offset, _ in bounds["entries"]
    }


def _named(module: nn.Module) -> dict[str, nn.Parameter]:
    return dict(sorted(module.named_parameters()))


def _column(name: str, tensors: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    if name not in tensors:
        raise StoreError("checkpoint", f"{name} is missing", "keep algorithm.* as the run began")
    return tensors[name]


def _moments(kind: str, optimised: Optimised) -> Arrays:
    return {
        f"{kind}/{name}/{moment}": value.detach().cpu().numpy().copy()
        for name, parameter in optimised.parameters.items()
        for moment, value in optimised.optimiser.state.get(parameter, {}).items()
    }


def _arrays(parameters: Mapping[str, nn.Parameter]) -> Arrays:
    return {name: parameter.detach().cpu().numpy().copy() for name, parameter in parameters.items()}


def _tensor(value: NDArray[Any] | None) -> Tensor:
    if value is None:
        raise StoreError("checkpoint", "lacks a part of the optimiser's state", "start from an older checkpoint")
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
