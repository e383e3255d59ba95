"""The demo from start to report: a training on simulated phones for some minutes, an evaluation, a report.

Everything learned is in the log and the store, so a demo that is stopped and started again continues.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from distrl.broker.versions import lineage
from distrl.config import Config
from distrl.demo.progress import DemoProgress
from distrl.errors import ConfigError
from distrl.evaluate.gather import gather
from distrl.evaluate.report import write_report
from distrl.runs.joined import Given
from distrl.runs.recorded import recorded
from distrl.train.folder import folder_of
from distrl.train.roles import Roles
from distrl.train.run import placed, prepared, roles_of, start_all, stop_in_order
from distrl.train.watch import watch
from distrl.types import Split

OWNER = "distrl demo"
"""Owner of the servers that a demo starts and stops. Those that `distrl up` has started stay."""
SAVE_S = 5.0
"""How often the training time is saved, so that the time of a demo that is killed counts, too."""


def run_demo(
    config: Config,
    given: Given,
    minutes: float,
    out: Path,
    started: float,
    console: Console,
    workers: int | None = None,
) -> Path:
    """Train for `minutes` in total over all invocations and write report.html and report.json into the run's folder.

    started: time.time() at which the set-up began. workers: as in `placed`. Returns the path of the report.
    Raises as `prepared` and `recorded`.
    """
    progress_file = folder_of(config, out).progress
    progress = DemoProgress.load(progress_file)  # refuses a broken file before anything is created
    with prepared(config, given, out, console, OWNER) as (settings, folder, stack):
        found = recorded(settings)
        progress = progress.of(None if found is None else found.records[0].at)
        if progress.train_seconds == 0.0:
            progress = replace(progress, setup_seconds=time.time() - started)
            progress.save(progress_file)
        with roles_of(settings, given, folder, stack) as roles:
            _train(settings, roles, minutes, progress, progress_file, console, workers)
            _evaluate(settings, roles, console)
        report = write_report(gather(settings, DemoProgress.load(progress_file)), folder.path)
        folder.link()
    return report


def _train(
    settings: Config,
    roles: Roles,
    minutes: float,
    progress: DemoProgress,
    file: Path,
    console: Console,
    workers: int | None = None,
) -> None:
    """Run every role until the training time is spent. The warm-up counts as training."""
    began = time.monotonic()
    left = minutes * 60 - progress.train_seconds
    if left <= 0:
        console.print(
            f"this run has already trained for {progress.train_seconds:.0f} s: raise --minutes (MINUTES= of `make "
            "demo`) to train more"
        )
        return

    saved = began

    def save() -> None:
        nonlocal saved
        saved = time.monotonic()
        replace(progress, train_seconds=progress.train_seconds + saved - began).save(file)

    def seconds_left() -> float:
        if time.monotonic() - saved >= SAVE_S:
            save()
        return max(0.0, left - (time.monotonic() - began))

    evaluation = max(0, len(settings.devices.addresses) - settings.phones.count)
    placement = placed(settings, console, workers, own=True, evaluation=evaluation)
    start_all(roles, placement)
    try:
        footer = "Ctrl-C stops, the same command continues"
        watch(settings, roles, console, seconds_left, footer)
    finally:
        save()
    console.print("training time is over")
    stop_in_order(roles, placement, console)


def _evaluate(settings: Config, roles: Roles, console: Console) -> None:
    """Evaluate the first and the last version on held-out tasks, on all phones. Raises ConfigError if there is none."""
    if not lineage(settings):
        raise ConfigError(
            "MINUTES",
            "the time ended before the warm-up did, so there is no version to evaluate",
            "run the same command with more, such as --minutes 12 (MINUTES=12 of `make demo`): it continues the run, "
            "and counts the time already spent",
        )
    arguments = ("--versions", "first,last", "--split", Split.TEST.value)
    doing = f"evaluating version 0 and the last one, {settings.evaluate.episodes} held-out tasks each"
    if not console.is_terminal:  # no status line then
        console.print(f"{doing}: some minutes")
    with console.status(doing):
        everywhere = f"devices.addresses={json.dumps(settings.devices.addresses)}"  # else on the evaluator's alone
        roles.start("evaluation", "evaluate", *arguments, sets=[everywhere])
        while not roles.finished("evaluation"):
            time.sleep(0.2)
