"""Rights as Kafka's access control lists, and the commands that grant them."""

from __future__ import annotations

import shlex

import pytest
from distrl.broker.group import workers_group
from distrl.broker.topics import TOPICS, topic_name
from distrl.config import load
from distrl.errors import ConfigError
from distrl.rights.grant import OPERATIONS, RESOURCES
from distrl.rights.kafka import ON_GROUP, ON_TOPICS, Acl, Resource, acls, checked_principal, commands
from distrl.rights.roles import ROLES
from hypothesis import given
from hypothesis import strategies as st

CONFIG = load(sets=["run=mine", "worker.group=pool"], environ={})


def test_names_are_those_that_the_program_uses() -> None:
    named = {each.full_name("mine") for role in ROLES.values() for each in acls(role, "pool")}
    assert {topic_name("mine", topic) for topic in TOPICS} <= named
    assert workers_group(CONFIG) in named
    assert named - {topic_name("mine", topic) for topic in TOPICS} - {workers_group(CONFIG)} == {
        "distrl.mine.learner",
        "distrl.mine.feeder",
        "distrl.mine.dlq",
    }


def test_a_worker_may_do_this_and_no_more() -> None:
    assert acls(ROLES["worker"], "pool") == [
        Acl(Resource.TOPIC, "tasks", ("Read",)),
        Acl(Resource.TOPIC, "trajectories", ("Write",)),
        Acl(Resource.TOPIC, "versions", ("Read",)),
        Acl(Resource.TOPIC, "settings", ("Read",)),
        Acl(Resource.TOPIC, "heartbeats", ("Write",)),
        Acl(Resource.TOPIC, "trajectories.dlq", ("Read", "Write")),
        Acl(Resource.GROUP, "pool", ("Read",)),
    ]


def test_every_operation_can_be_granted() -> None:
    assert {each for operations in ON_TOPICS.values() for each in operations} | set(ON_GROUP.values()) == set(
        OPERATIONS
    )
    assert set(RESOURCES) == set(Resource)


def test_commands_name_each_resource_once_for_the_whole_role() -> None:
    learner = ROLES["learner"]
    words = [word for line in commands(learner, CONFIG, "User:learner") for word in shlex.split(line)]
    named = [word for word in words if word.startswith("distrl.")]
    assert sorted(named) == sorted(each.full_name("mine") for each in acls(learner, "pool"))
    assert "--command-config" not in words


def test_a_broker_with_a_log_in_is_asked_with_one_and_quotas_are_set() -> None:
    sets = ["run=mine", "kafka.security_protocol=SSL"]
    *_, quota = commands(ROLES["worker"], load(sets=sets, environ={}), "User:CN=worker 1,OU=phones")
    assert quota == (
        "kafka-configs.sh --bootstrap-server 127.0.0.1:29092 --command-config CLIENT.properties --alter --entity-type "
        "users --entity-name 'CN=worker 1,OU=phones' --entity-type clients --entity-default --add-config "
        "producer_byte_rate=8388608"
    )
    assert not [line for line in commands(ROLES["learner"], CONFIG, "User:learner") if "kafka-configs" in line]
    (of_viewer,) = (line for line in commands(ROLES["viewer"], CONFIG, "User:eve") if "kafka-configs" in line)
    assert "--entity-type clients" not in of_viewer


@pytest.mark.parametrize(
    "principal",
    [
        "User:*",
        "User:ANONYMOUS",
        "User:",
        "worker",
        "Group:all",
        "User:a\nb",
        "User: a",
        "User:a ",
        "User:é",
        "User:a\x1b[2J",
    ],
)
def test_a_principal_that_is_no_single_user_is_refused(principal: str) -> None:
    with pytest.raises(ConfigError, match="not the name of one user"):
        commands(ROLES["worker"], CONFIG, principal)


@given(st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=40))
def test_a_name_that_is_taken_is_one_word_of_the_shell(name: str) -> None:
    try:
        user = checked_principal(f"User:{name}")
    except ConfigError:
        return
    for line in commands(ROLES["worker"], CONFIG, user):
        words = shlex.split(line)
        assert user in words or name in words
        assert words[0] in ("kafka-acls.sh", "kafka-configs.sh")
