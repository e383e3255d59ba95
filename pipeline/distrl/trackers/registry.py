"""The trackers by name. A tracker's library is imported only when that tracker is asked for."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from distrl.errors import ConfigError
from distrl.trackers.protocol import Tracker
from distrl.trackers.to_files import Files

DEFAULT: Final = "files"
PRIVATE: Final = MappingProxyType({"MLFLOW_DISABLE_TELEMETRY": "true", "WANDB_ERROR_REPORTING": "false"})
"""Turns off what the libraries report to their makers, unless the variables are set. They are read at import."""

INSTALL: Final = "install the extra (`pip install -e '.[{}]'` in the checkout)"
INSTALL_TRACKIO: Final = (
    "install it in an environment of its own, as docs/trackers.md says: here it would replace Pillow by an older one, "
    "under which a policy sees other screens"
)

Make = Callable[[Path, str], Tracker]
"""folder: the tracker's own, which exists. project: groups runs, in trackers that have projects."""


def _files(folder: Path, project: str) -> Tracker:
    return Files(folder)


def _tensorboard(folder: Path, project: str) -> Tracker:
    from distrl.trackers.to_tensorboard import TensorBoard

    return TensorBoard(folder)


def _wandb(folder: Path, project: str) -> Tracker:
    from distrl.trackers.to_wandb import WeightsAndBiases

    return WeightsAndBiases(folder, project)


def _mlflow(folder: Path, project: str) -> Tracker:
    from distrl.trackers.to_mlflow import MLflow

    return MLflow(project)


def _trackio(folder: Path, project: str) -> Tracker:
    from distrl.trackers.to_trackio import Trackio

    return Trackio(folder, project)


TRACKERS: Final[Mapping[str, Make]] = MappingProxyType(
    {DEFAULT: _files, "tensorboard": _tensorboard, "wandb": _wandb, "mlflow": _mlflow, "trackio": _trackio}
)
"""Each but the first has an extra of its name."""


def refuse_unknown(name: str) -> None:
    """Raises ConfigError for an unknown name."""
    if name not in TRACKERS:
        raise ConfigError("--to", f"there is no tracker {name!r}", f"use one of: {', '.join(TRACKERS)}")


def open_tracker(name: str, folder: Path, project: str) -> Tracker:
    """Raises ConfigError for an unknown name, and where its library is not installed."""
    refuse_unknown(name)
    for variable, value in PRIVATE.items():
        os.environ.setdefault(variable, value)
    try:
        return TRACKERS[name](folder, project)
    except ModuleNotFoundError as missing:
        install = INSTALL_TRACKIO if TRACKERS[name] is _trackio else INSTALL.format(name)
        raise ConfigError(
            "--to",
            f"{name} is asked for, and {missing.name} is not installed",
            f"{install}; or track to {DEFAULT}",
        ) from None
