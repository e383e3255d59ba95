"""Copies a run to another broker and store: a back-up, a restore, a hand-over.

Objects are copied before the records that name them, and the journal last, so an interrupted copy never looks complete.
The first record of the copy's settings says that it is incomplete, and is deleted at the end: no role starts until
then. The copy has the run's name, because the learner's random numbers are derived from it.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

from distrl.appagent import identity
from distrl.broker import topic_admin
from distrl.broker.connect import admin
from distrl.broker.group import commit
from distrl.broker.reader import LogReader, RawRecord, retained
from distrl.broker.removal import delete_before
from distrl.broker.runs import run_names
from distrl.broker.topic_admin import topic_id
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.errors import BrokerError, ConfigError, StoreError
from distrl.runs.extent import LOG, extent_of
from distrl.runs.key_set import KeySet
from distrl.runs.mirror import Mirror
from distrl.runs.named_objects import objects_of, read
from distrl.runs.recorded import INCOMPLETE, STORE_URL, TOPIC, append, learned_with, recorded, settings_in
from distrl.runs.settings import ABSENT, Settings, differences, learned, learning_fingerprint, run_settings
from distrl.store.adapters import copy_pruned
from distrl.store.checkpoints import copy_checkpoints, is_checkpoint
from distrl.store.folders import RUNS
from distrl.store.objects import SHA256, ObjectStore, listed
from distrl.types import Evaluation, ObjectRef

ROLE = "runs copy"
"""Of the records of settings that it writes."""

AT_ONCE = 8
"""Objects copied side by side."""

ORDER = (
    ("settings", False),
    ("demonstrations", True),
    (LOG, True),
    ("tasks", True),
    ("evaluations", False),
    ("trajectories.dlq", False),
    ("figures", False),
    ("versions", False),
    ("updates", False),
)
"""Topics in the order of copying, and whether other topics refer to their records by offset. Not copied are heartbeats,
which say nothing later, and draws and snapshots, which follow from the other topics. (A snapshot also holds offsets,
which may differ in the copy.)"""

Part = tuple[int | None, int | None]
"""First offset, and one past the last; None: the beginning or end of the log."""
OnTopic = Callable[[str, int], None]
"""Called with a topic's name and how many of its records are copied."""


@dataclass(frozen=True, slots=True)
class Copied:
    records: int
    objects: int
    """Objects that the other store did not have yet."""
    missing: int
    """Objects that records name, but that the store no longer has, or has with other content."""


def copy(
    source: Config,
    from_store: ObjectStore,
    to: Config,
    to_store: ObjectStore,
    on_topic: OnTopic,
    part: Part | None = None,
    to_file: Path | None = None,
) -> Copied:
    """Copy `source.run` to the broker and the store of `to`, whose `run` is the same. If the run is active, records
    that come during the copy are not in it.

    part: copy only these trajectories, with all demonstrations and without the journal: data for another learner.
    to_file: the file with the settings of `to`, for messages. Before anything is copied, raises BrokerError if that
    broker has the run already or the run has no such part, ConfigError where the journal would be copied and `to` has
    other learning settings, PolicyError where its base model cannot be read, and StoreError where that store cannot be
    written. Later it raises BrokerError or StoreError where either side fails; the same call then fails with a hint
    that names the command which removes the incomplete copy.
    """
    if to.run in run_names(to):
        raise _already_there(source, to, to_file, lambda: _is_same_store(source.run, from_store, to_store))
    within = None if part is None else _within(source, part)
    here = run_settings(to)
    if within is None:
        _refuse_other_learning(source, to, here)
    here = {STORE_URL: None, **here}  # a store that no other machine can reach is not in `here`
    to_store.check()
    to = _wide_enough(to, len(retained(source, "tasks")))
    topic_admin.ensure(to)
    append(to, ROLE, (), {INCOMPLETE: True}, is_change=True)

    def copied(topic: str, count: int) -> None:
        if topic == TOPIC:  # before any other topic: even an incomplete copy must not name the source's store
            _record_what_differs(to, here)
        on_topic(topic, count)

    with Mirror(to) as mirror, _Objects(from_store, to_store) as objects:
        if within is None:
            records = _whole(source, to, mirror, objects, copied)
            copy_pruned(from_store, to_store, source.run)
        else:
            records = _part(source, mirror, objects, copied, within)
    to = _wide_enough(to, len(retained(to, "tasks")))
    _record_what_differs(to, {**here, "kafka.task_partitions": to.kafka.task_partitions})
    _complete(to)
    return Copied(records, objects.copied, objects.missing)


def _already_there(source: Config, to: Config, to_file: Path | None, is_same_store: Callable[[], bool]) -> BrokerError:
    """The error for a broker that has the run already, with the command that removes it if that harms no other run.

    is_same_store: called where the two addresses differ, as a store may have several addresses; may raise StoreError.
    The command sets broker and store explicitly, because DISTRL_ variables probably name those of the source.
    """
    where, there = f"run {to.run}", f"is at the broker {to.kafka.bootstrap} already"
    if _is_same_log(source, to):
        return BrokerError(where, f"{there}: it is the one to be copied", "set kafka.bootstrap there to another broker")
    there = f"{there}, whole or as what is there of a copy that was interrupted"
    try:
        is_shared = to.store.url == source.store.url or is_same_store()
    except StoreError as error:  # then no command can be named: it might delete what the original has
        return BrokerError(
            where,
            f"{there}; whether both use one store is not known ({error.where}: {error.what})",
            f"name another broker, or correct the settings of the stores {source.store.url} and {to.store.url} and run "
            "this command again: it says then how to remove what is there",
        )
    if is_shared:
        return BrokerError(
            where,
            f"{there}, and both use the store {to.store.url}",
            f"name another broker, and a store of its own, or delete the topics distrl.{to.run}.* there with Kafka's "
            "own tools: `distrl runs rm` would delete the checkpoints that the run has here, too",
        )
    sets = (f"kafka.bootstrap={to.kafka.bootstrap}", f"store.url={to.store.url}")
    file = [] if to_file is None else ["--config", str(to_file)]
    command = ["distrl", "runs", "rm", to.run, *file, *(word for each in sets for word in ("--set", each))]
    return BrokerError(
        where,
        there,
        "name another broker, or, where no copy is under way and nobody needs what is there, remove it with "
        f"`{shlex.join(command)}` and run this command again",
    )


def _is_same_log(source: Config, to: Config) -> bool:
    ids = [topic_id(admin(each.kafka), each, topic_name(each.run, LOG)) for each in (source, to)]
    return ids[0] == ids[1] if all(ids) else source.kafka.bootstrap == to.kafka.bootstrap


def _is_same_store(run: str, here: ObjectStore, there: ObjectStore) -> bool:
    """Whether an object written to `there` can be read from `here`. Raises StoreError."""
    key = f"{RUNS.of(run)}/copy-{uuid4().hex}"  # in a folder of `here` that a copy has the right to read
    there.put_named(key, b"")
    try:
        return here.get_named(key) is not None
    finally:
        there.delete(key)


def _refuse_other_learning(source: Config, to: Config, here: Settings) -> None:
    """Raises ConfigError where `here`, the settings of `to`, would fold the copied journal in another way."""
    found = recorded(source)
    if found is None:  # of earlier software, whose updates and versions have a fingerprint alone
        if learned_with(source) not in (None, learning_fingerprint(to)):
            raise ConfigError(
                "--to",
                f"the copy would not learn as run {source.run} does, which has recorded no settings",
                "put the settings that the run began with into the file that --to names, too",
            )
        return
    differ = learned(differences(here, found.values), to)
    if differ:
        raise ConfigError(
            ", ".join(each.path for each in differ),
            f"the copy would not learn as run {source.run} does: {'; '.join(map(str, differ))}",
            "leave them out of the file that --to names; `distrl ablate` folds this run's log with other settings",
        )


def _wide_enough(to: Config, partitions: int) -> Config:
    """`to` with at least `partitions` partitions of `tasks`: a run may have more than its settings recorded."""
    count = max(to.kafka.task_partitions, partitions)
    return to.model_copy(update={"kafka": to.kafka.model_copy(update={"task_partitions": count})})


def _whole(source: Config, to: Config, mirror: Mirror, objects: _Objects, on_topic: OnTopic) -> int:
    """Copy a state of the run; returns how many records it has."""
    objects.copy_own(source.run)  # before the extent: this then includes all records that a checkpoint has folded
    extent = extent_of(source)
    topic_admin.ensure(_wide_enough(to, len(extent.ends["tasks"])), alter=True)  # partitions may have been added
    total, again = 0, list[RawRecord]()
    for topic, exact in ORDER:
        if topic not in extent.ends:
            continue
        before = extent.noting(again) if topic == "tasks" else objects.before(topic)
        count = mirror.records(source, topic, before, exact=exact, ends=extent.ends[topic])
        on_topic(topic, count)
        total += count
    if resumed := extent.resumed(again):
        commit(to, resumed)
    return total


def _within(source: Config, part: Part) -> tuple[int, int]:
    """The offsets of the part that the run has. Raises BrokerError where it has none of it."""
    ((first, end),) = retained(source, LOG).values()
    begin, to = max(first, part[0] or 0), end if part[1] is None else min(end, part[1])
    if begin >= to:
        raise BrokerError(
            f"run {source.run}",
            f"has trajectories {first} to {end - 1}, and none of those" if first < end else "has no trajectory",
            "name others with --from-offset and --to-offset, or leave both out for the whole run",
        )
    return begin, to


def _part(source: Config, mirror: Mirror, objects: _Objects, on_topic: OnTopic, part: tuple[int, int]) -> int:
    total = 0
    for topic in ("settings", "demonstrations", LOG):
        within = part if topic == LOG else None
        count = mirror.records(source, topic, objects.before(topic), exact=False, part=within)
        on_topic(topic, count)
        total += count
    return total


class _Objects:
    """Copies objects, each once, except those that the other store has already, as after an interrupted copy."""

    def __init__(self, source: ObjectStore, to: ObjectStore) -> None:
        self._from, self._to = source, to
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._known = KeySet()
        self._looked_into = set[str]()
        """Folders of the other store whose objects are in `_known`."""
        self.copied = self.missing = 0

    def __enter__(self) -> _Objects:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._known.close()

    def before(self, topic: str) -> Callable[[list[RawRecord]], None]:
        """A function that copies the objects that a batch of records of `topic` names."""

        def copied(batch: list[RawRecord]) -> None:
            self._copy([ref for raw in batch for ref in _named(topic, raw)])

        return copied

    def copy_own(self, run: str) -> None:
        """Copy the objects under the run's own folder: checkpoints, and others such as reserved version numbers."""
        self.copied += copy_checkpoints(self._from, self._to, run)
        for key in listed(self._from, f"{RUNS.of(run)}/"):
            if not is_checkpoint(run, key) and (data := self._from.get_named(key)) is not None:
                self._to.put_named(key, data)
                self.copied += 1

    def _copy(self, refs: Sequence[ObjectRef]) -> None:
        self._look_into({ref.key.rpartition("/")[0] for ref in refs})
        fresh = [ref for ref in refs if self._known.add(ref.key)]
        for done in self._pool.map(self._copy_one, fresh):
            self.copied += done
            self.missing += not done

    def _look_into(self, folders: Set[str]) -> None:
        """Note which objects the other store has. A key names the sha256 of its object, and a store writes an object
        whole or not at all, so an existing key needs no copy."""
        for folder in sorted(folders - self._looked_into - {""}):
            for key in listed(self._to, f"{folder}/"):
                self._known.add(key)
        self._looked_into |= folders

    def _copy_one(self, ref: ObjectRef) -> bool:
        data = self._from.get_named(
            ref.key
        )  # without checking this record's size: another record may have the right one
        if data is None or hashlib.sha256(data).hexdigest() != ref.sha256:
            return False
        self._to.put_named(ref.key, data)
        return True


def _named(topic: str, raw: RawRecord) -> list[ObjectRef]:
    """The objects that a record names, including an agent's description, whose size (-1) no record has."""
    record = read(topic, raw)
    if record is None:
        return []
    found = objects_of(record)
    if isinstance(record, Evaluation) and record.version < 0 and SHA256.fullmatch(record.version_sha256):
        found.append(ObjectRef(identity.key(record.version_sha256), record.version_sha256, -1))
    return found


def _record_what_differs(to: Config, here: Settings) -> None:
    """Record the settings that differ at the copy, such as the address of a shared store. here: those of `to`."""
    found = recorded(to)
    if found is None or not found.history:  # a run of earlier software has none
        return
    differ = [each for each in differences(found.values, here) if each.path in here]
    changes = {each.path: each.here for each in differ if each.run is not ABSENT or each.here is not None}
    if changes:
        append(to, ROLE, (), changes, is_change=True)


def _complete(to: Config) -> None:
    """Delete the record that says that the copy is incomplete."""
    with LogReader(to, TOPIC) as reader:
        for raw in (raw for batch in reader.to_end() for raw in batch):
            if INCOMPLETE in settings_in(raw, to.run).settings:
                delete_before(to, TOPIC, raw.position.partition, raw.position.offset + 1)
                return
