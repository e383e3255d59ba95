"""Reads a run's log and gives its points to a tracker: what is there at the start, then what comes.

Every start reads the log from its beginning and skips what the tracker was given: the points follow from the log
(`protocol.Point`), so nothing but their names has to be kept. One thread; it joins no group and writes nothing to the
broker.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from distrl.broker.reader import BATCH_RECORDS, LogReader, RawRecord, decoded, has_topic
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.errors import ConfigError, DistrlError, WireError
from distrl.files import make_folder
from distrl.runs.recorded import RecordedSettings, recorded
from distrl.trackers.points import RunPoints
from distrl.trackers.progress import load
from distrl.trackers.protocol import Point, TrackedRun, Tracker
from distrl.types import Evaluation, Figures, Heartbeat, LoggedTrajectory, Split, Trajectory, Update

log = logging.getLogger(__name__)

TRAJECTORIES: Final = "trajectories"
HEARTBEATS: Final = "heartbeats"
FIGURES: Final = "figures"
Batch = Sequence[tuple[str, RawRecord]]
"""Records, each with its topic."""
PROGRESS: Final = "progress.json"
LOCK: Final = ".lock"
SLICE_S: Final = 0.2
"""Wait on one topic before the next; five of these are the delay of a point."""
LOOK_S: Final = 2.0
"""Pause between two reads of the settings of a run that has not begun."""
BATCH: Final = 100
"""Points that a tracker is given at once, after which its progress is saved."""


class TrackerError(DistrlError):
    """A tracker's library has failed. The run does not notice."""


def tracked_run(
    config: Config, stop: threading.Event, *, follow: bool, look: Callable[[Config], RecordedSettings | None] = recorded
) -> TrackedRun | None:
    """The run as its log has it. One whose settings are not recorded yet is waited for where `follow`, since they tell
    it from others; None where `stop` comes first. Raises BrokerError, and ConfigError for such a one unless `follow`.
    """
    found = look(config)
    if found is None and not follow:
        raise ConfigError(
            f"run {config.run}",
            "has no settings in its log: nothing of it is there yet",
            "name another --run (`distrl runs ls` lists them), or leave --no-follow out to wait for it",
        )
    if found is None:
        log.warning("run %s has no settings in its log yet; waiting until it has begun", config.run)
    while found is None:
        if stop.wait(LOOK_S):
            return None
        found = look(config)
    return TrackedRun(config.run, found.records[0].at, found.values)


def track(
    config: Config,
    run: TrackedRun,
    open_tracker: Callable[[Path], Tracker],
    folder: Path,
    stop: threading.Event,
    *,
    follow: bool,
) -> int:
    """Log the points of `run` until `stop`, or, unless `follow`, up to the present end of its log.

    folder: of this run and tracker alone; its progress is kept there. Returns how many points were logged.
    Raises BrokerError, ConfigError, and TrackerError, after each of which the same call goes on where it was.
    """
    make_folder(folder)
    with _alone(folder), ExitStack() as after:
        progress = load(folder / PROGRESS, run.id)
        begun = progress.points
        with _explained():
            tracker = open_tracker(folder)
            after.callback(_finish, tracker)
            tracker.start(run, begun)
        for points in _batches(config, stop, follow):
            new = progress.new(points)
            for at in range(0, len(new), BATCH):
                part = new[at : at + BATCH]
                with _explained():
                    tracker.log(part)
                progress = progress.given(part)
                progress.save(folder / PROGRESS)
        return progress.points - begun


def _batches(config: Config, stop: threading.Event, follow: bool) -> Iterator[Sequence[Point]]:
    """The points of the log, those that are ready at a time together."""
    splits = {Split.VALIDATION: config.evaluate.validation_episodes}
    recorded = has_topic(config, FIGURES)
    names = [name for name in _TAKE if recorded or name != FIGURES]
    with ExitStack() as opened:
        readers = {name: opened.enter_context(LogReader(config, name, follows=follow)) for name in names}
        points = RunPoints(
            topic_name(config.run, TRAJECTORIES),
            lambda split: splits.get(split, config.evaluate.episodes),
            recorded=recorded,
            first=max(readers[TRAJECTORIES].next_offsets.values(), default=0),
        )
        for batch in _past(readers):
            _feed(points, batch)
            yield points.ready()
            if stop.is_set():
                return
        points.read_to(max(readers[TRAJECTORIES].ends.values()))
        if follow:
            points.caught_up()
        else:
            points.ended()
        yield points.ready()
        while follow and not stop.is_set():
            came = {name: reader.read(SLICE_S) for name, reader in readers.items()}
            for name, raws in came.items():
                _feed(points, [(name, raw) for raw in raws])
            if not came.get(FIGURES):  # read after the heartbeats
                points.quiet()
            yield points.ready()


def _past(readers: Mapping[str, LogReader]) -> Iterator[Batch]:
    """The records up to the present end of each topic. Updates come first, so that trajectories which they have folded
    need not be kept. Heartbeats and figures come last, merged by time, as a heartbeat stands in for missing figures."""
    by_time = [name for name in (FIGURES, HEARTBEATS) if name in readers]
    for name, reader in readers.items():
        if name not in by_time:
            for raws in reader.to_end():
                yield [(name, raw) for raw in raws]
    merged = heapq.merge(*(_one_by_one(name, readers[name]) for name in by_time), key=lambda each: each[1].timestamp)
    while batch := list(itertools.islice(merged, BATCH_RECORDS)):
        yield batch


def _one_by_one(name: str, reader: LogReader) -> Iterator[tuple[str, RawRecord]]:
    for raws in reader.to_end():
        for raw in raws:
            yield name, raw


def _update(points: RunPoints, raw: RawRecord) -> None:
    points.update(decoded(raw, Update))


def _trajectory(points: RunPoints, raw: RawRecord) -> None:
    try:
        points.trajectory(LoggedTrajectory(raw.position, decoded(raw, Trajectory)))
    finally:
        points.read_to(raw.position.offset + 1)  # no update waits for one that cannot be read


def _evaluation(points: RunPoints, raw: RawRecord) -> None:
    points.evaluation(decoded(raw, Evaluation))


def _heartbeat(points: RunPoints, raw: RawRecord) -> None:
    points.heartbeat(decoded(raw, Heartbeat))


def _figures(points: RunPoints, raw: RawRecord) -> None:
    points.figures(decoded(raw, Figures))


_TAKE: Final = {
    "updates": _update,
    TRAJECTORIES: _trajectory,
    "evaluations": _evaluation,
    HEARTBEATS: _heartbeat,
    FIGURES: _figures,
}
"""In the order in which the topics are read. Figures come after heartbeats, so that the figures of an update, if it has
any, are read in the same turn as its heartbeat, or before."""


def _feed(points: RunPoints, batch: Batch) -> None:
    for topic, raw in batch:
        try:
            _TAKE[topic](points, raw)
        except WireError as error:
            log.warning("record skipped: %s", error)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    # Without filelock's fallback for file systems without locks: that lock would outlive a killed holder.
    lock = FileLock(folder / LOCK, timeout=0, fallback_to_soft=False)
    try:
        with lock:
            yield
    except Timeout:
        raise ConfigError(
            str(folder), "another `distrl track` writes there", "let it do so, or name another --out"
        ) from None


@contextmanager
def _explained() -> Iterator[None]:
    try:
        yield
    except DistrlError:
        raise
    except Exception as error:  # every library has its own
        log.debug("the tracker has failed", exc_info=True)
        raise TrackerError(
            "the tracker",
            f"has failed: {type(error).__name__}: {error}",
            "start the same command again: it goes on behind the last figures that arrived; training is not affected",
        ) from error


def _finish(tracker: Tracker) -> None:
    try:
        tracker.finish()
    except Exception as error:  # what it was given has arrived, or the error before this one says why not
        log.warning("the tracker did not finish: %s: %s", type(error).__name__, error)
