"""The topics of a run, declared here and nowhere else: record type, partitions and retention.

Pure: topic_admin.py creates, alters and describes them at a broker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from distrl.broker.connect import BATCH_OVERHEAD_BYTES
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.types import Draws, Evaluation, Figures, Heartbeat, Settings, Snapshot, Task, Trajectory, Update, Version

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
FOR_EVER = -1
REPLICATION = "replication factor"
MIN_IN_SYNC = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic of every run."""

    name: str
    record: type | None
    """What its values decode to."""
    key: str
    partitions: int | None = 1
    """None: `kafka.task_partitions`."""
    cleanup: str = "delete"
    retention_ms: int = FOR_EVER
    segment_ms: int | None = None
    transactional: bool = False
    """Readers see only committed transactions, so never what a fenced learner wrote."""
    fenced: bool = False
    """Written in transactions, to fence older writers. Readers also take aborted records: nobody waits for a writer
    that was killed, and a task in the log counts as fed."""
    is_truth: bool = False
    """The fold reads it, the learner writes it, a group's offsets refer to it, or it says what the run is: its
    acknowledged records must survive a power loss."""


_DECLARED = (
    # Never deleted: the feeder derives from them what it has fed. A group that loses its offsets plays all again.
    Topic("tasks", Task, "task id", partitions=None, fenced=True, is_truth=True),
    Topic("trajectories", Trajectory, "task id", is_truth=True),  # one partition: a total order, which the fold follows
    Topic("demonstrations", Trajectory, "demo id", is_truth=True),
    Topic("versions", Version, "version", cleanup="compact", transactional=True, is_truth=True),
    Topic("updates", Update, "run", transactional=True, is_truth=True),
    Topic("settings", Settings, "run", is_truth=True),
    Topic("evaluations", Evaluation, "version"),
    # Whole segments are deleted, so a day's retention needs segments shorter than a day.
    Topic("heartbeats", Heartbeat, "process", retention_ms=DAY_MS, segment_ms=HOUR_MS),
    # One for each role of which a run has a single process; no other role may write it. A record per start of the role.
    Topic("feeder.claims", Heartbeat, "role"),
    Topic("learner.claims", Heartbeat, "role"),
    # Only the newest is read. The segment that is written to is never compacted, so segments are short.
    Topic("snapshots", Snapshot, "run", cleanup="compact", segment_ms=10 * MINUTE_MS),
    # For people: what each update drew. Folding the log again gives the same draws.
    Topic("draws", Draws, "update", retention_ms=7 * DAY_MS, segment_ms=12 * HOUR_MS),
    # For people: the losses of each update, a few hundred bytes. Not compacted: of two records the first counts.
    Topic("figures", Figures, "update"),
    Topic("trajectories.dlq", None, "as it came", retention_ms=30 * DAY_MS),
)

TOPICS: Mapping[str, Topic] = MappingProxyType({topic.name: topic for topic in _DECLARED})


@dataclass(frozen=True, slots=True)
class TopicDifference:
    """A setting of an existing topic that differs from its declaration."""

    topic: str
    setting: str
    found: str
    declared: str

    @property
    def shrinks(self) -> bool:
        """It would remove partitions, which Kafka cannot do."""
        return self.setting == "partitions" and int(self.found) > int(self.declared)

    @property
    def moves(self) -> bool:
        """It would move replicas between brokers, which only Kafka's own tool can request."""
        return self.setting == REPLICATION

    def __str__(self) -> str:
        return f"{self.topic}: {self.setting} is {self.found}, declared is {self.declared}"


def topic_name(run: str, name: str) -> str:
    """The full name of topic `name` (a key of TOPICS) of `run`."""
    if name not in TOPICS:
        raise BrokerError(name, "is not a declared topic", f"use one of: {', '.join(TOPICS)}")
    return f"distrl.{run}.{name}"


def partitions(config: Config, topic: Topic) -> int:
    return config.kafka.task_partitions if topic.partitions is None else topic.partitions


def alterable(differences: Iterable[TopicDifference]) -> list[TopicDifference]:
    """Those that `distrl topics ensure --alter` can fix. Pure.

    Excludes removing partitions and moving replicas; and a min.insync.replicas above the present number of replicas,
    with which nothing could be written.
    """
    found = list(differences)
    moving = {each.topic for each in found if each.moves}
    return [
        each
        for each in found
        if not (each.shrinks or each.moves or (each.setting == MIN_IN_SYNC and each.topic in moving))
    ]


def declared_settings(config: Config, topic: Topic) -> dict[str, str]:
    """The topic-level settings that are set at creation and compared afterwards."""
    kafka = config.kafka
    made = {
        "cleanup.policy": topic.cleanup,
        "retention.ms": str(topic.retention_ms),
        "retention.bytes": "-1",
        # The broker's clock: with CreateTime it refuses records of a machine whose clock is an hour ahead.
        "message.timestamp.type": "LogAppendTime",
        "max.message.bytes": str(kafka.max_record_bytes + BATCH_OVERHEAD_BYTES),
        # acks=all means little if one in-sync replica is enough.
        MIN_IN_SYNC: "2" if kafka.replication_factor >= 3 else "1",
    }
    if topic.is_truth and kafka.replication_factor < 3:
        # Records are acknowledged by a single replica, so it must flush each one to disk.
        made["flush.messages"] = "1"
    if topic.segment_ms is not None:
        made["segment.ms"] = str(topic.segment_ms)
    return made


def compare(
    config: Config, topic: Topic, found_partitions: int, found: Mapping[str, str], found_copies: int | None = None
) -> tuple[TopicDifference, ...]:
    """The settings in which the existing topic differs. found_copies: replicas of each partition. Pure."""
    name = topic_name(config.run, topic.name)
    differences = []
    if found_partitions != partitions(config, topic):
        differences.append(TopicDifference(name, "partitions", str(found_partitions), str(partitions(config, topic))))
    copies = config.kafka.replication_factor
    if found_copies is not None and found_copies != copies:
        differences.append(TopicDifference(name, REPLICATION, str(found_copies), str(copies)))
    for setting, value in declared_settings(config, topic).items():
        if found.get(setting) != value:
            differences.append(TopicDifference(name, setting, found.get(setting, "unset"), value))
    return tuple(differences)
