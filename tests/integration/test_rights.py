"""Each role may do what the table says, and is refused everything else: one test for each cell.

On a broker with TLS, passwords and an authorizer, and on an object store with a policy for each role.
"""

from __future__ import annotations

import io
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import pytest
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
from distrl.config import Config, with_run
from distrl.rights.grant import grant
from distrl.rights.roles import ROLES, TRANSACTIONAL_IDS, GroupRight, ObjectRight, Role, TopicRight
from distrl.stack.s3 import bucket_name
from distrl.store.folders import FOLDERS, Folder
from minio import Minio
from minio.error import S3Error
from policed import ROOT, Policed
from secured import Secured, over_tls

pytestmark = pytest.mark.integration

ANSWER_S = 60.0
"""An answer takes milliseconds; a machine that is busy with other work takes longer."""
EACH_ROLE = pytest.mark.parametrize("role", ROLES.values(), ids=lambda role: role.name)
EACH_TOPIC = pytest.mark.parametrize("topic", TOPICS)
OWN = [folder for folder in FOLDERS.values() if not folder.is_shared]
EACH_FOLDER = pytest.mark.parametrize("folder", FOLDERS.values(), ids=lambda folder: folder.name)


class RefusedError(Exception):
    """The broker or the store says that the user may not."""


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
        self._producer.produce(
            topic, b"x", b"key", on_delivery=lambda error, _: failed.append(error) if error else None
        )
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


def holds(may: bool, do: Callable[..., None], *given: str) -> None:
    if may:
        do(*given)
    else:
        with pytest.raises(RefusedError):
            do(*given)


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


# The object store


@dataclass(frozen=True)
class Objects:
    """A role at the object store; each method does one thing, and raises RefusedError where it may not."""

    client: Minio
    bucket: str = field(default_factory=bucket_name)

    def get(self, key: str) -> None:
        found = self._answered(lambda: self.client.get_object(self.bucket, key))
        assert isinstance(found.read(), bytes)
        found.close()

    def look(self, key: str) -> None:
        self._answered(lambda: self.client.stat_object(self.bucket, key))

    def put(self, key: str) -> None:
        self._answered(lambda: self.client.put_object(self.bucket, key, io.BytesIO(b"x"), 1))

    def delete(self, key: str) -> None:
        self._answered(lambda: self.client.remove_object(self.bucket, key))

    def destroy(self, key: str, version: str) -> None:
        self._answered(lambda: self.client.remove_object(self.bucket, key, version_id=version))

    @staticmethod
    def _answered(ask: Callable[[], object]) -> object:
        try:
            return ask()
        except S3Error as error:
            if error.code == "AccessDenied":
                raise RefusedError(str(error)) from None
            raise


@pytest.fixture(scope="module")
def granted(policed: Policed, run: str) -> Policed:
    policed.grant(run)
    return policed


@pytest.fixture(scope="module")
def objects(granted: Policed) -> dict[str, Objects]:
    return {name: Objects(granted.client(name)) for name in (*ROLES, ROOT)}


def seeded(objects: dict[str, Objects], folder: Folder, run: str) -> str:
    """The key of an object in the folder of `run`, which is there."""
    key = f"{folder.of(run)}/deep/{uuid.uuid4().hex}.json"
    objects[ROOT].put(key)
    return key


@EACH_ROLE
@EACH_FOLDER
def test_an_object_is_read_by_those_who_may(objects: dict[str, Objects], run: str, role: Role, folder: Folder) -> None:
    key = seeded(objects, folder, run)
    holds(role.may_object(ObjectRight.GET, folder), objects[role.name].get, key)


@EACH_ROLE
@EACH_FOLDER
def test_an_object_is_written_by_those_who_may(
    objects: dict[str, Objects], run: str, role: Role, folder: Folder
) -> None:
    key = seeded(objects, folder, run)
    for each in (key, f"{folder.of(run)}/new-{role.name}"):
        holds(role.may_object(ObjectRight.PUT, folder), objects[role.name].put, each)


@EACH_ROLE
@EACH_FOLDER
def test_an_object_is_deleted_by_those_who_may(
    objects: dict[str, Objects], run: str, role: Role, folder: Folder
) -> None:
    key = seeded(objects, folder, run)
    holds(role.may_object(ObjectRight.DELETE, folder), objects[role.name].delete, key)


@EACH_ROLE
@pytest.mark.parametrize("folder", OWN, ids=lambda folder: folder.name)
def test_no_role_reads_or_changes_an_object_of_another_run(
    objects: dict[str, Objects], run: str, role: Role, folder: Folder
) -> None:
    key, mine = seeded(objects, folder, f"{run}-other"), objects[role.name]
    for do in (mine.get, mine.look, mine.put, mine.delete):
        holds(False, do, key)
