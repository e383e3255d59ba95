"""The demo from start to report: set up, warm up, train with a live view, stop, evaluate, write the report.

Everything learned is in the log and the store, so a demo that is stopped and started again continues.
"""

from __future__ import annotations

import errno
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.live import Live

from distrl.broker import topic_admin
from distrl.broker.versions import lineage
from distrl.config import Config
from distrl.demo.folder import RunFolder, alone, folder_of, refuse_second
from distrl.demo.progress import DemoProgress
from distrl.demo.roles import Roles, running, worker_shares
from distrl.errors import ConfigError, StackError
from distrl.evaluate.gather import gather
from distrl.evaluate.report import write_report
from distrl.policy.registry import tokenizer_of
from distrl.rollout.vocabulary import refuse_unknown_words
from distrl.stack.local import LocalStack
from distrl.tasks.lists import suite_of
from distrl.telemetry.feed import RunFeed
from distrl.telemetry.screen import render
from distrl.telemetry.view import Snapshot
from distrl.types import Split

log = logging.getLogger(__name__)

OWNER = "distrl demo"
"""Owner of the servers that a demo starts and stops. Those that `distrl up` has started stay."""
VIEW_PERIOD_S = 1.0
PLAIN_PERIOD_S = 15.0
"""Interval of progress lines if the output is not a terminal, instead of the live view."""


def run_demo(config: Config, minutes: float, out: Path, started: float, console: Console) -> Path:
    """Train for `minutes` in total over all invocations and write report.html and report.json into the run's folder.

    started: time.time() at which the set-up began. Returns the path of the report. Raises ConfigError, before anything
    starts, if the suite lacks tasks of a split (the held-out ones are needed at the end), or if the base model lacks
    words of the suite that is demonstrated or fed; StackError if another demo uses `out` or the stack (each would stop
    the other's roles and servers), and if the disk is full.
    """
    folder = folder_of(config, out)
    refuse_second(config, out)
    suite = suite_of(config.feeder)
    for split in Split:
        suite.task(0, 0, split)
    if config.warmup.demonstrations or not config.feeder.tasks:
        refuse_unknown_words(config.feeder, tokenizer_of(config.policy))
    DemoProgress.load(folder.progress)  # refuses a broken file before anything is created
    try:
        with alone(config, out):
            return _run(config, minutes, folder, started, console)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StackError(
                str(error.filename or folder.path),
                f"{error.strerror}: the demo cannot write",
                "free disk space there, then run the same command again: it continues the run",
            ) from error
        raise


def _run(config: Config, minutes: float, folder: RunFolder, started: float, console: Console) -> Path:
    folder.make()
    progress_file = folder.progress
    progress = DemoProgress.load(progress_file)
    stack = LocalStack(config, owner=OWNER)
    with console.status("starting Kafka, the object store, adb and the phones"):
        settings = stack.up(reuse=True)
    try:
        topic_admin.ensure(settings)
        if progress.train_seconds == 0.0:
            progress = replace(progress, setup_seconds=time.time() - started)
            progress.save(progress_file)
        with running(settings, folder.logs, stack.check, folder.settings) as roles:
            _train(settings, roles, minutes, progress, progress_file, console)
            _evaluate(settings, roles, console)
        report = write_report(gather(settings, DemoProgress.load(progress_file)), folder.path)
        folder.link()
    finally:
        with console.status("stopping"):
            stack.down_own()
    return report


def _train(
    settings: Config, roles: Roles, minutes: float, progress: DemoProgress, file: Path, console: Console
) -> None:
    """Run every role until the training time is spent. The warm-up counts as training."""
    began = time.monotonic()
    left = minutes * 60 - progress.train_seconds
    if left <= 0:
        console.print(f"this run has already trained for {progress.train_seconds:.0f} s: raise MINUTES= to train more")
        return
    phones = settings.devices.addresses
    training, evaluation = phones[: settings.phones.count], phones[settings.phones.count :]
    roles.start("learner", "learner")
    roles.start("demonstrate", "demonstrate", sets=[_devices(training)])
    for index, share in enumerate(worker_shares(training)):
        roles.start(f"worker-{index}", "worker", sets=[f"worker.name=worker-{index}", _devices(share)])
    if evaluation:
        roles.start("evaluator", "evaluate", sets=[_devices(evaluation)])
    roles.start("feeder", "feed")

    def spent() -> float:
        return time.monotonic() - began

    try:
        _watch(settings, roles, console, lambda: spent() < left, lambda: max(0.0, left - spent()))
    finally:
        replace(progress, train_seconds=progress.train_seconds + spent()).save(file)
    with console.status("training time is over: the workers finish their episodes"):
        roles.stop("feeder", "evaluator", "demonstrate")
        roles.stop(*(f"worker-{index}" for index in range(len(phones))))
        roles.stop("learner")


def _watch(
    settings: Config, roles: Roles, console: Console, go_on: Callable[[], bool], left: Callable[[], float]
) -> None:
    with RunFeed(settings) as feed:
        if not console.is_terminal:
            while go_on():
                _follow(feed, roles, min(PLAIN_PERIOD_S, left()))
                shot = feed.snapshot()
                console.print(f"{left():4.0f} s left: {_progress(shot)}")
            return
        with Live(console=console, auto_refresh=False) as live:
            while go_on():
                _follow(feed, roles, min(VIEW_PERIOD_S, left()))
                footer = f"{left():.0f} s left; Ctrl-C stops, `make demo` continues"
                width, rows = console.size  # read each time: a terminal may be resized
                view = render(feed.snapshot(), f"DistRL run {settings.run}", footer, width, rows)
                live.update(view, refresh=True)


def _progress(shot: Snapshot) -> str:
    """The progress line without a terminal. Before the first version there are no episodes, so no success rate."""
    if shot.newest is None:
        return "warming up on demonstrations; no version yet"
    success = "–" if shot.success is None else f"{shot.success:.0%}"
    return (
        f"{shot.trajectories} trajectories, {shot.per_minute:.0f} a minute, success {success}, "
        f"version {shot.newest.version}"
    )


def _follow(feed: RunFeed, roles: Roles, seconds: float) -> None:
    """Read new records for `seconds`, and check the roles every second."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        feed.wait(min(VIEW_PERIOD_S, left))
        roles.check()


def _evaluate(settings: Config, roles: Roles, console: Console) -> None:
    """Evaluate the first and the last version on held-out tasks, on all phones. Raises ConfigError if there is none."""
    if not lineage(settings):
        raise ConfigError(
            "MINUTES",
            "the time ended before the warm-up did, so there is no version to evaluate",
            "run the same command with more, say MINUTES=12: it continues the run, and counts the time already spent",
        )
    arguments = ("--versions", "first,last", "--split", Split.TEST.value)
    doing = f"evaluating version 0 and the last one, {settings.evaluate.episodes} held-out tasks each"
    if not console.is_terminal:  # no status line then
        console.print(f"{doing}: some minutes")
    with console.status(doing):
        roles.start("evaluation", "evaluate", *arguments)
        while not roles.finished("evaluation"):
            time.sleep(0.2)


def _devices(addresses: tuple[str, ...]) -> str:
    return "devices.addresses=[" + ", ".join(f'"{address}"' for address in addresses) + "]"
