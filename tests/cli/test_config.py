"""`distrl config`: what it prints can be used, what it refuses is explained, and no secret is ever shown."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from distrl.config import load
from distrl.policy.registry import SHIPPED

from .conftest import Cli

SECRETS = {"DISTRL_STORE__SECRET_KEY": "hunter2-store", "DISTRL_KAFKA__SASL_PASSWORD": "hunter2-kafka",
           "DISTRL_KAFKA__CLIENT__SSL__KEY__PASSWORD": "hunter2-key"}  # fmt: skip
SERVED = f"policy.server.endpoint=http://h:1/v1 policy.server.adapters=a policy.base_model={SHIPPED}"
SASL = {"DISTRL_KAFKA__SECURITY_PROTOCOL": "SASL_SSL", "DISTRL_KAFKA__SASL_USERNAME": "ada"}


def test_what_is_shown_is_accepted_and_means_the_same(cli: Cli, tmp_path: Path) -> None:
    sets = [
        "--set",
        "run=seven",
        "--set",
        "algorithm.lr=0.002",
        "--set",
        "devices.addresses=['127.0.0.1:26000']",
        "--set",
        "policy.lora_targets=[q, k]",
        "--set",
        "worker.name='0012'",
    ]
    shown = cli("config", "show", *sets)
    assert shown.returncode == 0
    file = tmp_path / "run.yaml"
    file.write_text(shown.stdout)
    checked = cli("config", "check", "--config", str(file))
    assert (checked.returncode, checked.stderr) == (0, "")
    assert "the settings are sound" in checked.stdout
    assert load(file, environ={}) == load(sets=sets[1::2], environ={})
    assert cli("config", "show", "--config", str(file)).stdout == shown.stdout


def test_secrets_are_never_printed_and_no_mask_takes_their_place(cli: Cli, tmp_path: Path) -> None:
    shown = cli("config", "show", environ=SECRETS | SASL)
    assert "hunter2" not in shown.stdout + shown.stderr
    assert "# set, and not shown: store.secret_key" in shown.stdout
    assert "# set, and not shown: kafka.client.ssl.key.password" in shown.stdout
    tree = yaml.safe_load(shown.stdout)
    assert "secret_key" not in tree["store"]
    assert "sasl_password" not in tree["kafka"]
    file = tmp_path / "run.yaml"
    file.write_text(shown.stdout)
    assert cli("config", "check", "-c", str(file), environ=SECRETS).returncode == 0
    without = cli("config", "check", "-c", str(file))
    assert without.returncode == 1
    assert "needs kafka.sasl_username and kafka.sasl_password" in without.stderr


CRASH = """
import distrl.cli.configuration as configuration
from distrl.cli.main import main

def crash(tree, **_):
    secrets = [each.get_secret_value() for each in configuration.load(None, None).secrets().values()]
    assert len(secrets) == 3
    raise RuntimeError("a defect of the program")

configuration.yaml.safe_dump = crash
main()
"""


def test_a_crash_shows_no_values(tmp_path: Path) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("DISTRL_")} | SECRETS | SASL
    line = [sys.executable, "-c", CRASH, "config", "show"]
    crashed = subprocess.run(line, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert crashed.returncode == 1
    assert crashed.stderr.rstrip().endswith("RuntimeError: a defect of the program")
    assert "hunter2" not in crashed.stdout + crashed.stderr


@pytest.mark.parametrize("command", ["show", "check"])
def test_a_refusal_beside_a_secret_does_not_print_it(cli: Cli, command: str) -> None:
    refused = cli(
        "config",
        command,
        "--set",
        "store.timeout_s=never",
        "--set",
        "store.secrt_key=hunter2-typo",
        environ=SECRETS | SASL,
    )
    assert refused.returncode == 1
    assert "store.timeout_s" in refused.stderr
    assert "hunter2" not in refused.stdout + refused.stderr


@pytest.mark.parametrize(
    ("text", "path", "allowed"),
    [
        ("kafka: {bootstrp: 'x:1'}", "kafka.bootstrp: no such setting", "bootstrap"),
        ("feder: {max_lag: 1}", "feder: no such setting", "feeder"),
        ("feeder: {max_lag: -1}", "feeder.max_lag: ", "greater than or equal to 0"),
        ("algorithm: {advantage: gae}", "algorithm.advantage: ", "'paper', 'retrace' or 'td'"),
        ("algorithm: {lr: .inf}", "algorithm.lr: ", "finite number"),
        ("algorithm: {lr: .nan}", "algorithm.lr: ", "number"),
        ("run: Not A Run", "run: ", "a-z, 0-9 and '-'"),
    ],
)
def test_what_cannot_be_is_refused_with_its_path_and_what_is_allowed(
    cli: Cli, tmp_path: Path, text: str, path: str, allowed: str
) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(text)
    for command in ("check", "show"):
        refused = cli("config", command, "--config", str(file))
        assert (refused.returncode, refused.stdout) == (1, "")
        assert refused.stderr.startswith(path)
        assert allowed in refused.stderr
        assert "hint: " in refused.stderr
        assert "Traceback" not in refused.stderr


def test_a_file_that_is_not_there_is_refused(cli: Cli) -> None:
    refused = cli("config", "check", "--config", "none.yaml")
    assert refused.returncode == 1
    assert "none.yaml: cannot be read" in refused.stderr


def test_the_file_loses_to_the_variable_and_the_variable_to_the_flag(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("feeder: {max_lag: 1, outstanding: 5, poll_s: 0.5}")
    environ = {"DISTRL_FEEDER__MAX_LAG": "2", "DISTRL_FEEDER__OUTSTANDING": "6"}
    shown = cli("config", "show", "-c", "run.yaml", "-s", "feeder.max_lag=3", environ=environ)
    feeder = yaml.safe_load(shown.stdout)["feeder"]
    assert (feeder["max_lag"], feeder["outstanding"], feeder["poll_s"]) == (3, 6, 0.5)


def test_a_misspelt_variable_is_refused(cli: Cli) -> None:
    refused = cli("config", "check", environ={"DISTRL_FEEDER__MAXLAG": "2"})
    assert refused.returncode == 1
    assert "feeder.maxlag (DISTRL_FEEDER__MAXLAG): no such setting" in refused.stderr


def test_a_setting_that_a_file_has_wrong_is_refused_with_the_file(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("stack: {adb_port: 1, kafka_port: 0}\n")
    refused = cli("config", "check", "-c", "mine.yaml", "-s", "stack.kafka_port=-1").stderr
    assert "stack.adb_port: no such setting" in refused
    assert refused.count("; it stands in mine.yaml") == 1, "what wins over the file is not of the file"


def test_a_variable_with_one_underscore_is_named_with_the_form_that_it_has_to_have(cli: Cli) -> None:
    refused = cli("config", "check", environ={"DISTRL_KAFKA_BOOTSTRAP": "kafka:9092"})
    assert "kafka_bootstrap (DISTRL_KAFKA_BOOTSTRAP): no such setting" in refused.stderr
    assert "`__` stands between section and name, as in DISTRL_KAFKA__BOOTSTRAP" in refused.stderr
    flag = cli("config", "check", "-s", "feeder.max_lag=-1", environ={"DISTRL_FEEDER__MAX_LAG": "2"})
    assert "feeder.max_lag: Input" in flag.stderr, "the flag wins, and is what is wrong"


@pytest.mark.parametrize(
    ("setting", "where"),
    [
        ("policy.base_model=/no/such/model", "/no/such/model/config.json: cannot be read"),
        ("algorithm.type=r2d3", "algorithm.type: r2d3 learns values of actions, and this policy has none"),
        ("kafka.security_protocol=SSL kafka.ssl_ca=/no/such/ca.pem", "kafka.ssl_ca: /no/such/ca.pem is no file"),
        ("feeder.tasks=/no/such/list.jsonl", "feeder.tasks: /no/such/list.jsonl is no file"),
        ("feeder.suite=shop", "feeder.suite: "),
        ("learner.ranks=4 learner.shards=2", "learner.shards: a minibatch has 2 shards, and there are 4 ranks"),
        (
            f"{SERVED} worker.temperature=0.001",
            "worker.temperature: is 0.001, and a server draws at no less than 0.01",
        ),
        ("worker.ladder.rungs=8", "worker.ladder.rungs: is set, and policy.base_model is no recurrent Q"),
        (SERVED, f"policy.server.endpoint: {SHIPPED} is no vision-language model, which alone are served"),
        ("store.url=s3://h:1/bucket store.access_key=a", "store.secret_key: is not set, and its other half is"),
        ("adb.binary=/no/such/adb", "adb.binary: /no/such/adb is no program"),
        ("devices.emulators.binary=/no/such/emulator", "devices.emulators.binary: /no/such/emulator is no program"),
        ("kafka.client.no.such=1", "kafka.client.no.such: librdkafka refuses it"),
    ],
)
def test_check_calls_no_setting_sound_that_a_role_would_refuse(cli: Cli, setting: str, where: str) -> None:
    refused = cli("config", "check", *(word for each in setting.split() for word in ("--set", each)))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(where)


def test_check_reads_the_tasks_and_the_notes_that_are_named(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"instruction": "open the clock"}\n')
    assert cli("config", "check", "-s", "feeder.tasks=train.jsonl", "-s", "appagent.notes=later.json").returncode == 0
    (tmp_path / "train.jsonl").write_text('{"instruction": 5}\n')
    refused = cli("config", "check", "-s", "feeder.tasks=train.jsonl")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("feeder.tasks: train.jsonl is wrong in 1 places\n  train.jsonl:1: ")
    (tmp_path / "notes.json").write_text("{}")
    refused = cli("config", "check", "-s", "appagent.notes=notes.json")
    assert refused.stderr.startswith("notes.json: holds no notes of the form")


def test_a_program_may_be_named_as_the_path_of_the_user_finds_it(cli: Cli) -> None:
    programs = ("-s", "adb.binary=sh", "-s", f"devices.emulators.binary={sys.executable}")
    assert cli("config", "check", *programs).returncode == 0


def test_check_loads_the_base_model_that_is_named(cli: Cli) -> None:
    assert cli("config", "check", "--set", f"policy.base_model={SHIPPED}").returncode == 0
