"""Removes a run: first its workers' group, which the broker refuses while a worker lives, then its objects, then its
topics, so that an interrupted removal can be repeated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from distrl.broker.connect import UnknownTopicError
from distrl.broker.reader import LogReader
from distrl.broker.removal import delete_group, delete_topics
from distrl.config import Config, with_run
from distrl.runs.named_objects import NAMING, objects_of, read
from distrl.store.adapters import forget_pruned
from distrl.store.folders import RUNS, VERDICTS
from distrl.store.objects import ObjectStore
from distrl.types import ObjectRef


def remove(config: Config, store: ObjectStore, others: Iterable[str], *, with_shared: bool) -> int:
    """Delete `config.run`: the workers' group, its checkpoints and verdicts in the store, the topics.

    with_shared: also the adapters and screenshots that its records name, but for those that a record of `others`, runs
    on this broker, names by the same key. Returns how many objects were deleted. Raises BrokerError, StoreError;
    repeating it goes on.
    """
    delete_group(config)
    deleted = 0
    if with_shared:
        doomed = {ref.key for ref in named(config)}
        for other in others:
            doomed.difference_update(ref.key for ref in named(with_run(config, other)))
        for key in doomed:
            store.delete(key)
            deleted += 1
        forget_pruned(store, config.run)
    for folder in (RUNS, VERDICTS):
        for key in list(store.list(f"{folder.of(config.run)}/")):
            store.delete(key)
            deleted += 1
    delete_topics(config)
    return deleted


def named(config: Config) -> Iterator[ObjectRef]:
    """Every content-addressed object that a record of the run names, some more than once. Raises BrokerError."""
    for topic in NAMING:
        try:
            with LogReader(config, topic) as reader:
                for batch in reader.to_end():
                    for raw in batch:
                        if (record := read(topic, raw)) is not None:
                            yield from objects_of(record)
        except UnknownTopicError:
            continue  # a removal was interrupted
