"""Credentials, rights and TLS, against a broker that asks for them."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import factories
import pytest
from certificates import KEY_PASSWORD
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)
from distrl.broker import topic_admin
from distrl.broker.connect import admin, check
from distrl.broker.group import uncommitted
from distrl.broker.journal import Journal, journal_lines, journalled
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader
from distrl.broker.runs import check_run
from distrl.broker.topics import topic_name
from distrl.broker.versions import VersionFollower
from distrl.config import Config, load
from distrl.errors import BrokerError, ConfigError
from distrl.learner.reservations import Reservation, reserve
from distrl.learner.skip import skip
from distrl.rights.grant import grant
from distrl.rights.roles import ROLES
from distrl.stack.ports import HOST
from distrl.store.objects import open_store
from distrl.types import Heartbeat
from groups import member
from secured import PASSWORD, Secured, as_user
from waiting import until

pytestmark = pytest.mark.integration

READY_S = 90.0
ALLOW = AclPermissionType.ALLOW
VERSION = factories.version()
TASK = factories.task("task-1", instruction="search", params={"item": "shoes"})


@pytest.fixture(scope="module")
def listeners(secured_server: Secured) -> Secured:
    return secured_server


@pytest.fixture(scope="module")
def secured(secured_server: Secured) -> str:
    """The listener with passwords and without TLS."""
    return secured_server.scram


def test_right_credentials_do_everything(secured: str) -> None:
    config = as_user(secured, "admin")
    topic_admin.ensure(config)
    with RecordProducer(config, "a-test") as producer:
        beat = Heartbeat("worker-0", "worker", 0, None, None)
        assert producer.publish("heartbeats", "worker-0", beat).result(30).offset == 0
    with Journal(config):
        assert journalled(config) == []


@pytest.mark.parametrize(("user", "password"), [("admin", "wrong-password"), ("nobody", PASSWORD)])
def test_wrong_credentials_are_reported_at_once_and_named(secured: str, user: str, password: str) -> None:
    config = as_user(secured, user, password, "kafka.connect_timeout_s=60")
    started = time.monotonic()
    with pytest.raises(BrokerError, match="refuses the credentials") as told:
        topic_admin.ensure(config)
    assert time.monotonic() - started < 30
    assert told.value.where == "kafka.sasl_username, kafka.sasl_password"
    assert f"user '{user}'" in told.value.what
    assert password not in str(told.value)


@pytest.mark.parametrize("command", ["feed", "worker", "learner", "evaluate", "tail trajectories", "topics ensure"])
def test_a_command_with_wrong_credentials_ends_at_once_with_one_message(secured: str, command: str) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DISTRL_")}
    environ |= {
        "DISTRL_KAFKA__BOOTSTRAP": secured,
        "DISTRL_KAFKA__SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "DISTRL_KAFKA__SASL_USERNAME": "admin",
        "DISTRL_KAFKA__SASL_PASSWORD": "wrong-password",
        "DISTRL_KAFKA__CONNECT_TIMEOUT_S": "60",
    }
    line = [sys.executable, "-m", "distrl.cli.main", *command.split()]
    refused = subprocess.run(line, env=environ, capture_output=True, text=True, timeout=READY_S, check=False)
    assert (refused.returncode, refused.stdout) == (1, "")
    what, hint = refused.stderr.splitlines()
    assert what.startswith("kafka.sasl_username, kafka.sasl_password: ")
    assert "refuses the credentials" in what
    assert hint.startswith("  hint: set the right user and password")
    assert "wrong-password" not in refused.stderr


def test_another_mechanism_than_the_brokers_is_reported(secured: str) -> None:
    config = as_user(secured, "admin", PASSWORD, "kafka.sasl_mechanism=PLAIN")
    with pytest.raises(BrokerError, match=r"refuses the credentials .*PLAIN"):
        check(config)


def test_a_client_that_gives_no_credentials_sees_where_they_belong(secured: str) -> None:
    config = load(sets=[f"kafka.bootstrap={secured}", "kafka.connect_timeout_s=2"], environ={})
    with pytest.raises(BrokerError, match=r"kafka\.security_protocol"):
        check(config)


def test_a_listener_without_tls_is_reported(secured: str) -> None:
    config = load(sets=[f"kafka.bootstrap={secured}", "kafka.security_protocol=SSL"], environ={})
    with pytest.raises(BrokerError, match="TLS with the broker") as told:
        check(config)
    assert told.value.where == "kafka.ssl_ca, kafka.security_protocol"


def test_a_user_without_rights_sees_what_he_may_not_do(secured: str) -> None:
    config = as_user(secured, "stranger")
    check(config)
    with pytest.raises(BrokerError, match="user 'stranger' may not create the topic") as told:
        topic_admin.ensure(config)
    assert "ACL" in told.value.hint
    with pytest.raises(BrokerError, match="user 'stranger' may not see the topic"):
        check_run(config)
    with pytest.raises(BrokerError, match="user 'stranger' may not open the journal"):
        Journal(config).open()


def test_a_run_that_is_not_there_is_looked_for_and_not_made(secured: str) -> None:
    config = as_user(secured, "admin")
    with pytest.raises(BrokerError, match=f"has no run {config.run}"):
        check_run(config)
    with pytest.raises(BrokerError, match="cannot read the log: no such topic"):
        LogReader(config, "trajectories")
    assert not [name for name in admin(config.kafka).list_topics(timeout=30).topics if config.run in name]


def test_a_worker_refused_in_the_middle_stops_instead_of_waiting(secured: str) -> None:
    config = as_user(secured, "admin", "wrong-password")
    deadline = time.monotonic() + 30
    with member(config) as consumer, pytest.raises(BrokerError, match="refuses the credentials"):  # noqa: PT012
        while time.monotonic() < deadline:
            consumer.poll(0.1)


def test_a_reader_needs_no_right_but_to_read_the_topic(secured: str) -> None:
    owner = as_user(secured, "admin")
    topic_admin.ensure(owner)
    with Journal(owner) as journal:
        journal.publish_version(VERSION)
    viewer = as_user(secured, "viewer", PASSWORD, f"run={owner.run}")
    allow_reading(owner, "viewer")
    with VersionFollower(viewer) as follower:
        assert follower.wait_newer(None, 30) == VERSION
    with LogReader(viewer, "versions") as reader:
        assert [len(batch) for batch in reader.to_end()] == [1]
        assert reader.read(2) == []  # nor does anything go wrong while it follows


def allow_reading(owner: Config, user: str) -> None:
    client = admin(owner.kafka)
    rules = [
        AclBinding(
            ResourceType.TOPIC,
            topic_name(owner.run, "versions"),
            ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            operation,
            ALLOW,
        )
        for operation in (AclOperation.READ, AclOperation.DESCRIBE)
    ]
    for done in client.create_acls(rules).values():
        done.result(30)


@pytest.mark.parametrize(("role", "enough"), [("learner", True), ("operator", False)])
def test_a_record_is_skipped_with_the_declared_rights_of_the_learner_and_of_no_other(
    secured: str, tmp_path: Path, role: str, enough: bool
) -> None:
    """It journals, and the journal is the learner's alone."""
    owner = as_user(secured, "admin", PASSWORD, f"store.url=file://{tmp_path}")
    topic_admin.ensure(owner)
    with RecordProducer(owner, "a-test") as producer:
        producer.publish("trajectories", TASK.task_id, factories.trajectory(TASK)).result(30)
    grant(owner, ROLES[role], "User:stranger")
    config = as_user(secured, "stranger", PASSWORD, f"run={owner.run}", f"store.url=file://{tmp_path}")
    check_run(config)
    if not enough:
        with pytest.raises(BrokerError, match="user 'stranger' may not open the journal"):
            skip(config, "trajectories/0/0", "its screenshot is lost")
        return
    reserve(open_store(owner.store), owner.run, Reservation(7, 9, "ab" * 32))
    assert skip(config, "trajectories/0/0", "its screenshot is lost").u == 0
    lines = until(lambda: journal_lines(config), "a committed line, which is visible some milliseconds later")
    assert [each.reason for line in lines for each in line.skipped] == ["its screenshot is lost"]
    assert [line.version for line in lines] == [7], "a version that is reserved may appear later, and is void too"


# Client certificates and tokens, through kafka.client


def with_certificate(listeners: Secured, name: str, *more: str) -> Config:
    pair = listeners.tls.issue(name, KEY_PASSWORD)
    sets = [
        f"run=secured-{uuid.uuid4().hex[:12]}",
        f"kafka.bootstrap={listeners.mtls}",
        "kafka.task_partitions=2",
        "kafka.security_protocol=SSL",
        f"kafka.ssl_ca={listeners.tls.certificate}",
        f"kafka.client.ssl.certificate.location={pair.certificate}",
        f"kafka.client.ssl.key.location={pair.key}",
        f"kafka.client.ssl.key.password={KEY_PASSWORD}",
    ]
    return load(sets=[*sets, *more], environ={})


def every_client_works(config: Config) -> None:
    """The administrator, the producer, the fenced one, both consumers and a reader."""
    topic_admin.ensure(config)
    with RecordProducer(config, "a-test") as producer:
        beat = Heartbeat("worker-0", "worker", 0, None, None)
        assert producer.publish("heartbeats", "worker-0", beat).result(30).offset == 0
        producer.publish("tasks", TASK.task_id, TASK).result(30)
    with Journal(config) as journal:
        journal.publish_version(VERSION)
    with VersionFollower(config) as follower:
        assert follower.wait_newer(None, 30) == VERSION
    with LogReader(config, "heartbeats") as reader:
        assert [len(batch) for batch in reader.to_end()] == [1]
    with member(config) as consumer:
        polls = (consumer.poll(0.5) for _ in range(120))
        assert next(found.task for found in polls if found is not None) == TASK
    assert [raw.key for raw in uncommitted(config)] == [TASK.task_id.encode()], "the workers' offsets"


def test_a_client_with_a_certificate_does_everything(listeners: Secured) -> None:
    every_client_works(with_certificate(listeners, "admin"))


def test_rights_are_those_of_the_certificates_name(listeners: Secured) -> None:
    with pytest.raises(BrokerError, match="this client may not create the topic") as told:
        topic_admin.ensure(with_certificate(listeners, "stranger"))
    assert "log in as a user who has it" in told.value.hint


def test_a_client_without_a_certificate_sees_what_to_set(listeners: Secured) -> None:
    sets = [
        f"kafka.bootstrap={listeners.mtls}",
        "kafka.security_protocol=SSL",
        f"kafka.ssl_ca={listeners.tls.certificate}",
        "kafka.connect_timeout_s=10",
    ]
    with pytest.raises(BrokerError) as told:
        check(load(sets=sets, environ={}))
    assert "ssl.certificate.location" in told.value.hint


def test_a_wrong_password_of_the_key_is_reported_before_anything_is_connected_to(listeners: Secured) -> None:
    config = with_certificate(listeners, "admin", "kafka.client.ssl.key.password=hunter2-wrong")
    with pytest.raises(ConfigError) as told:
        check(config)
    assert told.value.where.startswith("kafka.client.ssl.key.")
    assert "hunter2" not in str(told.value)


def test_scram_through_kafka_client_alone(listeners: Secured) -> None:
    sets = [
        f"kafka.bootstrap={listeners.scram}",
        "kafka.security_protocol=SASL_PLAINTEXT",
        "kafka.client.sasl.mechanism=SCRAM-SHA-512",
        "kafka.client.sasl.username=admin",
        f"kafka.client.sasl.password={PASSWORD}",
    ]
    assert check(load(sets=sets, environ={})).brokers == 1
    with pytest.raises(BrokerError, match="refuses the credentials") as told:
        check(load(sets=[*sets, "kafka.client.sasl.password=hunter2-wrong"], environ={}))
    assert "hunter2" not in str(told.value)


Issuer = Callable[[str], list[str]]


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    """A token endpoint that knows one client secret. Called with a subject, gives the settings that ask it for one."""

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            name, _, secret = base64.b64decode(self.headers["Authorization"].split()[1]).decode().partition(":")
            right = secret == PASSWORD
            body = json.dumps({"access_token": _unsigned(name), "token_type": "Bearer"} if right else {"error": "no"})
            self.send_response(200 if right else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer((HOST, 0), Endpoint) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        url = f"http://{HOST}:{server.server_address[1]}/token"
        yield lambda name: [
            "kafka.security_protocol=SASL_PLAINTEXT",
            "kafka.sasl_mechanism=OAUTHBEARER",
            "kafka.client.sasl.oauthbearer.method=oidc",
            f"kafka.client.sasl.oauthbearer.token.endpoint.url={url}",
            f"kafka.client.sasl.oauthbearer.client.id={name}",
            f"kafka.client.sasl.oauthbearer.client.secret={PASSWORD}",
        ]
        server.shutdown()


def _unsigned(subject: str) -> str:
    """A token that a broker without a key of an issuer takes: it says who, and since and until when."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": subject, "iat": now - 5, "exp": now + 600})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


def test_a_client_with_a_token_does_everything(listeners: Secured, issuer: Issuer) -> None:
    sets = [f"run=secured-{uuid.uuid4().hex[:12]}", f"kafka.bootstrap={listeners.token}", "kafka.task_partitions=2"]
    every_client_works(load(sets=[*sets, *issuer("admin")], environ={}))


def test_a_refused_client_secret_is_reported_at_once_and_not_printed(listeners: Secured, issuer: Issuer) -> None:
    sets = [
        f"kafka.bootstrap={listeners.token}",
        "kafka.connect_timeout_s=20",
        *issuer("admin"),
        "kafka.client.sasl.oauthbearer.client.secret=hunter2-wrong",
    ]
    with pytest.raises(BrokerError) as told:
        check(load(sets=sets, environ={}))
    assert told.value.where == "kafka.client"
    assert "hunter2" not in str(told.value)
