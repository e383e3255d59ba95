"""The files that are made from the declarations of topics and rights: for Strimzi, Helm and S3, and to be read. Pure.

`python -m distrl.rights` writes them into a checkout; a test holds that they are what is declared.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from distrl.broker.connect import BATCH_OVERHEAD_BYTES
from distrl.broker.topics import MIN_IN_SYNC, TOPICS, Topic, declared_settings, partitions
from distrl.config import Config, load
from distrl.rights.asyncapi import asyncapi_yaml
from distrl.rights.kafka import acls, quota_settings
from distrl.rights.objects import policy
from distrl.rights.roles import ROLES, Role

BUCKET, RUN = "${bucket}", "${run}"
"""Placeholders, to be filled in with a bucket and a run."""

MAX_BYTES = "max.message.bytes"
LARGEST_RECORD = "kafka.max_record_bytes"

_MADE = "# Made from {} (`python -m distrl.rights`, `make chart`); do not edit.\n"
_TOPICS = (
    _MADE.format("pipeline/distrl/broker/topics.py")
    + f"""#
# A run's topics: distrl.<run>.<name>. `config` holds for every one; with three copies or more `three_copies` is added,
# with fewer `fewer_copies`. max.message.bytes is {LARGEST_RECORD} and {BATCH_OVERHEAD_BYTES}.
"""
)
_RIGHTS = (
    _MADE.format("pipeline/distrl/rights/roles.py")
    + """#
# What each role may do in a run, in Strimzi's words: allow these operations on distrl.<run>.<name>, by its exact name.
# The group's name is `worker.group`. Quotas are bytes a second and broker; with per_process each process has so many
# (client quota of the user and of every client id), else all that have the user's name together.
# `distrl rights kafka --role ROLE --principal User:NAME` prints the commands for one run.
"""
)


def topics_yaml() -> str:
    config = load(environ={})
    few, many = (_with_copies(config, copies) for copies in (1, 3))
    listed = []
    for topic in TOPICS.values():
        fewer, three = declared_settings(few, topic), declared_settings(many, topic)
        same = {name: value for name, value in three.items() if fewer.get(name) == value and name != MAX_BYTES}
        listed.append(
            {
                "name": topic.name,
                "partitions": _partitions(config, topic),
                "config": same,
                "three_copies": {MIN_IN_SYNC: three[MIN_IN_SYNC]},
                "fewer_copies": {name: fewer[name] for name in fewer if name not in same and name != MAX_BYTES},
            }
        )
    return _TOPICS + _yaml({"record_overhead_bytes": BATCH_OVERHEAD_BYTES, "topics": listed})


def rights_yaml() -> str:
    group = load(environ={}).worker.group
    return _RIGHTS + _yaml({"roles": {role.name: _rights(role, group) for role in ROLES.values()}})


def policy_json(role: Role) -> str | None:
    """None for a role that has no right in the store."""
    made = policy(role, BUCKET, RUN)
    return None if made is None else json.dumps(made, indent=2) + "\n"


def documents() -> Mapping[str, str]:
    """Path in a checkout -> text."""
    policies = {f"infra/minio/policies/{role.name}.json": policy_json(role) for role in ROLES.values()}
    return {
        "infra/kafka/topics.yaml": topics_yaml(),
        "infra/kafka/acls.yaml": rights_yaml(),
        "schemas/asyncapi.yaml": asyncapi_yaml(),
        **{path: text for path, text in policies.items() if text is not None},
    }


def _partitions(config: Config, topic: Topic) -> int | str:
    return partitions(config, topic) if topic.partitions is not None else "kafka.task_partitions"


def _with_copies(config: Config, copies: int) -> Config:
    return config.model_copy(update={"kafka": config.kafka.model_copy(update={"replication_factor": copies})})


def _rights(role: Role, group: str) -> dict[str, Any]:
    listed = [
        {"type": each.resource.value, "name": each.name, "patternType": "literal", "operations": list(each.operations)}
        for each in acls(role, group)
    ]
    quota = {} if role.quota is None else quota_settings(role.quota) | {"per_process": role.quota.per_process}
    return {"does": role.does, "acls": listed, **({"quota": quota} if quota else {})}


def _yaml(value: Any) -> str:
    return yaml.safe_dump(value, sort_keys=False, width=120, default_flow_style=None)
