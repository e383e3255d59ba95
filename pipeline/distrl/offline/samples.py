"""A torch Dataset over recorded steps. The only module for notebooks that imports torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from distrl.offline.runs import OUTCOMES
from distrl.types import LoggedTrajectory, Step

Sample = dict[str, Tensor]


class StepDataset(Dataset[Sample]):
    """A sample per step, in the order of the trajectories. Samples differ in length: batch them with a collate_fn.

    prompt_ids (P,) and action_ids (A,) int64; logprob float64; version, outcome (1 success, 0 failure, -1 unknown),
    trajectory (its index) and step int64; with screens also screenshot, uint8 (3, height, width).
    """

    def __init__(
        self, trajectories: Sequence[LoggedTrajectory], screenshot: Callable[[Step], NDArray[np.uint8]] | None
    ) -> None:
        self._trajectories, self._screenshot = trajectories, screenshot
        self._places = [(t, s) for t, logged in enumerate(trajectories) for s in range(len(logged.trajectory.steps))]

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> Sample:
        """Raises IndexError past the end, and StoreError where its screenshot cannot be fetched."""
        which, place = self._places[index]
        record = self._trajectories[which].trajectory
        step = record.steps[place]
        sample = {
            "prompt_ids": torch.tensor(step.prompt_ids, dtype=torch.int64),
            "action_ids": torch.tensor(step.action_ids, dtype=torch.int64),
            "logprob": torch.tensor(step.logprob, dtype=torch.float64),
            "version": torch.tensor(step.version),
            "outcome": torch.tensor(OUTCOMES[record.outcome]),
            "trajectory": torch.tensor(which),
            "step": torch.tensor(place),
        }
        if self._screenshot is not None:
            sample["screenshot"] = torch.from_numpy(self._screenshot(step).transpose(2, 0, 1).copy())
        return sample
