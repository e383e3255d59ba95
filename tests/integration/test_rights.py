"""Each role may do what the table says at the broker, and is refused everything else: one test for each cell.

On a broker with TLS, passwords and an authorizer. The object store's cells are in test_rights_in_store.py.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest
from cells import EACH_ROLE, RefusedError, holds
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from distrl.broker import topic_admin
from distrl.broker.connect import FORBIDDEN, admin, settings, with_retry
from distrl.broker.connect import RefusedError as BrokerRefusedError
from distrl.broker.group import workers_group
from distrl.broker.reader import LogReader
from distrl.broker.topics import TOPICS, topic_name
from distrl.cli.main import app
from distrl.config import Config, load, with_run
from distrl.errors import BrokerError
from distrl.rights.grant import grant
from distrl.rights.kafka import commands
from distrl.rights.roles import ROLES, TRANSACTIONAL_IDS, GroupRight, Role, TopicRight
from distrl.train.roles import write_settings
from secured import PASSWORD, Secured, java, over_tls
from typer.testing import CliRunner, Result

pytestmark = pytest.mark.integration

ANSWER_S = 60.0
"""An answer takes milliseconds; a machine that is busy with other work takes longer."""
EACH_TOPIC = pytest.mark.parametrize("topic", TOPICS)
NO_SETTINGS = {name: None for name in os.environ if name.startswith("DISTRL_")}


@dataclass
class User:
    """A role at the broker; each method does one thing, and raises RefusedError where it may not."""

    config: Config

    @cached_property
    def _admin(self) -> AdminClient:
        return admin(self.config.kafka)

    @cached_property
    def _producer(self) -> Producer:
        return Producer(settings(self.config.kafka, "a test", {"acks": "all"}))

    def read(self, run: str, topic: str) -> None:
        """As every role does; there is a record to be fetched."""
        try:
            with LogReader(with_run(self.config, run), topic) as reader:
                assert list(reader.to_end())
        except BrokerRefusedError as error:
            if "may not" not in error.what:
                raise
            raise RefusedError(error.what) from None

    def write(self, topic: str) -> None:
        failed: list[KafkaError] = []

        def delivered(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed.append(error)

        answered(lambda: self._producer.produce(topic, b"x", b"key", on_delivery=delivered))  # it may know already
        assert self._producer.flush(ANSWER_S) == 0, f"no answer about {topic}"
        if failed:
            raise_refused(failed[0])

    def make(self, topic: str) -> list[str]:
        """Creates, alters, adds partitions to and deletes `topic`, which is there. Returns what of it was allowed."""
        entry = ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        client, longest = self._admin, {"request_timeout": ANSWER_S}
        asked: dict[str, Callable[[], object]] = {
            "create": lambda: client.create_topics([NewTopic(topic, 1)], **longest)[topic].result(),
            "alter": lambda: client.incremental_alter_configs([resource], **longest)[resource].result(),
            "add": lambda: client.create_partitions([NewPartitions(topic, 9)], **longest)[topic].result(),
            "delete": lambda: client.delete_topics([topic], **longest)[topic].result(),
        }
        return [name for name, ask in asked.items() if allowed(ask)]

    def join(self) -> None:
        """Commits as a member does."""
        place = TopicPartition(topic_name(self.config.run, "tasks"), 0, 0)
        asked = ConsumerGroupTopicPartitions(workers_group(self.config), [place])

        def commit() -> None:
            found = self._admin.alter_consumer_group_offsets([asked])[asked.group_id].result()
            for each in found.topic_partitions:
                if each.error is not None:
                    raise KafkaException(each.error)

        answered(lambda: with_retry(self.config.kafka, commit))  # the group is made by the first

    def ask(self) -> None:
        group = workers_group(self.config)
        answered(lambda: self._admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result())

    def delete_group(self) -> None:
        group = workers_group(self.config)
        answered(lambda: self._admin.delete_consumer_groups([group])[group].result())

    def open(self, name: str) -> None:
        own = {"transactional.id": f"distrl.{self.config.run}.{name}"}
        made = Producer(settings(self.config.kafka, "a test", own))
        answered(lambda: made.init_transactions(ANSWER_S))


def answered(ask: Callable[[], object]) -> object:
    try:
        return ask()
    except KafkaException as error:
        raise_refused(error.args[0])
        raise


def allowed(ask: Callable[[], object]) -> bool:
    try:
        ask()
    except KafkaException as error:
        if error.args[0].code() in FORBIDDEN:
            return False
        if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
            return True
        raise
    return True


def raise_refused(error: KafkaError) -> None:
    if error.code() in FORBIDDEN:
        raise RefusedError(error.str())
    raise KafkaException(error)


@pytest.fixture(scope="module")
def run() -> str:
    return f"rights-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def owner(secured_server: Secured, run: str) -> Config:
    """The administrator's settings, for the run that every role has its rights in. Two are beside it: another one, and
    one whose topics the operator may delete.
    """
    made = over_tls(secured_server, "admin", f"run={run}")
    administrator = User(made)
    for each in (made, with_run(made, f"{run}-other")):
        topic_admin.ensure(each)
        for topic in TOPICS:
            administrator.write(topic_name(each.run, topic))
    doomed = with_run(made, f"{run}-doomed")
    topic_admin.ensure(doomed)
    wanted = grant(doomed, ROLES["operator"], "User:operator")
    wanted += sum(grant(made, role, f"User:{role.name}") for role in ROLES.values())
    wait_in_force(made, wanted)
    return made


def wait_in_force(config: Config, wanted: int) -> None:
    """Wait until the broker goes by so many rights of the run of `config` and those whose names begin like it: it
    learns of them some milliseconds after it has taken them.
    """
    every = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    client, deadline = admin(config.kafka), time.monotonic() + ANSWER_S
    while True:
        found = client.describe_acls(every).result(ANSWER_S)
        if sum(each.name.startswith(f"distrl.{config.run}") for each in found) == wanted:
            return
        assert time.monotonic() < deadline, f"{wanted} rights are not in force after {ANSWER_S:g} s"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def users(secured_server: Secured, owner: Config) -> dict[str, User]:
    return {name: User(over_tls(secured_server, name, f"run={owner.run}")) for name in (*ROLES, "admin")}


@EACH_ROLE
@EACH_TOPIC
def test_a_topic_is_read_by_those_who_may(users: dict[str, User], run: str, role: Role, topic: str) -> None:
    holds(role.may(TopicRight.READ, topic), users[role.name].read, run, topic)


@EACH_ROLE
@EACH_TOPIC
def test_a_topic_is_written_by_those_who_may(users: dict[str, User], run: str, role: Role, topic: str) -> None:
    holds(role.may(TopicRight.WRITE, topic), users[role.name].write, topic_name(run, topic))


@EACH_ROLE
@EACH_TOPIC
def test_a_topic_is_made_by_those_who_may(users: dict[str, User], run: str, role: Role, topic: str) -> None:
    may = role.may(TopicRight.MAKE, topic)
    done = users[role.name].make(topic_name(f"{run}-doomed" if may else run, topic))
    assert done == (["create", "alter", "add", "delete"] if may else [])


@EACH_ROLE
def test_the_workers_group_is_joined_by_those_who_may(users: dict[str, User], role: Role) -> None:
    holds(GroupRight.JOIN in role.group, users[role.name].join)


@EACH_ROLE
def test_the_workers_progress_is_seen_by_those_who_may(users: dict[str, User], role: Role) -> None:
    """Kafka lets those see it, too, who may join or delete."""
    users["admin"].join()
    holds(bool(role.group), users[role.name].ask)


@EACH_ROLE
def test_the_workers_group_is_deleted_by_those_who_may(users: dict[str, User], role: Role) -> None:
    users["admin"].join()
    holds(GroupRight.DELETE in role.group, users[role.name].delete_group)


@EACH_ROLE
@pytest.mark.parametrize("name", TRANSACTIONAL_IDS)
def test_others_are_fenced_by_those_who_may(users: dict[str, User], role: Role, name: str) -> None:
    holds(name in role.transactional_ids, users[role.name].open, name)


@EACH_ROLE
@EACH_TOPIC
def test_no_role_reads_a_topic_of_another_run(users: dict[str, User], run: str, role: Role, topic: str) -> None:
    holds(False, users[role.name].read, f"{run}-other", topic)


@EACH_ROLE
def test_no_role_sees_that_there_is_another_run(users: dict[str, User], run: str, role: Role) -> None:
    seen = admin(users[role.name].config.kafka).list_topics(timeout=ANSWER_S).topics
    assert not [name for name in seen if name.startswith(f"distrl.{run}-other.")]
    assert any(run in name for name in seen)


# Granting


def as_file(config: Config, folder: Path) -> Path:
    """The settings of `config`, its password too, in a file of this test."""
    file = folder / "settings.yaml"
    write_settings(config, file)
    return file


def distrl(folder: Path, config: Config, *words: str) -> Result:
    return CliRunner().invoke(app, ["rights", *words, "--config", str(as_file(config, folder))], env=NO_SETTINGS)


def test_rights_are_granted_by_a_command(secured_server: Secured, tmp_path: Path) -> None:
    admins = over_tls(secured_server, "admin")
    topic_admin.ensure(admins)
    User(admins).write(topic_name(admins.run, "versions"))
    done = distrl(tmp_path, admins, "kafka", "--role", "evaluator", "--principal", "User:stranger", "--apply")
    assert done.exit_code == 0, done.output
    first, quota = done.output.splitlines()
    assert first == f"User:stranger has the 6 rights of the evaluator in run {admins.run}"
    assert quota.startswith("kafka-configs.sh --bootstrap-server")
    wait_in_force(admins, 6)
    stranger = User(over_tls(secured_server, "stranger", f"run={admins.run}"))
    stranger.read(admins.run, "versions")
    holds(False, stranger.write, topic_name(admins.run, "versions"))


def test_who_may_not_grant_is_told_so(secured_server: Secured, tmp_path: Path) -> None:
    workers = over_tls(secured_server, "worker")
    with pytest.raises(BrokerError, match="user 'worker' may not grant rights"):
        grant(workers, ROLES["operator"], "User:worker")
    holds(False, User(workers).write, topic_name(workers.run, "versions"))


def test_a_broker_that_checks_no_rights_says_so(broker: str) -> None:
    config = load(sets=[f"kafka.bootstrap={broker}"], environ={})
    with pytest.raises(BrokerError, match="has no authorizer") as refused:
        grant(config, ROLES["worker"], "User:worker")
    assert "secured.properties" in refused.value.hint


@pytest.mark.parametrize("role", [role for role in ROLES.values() if role.quota], ids=lambda role: role.name)
def test_kafkas_own_tool_takes_the_quota_that_is_printed(
    secured_server: Secured, owner: Config, role: Role, tmp_path: Path
) -> None:
    *_, line = commands(role, owner, f"User:{role.name}")
    program, *words = shlex.split(line)
    assert program == "kafka-configs.sh"
    file = tmp_path / "CLIENT.properties"
    file.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nssl.truststore.type=PEM\n"
        f"ssl.truststore.location={secured_server.tls.certificate}\n"
        "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="admin" password="{PASSWORD}";\n'
    )
    done = subprocess.run(
        [*java(), "kafka.admin.ConfigCommand", *(str(file) if each == file.name else each for each in words)],
        capture_output=True,
        text=True,
        timeout=ANSWER_S,
        check=False,
    )
    assert "Completed updating config" in done.stdout, done.stdout + done.stderr
