"""Reads records of the log into a pending log, in the same way for the live learner and for replays."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from distrl.broker import topics
from distrl.broker.duplicates import IdSet
from distrl.broker.reader import LogReader, RawRecord, decoded
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.errors import BrokerError, WireError
from distrl.learner.adapters import NamedVersions
from distrl.learner.pending import PendingLog
from distrl.learner.skipped import SkippedRecords
from distrl.types import LoggedTrajectory, Trajectory, Update, Watermark

TOPICS: Final = ("demonstrations", "trajectories")
"""What the learner folds."""

LEFT_OUT: Final = b"left out "
"""Prefix of the content of a record left out by `distrl skip`: its window then has another sha256."""


def pending_log_at(
    config: Config, watermarks: Iterable[Watermark], seen: IdSet | None = None, named: NamedVersions | None = None
) -> PendingLog:
    """A pending log of the run's topics at `watermarks`. seen, named: the ids folded and versions named before them."""
    names = [topic_name(config.run, name) for name in TOPICS]
    return PendingLog(names[0], names[1], watermarks, seen or IdSet(), named)


def content_of(raw: RawRecord) -> bytes:
    """A digest of the record's key and value."""
    total = hashlib.sha256(b"%d " % len(raw.key or b""))
    total.update(raw.key or b"")
    total.update(raw.value or b"")
    return total.digest()


def starts(config: Config, name: str, folded: Iterable[Watermark]) -> dict[int, int]:
    """Partition -> offset of the first record of topic `name` past the watermarks `folded`.

    0 where nothing was folded: starting at the first retained record would silently skip what retention has deleted.
    """
    begin = dict.fromkeys(range(topics.partitions(config, topics.TOPICS[name])), 0)
    return begin | reached(config, name, folded)


def reached(config: Config, name: str, folded: Iterable[Watermark]) -> dict[int, int]:
    """Partition -> the offset of topic `name` before which all records are folded, so the log once held them."""
    return {mark.partition: mark.offset for mark in folded if mark.topic == topic_name(config.run, name)}


def take(raw: RawRecord, pending_log: PendingLog, skipped: SkippedRecords) -> LoggedTrajectory | None:
    """Decode a record into the pending log and return it; None where it is skipped, or it or its id was read before.

    Raises WireError where it cannot be decoded; the record counts as read then.
    """
    content = content_of(raw)
    left_out = skipped.leaves_out(raw.position, raw.value)
    if left_out or skipped.skips(raw.position):
        if left_out:
            pending_log.leave_out(raw.position, LEFT_OUT + content)
        else:
            pending_log.passed(raw.position, content)
        with suppress(WireError):  # the weights that it names must be retained, although nothing learns from it
            pending_log.names(LoggedTrajectory(raw.position, decoded(raw, Trajectory)))
        return None
    try:
        logged = LoggedTrajectory(raw.position, decoded(raw, Trajectory))
    except WireError:
        pending_log.passed(raw.position, content)
        raise
    return logged if pending_log.push(logged, content) else None


def window_sha256(config: Config, begin: Iterable[Watermark], end: Iterable[Watermark], skipped: SkippedRecords) -> str:
    """`PendingLog.window_sha256` of the window between the watermarks `begin` and `end`, read from the log now."""
    begun, wanted = tuple(begin), tuple(end)
    pending_log = pending_log_at(config, begun)
    for name in TOPICS:
        here = [mark for mark in wanted if mark.topic == topic_name(config.run, name)]
        with LogReader(config, name, starts(config, name, begun), reach=reached(config, name, wanted)) as reader:
            for batch in () if pending_log.reaches(here) else reader.to_end():
                for raw in batch:
                    with suppress(WireError):  # its content is in the digest all the same
                        take(raw, pending_log, skipped)
                if pending_log.reaches(here):
                    break
    return pending_log.window_sha256(wanted)


def unsupported(pending_log: PendingLog, update: Update, *, ended: bool) -> str | None:
    """Why the log does not hold the records that `update` folds; None where it does, or may yet.

    ended: the whole log was read.
    """
    if not pending_log.reaches(update.watermarks):
        marks = ", ".join(f"{mark.topic}[{mark.partition}] {mark.offset}" for mark in update.watermarks)
        return f"the log ends before the watermarks of update {update.u} ({marks})" if ended else None
    if update.window_sha256 and pending_log.window_sha256(update.watermarks) != update.window_sha256:
        return f"the log holds other records than update {update.u} folded"
    return None


def refuse_unread(skipped: SkippedRecords, update: Update) -> None:
    """Raises WireError where `update`, whose records the log holds, folded one that this reader cannot decode: folding
    it again without that record would fork the run. Journal lines without a window_sha256 are not checked: the software
    that wrote them did not name undecodable records either."""
    if update.window_sha256 and (found := skipped.unread(update.watermarks)):
        at = found[0]
        raise WireError(
            f"{at.topic}[{at.partition}] offset {at.offset}",
            f"update {update.u} folded this record, and this version of DistRL cannot decode it",
            "use the version with which the run went on last, or a newer one",
        )


def not_the_log(config: Config, why: str) -> BrokerError:
    """The error for processes that only read: only the learner may go back to what journal and log support."""
    return BrokerError(
        f"log of run {config.run}",
        why,
        "start `distrl learner`, which goes back to what journal and log support; or set kafka.bootstrap and `run` to "
        "those of the whole log",
    )
