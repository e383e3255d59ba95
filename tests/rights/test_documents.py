"""What is made from the declarations is in the repository, as it is made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from distrl.broker.topics import TOPICS, declared_settings, partitions
from distrl.config import load
from distrl.rights.documents import documents, policy_json, rights_yaml, topics_yaml
from distrl.rights.objects import policy
from distrl.rights.roles import ROLES

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("path", documents())
def test_a_file_is_what_is_declared(path: str) -> None:
    assert (ROOT / path).read_text() == documents()[path], "run `python -m distrl.rights`"


def test_no_policy_is_there_that_is_not_made() -> None:
    there = {str(file.relative_to(ROOT)) for file in (ROOT / "infra" / "minio" / "policies").iterdir()}
    assert there == {path for path in documents() if "/policies/" in path}


@pytest.mark.parametrize("copies", [1, 2, 3, 5])
def test_a_template_that_adds_the_parts_has_what_the_program_makes(copies: int) -> None:
    sets = [f"kafka.replication_factor={copies}", "kafka.max_record_bytes=70000", "kafka.task_partitions=7"]
    config, made = load(sets=sets, environ={}), yaml.safe_load(topics_yaml())
    for each, topic in zip(made["topics"], TOPICS.values(), strict=True):
        more = each["three_copies"] if copies >= 3 else each["fewer_copies"]
        largest = {"max.message.bytes": str(70000 + made["record_overhead_bytes"])}
        assert {**each["config"], **more, **largest} == declared_settings(config, topic)
        count = 7 if each["partitions"] == "kafka.task_partitions" else each["partitions"]
        assert (each["name"], count) == (topic.name, partitions(config, topic))


def test_strimzis_words_are_used() -> None:
    for role in yaml.safe_load(rights_yaml())["roles"].values():
        for acl in role["acls"]:
            assert acl.keys() == {"type", "name", "patternType", "operations"}
            assert acl["type"] in ("topic", "group", "transactionalId")
            assert acl["patternType"] == "literal"


def resources(made: dict[str, Any]) -> list[str]:
    return [where for statement in made["Statement"] for where in statement["Resource"]]


def test_a_policy_names_one_run_and_one_bucket() -> None:
    for role in ROLES.values():
        made = policy(role, "bucket", "mine")
        if made is None:
            assert role.name == "feeder"
            continue
        assert not [action for each in made["Statement"] for action in each["Action"] if "*" in action]
        shared = {"arn:aws:s3:::bucket", "arn:aws:s3:::bucket/agents/*", "arn:aws:s3:::bucket/check/*"}
        own = [where for where in resources(made) if where not in shared]
        assert own
        assert all(where.startswith("arn:aws:s3:::bucket/") and where.endswith("/mine/*") for where in own if own)


def test_no_role_deletes_what_versioning_keeps() -> None:
    actions: dict[str, set[str]] = {"Allow": set(), "Deny": set()}
    for role in ROLES.values():
        for statement in (policy(role, "bucket", "mine") or {"Statement": []})["Statement"]:
            actions[statement["Effect"]].update(statement["Action"])
    assert actions["Deny"] == {"s3:DeleteObjectVersion"}
    assert actions["Allow"] == {
        "s3:ListBucket",
        "s3:GetBucketLocation",
        "s3:GetObject",
        "s3:PutObject",
        "s3:AbortMultipartUpload",
        "s3:DeleteObject",
    }


def test_a_file_that_is_not_filled_in_gives_nothing() -> None:
    text = policy_json(ROLES["learner"])
    assert text is not None
    assert all("${bucket}" in where for where in resources(json.loads(text)))
