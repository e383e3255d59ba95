"""How a client reaches the broker, and what a person is told when it cannot.

librdkafka retries for ever and reports why on the side, through an error callback. `check` gathers those reasons
until the deadline, so that a wrong password reads as one and not as a time-out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from distrl.config import Config, Kafka
from distrl.errors import BrokerError

LOG = logging.getLogger("distrl.kafka")

Settings = dict[str, object]

BATCH_OVERHEAD_BYTES = 16_384
"""Room beside the largest record for its batch header, key and dead-letter headers: without it the broker refuses a
record that the producer has let through."""

CHECK_SLICE_S = 0.25
"""One look at the cluster while checking; short, so that a refused password is reported soon."""

RETRY_PAUSE_S = 0.05
"""Between two tries of a request that a broker refuses while it is becoming a partition's leader."""

UNREACHABLE = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE, KafkaError._TIMED_OUT}
CREDENTIALS = {
    KafkaError._AUTHENTICATION,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError.ILLEGAL_SASL_STATE,
}
FORBIDDEN = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
UNKNOWN_TOPIC = {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}

SETTLING = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,  # a restarted broker knows its new term a moment before its partitions do
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError._NOENT,  # librdkafka's word for: no partition of the topic has a leader
}
"""A topic that was just made, or a broker that was just started, answers with these for a moment."""

HOPELESS = UNKNOWN_TOPIC | CREDENTIALS | FORBIDDEN
"""What a client that reads or writes cannot wait out."""

T = TypeVar("T")


class RefusedError(BrokerError):
    """The broker's answer is no: waiting does not help."""


class UnknownTopicError(RefusedError):
    """The broker has no such topic."""


class BeyondUseError(RefusedError):
    """The client has met what it cannot go on after: an idempotent producer whose records the broker has lost, say."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What answered: its id, and how many brokers it has."""

    cluster_id: str
    brokers: int


def settings(kafka: Kafka, client_id: str, on_error: Callable[[KafkaError], None] | None = None) -> Settings:
    """What every client of ours is made with. `on_error` is called by the client's own polling thread."""
    made: Settings = {
        "bootstrap.servers": kafka.bootstrap,
        "security.protocol": kafka.security_protocol,
        "client.id": client_id,
        "error_cb": on_error or _log_error,
        "logger": LOG,
        "log_level": 2,  # what is wrong reaches `on_error`; as log lines it would come once a second per client too
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
        "allow.auto.create.topics": False,
        "message.max.bytes": kafka.max_record_bytes + BATCH_OVERHEAD_BYTES,
    }
    if kafka.security_protocol.startswith("SASL"):
        made["sasl.mechanism"] = kafka.sasl_mechanism
        made["sasl.username"] = kafka.sasl_username
        made["sasl.password"] = kafka.sasl_password.get_secret_value() if kafka.sasl_password else ""
    if kafka.ssl_ca is not None and kafka.security_protocol.endswith("SSL"):
        if not kafka.ssl_ca.is_file():
            raise BrokerError("kafka.ssl_ca", f"{kafka.ssl_ca} is no file", "name the PEM file of the brokers' CA")
        made["ssl.ca.location"] = str(kafka.ssl_ca)
    return made


def admin(kafka: Kafka, on_error: Callable[[KafkaError], None] | None = None) -> AdminClient:
    """An administrating client. Raises BrokerError where the settings alone are impossible."""
    made = settings(kafka, "distrl-admin", on_error)
    for unwanted in ("message.max.bytes", "allow.auto.create.topics"):
        del made[unwanted]
    try:
        return AdminClient(made)  # type: ignore[arg-type]
    except KafkaException as error:
        raise explain(error.args[0], "kafka", "make a client", kafka) from None


def check(config: Config) -> Cluster:
    """Reach the broker within `kafka.connect_timeout_s`.

    Raises BrokerError, which names the setting at fault: no broker at the address, refused credentials (at once, since
    waiting does not help), or TLS trouble.
    """
    kafka = config.kafka
    reasons: list[KafkaError] = []
    client = admin(kafka, reasons.append)
    deadline = time.monotonic() + kafka.connect_timeout_s
    while True:
        left = deadline - time.monotonic()
        try:
            found = client.list_topics(timeout=max(0.01, min(CHECK_SLICE_S, left)))
        except KafkaException as error:
            client.poll(0)  # serves the error callback
            final = [reason for reason in reasons if reason.code() in CREDENTIALS or _is_tls(reason)]
            if final:
                raise explain(final[0], "kafka", "connect", kafka) from None
            if time.monotonic() >= deadline:
                telling = [r for r in reasons if r.code() != KafkaError._ALL_BROKERS_DOWN]
                reason = telling[-1] if telling else error.args[0]
                raise _unreachable(kafka, f"no answer within {kafka.connect_timeout_s:g} s", reason) from None
        else:
            return Cluster(found.cluster_id or "", len(found.brokers))


def patiently(kafka: Kafka, attempt: Callable[[], T]) -> T:
    """What `attempt` returns, tried again while the cluster is settling, for at most `kafka.connect_timeout_s`."""
    deadline = time.monotonic() + kafka.connect_timeout_s
    while True:
        try:
            return attempt()
        except KafkaException as error:
            if error.args[0].code() not in SETTLING or time.monotonic() > deadline:
                raise
        time.sleep(RETRY_PAUSE_S)


def explain(error: KafkaError, where: str, doing: str, kafka: Kafka) -> BrokerError:
    """What a person is told of `error`, met at `where` (a topic or a setting) while `doing` (an infinitive).

    A RefusedError for what is HOPELESS (UnknownTopicError for a topic), a BeyondUseError where this client is.
    """
    code, text = error.code(), error.str()
    fatal = error.fatal() or code == KafkaError._FATAL
    refused = BeyondUseError if fatal else RefusedError
    if code in CREDENTIALS:
        return refused(
            "kafka.sasl_username, kafka.sasl_password",
            f"the broker at {kafka.bootstrap} refuses the credentials ({kafka.security_protocol}, "
            f"{kafka.sasl_mechanism}, user {kafka.sasl_username!r}): {text}",
            "set the right user and password, and the kafka.security_protocol and kafka.sasl_mechanism of its listener",
        )
    if code in FORBIDDEN:
        return refused(
            where,
            f"user {kafka.sasl_username!r} may not {doing}: {text}",
            "grant the right with an ACL, or set kafka.sasl_username to a user who has it",
        )
    if fatal:
        return refused(where, f"cannot {doing}, now or later: {text}", "start this process again")
    if _is_tls(error):
        return BrokerError(
            "kafka.ssl_ca, kafka.security_protocol",
            f"TLS with the broker at {kafka.bootstrap} fails ({kafka.security_protocol}): {text}",
            "set kafka.ssl_ca to the brokers' CA, and kafka.security_protocol to that of the listener at this port",
        )
    if code in UNKNOWN_TOPIC:
        return UnknownTopicError(
            where,
            f"cannot {doing}: no such topic at {kafka.bootstrap}",
            "name the run that you mean (`run`; that of `make demo SEED=3` is demo-3), or run `distrl topics ensure` "
            "to make the topics of a new one",
        )
    if code in UNREACHABLE:
        return _unreachable(kafka, f"cannot {doing} ({where})", error)
    return BrokerError(where, f"cannot {doing}: {text} ({error.name()})", "see the broker's log for the reason")


def _unreachable(kafka: Kafka, what: str, reason: KafkaError) -> BrokerError:
    return BrokerError(
        "kafka.bootstrap",
        f"{what} from a broker at {kafka.bootstrap} ({kafka.security_protocol}): {reason.str()}",
        "start the broker (`distrl up` starts a local one), or set kafka.bootstrap and kafka.security_protocol to its "
        "listener",
    )


def _is_tls(error: KafkaError) -> bool:
    """A failed handshake; librdkafka gives it its own code only once the peer has spoken TLS at all."""
    return error.code() == KafkaError._SSL or "SSL handshake failed" in error.str()


def _log_error(error: KafkaError) -> None:
    LOG.warning("%s: %s", error.name(), error.str())
