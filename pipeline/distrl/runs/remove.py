"""Removes a run: first its objects, then its topics, so that an interrupted removal can be repeated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from distrl.broker.connect import UnknownTopicError
from distrl.broker.reader import LogReader, decoded
from distrl.broker.removal import delete_group, delete_topics
from distrl.broker.versions import lineage
from distrl.config import Config, with_run
from distrl.errors import WireError
from distrl.store.adapters import forget_pruned
from distrl.store.objects import ObjectStore, is_reference
from distrl.types import Evaluation, ObjectRef, Trajectory


def remove(config: Config, store: ObjectStore, others: Iterable[str], *, with_shared: bool) -> int:
    """Delete `config.run`: what the store has under runs/<run>/, the workers' group, the topics.

    with_shared: also adapters and screenshots, which are stored by content, but for those that a run of `others` (on
    this broker) names. Returns how many objects were deleted. Raises BrokerError, StoreError; repeating it goes on.
    """
    deleted = 0
    if with_shared:
        needed = {bytes.fromhex(ref.sha256) for other in others for ref in named(with_run(config, other))}
        doomed = {ref.key for ref in named(config) if bytes.fromhex(ref.sha256) not in needed}
        for key in doomed:
            store.delete(key)
            deleted += 1
        forget_pruned(store, config.run)
    for key in list(store.list(f"runs/{config.run}/")):
        store.delete(key)
        deleted += 1
    delete_group(config)
    delete_topics(config)
    return deleted


def named(config: Config) -> Iterator[ObjectRef]:
    """Every content-addressed object that a record of the run names, some more than once. Raises BrokerError."""
    for topic in ("trajectories", "demonstrations", "evaluations"):
        for trajectory in _trajectories(config, topic):
            refs = [step.screenshot for step in trajectory.steps]
            yield from (ref for ref in (*refs, trajectory.final_screenshot) if ref is not None and is_reference(ref))
    try:
        yield from (version.adapter for version in lineage(config) if is_reference(version.adapter))
    except UnknownTopicError:
        return  # a removal was interrupted


def _trajectories(config: Config, topic: str) -> Iterator[Trajectory]:
    try:
        with LogReader(config, topic) as reader:
            for batch in reader.to_end():
                for raw in batch:
                    try:
                        if topic == "evaluations":
                            yield decoded(raw, Evaluation).trajectory
                        else:
                            yield decoded(raw, Trajectory)
                    except WireError:
                        continue  # a record that nobody can read names no object that anybody can find
    except UnknownTopicError:
        return  # a removal was interrupted
