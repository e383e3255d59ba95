"""The rights of the roles, declared here and nowhere else.

infra/kafka/acls.yaml, infra/minio/policies, the chart's KafkaUsers and the table in docs/security.md are made from them
(`python -m distrl.rights`), and one test for each cell of the table holds them against a real broker and a real store
(tests/integration/test_rights.py, test_rights_in_store.py). A right that no work of the role needs is not here. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from distrl.broker.topics import TOPICS
from distrl.errors import ConfigError
from distrl.store.folders import FOLDERS, Folder


class TopicRight(StrEnum):
    READ = "read"
    WRITE = "write"
    MAKE = "make"
    """Create, alter and delete."""


class GroupRight(StrEnum):
    JOIN = "join"
    """Take tasks as a member, and commit them."""
    ASK = "ask"
    """See what is committed."""
    DELETE = "delete"


class ObjectRight(StrEnum):
    GET = "get"
    PUT = "put"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Quota:
    """The most bytes a second and broker; None: as many as it can."""

    writes: int | None = None
    reads: int | None = None
    per_process: bool = True
    """Whether each process has this quota, by its client id; else all processes of the user share it."""


@dataclass(frozen=True, slots=True)
class Role:
    name: str
    does: str
    """For people."""
    topics: Mapping[TopicRight, frozenset[str]]
    group: frozenset[GroupRight] = frozenset()
    """On the workers' group."""
    transactional_ids: frozenset[str] = frozenset()
    """The ids that it may use, with which it also fences others that use them."""
    objects: Mapping[ObjectRight, frozenset[Folder]] = field(default_factory=dict)
    """A role with any of these may also list the names of all objects. To others S3 reports a missing object as
    forbidden, and a learner has to tell a missing checkpoint from a forbidden one."""
    quota: Quota | None = None
    """None for the roles that a run has once and waits for: they read the log at a start as fast as they can."""

    def may(self, right: TopicRight, topic: str) -> bool:
        return topic in self.topics.get(right, ())

    def may_object(self, right: ObjectRight, folder: Folder) -> bool:
        return folder in self.objects.get(right, ())


def _topics(read: str = "", write: str = "", *, make: bool = False) -> Mapping[TopicRight, frozenset[str]]:
    """read, write: names of topics, separated by blanks; `*` for all."""
    every = frozenset(TOPICS)
    return {
        TopicRight.READ: every if read == "*" else frozenset(read.split()),
        TopicRight.WRITE: frozenset(write.split()),
        TopicRight.MAKE: every if make else frozenset(),
    }


def _objects(get: str = "", put: str = "", delete: str = "") -> Mapping[ObjectRight, frozenset[Folder]]:
    """Names of folders, separated by blanks."""
    named = {ObjectRight.GET: get, ObjectRight.PUT: put, ObjectRight.DELETE: delete}
    return {right: frozenset(FOLDERS[each] for each in names.split()) for right, names in named.items()}


MIB = 1024 * 1024
MANY = Quota(writes=8 * MIB)
"""For roles with many processes. It is eight of the largest records a second, thousands of times what 64 phones write
(docs/scale.md), and keeps a process that is out of order, or whose password was stolen, from filling the disks within
the hour."""

# Whoever puts also gets: before it uploads an object of 256 KB or more, the client asks whether it is there.
_DECLARED = (
    Role(
        "operator",
        "`distrl topics ensure`, `dlq retry`, `runs set`, `runs rm`; what looks at a run, too",
        _topics("*", "tasks trajectories demonstrations settings", make=True),
        frozenset({GroupRight.JOIN, GroupRight.DELETE}),  # commits where a new group begins
        frozenset({"dlq"}),
        _objects("check", "check", "adapters runs screenshots verdicts"),
    ),
    Role(
        "feeder",
        "reads heartbeats for each worker's phones and partitions, evaluations for its snapshots, and asks how far the "
        "workers' group is; the only role that claims to be the feeder",
        _topics(
            "tasks trajectories updates versions settings heartbeats evaluations snapshots feeder.claims",
            "tasks settings heartbeats snapshots feeder.claims",
        ),
        frozenset({GroupRight.ASK}),
        frozenset({"feeder"}),
    ),
    Role(
        "worker",
        "reads screenshots back for judge.validity=vlm",
        _topics("tasks versions settings trajectories.dlq", "trajectories heartbeats trajectories.dlq"),
        frozenset({GroupRight.JOIN}),
        objects=_objects("adapters screenshots verdicts check", "screenshots verdicts check"),
        quota=MANY,
    ),
    Role(
        "demonstrator",
        "`distrl demonstrate` and `distrl phones play --record`",
        _topics("demonstrations updates versions settings", "demonstrations settings"),
        objects=_objects("screenshots check", "screenshots check"),
        quota=MANY,
    ),
    Role(
        "learner",
        "the only role that journals, writes a version and claims to be the learner, so `distrl skip` is run with its "
        "rights",
        _topics(
            "demonstrations trajectories updates versions settings learner.claims trajectories.dlq",
            "updates versions settings heartbeats draws figures learner.claims trajectories.dlq",
        ),
        transactional_ids=frozenset({"learner"}),
        objects=_objects("adapters runs screenshots check", "adapters runs check", "adapters runs"),
    ),
    Role(
        "evaluator",
        "`distrl evaluate`; `distrl appagent evaluate`, which stores the agent's description; `distrl judge`, which "
        "reads trajectories and stores verdicts",
        _topics("trajectories versions evaluations settings", "evaluations heartbeats"),
        objects=_objects("adapters screenshots verdicts agents check", "screenshots verdicts agents check"),
        quota=MANY,
    ),
    Role(
        "viewer",
        "`distrl status`, `view`, `tail`, `replay`, `scores`, `track`, `lineage`, `runs show`, `learner --verify`, "
        "`evaluate` on recorded episodes: reads everything of the run, changes nothing",
        _topics("*"),
        frozenset({GroupRight.ASK}),
        objects=_objects("adapters runs screenshots verdicts agents"),
        quota=Quota(reads=32 * MIB, per_process=False),  # one who reads a whole log leaves the brokers to the others
    ),
)

ROLES: Mapping[str, Role] = MappingProxyType({role.name: role for role in _DECLARED})
TRANSACTIONAL_IDS: tuple[str, ...] = tuple(sorted({name for role in _DECLARED for name in role.transactional_ids}))


def role_named(name: str) -> Role:
    """The role of that name. Raises ConfigError for an unknown one."""
    if name not in ROLES:
        raise ConfigError("--role", f"there is no role {name!r}", f"use one of: {', '.join(ROLES)}")
    return ROLES[name]
