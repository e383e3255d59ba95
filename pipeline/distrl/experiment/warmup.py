"""The warm-up of a learning arm. Arms of a seed share it: its weights are computed once and persisted, as the adapter
of version 0. An algorithm whose warm-up is its own (R2D3) computes it in each cell: it leaves more than weights."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path
from typing import Final

import torch

from distrl.algorithms.registry import cloning_updates
from distrl.config import Config
from distrl.experiment.plan import FORMAT, Cell
from distrl.experiment.weights import Screenshots, WeightsLearning
from distrl.files import write
from distrl.processor import processor_and_packages
from distrl.runs.settings import learning_settings
from distrl.store.directory import DirectoryStore

FOLDER: Final = "warmups"


def shared(cell: Cell) -> bool:
    """Whether the cell's warm-up is that of other arms."""
    return cell.arm.learns and cloning_updates(cell.config) > 0


def adapter_file(cell: Cell, out: Path) -> Path:
    """Where the weights after the cell's warm-up are; arms that differ in their algorithm alone have the same."""
    return out / FOLDER / f"{_fingerprint(cell.config)}.safetensors"


def warm_up(cell: Cell, file: Path) -> None:
    """Play the cell's demonstrations, fold its warm-up and write the weights into `file`.

    Raises ConfigError where it cannot be written.
    """
    config = cell.config
    torch.set_num_threads(config.worker.torch_threads)
    with tempfile.TemporaryDirectory() as folder:
        learning = WeightsLearning(config, DirectoryStore(Path(folder)), Screenshots())
        write(file, learning.state.policy.adapter())


def _fingerprint(config: Config) -> str:
    """sha256 (hex) of all that the weights depend on, but the code: neither the algorithm and how many trajectories its
    updates fold, nor the bound on the lag."""
    learning = learning_settings(config)
    del learning["algorithm"], learning["policy"]["base_model"], learning["learner"]["trajectories_per_update"]
    feeder = config.feeder.model_dump(mode="json", exclude={"max_lag"})
    phones = config.phones.model_dump(mode="json")
    content = [FORMAT, config.run, learning, feeder, phones, processor_and_packages()]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
