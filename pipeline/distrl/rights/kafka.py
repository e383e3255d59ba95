"""The rights of a role as Kafka's access control lists. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby

from distrl.broker.topics import TOPICS
from distrl.config import Config
from distrl.errors import ConfigError
from distrl.rights.roles import TRANSACTIONAL_IDS, GroupRight, Quota, Role, TopicRight


class Resource(StrEnum):
    """Kinds of resources, as Strimzi writes them."""

    TOPIC = "topic"
    GROUP = "group"
    TRANSACTIONAL_ID = "transactionalId"


OPTIONS = {
    Resource.TOPIC: "--topic",
    Resource.GROUP: "--group",
    Resource.TRANSACTIONAL_ID: "--transactional-id",
}
"""Of kafka-acls.sh."""

ON_TOPICS = {
    TopicRight.READ: ("Read",),
    TopicRight.WRITE: ("Write",),
    TopicRight.MAKE: ("Create", "Alter", "AlterConfigs", "Delete"),
}
"""Each of them includes Describe, and AlterConfigs DescribeConfigs."""

ON_GROUP = {GroupRight.JOIN: "Read", GroupRight.ASK: "Describe", GroupRight.DELETE: "Delete"}

PRINCIPAL = re.compile(r"User:(?!\*$|ANONYMOUS$)[!-~](?:[ -~]{0,253}[!-~])?")
"""A user of the broker: the name of a SASL user or the subject of a certificate, printable ASCII. Not everybody, and
not those who have not logged in."""


@dataclass(frozen=True, slots=True)
class Acl:
    """Operations that are allowed on one resource, by its exact name."""

    resource: Resource
    name: str
    """What follows `distrl.<run>.`"""
    operations: tuple[str, ...]

    def full_name(self, run: str) -> str:
        return f"distrl.{run}.{self.name}"


def acls(role: Role, group: str) -> list[Acl]:
    """What `role` may do. group: `worker.group`."""
    return list(_acls(role, group))


def _acls(role: Role, group: str) -> Iterator[Acl]:
    for topic in TOPICS:
        operations = [each for right in TopicRight if role.may(right, topic) for each in ON_TOPICS[right]]
        if operations:
            yield Acl(Resource.TOPIC, topic, tuple(operations))
    if role.group:
        yield Acl(Resource.GROUP, group, tuple(ON_GROUP[right] for right in GroupRight if right in role.group))
    for name in TRANSACTIONAL_IDS:
        if name in role.transactional_ids:
            yield Acl(Resource.TRANSACTIONAL_ID, name, ("Write",))


def commands(role: Role, config: Config, principal: str) -> list[str]:
    """The lines of shell that give `principal` the rights and the quota of `role` in the run of `config`, with the
    tools of Kafka. Raises ConfigError as `checked_principal`.
    """
    user = checked_principal(principal)
    bootstrap = shlex.quote(config.kafka.bootstrap)
    login = "" if config.kafka.security_protocol == "PLAINTEXT" else " --command-config CLIENT.properties"
    lines = []
    by_rights = sorted(acls(role, config.worker.group), key=_rights)
    for (resource, operations), same in groupby(by_rights, _rights):
        names = " ".join(f"{OPTIONS[resource]} {shlex.quote(each.full_name(config.run))}" for each in same)
        allowed = " ".join(f"--operation {each}" for each in operations)
        lines.append(
            f"kafka-acls.sh --bootstrap-server {bootstrap}{login} --add --allow-principal {shlex.quote(user)} "
            f"{allowed} {names}"
        )
    if role.quota is not None:
        name = shlex.quote(user.removeprefix("User:"))
        each = " --entity-type clients --entity-default" if role.quota.per_process else ""
        values = ",".join(f"{setting}={value}" for setting, value in quota_settings(role.quota).items())
        lines.append(
            f"kafka-configs.sh --bootstrap-server {bootstrap}{login} --alter --entity-type users --entity-name "
            f"{name}{each} --add-config {values}"
        )
    return lines


def quota_settings(quota: Quota) -> dict[str, int]:
    """In Kafka's names."""
    named = {"producer_byte_rate": quota.writes, "consumer_byte_rate": quota.reads}
    return {name: value for name, value in named.items() if value is not None}


def checked_principal(principal: str) -> str:
    """Returns `principal`. Raises ConfigError for one that is no single user, or would not print as it is."""
    if not PRINCIPAL.fullmatch(principal):
        raise ConfigError(
            "--principal",
            f"{principal[:300]!r} is not the name of one user",
            "name it as the broker does: User:worker, or User:CN=worker,OU=phones of a certificate",
        )
    return principal


def _rights(acl: Acl) -> tuple[Resource, tuple[str, ...]]:
    return acl.resource, acl.operations
