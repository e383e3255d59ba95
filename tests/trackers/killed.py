"""`python -m trackers.killed TRACKER FOLDER PROJECT SIGNAL…`: logs a run's points, then sends itself the signals.

They come as to `distrl track`: of two the second one ends it. Before the last one, the processes that its library has
started are killed too, so that what only they held is lost.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import psutil
from distrl.cli.common import ASKING, stopped_by_signals
from distrl.trackers.protocol import TrackedRun
from distrl.trackers.registry import open_tracker

from trackers.runs import all_points

RUN = TrackedRun("demo-0", 1_738_000_000_000, {"learner.seed": 0, "feeder.suite": "home", "kafka.nothing": None})


def main(name: str, folder: str, project: str, *signals: str) -> None:
    stopped_by_signals(second_kills=ASKING)
    tracker = open_tracker(name, Path(folder), project)
    tracker.start(RUN, 0)
    tracker.log(all_points())
    for helper in psutil.Process().children(recursive=True):
        helper.kill()
    for number in signals:
        os.kill(os.getpid(), int(number))


if __name__ == "__main__":
    main(*sys.argv[1:])
