"""Does virtual time say what the real stack does? The same fleet twice: on Kafka, an object store and adb, as
bench/loop.py runs it, and by `distrl.experiment` under the latencies that the log of that run has.

The policy learns next to nothing, so that both play alike. Each mode has the latencies of its own time: what the
machine is busy with differs between them. A decision's time includes its wait for a batch, so the model has it as a
part of the look. What a record takes is the gap between two episodes of a phone in the asynchronous mode, where tasks
wait.

    python bench/virtual.py --seconds 60 --json out/virtual.json
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
import uuid
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

import loop
from distrl.broker.topics import topic_name
from distrl.broker.versions import lineage
from distrl.config import Config, load
from distrl.errors import DistrlError
from distrl.evaluate import curves
from distrl.evaluate.gather import records
from distrl.experiment.costs import CostModel, Draws, Latency
from distrl.experiment.deciding import PolicyBatches
from distrl.experiment.learning import NoLearning
from distrl.experiment.measure import figures
from distrl.experiment.simulate import World, simulate
from distrl.experiment.weights import Screenshots
from distrl.policy.registry import policy_of
from distrl.policy.sampling import Sampling
from distrl.stack.local import LocalStack
from distrl.store.objects import open_store
from distrl.train.placement import WORKERS
from distrl.types import ActionKind, LoggedTrajectory, Outcome, Trajectory, Update, Version
from rich.table import Table

NOT_SENT = (ActionKind.COMPLETE, ActionKind.INVALID)
COMPARED = {
    "trajectories a minute": ("trajectories_per_minute", 1),
    "mean lag": ("lag_mean", 2),
    "phones in an episode": ("phones_busy", 2),
}


@dataclass(frozen=True, slots=True)
class InOrder(Draws):
    """Whose updates take what measured ones took, one after another and again from the first."""

    took_s: tuple[float, ...]

    def update(self, u: int) -> float:
        return self.took_s[u % len(self.took_s)]


def latency(seconds: Sequence[float]) -> Latency:
    """Log-normal, with the mean and the σ of what was measured."""
    return Latency(fmean(seconds), pstdev(math.log(max(each, 1e-4)) for each in seconds))


def measured(config: Config, mode: loop.Mode, gap_s: float) -> InOrder:
    """The latencies of one mode, in seconds, by the log."""
    log = curves.first_of_each(LoggedTrajectory(at, one) for at, one in records(config, "trajectories", Trajectory))
    ended = [one.trajectory for one in log if mode.holds(one.trajectory.finished_at) and one.trajectory.steps]
    ended = [one for one in ended if one.outcome is not Outcome.INTERRUPTED]
    steps = [step for one in ended for step in one.steps]
    looks = [(step.adb_ms + step.publish_ms + step.policy_ms) / 1000 for step in steps]
    before = [
        (one.steps[0].at - one.started_at - one.steps[0].adb_ms - one.steps[0].publish_ms - one.steps[0].policy_ms)
        / 1000
        for one in ended
    ]
    after = [(one.finished_at - one.steps[-1].at - one.steps[-1].phone_ms) / 1000 for one in ended]
    versions = lineage(config)
    took = updates_took(config, mode, log, versions)
    acted = curves.reload_seconds(log, [version for version in versions if mode.holds(version.published_at)])
    model = CostModel(
        "measured",
        Latency(max(0.0, fmean(before) + fmean(after) - fmean(looks))),  # the last look, and the check of the state
        latency(looks),
        latency([step.phone_ms / 1000 for step in steps if step.action.kind not in NOT_SENT]),
        0.0,
        0.0,
        gap_s,
        curves.percentile(acted, 0.1),
        latency(took),
    )
    return InOrder(model, 0, tuple(took))


def updates_took(
    config: Config, mode: loop.Mode, log: Sequence[LoggedTrajectory], versions: Sequence[Version]
) -> list[float]:
    """Seconds of each update: from when it could begin, as its last trajectory had come and the update before it was
    published, to its publication. What the learner does in between counts, such as reading, and saving a checkpoint."""
    published = {version.update: version.published_at for version in versions}  # learner.publish_every is 1
    topic = topic_name(config.run, "trajectories")
    came = {one.position.offset: one.trajectory.finished_at for one in log}
    found, folded = [], 0
    for _, update in records(config, "updates", Update):
        end = max((mark.offset for mark in update.watermarks if mark.topic == topic), default=folded)
        begin = max((came.get(offset, 0) for offset in range(folded, end)), default=0)
        folded = end
        if mode.holds(published.get(update.u, 0)):
            found.append((published[update.u] - max(begin, published.get(update.u - 1, 0))) / 1000)
    return found


def gap(config: Config, mode: loop.Mode) -> float:
    """Seconds between two episodes of a phone, the median."""
    spans = defaultdict(list)
    for _, one in records(config, "trajectories", Trajectory):
        if mode.holds(one.finished_at):
            spans[one.device].append((one.started_at, one.finished_at))
    found = [
        max(0, began - ended) / 1000
        for each in map(sorted, spans.values())
        for (_, ended), (began, _) in pairwise(each)
    ]
    return median(found)


def virtual(
    config: Config, mode: loop.Mode, draws: InOrder, adapter: bytes, phones: int, seconds: float
) -> dict[str, Any]:
    """The same figures as bench/loop.py's, in virtual time."""
    paced = config.model_copy(update={"feeder": config.feeder.model_copy(update={"max_lag": mode.max_lag})})

    def worker(number: int) -> PolicyBatches:
        return PolicyBatches(policy_of(config.policy), Sampling.of(config.worker), lambda version: adapter)

    world = World(
        draws, phones, worker, NoLearning(config), Screenshots().keep, drawn=True,
        phones_per_worker=-(-phones // WORKERS),
    )  # fmt: skip
    each_update = config.learner.trajectories_per_update
    found = figures(
        simulate(paced, world, seconds), draws.model, synchronous=mode.max_lag == 0, trajectories_per_round=each_update
    )
    return {
        "trajectories_per_minute": found["per_hour"] / 60,
        "lag_mean": found["mean_lag"],
        "phones_busy": found["own_time_share"],
        "steps": found["steps"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="measured in each mode, in two turns")
    parser.add_argument("--virtual-seconds", type=float, default=600.0, help="simulated in each mode")
    parser.add_argument("--phones", type=int, default=8)
    parser.add_argument("--set", action="append", default=[], help="one setting as path.to.it=value")
    parser.add_argument("--json", type=Path, help="write the numbers there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="distrl-bench-") as folder, ExitStack() as after:
        own = [f"run=bench-{uuid.uuid4().hex[:8]}", f"phones.count={given.phones}", f"stack.directory={folder}/stack"]
        stack = LocalStack(load(None, [*loop.BENCH_SETTINGS, *own, *given.set]), loop.console.print)
        settings = stack.up(reuse=True)
        after.callback(stack.down)
        modes = {"asynchronous": loop.Mode(settings.feeder.max_lag), "synchronous": loop.Mode(0)}
        loop.run(settings, tuple(modes.values()), given.seconds, Path(folder) / "roles")
        real = {name: loop.numbers(settings, mode) for name, mode in modes.items()}
        gap_s = gap(settings, modes["asynchronous"])
        models = {name: measured(settings, mode, gap_s) for name, mode in modes.items()}
        adapter = open_store(settings.store).get(lineage(settings)[-1].adapter)
    found = {}
    for name, mode in modes.items():
        draws = models[name]
        made = virtual(settings, mode, draws, adapter, given.phones, given.virtual_seconds)
        found[name] = {"real": real[name], "virtual": made, "costs": asdict(draws)}
    shown = Table("mode", "figure", "real", "virtual", "ratio")
    for name, each in found.items():
        for label, (key, decimals) in COMPARED.items():
            one, two = each["real"][key], each["virtual"][key]
            shown.add_row(name, label, f"{one:.{decimals}f}", f"{two:.{decimals}f}", f"{two / one:.3f}" if one else "")
    loop.console.print(shown)
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    try:
        main()
    except DistrlError as error:
        raise SystemExit(str(error)) from None
