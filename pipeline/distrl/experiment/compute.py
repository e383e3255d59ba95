"""What one process computes of a cell: a run in virtual time, and its figures."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch

from distrl.config import Config
from distrl.experiment.costs import Draws
from distrl.experiment.deciding import PolicyBatches, ScriptBatches
from distrl.experiment.learning import NoLearning
from distrl.experiment.measure import CurvePoint, Figures, collected, figures, learned
from distrl.experiment.plan import Cell, Play
from distrl.experiment.simulate import Simulated, World, simulate
from distrl.experiment.success import Ended, Episodes, success
from distrl.experiment.weights import Screenshots, WeightsLearning
from distrl.policy.registry import policy_of
from distrl.policy.sampling import Sampling
from distrl.store.directory import DirectoryStore
from distrl.types import ObjectRef, Version

NOT_KEPT: Final = ObjectRef("screenshots/not-drawn", "0" * 64, 0)

CellResult = dict[str, Any]
"""figures: name -> value, null where there is none. collected: [virtual seconds, trajectories until then]. curve:
[virtual seconds, trajectories learned from, success], and episodes: [task, family, how it ended] of held-out tasks
under the last version, where the arm learns."""


def compute(cell: Cell, warmed: Path | None = None) -> CellResult:
    """Run the cell. Equal cells give equal results; where it learns, on processors of one kind.

    warmed: file of the weights after its warm-up, which is computed where there is none.
    """
    return _learning(cell, warmed) if cell.arm.learns else _pacing(cell)


def _pacing(cell: Cell) -> CellResult:
    """The script acts, and updates compute nothing."""
    config = cell.config
    world = World(
        Draws(cell.arm.costs, cell.seed),
        cell.arm.phones,
        lambda worker: ScriptBatches(),
        NoLearning(config),
        lambda png: NOT_KEPT,
        drawn=False,
    )
    run = simulate(config, world, cell.until)
    return _result(_paced(cell, config, run), run)


def _learning(cell: Cell, warmed: Path | None) -> CellResult:
    """The policy acts and learns; then its versions play."""
    config = cell.config
    torch.set_num_threads(config.worker.torch_threads)
    with tempfile.TemporaryDirectory() as folder:
        store, screenshots = DirectoryStore(Path(folder)), Screenshots()
        learning = WeightsLearning(config, store, screenshots, None if warmed is None else warmed.read_bytes())
        world = World(
            Draws(cell.arm.costs, cell.seed),
            cell.arm.phones,
            lambda worker: PolicyBatches(
                policy_of(config.policy), Sampling.of(config.worker), lambda version: store.get(version.adapter)
            ),
            learning,
            screenshots.keep,
            drawn=True,
        )
        run = simulate(config, world, cell.until)
        episodes, versions = Episodes(config, store), learning.versions
        curve = _curve(cell, config, versions, episodes)
        first, last = (episodes.of(version, cell.arm.held_out) for version in (versions[0], versions[-1]))
        others = {play.name: success(episodes.of(versions[-1], play)) for play in cell.arm.plays}
    found = {**learned(curve, success(first), success(last), [each.end for each in last]), **others}
    return _result({**_paced(cell, config, run), **found}, run, curve, last)


def _curve(cell: Cell, config: Config, versions: Sequence[Version], episodes: Episodes) -> list[CurvePoint]:
    """On the tasks of the arm's curve."""
    curve = []
    for point in range(cell.arm.points + 1):
        at = cell.until * point / cell.arm.points
        newest = [version for version in versions if version.published_at <= at * 1000][-1]
        folded = (newest.update + 1 - config.warmup.updates) * config.learner.trajectories_per_update
        found = episodes.of(newest, Play("curve", split=cell.arm.curve))
        curve.append(CurvePoint(at, folded, success(found)))
    return curve


def _paced(cell: Cell, config: Config, run: Simulated) -> Figures:
    each_round = config.learner.trajectories_per_update
    return figures(run, cell.arm.costs, synchronous=cell.arm.synchronous, trajectories_per_round=each_round)


def _result(found: Figures, run: Simulated, curve: Sequence[CurvePoint] = (), last: Sequence[Ended] = ()) -> CellResult:
    return {
        "figures": {name: value if math.isfinite(value) else None for name, value in found.items()},
        "collected": [list(point) for point in collected(run)],
        "curve": [[point.at, point.trajectories, point.success] for point in curve],
        "episodes": [[each.task.task_id, each.task.family, each.end] for each in last],
    }
