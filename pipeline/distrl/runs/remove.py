"""Removes a run: first its workers' group, which the broker refuses while a worker is running, then its objects, then
its topics, so that an interrupted removal can be repeated. Everything that may end in a refusal is read before anything
is deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Final

from distrl.broker.connect import UnknownTopicError
from distrl.broker.reader import LogReader, place_of
from distrl.broker.removal import delete_group, delete_topics
from distrl.config import Config, with_run
from distrl.errors import BrokerError
from distrl.runs.key_set import KeySet
from distrl.runs.named_objects import NAMING, objects_of, read
from distrl.store.adapters import forget_pruned
from distrl.store.folders import RUNS, VERDICTS
from distrl.store.objects import ObjectStore, listed
from distrl.types import ObjectRef
from distrl.wire.codec import has_unknown_schema

AT_ONCE: Final = 16
"""Objects deleted concurrently. (Not every endpoint can delete several in one request.)"""

BATCH: Final = 1_000
"""Objects deleted between two reports of progress."""

OnDeleted = Callable[[int], None]
"""Called with the number of objects deleted so far."""


def remove(
    config: Config,
    store: ObjectStore,
    others: Iterable[str],
    *,
    with_shared: bool,
    on_deleted: OnDeleted = lambda count: None,
) -> int:
    """Delete `config.run`: the workers' group, its checkpoints and verdicts in the store, the topics.

    with_shared: also delete the adapters and screenshots that its records name, except those that a record of `others`
    (runs on this broker) names too. Returns how many objects were deleted. Raises StoreError and BrokerError, the
    latter also where a run of `others` has a record of a newer version; a repeated call continues.
    """
    with KeySet() as doomed:
        if with_shared:
            for ref in named(config):
                doomed.add(ref.key)
            for other in others:
                for ref in named(with_run(config, other), refuse_newer=True):
                    doomed.discard(ref.key)
        delete_group(config)
        for folder in (RUNS, VERDICTS):  # list all before deleting: a listing's next page continues after a listed key
            for key in listed(store, f"{folder.of(config.run)}/"):
                doomed.add(key)
        deleted = _delete(store, doomed, on_deleted)
    if with_shared:
        forget_pruned(store, config.run)
    delete_topics(config)
    return deleted


def _delete(store: ObjectStore, keys: Iterable[str], on_deleted: OnDeleted) -> int:
    """Delete `keys`; returns how many there were. Raises StoreError for the first that cannot be deleted."""
    coming, deleted = iter(keys), 0
    with ThreadPoolExecutor(AT_ONCE, "deletion") as pool:
        while batch := list(islice(coming, BATCH)):
            for _ in pool.map(store.delete, batch):
                deleted += 1
            on_deleted(deleted)
    return deleted


def named(config: Config, *, refuse_newer: bool = False) -> Iterator[ObjectRef]:
    """Every content-addressed object that a record of the run names, some more than once. Raises BrokerError.

    refuse_newer: raise BrokerError also for a record of a newer version, as it is unknown which objects it names.
    """
    for topic in NAMING:
        try:
            with LogReader(config, topic) as reader:
                for batch in reader.to_end():
                    for raw in batch:
                        if (record := read(topic, raw)) is not None:
                            yield from objects_of(record)
                        elif refuse_newer and has_unknown_schema(raw.value or b""):
                            raise BrokerError(
                                place_of(raw),
                                f"was written by a newer version of DistRL, so which objects run {config.run} names is "
                                "not known",
                                "use that version, or leave --objects out: adapters and screenshots stay then",
                            )
        except UnknownTopicError:
            continue  # a removal was interrupted
