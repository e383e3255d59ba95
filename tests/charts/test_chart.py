"""The chart by helm itself: its own suites, its examples, what it refuses, and what no pod of it may do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

import gotools
import pytest
import yaml
from chart_examples import CHART, EXAMPLES, containers, helm_says, looked_at, pods, rendered

pytestmark = pytest.mark.kubernetes

MINIMAL = CHART / "ci" / "minimal-values.yaml"
NUMBERS: dict[str, Any] = {
    "config": {"run": "20261002"},
    "imagePullSecrets": ["1"],
    "defaults": {"priorityClassName": "6", "runtimeClassName": "7", "serviceAccount": {"name": "8"}},
    "credentials": {
        "kafka": {"existingSecret": "11", "usernameKey": "1", "passwordKey": "true"},
        "store": {"existingSecret": "12", "accessKey": "1", "secretKey": "null"},
        "judge": {"existingSecret": "13", "apiKey": "1"},
        "modelServer": {"existingSecret": "14", "apiKey": "1"},
        "adb": {"existingSecret": "15", "key": "1"},
    },
    "certificates": {"kafka": {"secret": "16", "key": "1"}, "store": {"configMap": "17", "key": "1"}},
}
"""Names that Kubernetes takes, and that YAML without quotes reads as numbers, a boolean or null."""
OTHERS = ("keda.sh", "monitoring.coreos.com", "kafka.strimzi.io", "leaderworkerset.x-k8s.io")
"""API groups of custom resources."""
example = pytest.mark.parametrize("values", EXAMPLES, ids=lambda path: path.stem)


def test_its_suites_pass(helm_unittest: Path) -> None:
    done = subprocess.run(
        [helm_unittest, "--strict", str(CHART)], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(re.findall(r"Tests: +(\d+) passed", done.stdout)[0]) > 120


def test_every_template_has_a_suite() -> None:
    named = {
        name
        for suite in (CHART / "tests").glob("*_test.yaml")
        for name in yaml.safe_load(suite.read_text())["templates"]
    }
    assert {path.name for path in (CHART / "templates").iterdir() if not path.name.startswith("_")} == named


@example
def test_an_example_is_sound(helm: Path, values: Path) -> None:
    done = helm_says(helm, "lint", "--strict", str(CHART), "--values", str(values))
    assert done.returncode == 0, done.stdout


def test_chart_testing_finds_nothing(chart_testing: Path, helm: Path) -> None:
    """By the rules that come with it: yamllint's, yamale's of Chart.yaml, and helm's lint for every example."""
    module = gotools.TOOLS / "chart-testing"
    version = re.findall(r"github.com/helm/chart-testing/v3 (\S+)", (module / "go.mod").read_text())[0]
    asked = ["go", "mod", "download", "-json", f"github.com/helm/chart-testing/v3@{version}"]
    found = json.loads(subprocess.run(asked, cwd=module, capture_output=True, text=True, check=True).stdout)
    rules = Path(found["Dir"]) / "etc"
    done = subprocess.run(
        [
            chart_testing,
            "lint",
            f"--charts={CHART}",
            f"--lint-conf={rules / 'lintconf.yaml'}",
            f"--chart-yaml-schema={rules / 'chart_schema.yaml'}",
            "--check-version-increment=false",  # compares with a branch of a remote, which a clone need not have
            "--validate-maintainers=false",  # asks a forge for the accounts
        ],
        env=os.environ | {"PATH": f"{helm.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    linted = re.findall(r'values file "\S*/(\S+\.yaml)"', done.stdout)
    assert sorted(linted) == sorted(each.name for each in (CHART / "ci").iterdir())


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("config.feeder.maxlag=4", r"at '/config/feeder': additional properties 'maxlag' not allowed"),
        ("config.feeder.max_lag=-1", r"at '/config/feeder/max_lag': minimum: got -1, want 0"),
        ("config.run=Not A Run", r"at '/config/run': 'Not A Run' does not match pattern"),
        ("config.algorithm.type=ppo", r"at '/config/algorithm/type': value must be one of 'aride'"),
        ("config.algorithm.type=users.awr.x", r"at '/config/algorithm/type': value must be one of 'aride'"),
        ("config.algorithm.gama=0.9", r"at '/config/algorithm.*additional properties 'gama' not allowed"),
        ("config.kafka.sasl_password=x", r"at '/config/kafka': additional properties 'sasl_password' not allowed"),
        ("config.store.secret_key=x", r"at '/config/store': additional properties 'secret_key' not allowed"),
        (r"config.kafka.client.ssl\.key\.password=x", r"invalid propertyName 'ssl\.key\.password'"),
        ("config.devices.addresses={a:1}", r"at '/config/devices': additional properties 'addresses' not allowed"),
        ("config.worker.name=w", r"at '/config/worker': additional properties 'name' not allowed"),
        ("config.learner.ranks=2", r"at '/config/learner': additional properties 'ranks' not allowed"),
        ("learner.ranks=2", r"learner.ranks: 2 ranks, and config.learner.shards is 1"),
        ("config.stack.kafka_port=20000", r"at '/config': additional properties 'stack' not allowed"),
        ("workers.simulated.scaling.minReplicas=0", r"minReplicas': minimum: got 0, want 1"),
        ("workers.simulated.scaling.type=auto", r"scaling/type': value must be one of 'fixed', 'hpa', 'keda'"),
        ("workers.simulated.phones.simulated.count=0", r"count': minimum: got 0, want 1"),
        ("workers.Simulated.phones.simulated.count=1", r"invalid propertyName 'Simulated'"),
        ("workers.simulated.gpu=1", r"at '/workers/simulated': additional properties 'gpu' not allowed"),
        ("learner.replicas=2", r"at '/learner': additional properties 'replicas' not allowed"),
        ("learner.scratch=much", r"'much' does not match pattern"),
        ("image.digest=sha256:12", r"at '/image/digest': 'sha256:12' does not match pattern"),
        (
            "learner.podDisruptionBudget.minAvailable=1,learner.podDisruptionBudget.maxUnavailable=1",
            r"at '/learner/podDisruptionBudget': 'oneOf' failed",
        ),
        ("networkPolicy.store.ports={0}", r"at '/networkPolicy/store/ports/0': minimum: got 0, want 1"),
        ("leaner.enabled=false", r"additional properties 'leaner' not allowed"),
    ],
)
def test_a_wrong_value_is_refused_by_its_path(helm: Path, value: str, said: str) -> None:
    done = helm_says(helm, "template", "run", str(CHART), "--values", str(MINIMAL), "--set", value)
    assert done.returncode != 0
    assert re.search(said, done.stderr.replace("\n", " ")), done.stderr


NEWER: Final = (
    "networkPolicy.adb", "networkPolicy.viewer", "networkPolicy.modelServer", "networkPolicy.store.ports",
    "networkPolicy.kafka.ports", "networkPolicy.judge.ports", "networkPolicy.tracing.ports", "credentials.modelServer",
)  # fmt: skip
"""Keys that values of older releases lack, which `helm upgrade --reuse-values` renders today's templates with."""


def test_values_without_newer_keys_are_rendered(helm: Path) -> None:
    without = ",".join(f"{key}=null" for key in NEWER)
    more = "config.adb.host=adb.lab,config.policy.server.endpoint=http://vllm:8000/v1"
    done = helm_says(helm, "template", "run", str(CHART), "--values", str(MINIMAL), "--set", f"{without},{more}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "value",
    [
        'config.algorithm={"gamma": 0.9}',
        'config.algorithm={"type": "filtered_bc", "lr": 0.5}',
        'config.algorithm={"type": "users_awr.awr", "beta": 0.5}',
    ],
)
def test_an_algorithm_is_checked_by_its_type(helm: Path, value: str) -> None:
    done = helm_says(helm, "template", "run", str(CHART), "--values", str(MINIMAL), "--set-json", value)
    assert done.returncode == 0, done.stderr


@example
def test_kubernetes_knows_every_field_and_pod_security_restricted_takes_every_pod(
    helm: Path, manifests: Path, values: Path
) -> None:
    objects = rendered(helm, values)
    done = looked_at(manifests, objects)
    assert done.returncode == 0, done.stdout
    other = [each for each in objects if each["apiVersion"].partition("/")[0] in OTHERS]
    assert done.stdout == f"{len(objects) - len(other)} sound, {len(other)} of other kinds, 0 wrong\n"


@example
def test_names_that_look_like_numbers_stay_strings(helm: Path, manifests: Path, values: Path, tmp_path: Path) -> None:
    own, chosen, numbers = yaml.safe_load(values.read_text()), deepcopy(NUMBERS), tmp_path / "numbers.yaml"
    demo = own.get("demo", {}).get("enabled")
    if demo:
        del chosen["credentials"]["kafka"]  # nobody logs in at its broker
    else:
        chosen["config"]["kafka"] = {"security_protocol": "SASL_SSL"}
    if demo or own.get("viewer", {}).get("enabled") or own.get("learner", {}).get("pods", 1) > 1:
        chosen["fullnameOverride"] = "a"  # a Service's name begins with a letter
    numbers.write_text(yaml.safe_dump(chosen))
    named = ("20261002", str(CHART), "--namespace", "7", "--values", str(values), "--values", str(numbers))
    done = helm_says(helm, "template", *named)
    assert done.returncode == 0, done.stderr
    objects = [each for each in yaml.safe_load_all(done.stdout) if each]
    looked = looked_at(manifests, objects)
    assert looked.returncode == 0, looked.stdout
    for each in objects:
        metadata = each["metadata"]
        assert metadata.get("namespace", "7") == "7"
        strings = [metadata["name"], *metadata.get("labels", {}).values(), *metadata.get("annotations", {}).values()]
        assert all(isinstance(text, str) for text in strings), metadata


def test_a_wrong_field_and_a_wider_pod_are_found(helm: Path, manifests: Path) -> None:
    objects = rendered(helm, MINIMAL)
    learner = next(each for each in objects if each["kind"] == "StatefulSet")
    learner["spec"]["replica"] = 2
    worker = next(each for each in objects if each["kind"] == "Deployment" and "worker" in each["metadata"]["name"])
    worker["spec"]["template"]["spec"]["hostIPC"] = True
    worker["spec"]["template"]["spec"]["initContainers"][0]["securityContext"] = {}
    done = looked_at(manifests, objects)
    assert done.returncode == 1
    assert 'unknown field "spec.replica"' in done.stdout
    assert "hostIPC=true" in done.stdout
    assert 'container "phones" must set securityContext.allowPrivilegeEscalation=false' in done.stdout


@example
def test_every_pod_has_a_read_only_root_and_no_token(helm: Path, values: Path) -> None:
    found = dict(pods(rendered(helm, values)))
    assert len(found) > 4
    for name, pod in found.items():
        assert pod["spec"]["automountServiceAccountToken"] is False, name
        for container in containers(pod):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True, (name, container["name"])


@example
def test_every_pod_has_a_network_policy(helm: Path, values: Path) -> None:
    objects = rendered(helm, values)
    selectors = [each["spec"]["podSelector"]["matchLabels"] for each in objects if each["kind"] == "NetworkPolicy"]
    for name, pod in pods(objects):
        labels = pod["metadata"]["labels"].items()
        assert any(selector.items() <= labels for selector in selectors), name


@example
def test_no_object_is_shared_or_wider_than_a_namespace(helm: Path, values: Path) -> None:
    objects = rendered(helm, values)
    kinds = {each["kind"] for each in objects}
    assert not kinds & {"PersistentVolume", "PersistentVolumeClaim", "ClusterRole", "Role", "CustomResourceDefinition"}
    named = [(each["kind"], each["metadata"]["name"]) for each in objects]
    assert len(named) == len(set(named))


@example
def test_no_secret_is_written_down(helm: Path, values: Path) -> None:
    """But the demo's own, which the release makes."""
    for each in rendered(helm, values):
        if each["kind"] == "Secret":
            assert "demo" in values.name
    for name, pod in pods(rendered(helm, values)):
        for container in containers(pod):
            given = [each for each in container.get("env", ()) if re.search("PASSWORD|SECRET|API_KEY", each["name"])]
            assert all("secretKeyRef" in each["valueFrom"] for each in given), name


def test_the_schema_refuses_every_unknown_name() -> None:
    """Wherever names are listed, no other is taken; what Kubernetes itself reads is passed on unlisted."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    open_ones: list[str] = []

    def look(node: Any, path: str) -> None:
        if isinstance(node, dict):
            listed = "properties" in node and "if" not in path.split("/")
            closed = {"additionalProperties", "unevaluatedProperties"} & node.keys()
            if listed and not closed and not path.endswith(("/not", "/config/properties/algorithm")):
                open_ones.append(path)
            for key, value in node.items():
                look(value, f"{path}/{key}")
        elif isinstance(node, list):
            for number, value in enumerate(node):
                look(value, f"{path}/{number}")

    look(schema, "")
    assert open_ones == []
