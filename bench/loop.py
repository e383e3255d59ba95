"""How fast the loop turns: asynchronous against synchronous on the same phones, where a step's time goes, how soon a
new version acts.

Starts a local stack in a temporary directory (a configured endpoint is used instead), runs learner and workers as
`make demo` does, and changes nothing but the feeder between the two modes: feeder.max_lag as configured, then 0, in
turns a s s a, so that what drifts during the run falls on both alike. The policy's learning rate is next to 0: the
learner computes as always, but both modes are measured on the same behaviour. Every number is read from the log.

    python bench/loop.py --seconds 60 --json out/loop.json
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from distrl.broker import topic_admin
from distrl.broker.topics import topic_name
from distrl.broker.versions import VersionFollower, lineage
from distrl.config import Config, load
from distrl.errors import DistrlError
from distrl.evaluate import curves
from distrl.evaluate.gather import records
from distrl.stack.local import LocalStack
from distrl.store.objects import ObjectStore, open_store
from distrl.train.placement import WORKERS, place
from distrl.train.roles import Roles, running
from distrl.types import ActionKind, LoggedTrajectory, Outcome, Step, Trajectory, Update, Version
from distrl.worker.metrics import TIMINGS
from rich.console import Console
from rich.table import Table

BENCH_SETTINGS = (
    "phones.evaluation_count=0",
    "warmup.demonstrations=32",
    "warmup.updates=4",
    "warmup.minibatches=10",
    "algorithm.critic_warmup_updates=0",
    "algorithm.lr=1.0e-7",
)
"""A short warm-up, after which every update is a whole one of A-RIDE that leaves the policy all but as it was."""

SETTLE_VERSIONS = 3
"""Versions to let pass after a change of mode: tasks that the other feeder has fed are learned by then."""

PATIENCE_S = 300.0
"""Longest wait for one version; a warm-up on two busy cores takes a minute."""

console = Console()


@dataclass
class Mode:
    """One way of pacing, and what was measured of it. spans: [first, last] publication of each turn, in ms."""

    max_lag: int
    spans: list[tuple[int, int]] = field(default_factory=list)
    fetch_s: list[float] = field(default_factory=list)

    def holds(self, at_ms: int) -> bool:
        return any(begin < at_ms <= end for begin, end in self.spans)

    @property
    def seconds(self) -> float:
        return sum(end - begin for begin, end in self.spans) / 1000

    def overlap_s(self, begin_ms: int, end_ms: int) -> float:
        return sum(max(0, min(end, end_ms) - max(begin, begin_ms)) for begin, end in self.spans) / 1000


def next_version(roles: Roles, versions: VersionFollower, than: int, wait_s: float) -> Version | None:
    """The newest version if it is above `than` within wait_s. Raises StackError where a role has died meanwhile."""
    deadline = time.monotonic() + wait_s
    while (left := deadline - time.monotonic()) > 0:
        roles.check()
        newer = versions.wait_newer(than, min(0.5, left))
        if newer is not None:
            return newer
    return None


def measure(roles: Roles, versions: VersionFollower, store: ObjectStore, mode: Mode, seconds: float) -> None:
    """One turn: from a publication to the last one within `seconds`, so that whole rounds are counted."""
    before = next_version(roles, versions, -1, PATIENCE_S)  # the newest; at the beginning, the end of the warm-up
    roles.start("feeder", "feed", sets=[f"feeder.max_lag={mode.max_lag}"], stays=True)
    first = before and next_version(roles, versions, before.version + SETTLE_VERSIONS - 1, PATIENCE_S)
    if first is None:
        raise SystemExit(f"no version came in {PATIENCE_S:.0f} s at max_lag={mode.max_lag}")
    store.get_named(first.adapter.key)  # opens the connection, as a worker's is open
    last, deadline = first, time.monotonic() + seconds
    while newer := next_version(roles, versions, last.version, deadline - time.monotonic()):
        last, began = newer, time.perf_counter()
        store.get_named(newer.adapter.key)
        mode.fetch_s.append(time.perf_counter() - began)
    roles.stop("feeder")
    if first is last:
        raise SystemExit(f"no version came in {seconds:.0f} s at max_lag={mode.max_lag}: give more --seconds")
    mode.spans.append((first.published_at, last.published_at))


def run(config: Config, modes: Sequence[Mode], seconds: float, logs: Path) -> None:
    """Warm up, then measure the modes in turns: each one's first turn in order, its second in reverse."""
    topic_admin.ensure(config)
    with running(config, logs) as roles, VersionFollower(config) as versions:
        roles.start("learner", "learner", stays=True)
        roles.start("demonstrate", "demonstrate")
        for index, phones in enumerate(place(config, own=True, workers=WORKERS, evaluation=0).workers):
            roles.start(f"worker-{index}", "worker", sets=[f"worker.name=worker-{index}", *phones], stays=True)
        for mode in (*modes, *reversed(modes)):
            with console.status(f"measuring feeder.max_lag={mode.max_lag}"):
                measure(roles, versions, open_store(config.store), mode, seconds / 2)


def numbers(config: Config, mode: Mode) -> dict[str, Any]:
    """What the log says of one mode. Interrupted episodes are not counted: their tasks were fed again."""
    log = curves.first_of_each(LoggedTrajectory(at, one) for at, one in records(config, "trajectories", Trajectory))
    ended = [one for one in log if mode.holds(one.trajectory.finished_at)]
    counted = [one for one in ended if one.trajectory.outcome is not Outcome.INTERRUPTED]
    steps = [step for one in log for step in one.trajectory.steps if mode.holds(step.at)]
    versions = lineage(config)
    published = [version for version in versions if mode.holds(version.published_at)]
    updates = [update for _, update in records(config, "updates", Update)]
    lags = curves.policy_lags(counted, versions, updates, topic_name(config.run, "trajectories"))
    busy = sum(mode.overlap_s(one.trajectory.started_at, one.trajectory.finished_at) for one in log)
    acted = curves.reload_seconds(log, published)
    return {
        "max_lag": mode.max_lag,
        "seconds": mode.seconds,
        "trajectories": len(counted),
        "trajectories_per_minute": len(counted) * 60 / mode.seconds,
        "steps_per_minute": len(steps) * 60 / mode.seconds,
        "versions": len(published),
        "phones_busy": busy / (mode.seconds * len(config.devices.addresses)),
        "lag_mean": sum(lags) / max(1, len(lags)),
        "lag_max": max(lags, default=0),
        "invalid_actions": sum(step.action.kind is ActionKind.INVALID for step in steps) / max(1, len(steps)),
        "step_ms": step_times(steps),
        "published_to_first_action": {"count": len(acted), **tails(acted, 1000)},
        "bare_fetch": {"count": len(mode.fetch_s), **tails(mode.fetch_s, 1000)},
        "adapter_bytes": published[-1].adapter.size if published else 0,
    }


def step_times(steps: Sequence[Step]) -> dict[str, dict[str, float]]:
    """Milliseconds of a step by part, and their sum."""
    parts = {name.removesuffix("_ms"): [getattr(step, name) for step in steps] for name in TIMINGS}
    parts["sum"] = [sum(each) for each in zip(*parts.values(), strict=True)]
    return {name: {"mean": sum(each) / max(1, len(each)), **tails(each)} for name, each in parts.items()}


def tails(values: Sequence[float], scale: float = 1.0) -> dict[str, float]:
    return {"p50": curves.percentile(values, 0.5) * scale, "p95": curves.percentile(values, 0.95) * scale}


def table(found: Mapping[str, Any]) -> Table:
    """Everything that was measured, one row each; a ratio is asynchronous over synchronous."""
    one, two = found["asynchronous"], found["synchronous"]
    shown = Table("measured", f"async (max_lag={one['max_lag']})", "sync (max_lag=0)", "ratio")
    for column in shown.columns[1:]:
        column.justify = "right"

    def row(name: str, key: str, form: str, ratio: bool = False) -> None:
        quotient = f"{one[key] / two[key]:.2f}" if ratio and two[key] else ""
        shown.add_row(name, form.format(one[key]), form.format(two[key]), quotient)

    row("trajectories a minute", "trajectories_per_minute", "{:.1f}", ratio=True)
    row("steps a minute", "steps_per_minute", "{:.0f}", ratio=True)
    row("phones in an episode", "phones_busy", "{:.0%}", ratio=True)
    row("versions published", "versions", "{}")
    row("policy lag, mean", "lag_mean", "{:.2f}")
    row("policy lag, most", "lag_max", "{}")
    row("actions that are none", "invalid_actions", "{:.0%}")
    row("seconds measured", "seconds", "{:.0f}")
    shown.add_section()
    for part in one["step_ms"]:
        cells = ["{mean:.1f} / {p50:.1f} / {p95:.1f}".format(**mode["step_ms"][part]) for mode in (one, two)]
        shown.add_row(f"step: {part}, ms", *cells, "")
    shown.add_section()
    for name, key in (("version → action", "published_to_first_action"), ("bare fetch", "bare_fetch")):
        form = "{p50:.1f} / {p95:.1f}  (n {count})"
        cells = [form.format(**mode[key]) if mode[key]["count"] else "–" for mode in (one, two)]
        shown.add_row(f"{name}, ms", *cells, "")
    what = "{phones} phones, {base_model} base model".format(**found)
    shown.caption = f"step: mean / p50 / p95; others: p50 / p95; {what}"
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="measured in each mode, in two turns")
    parser.add_argument("--phones", type=int, default=8, help="simulated phones, where none are configured")
    parser.add_argument("--base-model", type=Path, help="its directory; the shipped one unless named")
    parser.add_argument(
        "--config", type=Path, help="YAML file with settings: endpoints to use instead of a local stack"
    )
    parser.add_argument("--set", action="append", default=[], help="one setting as path.to.it=value")
    parser.add_argument("--json", type=Path, help="write the numbers there")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="distrl-bench-") as folder, ExitStack() as after:
        own = [f"run=bench-{uuid.uuid4().hex[:8]}", f"phones.count={given.phones}", f"stack.directory={folder}/stack"]
        base = [f"policy.base_model={given.base_model.absolute()}"] if given.base_model else []
        config = load(given.config, [*BENCH_SETTINGS, *own, *base, *given.set])
        stack = LocalStack(config, console.print)
        with console.status("starting Kafka, the object store, adb and the phones"):
            settings = stack.up(reuse=True)
        after.callback(stack.down)
        if settings.feeder.max_lag == 0:
            parser.error("feeder.max_lag is 0, which is the synchronous mode: leave it for the other")
        modes = {"asynchronous": Mode(settings.feeder.max_lag), "synchronous": Mode(0)}
        run(settings, tuple(modes.values()), given.seconds, Path(folder) / "roles")
        found: dict[str, Any] = {
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "phones": len(settings.devices.addresses),
            "base_model": given.base_model.name if given.base_model else "shipped",
            "settings": config.model_dump(mode="json", include={"phones", "feeder", "worker", "learner", "algorithm"}),
            **{name: numbers(settings, mode) for name, mode in modes.items()},
        }
    rates = [found[name]["trajectories_per_minute"] for name in modes]
    found["trajectories_per_minute_ratio"] = rates[0] / rates[1] if rates[1] else None
    console.print(table(found))
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    try:
        main()
    except DistrlError as error:
        raise SystemExit(str(error)) from None
