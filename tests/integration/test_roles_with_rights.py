"""Every role does its work with its own user at a broker with TLS, passwords and rights, and its own user at the store.

What they may not do besides is in test_rights.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from distrl import config as settings
from distrl.broker.reader import LogReader
from distrl.config import Config, PhoneSettings
from distrl.policy.autoui.base import save_base
from distrl.policy.autoui.model import AutoUIModel, Shape
from distrl.policy.autoui.tokenizer import WordTokenizer
from distrl.rights.grant import grant
from distrl.rights.roles import ROLES
from distrl.runs.overview import overview
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
    free_ports: Callable[[int], list[int]],
    tmp_path: Path,
) -> Iterator[Json]:
    """The settings of a small run, without a user."""
    torch.manual_seed(0)
    codec = WordTokenizer(words.ALL)
    save_base(tmp_path / "base", AutoUIModel(Shape(len(codec.tokens), 128, 256)), codec, {})
    first = min(free_ports(1)[0], 60_000)
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


def wait_for(what: str, condition: Callable[[], bool], roles: Mapping[str, Roles]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        for each in roles.values():
            each.check()
        assert time.monotonic() < deadline, f"waited {DEADLINE_S:.0f} s for {what}"
        time.sleep(0.2)


def has_records(config: Config, topic: str) -> bool:
    with LogReader(config, topic) as reader:
        return any(batch for batch in reader.to_end())


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
    started = {"learner": "learner", "demonstrator": "demonstrate", "worker": "worker", "feeder": "feed",
               "evaluator": "evaluate"}  # fmt: skip
    with ExitStack() as stack:
        roles = {
            role: stack.enter_context(running(configs[role], tmp_path / "roles" / role, tries=1)) for role in started
        }
        for role, name in started.items():
            roles[role].start(name, name, "--verbose")
        wait_for("version 4", lambda: (found := status_of(viewer).newest) is not None and found.version >= 4, roles)
        wait_for("an evaluation", lambda: has_records(viewer, "evaluations"), roles)
        roles["feeder"].stop()
        wait_for("a snapshot", lambda: has_records(viewer, "snapshots"), {})

    assert "version" in command(viewer, tmp_path, "status")
    assert "version" in command(viewer, tmp_path, "scores", "--run", run)
    assert "bit for bit" in command(viewer, tmp_path, "learner", "--verify", "--run", run)
    assert "played" in command(operator, tmp_path, "runs", "ls")
    assert "recorded" in command(operator, tmp_path, "runs", "set", run, "feeder.max_lag=1")
    logs = {file: file.read_text() for file in (tmp_path / "roles").rglob("*.log")}
    assert len(logs) >= len(started)
    for file, text in logs.items():
        assert text, file
        assert not [line for line in text.splitlines() if "may not" in line or "AccessDenied" in line], file
        assert PASSWORD not in text, file
        assert policed.password not in text, file

    store = open_store(operator.store)
    wait_for("nobody to be alive", lambda: not overview(operator, store).alive, {})
    assert f"removed run {run}" in command(operator, tmp_path, "runs", "rm", run, "--yes", "--objects")
    assert not [*store.list(f"runs/{run}/"), *store.list(f"adapters/{run}/"), *store.list(f"verdicts/{run}/")]
