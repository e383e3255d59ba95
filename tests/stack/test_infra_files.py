"""infra/: what is declared there agrees with the code that relies on it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from distrl.broker.topics import FOR_EVER, TOPICS
from distrl.stack import jars, kafka
from distrl.stack.infra_files import declared, infra_folder
from distrl.types import Trajectory


def properties() -> dict[str, str]:
    text = kafka.properties(29092, 29093, "data")
    return dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))


def test_the_template_leaves_nothing_unfilled() -> None:
    made = properties()
    assert made["listeners"] == "PLAINTEXT://127.0.0.1:29092,CONTROLLER://127.0.0.1:29093"
    assert made["controller.quorum.bootstrap.servers"] == "127.0.0.1:29093"
    assert not [value for value in made.values() if "$" in value]


def test_the_broker_in_docker_has_the_same_settings() -> None:
    compose = yaml.safe_load(declared("kafka/compose.yaml"))["services"]["kafka"]
    environment = {name: value for name, value in compose["environment"].items() if name != "KAFKA_HEAP_OPTS"}
    ours = {"KAFKA_" + name.replace(".", "_").upper(): value for name, value in properties().items()}
    assert environment.keys() == ours.keys()
    elsewhere = {name for name in ours if re.search(r"LISTENERS|BOOTSTRAP_SERVERS|LOG_DIRS", name)}
    assert {name: environment[name] for name in ours.keys() - elsewhere} == {
        name: ours[name] for name in ours.keys() - elsewhere
    }
    assert compose["image"] == f"apache/kafka:{jars.KAFKA_VERSION}"


def test_every_image_is_pinned() -> None:
    for file in infra_folder().glob("*/compose.yaml"):
        for service in yaml.safe_load(file.read_text())["services"].values():
            assert re.fullmatch(r"[a-z]+/[a-z]+:\S*\d\S*", service["image"]), file


def test_every_port_in_docker_is_on_loopback() -> None:
    for file in infra_folder().glob("*/compose.yaml"):
        for service in yaml.safe_load(file.read_text())["services"].values():
            assert all(port.startswith("127.0.0.1:") for port in service["ports"]), file


@pytest.mark.parametrize(
    ("server", "jar"),
    [
        (jars.KAFKA, f"kafka_2.13-{jars.KAFKA_VERSION}.jar"),
        (jars.S3PROXY, f"s3proxy-{jars.S3PROXY_VERSION}-jar-with-dependencies.jar"),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_the_jars_are_locked_by_hash(server: jars.Jars, jar: str) -> None:
    locked = server.locked()
    assert jar in locked
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in locked.values())
    assert all(Path(name).name == name and name.endswith(".jar") for name in locked)


def test_no_rule_expires_what_a_record_names() -> None:
    kept = {topic.name for topic in TOPICS.values() if topic.record is Trajectory and topic.retention_ms == FOR_EVER}
    assert kept, "were trajectories to expire, screenshots could, later"
    for rule in json.loads(declared("minio/bucket.json"))["lifecycle"]["Rules"]:
        assert rule["Filter"]["Prefix"] == "check/" or "Days" not in rule.get("Expiration", {})


def test_what_a_role_deletes_stays_for_a_while_wherever_it_lay() -> None:
    bucket = json.loads(declared("minio/bucket.json"))
    assert bucket["versioning"] == {"Status": "Enabled"}
    days = {
        rule["Filter"]["Prefix"]: rule["NoncurrentVersionExpiration"]["NoncurrentDays"]
        for rule in bucket["lifecycle"]["Rules"]
    }
    assert days == {"check/": 1, "runs/": 1, "": 30}


def test_what_a_run_relies_on_is_the_same_on_a_cluster() -> None:
    def lines(text: str) -> set[str]:
        return {line for line in text.splitlines() if line and not line.startswith("#")}

    relied = lines(declared("kafka/server.properties").partition("What a run relies on.")[2])
    cluster = lines(declared("kafka/cluster.properties"))
    assert len(relied) == 3
    assert relied <= cluster
    assert {"min.insync.replicas=2", "default.replication.factor=3"} <= cluster
