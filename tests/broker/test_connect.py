from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import AdminClient
from distrl.broker import connect
from distrl.broker.connect import BeyondUseError, OnError, check, explain, settings
from distrl.config import Config, KafkaSettings, load
from distrl.errors import BrokerError

PASSWORD = "a-password-to-keep"  # never printed


def configured(*sets: str) -> Config:
    return load(sets=list(sets), environ={})


def test_credentials_reach_the_client_and_no_message() -> None:
    config = configured(
        "kafka.security_protocol=SASL_SSL", "kafka.sasl_username=learner", f"kafka.sasl_password={PASSWORD}"
    )
    made = settings(config.kafka, "a-client")
    assert made["sasl.username"] == "learner"
    assert made["sasl.password"] == PASSWORD
    told = explain(KafkaError(KafkaError._AUTHENTICATION), "kafka", "connect", config.kafka)
    assert "'learner'" in str(told)
    assert PASSWORD not in str(told)


@pytest.mark.parametrize(
    ("code", "where"),
    [
        (KafkaError._TRANSPORT, "kafka.bootstrap"),
        (KafkaError._RESOLVE, "kafka.bootstrap"),
        (KafkaError.SASL_AUTHENTICATION_FAILED, "kafka.sasl_username, kafka.sasl_password"),
        (KafkaError._SSL, "kafka.ssl_ca, kafka.security_protocol"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "a topic"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, "a topic"),
        (KafkaError.INVALID_REPLICATION_FACTOR, "a topic"),
    ],
)
def test_each_trouble_names_where_to_fix_it(code: int, where: str) -> None:
    assert explain(KafkaError(code), "a topic", "read it", Config().kafka).where == where


def test_what_ends_a_client_for_want_of_a_right_names_the_right() -> None:
    """As a transactional id without an ACL does: to start the process again, as after other fatal errors, is vain."""
    code = KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    for error in (KafkaError(code), KafkaError(code, fatal=True)):
        told = explain(error, "a journal", "open it", Config().kafka)
        assert "may not open it" in told.what
        assert "ACL" in told.hint
        assert isinstance(told, BeyondUseError) == error.fatal()
    other = explain(KafkaError(KafkaError.UNKNOWN_PRODUCER_ID, fatal=True), "a topic", "write", Config().kafka)
    assert isinstance(other, BeyondUseError)
    assert "start this process again" in other.hint


def test_a_certificate_file_that_is_none_is_reported_before_connecting(tmp_path: Path) -> None:
    config = configured("kafka.security_protocol=SSL", f"kafka.ssl_ca={tmp_path / 'no.pem'}")
    with pytest.raises(BrokerError, match=r"kafka\.ssl_ca: .*no\.pem is not a file"):
        check(config)


def test_nothing_listens_at_the_address(monkeypatch: pytest.MonkeyPatch) -> None:
    heard, admin = list[KafkaError](), connect.admin

    def hearing(kafka: KafkaSettings, on_error: OnError) -> AdminClient:
        def note(error: KafkaError) -> None:
            on_error(error)
            if error.code() != KafkaError._ALL_BROKERS_DOWN:
                heard.append(error)

        return admin(kafka, note)

    monkeypatch.setattr(connect, "admin", hearing)
    # The deadline is over once the client has heard why: a busy machine may take longer to try than to be waited for.
    monkeypatch.setattr(connect, "time", SimpleNamespace(monotonic=lambda: float(len(heard))))
    with socket.socket() as held:  # bound and not listening: nobody else can take the port meanwhile
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        config = configured(f"kafka.bootstrap=127.0.0.1:{port}", "kafka.connect_timeout_s=0.5")
        with pytest.raises(BrokerError, match="Connection refused") as told:
            check(config)
    assert told.value.where == "kafka.bootstrap"
    assert f"127.0.0.1:{port}" in told.value.what
    assert "distrl up" in told.value.hint


def test_something_that_is_no_broker_listens_at_the_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        config = configured(f"kafka.bootstrap=127.0.0.1:{silent.getsockname()[1]}", "kafka.connect_timeout_s=0.5")
        with pytest.raises(BrokerError, match=r"no answer within 0\.5 s"):
            check(config)
