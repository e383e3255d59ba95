"""Connecting to the broker, and the error messages when that fails.

librdkafka retries for ever and reports the reasons through an error callback only. `check` collects them until the
deadline, so that a wrong password is reported as such and not as a time-out.
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

from distrl.broker.client_settings import Settings, passed
from distrl.config import Config, KafkaSettings
from distrl.errors import BrokerError
from distrl.librdkafka import NO_PASSWORD_MECHANISMS

LOG = logging.getLogger("distrl.kafka")

BATCH_OVERHEAD_BYTES = 16_384
"""Room beside the largest record for its batch header, key and dead-letter headers: without it the broker would refuse
records that the producer accepts."""

SOCKET_TIMEOUT_S = 10.0
"""How long a request waits for a broker that does not answer. A frozen broker leads its partitions until the cluster
misses its heartbeats (9 s by default); after this long a client asks its successor. librdkafka's default of 60 s would
block everything for as long."""

ACKNOWLEDGE_TIMEOUT_S = 8.0
"""How long a broker may wait for a record's other replicas before it answers with a time-out. Shorter than
SOCKET_TIMEOUT_S, so that slow replicas do not cost the connection."""

METADATA_S = 5.0
"""How soon a client notices a new partition leader, even if the old one is frozen, and added partitions; librdkafka's
default is 5 minutes."""

FAILOVER = 2
"""Longest wait for an answer, in units of `kafka.connect_timeout_s`. The broker that was asked may be frozen; within
this time the cluster elects another leader and announces it."""

STALE_S = 5.0
"""Errors of a client that was not polled for this long may be as old, and over by now."""

CHECK_SLICE_S = 0.25
"""Time-out of one metadata request of `check`; short, so that a refused password is reported soon."""

RETRY_PAUSE_S = 0.05
"""Pause between attempts of a request that a broker refuses while it becomes a partition's leader."""

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
    KafkaError.UNKNOWN_LEADER_EPOCH,  # a restarted broker learns its new epoch shortly before its partitions do
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.OFFSET_NOT_AVAILABLE,  # a new leader does not know yet how far its followers are
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.BROKER_NOT_AVAILABLE,
    KafkaError.NOT_CONTROLLER,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
    KafkaError._NOENT,  # librdkafka: no partition of the topic has a leader
}
"""Transient errors of a topic just created, a broker just started or a leader just elected."""

LATE = {
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._TRANSPORT,
    KafkaError._DESTROY_BROKER,  # the cluster has removed a frozen broker from its metadata
}
"""Errors of a request to a broker that does not answer."""

PERMANENT = UNKNOWN_TOPIC | CREDENTIALS | FORBIDDEN
"""Errors on which retrying does not help."""

T = TypeVar("T")


class RefusedError(BrokerError):
    """The broker refused; retrying does not help."""


class UnknownTopicError(RefusedError):
    """The broker has no such topic."""


class BeyondUseError(RefusedError):
    """A fatal error, after which the client cannot be used. Example: the broker has lost records of an idempotent
    producer."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster that answered."""

    cluster_id: str
    brokers: int
    """How many it has."""


OnError = Callable[[KafkaError], object]
"""librdkafka's error callback, called in the thread that polls the client.

Where that thread may be interrupted by Ctrl-C, the callback must not be Python code, so it is the `append` of a deque:
KeyboardInterrupt is raised in the first Python code that runs after the signal, and if that is a callback, the client
loses the exception and raises SystemError (confluent-kafka 2.16)."""


def settings(
    kafka: KafkaSettings, client_id: str, own: Mapping[str, object] | None = None, on_error: OnError | None = None
) -> Settings:
    """The settings of a producer or consumer: our defaults, overridden by `own` (this client's), overridden by the
    user's kafka.client.

    Raises ConfigError if librdkafka refuses kafka.client, BrokerError if kafka.ssl_ca is not a file.
    """
    every: Settings = {
        "allow.auto.create.topics": False,
        "message.max.bytes": kafka.max_record_bytes + BATCH_OVERHEAD_BYTES,
    }
    return passed(kafka, _connecting(kafka, client_id, on_error) | every | dict(own or {}))


def _connecting(kafka: KafkaSettings, client_id: str, on_error: OnError | None) -> Settings:
    """The connection settings, common to all kinds of clients."""
    made: Settings = {
        "bootstrap.servers": kafka.bootstrap,
        "security.protocol": kafka.security_protocol,
        "client.id": client_id,
        "error_cb": on_error or log_error,
        "logger": LOG,
        "log_level": 2,  # errors reach `on_error`; librdkafka would log them once a second per client as well
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
            raise BrokerError("kafka.ssl_ca", f"{kafka.ssl_ca} is not a file", "name the PEM file of the brokers' CA")
        made["ssl.ca.location"] = str(kafka.ssl_ca)
    return made


def admin(kafka: KafkaSettings, on_error: OnError | None = None) -> AdminClient:
    """An admin client. Raises BrokerError if the settings alone are impossible, and as `settings`."""
    try:
        return AdminClient(passed(kafka, _connecting(kafka, "distrl-admin", on_error)))  # type: ignore[arg-type]
    except KafkaException as error:
        raise explain(error.args[0], "kafka", "make a client", kafka) from None


def check(config: Config) -> Cluster:
    """Reach the broker within `kafka.connect_timeout_s`. With several brokers the limit is `failover_s`: librdkafka
    answers a request to a frozen broker only once it gives it up.

    Raises BrokerError naming the setting at fault: no broker at the address, refused credentials (at once, since
    retrying does not help), or a failed TLS handshake.
    """
    kafka = config.kafka
    reasons: list[KafkaError] = []
    client = admin(kafka, reasons.append)
    longest_s = failover_s(kafka) if "," in kafka.bootstrap else kafka.connect_timeout_s
    deadline = time.monotonic() + longest_s
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
                specific = [r for r in reasons if r.code() != KafkaError._ALL_BROKERS_DOWN]
                reason = specific[-1] if specific else error.args[0]
                raise _unreachable(kafka, f"no answer within {longest_s:g} s", reason) from None
        else:
            return Cluster(found.cluster_id or "", len(found.brokers))


def request_timeout_s(kafka: KafkaSettings) -> float:
    """The deadline of one request that `with_retry` may repeat."""
    return kafka.connect_timeout_s / 2


def failover_s(kafka: KafkaSettings) -> float:
    """Longest wait for an answer of a cluster in which one broker may be frozen."""
    return FAILOVER * kafka.connect_timeout_s


def with_retry(kafka: KafkaSettings, attempt: Callable[[], T], also: Collection[int] = ()) -> T:
    """Retries `attempt` on SETTLING and LATE errors for at most `failover_s` (plus one request). Returns its result.

    also: further error codes to retry on.
    """
    codes = {*SETTLING, *LATE, *also}
    return Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, KafkaException) and error.args[0].code() in codes),
        stop=stop_after_delay(failover_s(kafka)),
        wait=wait_fixed(RETRY_PAUSE_S),
        reraise=True,
    )(attempt)


def valid_offset(offset: int) -> int:
    """`offset`; raises a KafkaException that `with_retry` retries if it is invalid, which is what librdkafka returns,
    without an error, for a partition that has just lost its leader.
    """
    if offset <= OFFSET_INVALID:
        raise KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE))
    return offset


def no_answer(where: str, longest_s: float) -> BrokerError:
    """The error of a command whose request had no answer for `longest_s`. where: a topic."""
    return BrokerError(
        where,
        f"the broker did not answer within {longest_s:g} s",
        "see what `distrl doctor` says of the brokers, then run the same command again",
    )


def explain(error: KafkaError, where: str, doing: str, kafka: KafkaSettings) -> BrokerError:
    """`error` as a BrokerError for people. where: a topic or a setting. doing: an infinitive.

    A RefusedError if it is PERMANENT (UnknownTopicError for a missing topic), a BeyondUseError if it is fatal.
    """
    code, text, user = error.code(), error.str(), kafka.user
    fatal = error.fatal() or code == KafkaError._FATAL
    refused = BeyondUseError if fatal else RefusedError
    if code in CREDENTIALS:
        if kafka.mechanism in NO_PASSWORD_MECHANISMS:
            return refused(
                "kafka.client",
                f"log-in failed at {kafka.bootstrap} ({kafka.security_protocol}, {kafka.mechanism}): {text}",
                "set the mechanism's credentials in kafka.client (docs/operations.md), and the "
                "kafka.security_protocol and kafka.sasl_mechanism of the listener",
            )
        return refused(
            "kafka.sasl_username, kafka.sasl_password",
            f"the broker at {kafka.bootstrap} refuses the credentials ({kafka.security_protocol}, "
            f"{kafka.mechanism}, user {user!r}): {text}",
            "set the right user and password, and the kafka.security_protocol and kafka.sasl_mechanism of the listener",
        )
    if code in FORBIDDEN:
        return refused(
            where,
            f"{f'user {user!r}' if user else 'this client'} may not {doing}: {text}",
            "grant the right with an ACL, or set kafka.sasl_username to a user who has it"
            if user
            else "grant the right with an ACL, or log in as a user who has it",
        )
    if fatal:
        return refused(where, f"cannot {doing}, and retrying does not help: {text}", "start this process again")
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
            "set `run` to an existing run (that of `make demo SEED=3` is demo-3), or create the topics of a new one "
            "with `distrl topics ensure`",
        )
    if code == KafkaError.INVALID_REPLICATION_FACTOR:
        return BrokerError(
            where,
            f"cannot {doing}: {text}",
            "set kafka.replication_factor to at most the number of brokers in the cluster, or add brokers",
        )
    if code in UNREACHABLE:
        return _unreachable(kafka, f"cannot {doing} ({where})", error)
    return BrokerError(where, f"cannot {doing}: {text} ({error.name()})", "see the broker's log for the reason")


def _unreachable(kafka: KafkaSettings, what: str, reason: KafkaError) -> BrokerError:
    hint = (
        "start the broker (`distrl up` starts a local one), or set kafka.bootstrap and kafka.security_protocol to its "
        "listener"
    )
    if kafka.security_protocol.endswith("SSL") and not any(
        "cert" in name or "keystore" in name for name in kafka.client
    ):
        hint += f"; {_CERTIFICATE}"  # over TLS 1.3, a broker that requires one just closes the connection
    return BrokerError(
        "kafka.bootstrap",
        f"{what} from a broker at {kafka.bootstrap} ({kafka.security_protocol}): {reason.str()}",
        hint,
    )


_CERTIFICATE = "if it requires a client certificate, set ssl.certificate.location and ssl.key.location in kafka.client"


def _is_tls(error: KafkaError) -> bool:
    """A failed handshake; librdkafka gives it its own code only if the peer speaks TLS at all."""
    return error.code() == KafkaError._SSL or "SSL handshake failed" in error.str()


def reported(error: KafkaError) -> str:
    """An asynchronous client error, for people. librdkafka's count of brokers that are down covers only those it has
    tried: it reports "1/1 brokers are down" while two others of the cluster work.
    """
    down = error.code() == KafkaError._ALL_BROKERS_DOWN
    return "none of the connected brokers answers; looking for others" if down else error.str()


class ErrorLog:
    """Logs a client's asynchronous errors; stale ones at DEBUG only. A client that is not polled queues its errors, and
    minutes later they would read as if a broker were unavailable now. One thread.
    """

    def __init__(self, logger: logging.Logger, doing: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger, self._doing, self._clock = logger, doing, clock
        self._polled = clock()
        self._stale = False

    def polling(self) -> None:
        """Call before each poll."""
        now = self._clock()
        self._stale = self._stale or now - self._polled > STALE_S
        self._polled = now

    def drained(self) -> None:
        """Call after a poll that returned nothing: later errors are new."""
        self._stale = False

    def __call__(self, error: KafkaError) -> None:
        level = logging.DEBUG if self._stale else logging.WARNING
        self._logger.log(level, "%s: %s", self._doing, reported(error))


def log_error(error: KafkaError) -> None:
    """Log a client's asynchronous error."""
    LOG.warning("%s: %s", error.name(), reported(error))
