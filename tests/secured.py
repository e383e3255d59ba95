"""A broker as a team has one: infra/kafka/secured.properties over server.properties, and three more listeners.

`admin` may do everything, the others what a test gives them. All who have a password have PASSWORD.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template

from certificates import Authority
from distrl.broker.connect import check
from distrl.config import Config, StackSettings, load
from distrl.errors import BrokerError
from distrl.rights.roles import ROLES
from distrl.stack import jars, kafka
from distrl.stack.infra_files import declared
from distrl.stack.java import find_java
from distrl.stack.ports import HOST, draw

READY_S = 180.0
PASSWORD = "right-password"  # of a broker that lives as long as a test session
USERS = ("admin", "stranger", *ROLES)

MORE_LISTENERS = """
listeners=CLIENTS://${host}:${port},SASL://${host}:${scram},MTLS://${host}:${mtls},TOKEN://${host}:${token},\
CONTROLLER://${host}:${controller_port}
advertised.listeners=CLIENTS://${host}:${port},SASL://${host}:${scram},MTLS://${host}:${mtls},TOKEN://${host}:${token}
listener.security.protocol.map=CLIENTS:SASL_SSL,SASL:SASL_PLAINTEXT,MTLS:SSL,TOKEN:SASL_PLAINTEXT,CONTROLLER:SSL
listener.name.sasl.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required;
listener.name.mtls.ssl.client.auth=required
listener.name.token.sasl.enabled.mechanisms=OAUTHBEARER
listener.name.token.oauthbearer.sasl.jaas.config=\
org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="admin";
auto.create.topics.enable=true
"""
"""It makes topics that are asked for, as brokers do by default; the session's other broker does not."""


@dataclass(frozen=True, slots=True)
class Secured:
    """Where the broker listens. tls: who issues the certificates that it and its clients on `mtls` have."""

    clients: str
    """TLS and a password."""
    scram: str
    """A password without TLS."""
    mtls: str
    """TLS and a client certificate."""
    token: str
    tls: Authority
    log: Path

    def used(self, user: str, run: str) -> set[tuple[str, str, str]]:
        """What `user` was allowed and did in `run`: (kind of resource, name after the run's, operation)."""
        said = re.compile(
            rf"Principal = User:{user} is Allowed operation = (\w+) .* resource = (\w+):LITERAL:distrl\.{run}\.(\S+) "
        )
        with self.log.open() as lines:
            found = (said.search(line) for line in lines if "is Allowed" in line)
            return {(each[2], each[3], each[1]) for each in found if each}


@contextmanager
def secured_broker(home: Path) -> Iterator[Secured]:
    free: list[int] = []
    for _ in range(5):
        free.append(draw("a test", free))
    port, controller_port, scram, mtls, token = free
    authority = Authority(home / "tls")
    own = authority.issue("broker")
    (home / "broker.pem").write_text(own.key.read_text() + own.certificate.read_text())
    file = home / "server.properties"
    template = Template(declared("kafka/secured.properties") + MORE_LISTENERS)
    filled = template.safe_substitute(  # the mapping rule has dollars of its own
        host=HOST, port=port, controller_port=controller_port, scram=scram, mtls=mtls, token=token, password=PASSWORD,
        keystore="broker.pem", truststore="tls/ca.pem",
    )  # fmt: skip
    file.write_text(kafka.properties(port, controller_port, "data") + filled)
    program = [*java(), "-Dorg.slf4j.simpleLogger.log.kafka.authorizer.logger=debug"]  # what was allowed, too
    users = [f"--add-scram=SCRAM-SHA-512=[name={user},password={PASSWORD}]" for user in USERS]
    tool = ["kafka.tools.StorageTool", "format", "--standalone", "-t", kafka.cluster_id(), "-c", file.name, *users]
    subprocess.run([*program, *tool], cwd=home, check=True, capture_output=True, timeout=READY_S)
    log = home / "log"
    with log.open("wb") as out:
        broker = subprocess.Popen([*program, "kafka.Kafka", file.name], cwd=home, stdout=out, stderr=out)
    try:
        _wait_ready(f"{HOST}:{scram}", broker, log)
        yield Secured(f"{HOST}:{port}", f"{HOST}:{scram}", f"{HOST}:{mtls}", f"{HOST}:{token}", authority, log)
    finally:
        broker.terminate()
        broker.wait(READY_S)


def java() -> list[str]:
    """What runs a class of Kafka's."""
    class_path = os.pathsep.join(map(str, jars.KAFKA.class_path(StackSettings().cache.expanduser())))
    return [str(find_java()[0]), "-Xmx320m", "-cp", class_path]


def as_user(where: str, user: str, password: str = PASSWORD, *more: str) -> Config:
    """The settings of a user of the listener without TLS, for a run of its own unless `more` names one."""
    sets = [
        f"run=secured-{uuid.uuid4().hex[:12]}",
        f"kafka.bootstrap={where}",
        "kafka.task_partitions=2",
        "kafka.security_protocol=SASL_PLAINTEXT",
        f"kafka.sasl_username={user}",
        f"kafka.sasl_password={password}",
        *more,
    ]
    return load(sets=sets, environ={})


def over_tls(secured: Secured, user: str, *more: str) -> Config:
    """The settings of a user of the listener with TLS, as those of a team's clients are."""
    tls = ["kafka.security_protocol=SASL_SSL", f"kafka.ssl_ca={secured.tls.certificate}"]
    return as_user(secured.clients, user, PASSWORD, *tls, *more)


def _wait_ready(where: str, broker: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_S
    while broker.poll() is None and time.monotonic() < deadline:
        try:
            check(as_user(where, "admin", PASSWORD, "kafka.connect_timeout_s=1"))
        except BrokerError:
            continue
        return
    raise AssertionError(f"the broker does not answer:\n{log.read_text()[-3000:]}")
