"""Every role does its work with its own user at a broker with TLS, passwords and rights, and its own user at the store.

What they may not do besides is in test_rights.py.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
import waiting
from chat.server import serving, verdict
from distrl import config as settings
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader
from distrl.broker.topics import TOPICS, topic_name
from distrl.config import Config, PhoneSettings
from distrl.policy.autoui.base import save_base
from distrl.policy.autoui.model import AutoUIModel, Shape
from distrl.policy.autoui.tokenizer import WordTokenizer
from distrl.rights.grant import grant
from distrl.rights.kafka import Resource, acls
from distrl.rights.roles import ROLES, Role
from distrl.runs.overview import overview
from distrl.runs.recorded import RECORDERS
from distrl.store.objects import open_store
from distrl.telemetry.feed import status_of
from distrl.train.roles import Roles, running, write_settings
from policed import Policed
from secured import PASSWORD, Secured
from served import phones_served
from simphone import words

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

DEADLINE_S = 600.0
PHONES, EVALUATED = 2, 1
Json = dict[str, Any]


@pytest.fixture
def tree(
    secured_server: Secured,
    policed: Policed,
    adb_server: settings.AdbSettings,
    free_row: Callable[[int], int],
    tmp_path: Path,
) -> Iterator[Json]:
    """The settings of a small run, without a user."""
    torch.manual_seed(0)
    codec = WordTokenizer(words.ALL)
    save_base(tmp_path / "base", AutoUIModel(Shape(len(codec.tokens), 128, 256)), codec, {})
    first = free_row(PHONES + EVALUATED)
    made: Json = {
        "run": f"roles-{uuid.uuid4().hex[:8]}",
        "kafka": {
            "bootstrap": secured_server.clients,
            "task_partitions": 2,
            "security_protocol": "SASL_SSL",
            "ssl_ca": str(secured_server.tls.certificate),
        },
        "store": {"url": policed.settings("worker").url},
        "adb": adb_server.model_dump(),
        "phones": {"count": PHONES, "evaluation_count": EVALUATED, "base_port": first, "latency_median_ms": 5.0},
        "devices": {"addresses": [f"127.0.0.1:{first + at}" for at in range(PHONES)]},
        "policy": {"base_model": str(tmp_path / "base")},
        "warmup": {"demonstrations": 4, "updates": 1, "minibatches": 1, "batch_size": 8},
        "algorithm": {"minibatches": 1, "batch_size": 8, "critic_warmup_updates": 1},
        "learner": {"trajectories_per_update": 2, "checkpoint_every": 1, "keep_adapters": 2, "keep_checkpoints": 1},
        "evaluate": {"validation_episodes": 1, "every_s": 1.0},
        "feeder": {"outstanding": 4, "max_lag": 2},
    }
    with phones_served(PhoneSettings.model_validate(made["phones"]), tmp_path):
        yield made


def of(tree: Json, policed: Policed, role: str) -> Config:
    """The settings of a role's process."""
    kafka = {**tree["kafka"], "sasl_username": role, "sasl_password": PASSWORD}
    store = {**tree["store"], "access_key": role, "secret_key": policed.password}
    own = {**tree, "kafka": kafka, "store": store}
    if role == "evaluator":
        last = tree["phones"]["base_port"] + PHONES
        own["devices"] = {"addresses": [f"127.0.0.1:{last + at}" for at in range(EVALUATED)]}
    return Config.model_validate(own)


def command(config: Config, tmp_path: Path, *words: str) -> str:
    """What `distrl WORDS` prints under these settings. It succeeds."""
    file = tmp_path / f"{config.kafka.user}.yaml"
    write_settings(config, file)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DISTRL_")}
    line = [sys.executable, "-m", "distrl.cli.main", *words, "--config", str(file)]
    done = subprocess.run(line, env=environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


def wait_for(what: str, condition: Callable[[], bool], *roles: Roles) -> None:
    def come() -> bool:
        for each in roles:
            each.check()
        return condition()

    waiting.until(come, what, DEADLINE_S, every_s=0.2)


def has_records(config: Config, topic: str) -> bool:
    with LogReader(config, topic) as reader:
        return any(batch for batch in reader.to_end())


def newest(config: Config) -> int:
    found = status_of(config).newest
    return -1 if found is None else found.version


KINDS = {Resource.TOPIC: "Topic", Resource.GROUP: "Group", Resource.TRANSACTIONAL_ID: "TransactionalId"}
CAPITALS = re.compile(r"(?<=[a-z])(?=[A-Z])")
BEGINS = ("Topic", "settings", "WRITE")
"""Of the role that is the first to record the run's settings."""
NOT_IN_A_RUN_IN_ORDER = {
    "operator": {
        *(("Topic", topic, "WRITE") for topic in ("tasks", "trajectories", "demonstrations")),  # `dlq retry`
        ("TransactionalId", "dlq", "WRITE"),
        *(("Topic", topic, each) for topic in TOPICS for each in ("ALTER", "ALTER_CONFIGS")),  # `ensure --alter`
    },
    "worker": {("Topic", "trajectories.dlq", "WRITE")},
    "demonstrator": {  # of a run that has no settings in its log yet
        ("Topic", "updates", "READ"),
        ("Topic", "versions", "READ"),
    },
    "learner": {("Topic", "trajectories.dlq", "WRITE")},
}


def granted(role: Role, group: str) -> set[tuple[str, str, str]]:
    """In the words of the broker's log."""
    return {
        (KINDS[each.resource], each.name, CAPITALS.sub("_", operation).upper())
        for each in acls(role, group)
        for operation in each.operations
    }


def test_every_role_does_its_work_with_its_own_rights(
    tree: Json, policed: Policed, secured_server: Secured, tmp_path: Path
) -> None:
    run = tree["run"]
    configs = {name: of(tree, policed, name) for name in (*ROLES, "admin")}
    for role in ROLES.values():
        grant(configs["admin"], role, f"User:{role.name}")
    policed.grant(run)
    operator, viewer = configs["operator"], configs["viewer"]

    assert f"distrl.{run}.tasks" in command(operator, tmp_path, "topics", "ensure")
    for name in ROLES:
        assert "are there" in command(configs[name], tmp_path, "topics", "wait", "--role", name, "--timeout", "60")
    with RecordProducer(configs["admin"], "a-test") as producer:  # so that there are dead letters to be read
        producer.publish_bytes(topic_name(run, "trajectories.dlq"), None, b"no record").result(DEADLINE_S)
    work(configs, tmp_path / "roles" / "first", versions=1)
    work(configs, tmp_path / "roles" / "again", versions=newest(viewer) + 1)  # begun again, they read what was there

    assert "version" in command(viewer, tmp_path, "status")
    assert "version" in command(viewer, tmp_path, "scores", "--run", run)
    assert "bit for bit" in command(viewer, tmp_path, "learner", "--verify", "--run", run)
    command(viewer, tmp_path, "dlq", "ls")
    arm = ("--set", "retrace=false", "--evaluate", "0", "--out", str(tmp_path / "ablations"))
    assert "report.json" in command(viewer, tmp_path, "ablate", "--run", run, *arm)
    with serving(verdict("success")) as server:
        judge = ("--set", f"judge.endpoint={server.url}", "--set", "judge.model=m", "--most", "1")
        assert "may not be" not in command(configs["evaluator"], tmp_path, "judge", "--run", run, *judge)
    assert [*open_store(viewer.store).list(f"verdicts/{run}/")]
    assert "played" in command(operator, tmp_path, "runs", "ls")
    assert "recorded" in command(operator, tmp_path, "runs", "set", run, "feeder.max_lag=1")

    secrets = (PASSWORD, policed.password)
    logs = {file: file.read_text() for file in (tmp_path / "roles").rglob("*.log")}
    assert len(logs) == 2 * len(COMMANDS)
    for file, text in logs.items():
        assert text, file
        assert not [line for line in text.splitlines() if "may not" in line or "AccessDenied" in line], file
        assert not [secret for secret in secrets if secret in text], file
    for topic in TOPICS:
        with LogReader(viewer, topic) as reader:
            for raw in (raw for batch in reader.to_end() for raw in batch):
                held = b" ".join([raw.key or b"", raw.value or b"", *(value or b"" for _, value in raw.headers)])
                assert not [secret for secret in secrets if secret.encode() in held], raw.position

    store = open_store(operator.store)
    wait_for("nobody to be alive", lambda: not overview(operator, store).alive)
    assert f"removed run {run}" in command(operator, tmp_path, "runs", "rm", run, "--yes", "--objects")
    assert not [*store.list(f"runs/{run}/"), *store.list(f"adapters/{run}/"), *store.list(f"verdicts/{run}/")]

    used = {name: secured_server.used(name, run) for name in ROLES}
    assert any(BEGINS in used[name] for name in RECORDERS)
    for name in RECORDERS:  # whichever of them was first
        used[name].add(BEGINS)
    idle = {
        (name, *right)
        for name, role in ROLES.items()
        for right in granted(role, operator.worker.group) - used[name] - NOT_IN_A_RUN_IN_ORDER.get(name, set())
    }
    assert idle == set(), "rights that nobody needs"


COMMANDS = {
    "learner": "learner",
    "demonstrator": "demonstrate",
    "worker": "worker",
    "feeder": "feed",
    "evaluator": "evaluate",
}


def work(configs: Mapping[str, Config], folder: Path, versions: int) -> None:
    """Let every role work until there are a newer version, an evaluation and, of the stopped feeder, a snapshot."""
    viewer = configs["viewer"]
    with ExitStack() as stack:
        roles = {name: stack.enter_context(running(configs[name], folder / name, tries=1)) for name in COMMANDS}
        for name, words in COMMANDS.items():
            roles[name].start(words, words, "--verbose")
        every = tuple(roles.values())
        wait_for(f"version {versions}", lambda: newest(viewer) >= versions, *every)
        wait_for("an evaluation", lambda: has_records(viewer, "evaluations"), *every)
        wait_for("all demonstrations", lambda: roles["demonstrator"].finished("demonstrate"), *every)
        roles["feeder"].stop()
        wait_for("a snapshot", lambda: has_records(viewer, "snapshots"))
