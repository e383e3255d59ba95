"""How a client reaches the broker, and what a person is told when it cannot.

librdkafka retries for ever and reports why on the side, through an error callback. `check` gathers those reasons
until the deadline, so that a wrong password reads as one and not as a time-out.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypeVar

from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from distrl.broker.passed import Settings, passed
from distrl.config import Config, Kafka
from distrl.errors import BrokerError
from distrl.librdkafka import NO_PASSWORD_MECHANISMS

LOG = logging.getLogger("distrl.kafka")

BATCH_OVERHEAD_BYTES = 16_384
"""Room beside the largest record for its batch header, key and dead-letter headers: without it the broker refuses a
record that the producer has let through."""

SOCKET_TIMEOUT_S = 10.0
"""How long a request waits for a broker that does not answer. A frozen broker leads its partitions until the cluster
misses its heartbeats (9 s unless the cluster says otherwise), and a client asks its successor after this long;
librdkafka's own 60 s would hold everything for as long."""

ACKNOWLEDGE_TIMEOUT_S = 8.0
"""How long a broker may wait for a record's other replicas before it says that they are late. Shorter than
SOCKET_TIMEOUT_S: such an answer is no reason to give the connection up."""

METADATA_S = 5.0
"""How soon a client sees that another broker leads a partition, also where the old one stands still and says nothing,
and that a topic has more partitions; librdkafka's own are 5 minutes."""

FAILOVER = 2
"""Times `kafka.connect_timeout_s` that an answer is waited for: the broker that is asked may be frozen, and by then the
cluster has given its partitions to another one and told so."""

OLD_S = 5.0
"""A report of a client that was not polled for so long may be as old, and what it says over."""

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
    KafkaError.OFFSET_NOT_AVAILABLE,  # a new leader that has not heard yet how far its followers are
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.NOT_CONTROLLER,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError._NOENT,  # librdkafka's word for: no partition of the topic has a leader
}
"""A topic that was just made, a broker that was just started or a leader that was just chosen answers with these for a
moment."""

LATE = {
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._DESTROY_BROKER,  # the cluster has taken a broker that stands still off its list
}
"""What a request comes to whose broker does not answer."""

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


OnError = Callable[[KafkaError], None]
"""Called by the client's own polling thread with what it reports on the side."""


def settings(
    kafka: Kafka, client_id: str, own: Mapping[str, object] | None = None, on_error: OnError | None = None
) -> Settings:
    """What a producer or consumer is made with: what every client of ours has, over it `own`, which is this client's,
    and over both what a person has put into kafka.client.

    Raises ConfigError where librdkafka refuses kafka.client, BrokerError where kafka.ssl_ca is no file.
    """
    every: Settings = {
        "allow.auto.create.topics": False,
        "message.max.bytes": kafka.max_record_bytes + BATCH_OVERHEAD_BYTES,
    }
    return passed(kafka, _connecting(kafka, client_id, on_error) | every | dict(own or {}))


def _connecting(kafka: Kafka, client_id: str, on_error: OnError | None) -> Settings:
    """What clients of every kind have: how the broker is reached."""
    made: Settings = {
        "bootstrap.servers": kafka.bootstrap,
        "security.protocol": kafka.security_protocol,
        "client.id": client_id,
        "error_cb": on_error or _log_error,
        "logger": LOG,
        "log_level": 2,  # what is wrong reaches `on_error`; as log lines it would come once a second per client too
        "reconnect.backoff.ms": 50,
        "reconnect.backoff.max.ms": 1_000,
        "socket.timeout.ms": int(SOCKET_TIMEOUT_S * 1000),
        "socket.connection.setup.timeout.ms": int(SOCKET_TIMEOUT_S * 1000),
        "topic.metadata.refresh.interval.ms": int(METADATA_S * 1000),
    }
    if kafka.security_protocol.startswith("SASL"):
        made["sasl.mechanism"] = kafka.sasl_mechanism
        if kafka.sasl_username is not None and kafka.sasl_password is not None:
            made["sasl.username"] = kafka.sasl_username
            made["sasl.password"] = kafka.sasl_password.get_secret_value()
    if kafka.ssl_ca is not None and kafka.security_protocol.endswith("SSL"):
        if not kafka.ssl_ca.is_file():
            raise BrokerError("kafka.ssl_ca", f"{kafka.ssl_ca} is no file", "name the PEM file of the brokers' CA")
        made["ssl.ca.location"] = str(kafka.ssl_ca)
    return made


def admin(kafka: Kafka, on_error: OnError | None = None) -> AdminClient:
    """An administrating client. Raises BrokerError where the settings alone are impossible, and as `settings`."""
    try:
        return AdminClient(passed(kafka, _connecting(kafka, "distrl-admin", on_error)))  # type: ignore[arg-type]
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


def request_timeout_s(kafka: Kafka) -> float:
    """The deadline of one request that `with_retry` may repeat."""
    return kafka.connect_timeout_s / 2


def failover_s(kafka: Kafka) -> float:
    """How long an answer is waited for of a cluster one of whose brokers may be frozen."""
    return FAILOVER * kafka.connect_timeout_s


def with_retry(kafka: Kafka, attempt: Callable[[], T], also: Collection[int] = ()) -> T:
    """What `attempt` returns, made again while the cluster is settling or the broker that was asked does not answer,
    for at most `failover_s` (and one request more). also: further codes to retry on.
    """
    codes = {*SETTLING, *LATE, *also}
    return Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, KafkaException) and error.args[0].code() in codes),
        stop=stop_after_delay(failover_s(kafka)),
        wait=wait_fixed(RETRY_PAUSE_S),
        reraise=True,
    )(attempt)


def told_offset(offset: int) -> int:
    """`offset` as a broker has told it. Raises KafkaException, which `with_retry` waits out, for none: librdkafka gives
    out an invalid one, and no error, of a partition that has lost its leader this moment.
    """
    if offset <= OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    return offset


def explain(error: KafkaError, where: str, doing: str, kafka: Kafka) -> BrokerError:
    """What a person is told of `error`, met at `where` (a topic or a setting) while `doing` (an infinitive).

    A RefusedError for what is HOPELESS (UnknownTopicError for a topic), a BeyondUseError where this client is.
    """
    code, text, user = error.code(), error.str(), kafka.user
    fatal = error.fatal() or code == KafkaError._FATAL
    refused = BeyondUseError if fatal else RefusedError
    if code in CREDENTIALS:
        if kafka.mechanism in NO_PASSWORD_MECHANISMS:
            return refused(
                "kafka.client",
                f"no log-in at {kafka.bootstrap} ({kafka.security_protocol}, {kafka.mechanism}): {text}",
                "set what the mechanism logs in with in kafka.client (docs/operations.md), and the "
                "kafka.security_protocol and kafka.sasl_mechanism of its listener",
            )
        return refused(
            "kafka.sasl_username, kafka.sasl_password",
            f"the broker at {kafka.bootstrap} refuses the credentials ({kafka.security_protocol}, "
            f"{kafka.mechanism}, user {user!r}): {text}",
            "set the right user and password, and the kafka.security_protocol and kafka.sasl_mechanism of its listener",
        )
    if code in FORBIDDEN:
        return refused(
            where,
            f"{f'user {user!r}' if user else 'this client'} may not {doing}: {text}",
            "grant the right with an ACL, or set kafka.sasl_username to a user who has it"
            if user
            else "grant the right with an ACL, or log in as one who has it",
        )
    if fatal:
        return refused(where, f"cannot {doing}, now or later: {text}", "start this process again")
    if _is_tls(error):
        return BrokerError(
            "kafka.ssl_ca, kafka.security_protocol",
            f"TLS with the broker at {kafka.bootstrap} fails ({kafka.security_protocol}): {text}",
            "set kafka.ssl_ca to the brokers' CA, and kafka.security_protocol to that of the listener at this port; "
            + _CERTIFICATE,
        )
    if code in UNKNOWN_TOPIC:
        return UnknownTopicError(
            where,
            f"cannot {doing}: no such topic at {kafka.bootstrap}",
            "name the run that you mean (`run`; that of `make demo SEED=3` is demo-3), or run `distrl topics ensure` "
            "to make the topics of a new one",
        )
    if code == KafkaError.INVALID_REPLICATION_FACTOR:
        return BrokerError(
            where,
            f"cannot {doing}: {text}",
            "set kafka.replication_factor to at most the number of the cluster's brokers, or add brokers",
        )
    if code in UNREACHABLE:
        return _unreachable(kafka, f"cannot {doing} ({where})", error)
    return BrokerError(where, f"cannot {doing}: {text} ({error.name()})", "see the broker's log for the reason")


def _unreachable(kafka: Kafka, what: str, reason: KafkaError) -> BrokerError:
    hint = (
        "start the broker (`distrl up` starts a local one), or set kafka.bootstrap and kafka.security_protocol to its "
        "listener"
    )
    if kafka.security_protocol.endswith("SSL") and not any(
        "cert" in name or "keystore" in name for name in kafka.client
    ):
        hint += f"; {_CERTIFICATE}"  # over TLS 1.3, a broker that misses a certificate just hangs up
    return BrokerError(
        "kafka.bootstrap",
        f"{what} from a broker at {kafka.bootstrap} ({kafka.security_protocol}): {reason.str()}",
        hint,
    )


_CERTIFICATE = "one that asks for a certificate needs ssl.certificate.location and ssl.key.location in kafka.client"


def _is_tls(error: KafkaError) -> bool:
    """A failed handshake; librdkafka gives it its own code only once the peer has spoken TLS at all."""
    return error.code() == KafkaError._SSL or "SSL handshake failed" in error.str()


def reported(error: KafkaError) -> str:
    """What a client reports on the side, for a person. Of brokers that are down it counts those that it has tried,
    which are few: "1/1 brokers are down" is said while two others of the cluster work.
    """
    down = error.code() == KafkaError._ALL_BROKERS_DOWN
    return "no broker that it is connected to answers; it looks for others" if down else error.str()


class ErrorLog:
    """Logs what a client reports on the side, at once and not later: a client that nobody polls keeps its reports,
    and minutes afterwards they would be told as if a broker were away now. One thread.
    """

    def __init__(self, logger: logging.Logger, doing: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger, self._doing, self._clock = logger, doing, clock
        self._polled = clock()
        self._old = False

    def polling(self) -> None:
        """To be called before each poll."""
        now = self._clock()
        self._old = self._old or now - self._polled > OLD_S
        self._polled = now

    def drained(self) -> None:
        """A poll has found nothing more: whatever is reported from now on is new."""
        self._old = False

    def __call__(self, error: KafkaError) -> None:
        level = logging.DEBUG if self._old else logging.WARNING
        self._logger.log(level, "%s: %s", self._doing, reported(error))


def _log_error(error: KafkaError) -> None:
    LOG.warning("%s: %s", error.name(), reported(error))
