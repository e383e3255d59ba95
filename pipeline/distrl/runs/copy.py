"""Copies a run to another broker and store: a back-up, a restore, a hand-over.

Objects come before the records that name them, and the journal last, so that what is there of a copy under way is
never more than a beginning. The run keeps its name: the learner's random numbers are derived from it.
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
from distrl.broker.journal import journal_lines
from distrl.broker.reader import RawRecord, retained
from distrl.broker.runs import run_names
from distrl.broker.topic_admin import topic_id
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.errors import BrokerError, ConfigError
from distrl.runs.extent import LOG, extent_of
from distrl.runs.key_set import KeySet
from distrl.runs.mirror import Mirror
from distrl.runs.named_objects import objects_of, read
from distrl.runs.recorded import STORE_URL, TOPIC, append, recorded
from distrl.runs.settings import ABSENT, Settings, differences, learned, learning_fingerprint, run_settings
from distrl.store.adapters import copy_pruned
from distrl.store.checkpoints import copy_checkpoints, is_checkpoint
from distrl.store.folders import RUNS
from distrl.store.objects import SHA256, ObjectStore, listed
from distrl.types import Evaluation, ObjectRef

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
"""Topics in the order of copying, and whether others refer to their records by offset. Heartbeats are of the moment;
snapshots and draws follow from the others, snapshots under the offsets that these have there."""

Part = tuple[int | None, int | None]
"""First offset and the one to end before; None: as the log begins, as it ends."""
OnTopic = Callable[[str, int], None]
"""Called with a topic's name and how many of its records are copied."""


@dataclass(frozen=True, slots=True)
class Copied:
    records: int
    objects: int
    """Those that were not there yet."""
    missing: int
    """Objects that records name and the store no longer has, or not as they were recorded."""


def copy(
    source: Config,
    from_store: ObjectStore,
    to: Config,
    to_store: ObjectStore,
    on_topic: OnTopic,
    part: Part | None = None,
    to_file: Path | None = None,
) -> Copied:
    """Copy `source.run` to the broker and the store of `to`, whose `run` is the same. What comes meanwhile, of a run
    that goes on, is not in the copy.

    part: trajectories from this offset to before that one, with all demonstrations and no journal: data for another
    learner. to_file: with the settings of `to`, for messages. Before anything is copied, raises BrokerError if that
    broker has the run already or the run has no such part, ConfigError where the journal would be copied and `to` has
    other learning settings, PolicyError where its base model cannot be read, and StoreError where that store cannot be
    written. Later BrokerError or StoreError where either side fails; then the same call names the command that removes
    what is there.
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

    def copied(topic: str, count: int) -> None:
        if topic == TOPIC:  # before anything else: what is there of a copy that fails must not name the source's store
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
    return Copied(records, objects.copied, objects.missing)


def _already_there(source: Config, to: Config, to_file: Path | None, is_same_store: Callable[[], bool]) -> BrokerError:
    """The refusal of a broker that has the run, with the command that removes it where that touches no other one.

    is_same_store: asked where the two addresses differ, as one store may have several. The command names broker and
    store over any variable: these are those of the source, rather.
    """
    where, there = f"run {to.run}", f"is at the broker {to.kafka.bootstrap} already"
    if _is_same_log(source, to):
        return BrokerError(where, f"{there}: it is the one to be copied", "set kafka.bootstrap there to another broker")
    there = f"{there}, whole or as what is there of a copy that was interrupted"
    if to.store.url == source.store.url or is_same_store():
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
    """Whether what is written there lies here. Raises StoreError."""
    key = f"{RUNS.of(run)}/copy-{uuid4().hex}"  # in the folder that who copies may read here
    there.put_named(key, b"")
    try:
        return here.get_named(key) is not None
    finally:
        there.delete(key)


def _refuse_other_learning(source: Config, to: Config, here: Settings) -> None:
    """Raises ConfigError where `here`, the settings of `to`, would fold the copied journal in another way."""
    found = recorded(source)
    if found is None:  # of earlier software, whose journal has a fingerprint alone
        lines = journal_lines(source)
        if lines and lines[-1].config_fingerprint != learning_fingerprint(to):
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
    """`to` with at least so many of `tasks`: a run may have more than it recorded when it began."""
    count = max(to.kafka.task_partitions, partitions)
    return to.model_copy(update={"kafka": to.kafka.model_copy(update={"task_partitions": count})})


def _whole(source: Config, to: Config, mirror: Mirror, objects: _Objects, on_topic: OnTopic) -> int:
    """Copy a state of the run; returns how many records it has."""
    objects.copy_own(source.run)  # first: a checkpoint refers to all that it has folded, which the extent has then
    extent = extent_of(source)
    topic_admin.ensure(_wide_enough(to, len(extent.ends["tasks"])), alter=True)  # some may have come meanwhile
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
    """What the run has of the part, as offsets. Raises BrokerError where that is nothing."""
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
    """Copies objects, each once; not those that lie there already, as after a copy that was interrupted and removed."""

    def __init__(self, source: ObjectStore, to: ObjectStore) -> None:
        self._from, self._to = source, to
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._known = KeySet()
        self._looked_into = set[str]()
        """Folders there whose objects are in `_known`."""
        self.copied = self.missing = 0

    def __enter__(self) -> _Objects:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._known.close()

    def before(self, topic: str) -> Callable[[list[RawRecord]], None]:
        """What copies the objects that records of `topic` name."""

        def copied(batch: list[RawRecord]) -> None:
            self._copy([ref for raw in batch for ref in _named(topic, raw)])

        return copied

    def copy_own(self, run: str) -> None:
        """Copy what is kept under the run's name: checkpoints, and notes such as the number that is reserved."""
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
        """Note what lies there. A key has the sha256 of its object, which a store takes whole or not at all."""
        for folder in sorted(folders - self._looked_into - {""}):
            for key in listed(self._to, f"{folder}/"):
                self._known.add(key)
        self._looked_into |= folders

    def _copy_one(self, ref: ObjectRef) -> bool:
        data = self._from.get_named(ref.key)  # whatever size this record says: another may say the right one
        if data is None or hashlib.sha256(data).hexdigest() != ref.sha256:
            return False
        self._to.put_named(ref.key, data)
        return True


def _named(topic: str, raw: RawRecord) -> list[ObjectRef]:
    """The objects that a record names, and the description of the agent that it names, whose size no record says."""
    record = read(topic, raw)
    if record is None:
        return []
    found = objects_of(record)
    if isinstance(record, Evaluation) and record.version < 0 and SHA256.fullmatch(record.version_sha256):
        found.append(ObjectRef(identity.key(record.version_sha256), record.version_sha256, -1))
    return found


def _record_what_differs(to: Config, here: Settings) -> None:
    """Record settings that are others where the copy is, such as the address of a shared store. here: those of `to`."""
    found = recorded(to)
    if found is None:
        return
    differ = [each for each in differences(found.values, here) if each.path in here]
    changes = {each.path: each.here for each in differ if each.run is not ABSENT or each.here is not None}
    if changes:
        append(to, "runs copy", (), changes, is_change=True)
