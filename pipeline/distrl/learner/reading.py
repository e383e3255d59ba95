"""The log into an inbox, alike for the learner that lives and for who folds the log again."""

from __future__ import annotations

from collections.abc import Iterable

from distrl.broker import topics
from distrl.broker.reader import RawRecord, decoded
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.errors import BrokerError, WireError
from distrl.learner.aside import Aside
from distrl.learner.inbox import Inbox
from distrl.learner.recover import TOPICS, Recovered
from distrl.types import LoggedTrajectory, Trajectory, Update, Watermark


def inbox_after(config: Config, begun: Recovered) -> Inbox:
    """An inbox of the run's topics that stands where `begun` does."""
    names = [topic_name(config.run, name) for name in TOPICS]
    return Inbox(names[0], names[1], begun.state.watermarks, begun.seen)


def starts(config: Config, name: str, folded: Iterable[Watermark]) -> dict[int, int]:
    """Partition -> first record of topic `name` that is past the watermarks `folded`.

    0 where nothing was folded: a reader that took the first record kept would pass over what retention has deleted.
    """
    begin = dict.fromkeys(range(topics.partitions(config, topics.TOPICS[name])), 0)
    return begin | {mark.partition: mark.offset for mark in folded if mark.topic == topic_name(config.run, name)}


def take(raw: RawRecord, inbox: Inbox, aside: Aside) -> LoggedTrajectory | None:
    """Put a record into the inbox. Returns it; None where it was put aside, read before, or its id was.

    Raises WireError where it cannot be read; the inbox is past it then.
    """
    if aside.skips(raw.position):
        inbox.passed(raw.position)
        return None
    try:
        logged = LoggedTrajectory(raw.position, decoded(raw, Trajectory))
    except WireError:
        inbox.passed(raw.position)
        raise
    return logged if inbox.push(logged) else None


def log_too_short(config: Config, update: Update) -> BrokerError:
    return BrokerError(
        f"log of run {config.run}",
        f"ends before the watermarks of journalled update {update.u}: {update.watermarks}",
        "bring the topics' records back, or choose a new `run`",
    )
