"""The KafkaTopics and KafkaUsers of the chart: fields that Strimzi has, and topics, rights and users of the program."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_commands import programs, settings
from chart_examples import CHART, containers, pods, rendered
from distrl.broker.topics import TOPICS, declared_settings, partitions, topic_name
from distrl.config import Config, load
from distrl.rights.kafka import acls
from distrl.rights.roles import ROLES

pytestmark = pytest.mark.kubernetes
EXAMPLE = CHART / "ci" / "strimzi-values.yaml"
LINE = {"resource": {"type", "name", "patternType"}, "operations": None, "type": None, "host": None}
FIELDS: Mapping[str, Any] = {
    "KafkaTopic": {"topicName": None, "partitions": None, "replicas": None, "config": None},
    "KafkaUser": {
        "authentication": {"type", "password"},
        "authorization": {"type": None, "acls": LINE},
        "quotas": {"producerByteRate", "consumerByteRate", "requestPercentage", "controllerMutationRate"},
        "template": None,
    },
}
"""The fields of each spec in v1, which Strimzi has had since 0.49: 04-Crd-kafkatopic.yaml and 04-Crd-kafkauser.yaml in
packaging/install of its repository. An API server prunes others silently. None: any value."""


@pytest.fixture(scope="module")
def objects(helm: Path) -> list[dict[str, Any]]:
    return rendered(helm, EXAMPLE)


@pytest.fixture(scope="module")
def config(objects: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Config:
    """What the pods read."""
    file = tmp_path_factory.mktemp("config") / "config.yaml"
    file.write_text(next(each for each in objects if each["kind"] == "ConfigMap")["data"]["config.yaml"])
    return load(file, (), {"DISTRL_KAFKA__SASL_USERNAME": "u", "DISTRL_KAFKA__SASL_PASSWORD": "p"})


def of_kind(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {each["metadata"]["name"]: each for each in objects if each["kind"] == kind}


def unknown(value: Any, known: Any, path: str) -> list[str]:
    """The paths in `value` that are not among the known ones."""
    if isinstance(value, list):
        return [found for each in value for found in unknown(each, known, path)]
    if known is None or not isinstance(value, dict):
        return []
    below = known if isinstance(known, dict) else dict.fromkeys(known)
    wrong = [f"{path}.{key}" for key in value.keys() - below.keys()]
    return wrong + [found for key in value.keys() & below.keys() for found in unknown(value[key], below[key], key)]


@pytest.mark.parametrize("kind", FIELDS)
def test_every_field_is_one_that_strimzi_has(objects: list[dict[str, Any]], kind: str) -> None:
    found = of_kind(objects, kind).values()
    assert found
    for each in found:
        assert each["apiVersion"] == "kafka.strimzi.io/v1"
        assert each["metadata"]["labels"]["strimzi.io/cluster"] == "main"
        assert unknown(each["spec"], FIELDS[kind], "spec") == []


def test_a_field_that_strimzi_has_not_is_found() -> None:
    acl = {"resource": {"kind": "topic"}, "operation": "Read", "operations": ["Read"]}
    wrong = {"authorization": {"type": "simple", "acls": [acl]}, "quota": {}}
    assert sorted(unknown(wrong, FIELDS["KafkaUser"], "spec")) == ["acls.operation", "resource.kind", "spec.quota"]


def test_topics_are_those_that_the_program_would_make(objects: list[dict[str, Any]], config: Config) -> None:
    found = {each["spec"]["topicName"]: each["spec"] for each in of_kind(objects, "KafkaTopic").values()}
    assert found.keys() == {topic_name(config.run, name) for name in TOPICS}
    for topic in TOPICS.values():
        own = found[topic_name(config.run, topic.name)]
        assert own["partitions"] == partitions(config, topic)
        assert own["replicas"] == config.kafka.replication_factor == 3
        assert own["config"] == declared_settings(config, topic)


def test_no_topic_goes_with_the_release(objects: list[dict[str, Any]]) -> None:
    for name, each in of_kind(objects, "KafkaTopic").items():
        assert each["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep", name


def test_users_have_the_rights_of_their_role_in_this_run(objects: list[dict[str, Any]], config: Config) -> None:
    found = of_kind(objects, "KafkaUser")
    assert found.keys() == {f"run-distrl-{name}" for name in ROLES if name != "evaluator"}
    for name, each in found.items():
        role = ROLES[name.removeprefix("run-distrl-")]
        given = [(own["resource"], own["operations"]) for own in each["spec"]["authorization"]["acls"]]
        assert given == [
            (
                {"type": acl.resource.value, "name": acl.full_name(config.run), "patternType": "literal"},
                list(acl.operations),
            )
            for acl in acls(role, config.worker.group)
        ]


def test_every_pod_logs_in_as_a_user_of_the_release(objects: list[dict[str, Any]]) -> None:
    users = of_kind(objects, "KafkaUser")
    asked = set()
    for name, pod in pods(objects):
        for container in containers(pod):
            given = {each["name"]: each for each in container["env"]}
            if container["name"] == "phones":
                assert not [each for each in given if "KAFKA" in each]
                continue
            user = given["DISTRL_KAFKA__SASL_USERNAME"]["value"]
            secret = given["DISTRL_KAFKA__SASL_PASSWORD"]["valueFrom"]["secretKeyRef"]
            assert secret == {"name": user, "key": "password"}, name
            asked.add(user)
    assert asked == users.keys()


def test_where_users_have_certificates_the_program_logs_in_by_them(helm: Path, tmp_path: Path) -> None:
    given = yaml.safe_load(EXAMPLE.read_text())
    given["strimzi"]["authentication"] = "tls"
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump(given))
    found = programs(rendered(helm, values))
    for name, container, files in found:
        if container["name"] == "phones":
            continue
        kafka = settings(container, files, tmp_path).kafka
        assert (kafka.security_protocol, kafka.sasl_username) == ("SSL", None), name
        mounts = {each["mountPath"] for each in container["volumeMounts"]}
        named = {kafka.client["ssl.certificate.location"], kafka.client["ssl.key.location"], str(kafka.ssl_ca)}
        assert {str(Path(str(each)).parent) for each in named} <= mounts, name
    assert len(found) > 10
