"""The manifest of docs/offline-on-cluster.md: Kubernetes takes it, the program takes its commands, it only reads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from chart_commands import parsed, programs, settings
from chart_examples import containers, looked_at, pods
from distrl.offline.ablation.arms import plan

pytestmark = pytest.mark.kubernetes
DOCUMENT = Path(__file__).parents[2] / "docs" / "offline-on-cluster.md"


@pytest.fixture(scope="module")
def blocks() -> list[str]:
    """The manifest, and the arguments of a Job that reads records out."""
    found = re.findall(r"^```yaml\n(.*?)^```$", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    assert len(found) == 2
    return found


@pytest.fixture(scope="module")
def objects(blocks: list[str]) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(blocks[0]))


def test_kubernetes_takes_it_with_the_least_privilege(manifests: Path, objects: list[dict[str, Any]]) -> None:
    done = looked_at(manifests, objects)
    assert (done.returncode, done.stdout) == (0, f"{len(objects)} sound, 0 of other kinds, 0 wrong\n")
    ((_, pod),) = pods(objects)
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert pod["spec"]["enableServiceLinks"] is False
    assert all(each["securityContext"]["readOnlyRootFilesystem"] for each in containers(pod))


def test_the_program_takes_command_settings_and_arms(objects: list[dict[str, Any]], tmp_path: Path) -> None:
    ((_, container, files),) = programs(objects)
    options = parsed(container["args"])
    config = settings(container, files, tmp_path)
    assert (config.run, config.kafka.sasl_username) == ("phones", "viewer")
    planned = plan(config, options["sets"], options["arms"], options["grids"] or (), options["sweeps"] or ())
    assert len(planned.arms) == 4, "the baseline, and three that differ"
    assert (options["first"], options["to"], options["hold_out"], options["evaluate"]) == (0, 400, 20, 0)


def test_what_it_writes_is_on_a_volume_that_outlives_the_pod(objects: list[dict[str, Any]]) -> None:
    ((_, container, _),) = programs(objects)
    out = str(parsed(container["args"])["out"])
    mounted = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    volumes = {each["name"]: each for each in objects[2]["spec"]["template"]["spec"]["volumes"]}
    assert volumes[mounted[out]]["persistentVolumeClaim"]["claimName"] == objects[1]["metadata"]["name"]


def test_every_secret_is_a_reference_to_those_of_the_viewer(objects: list[dict[str, Any]]) -> None:
    ((_, container, _),) = programs(objects)
    given = {each["name"]: each for each in container["env"] if each["name"].startswith("DISTRL_")}
    assert len(given) == 3
    assert {each["valueFrom"]["secretKeyRef"]["name"] for each in given.values()} == {"viewer"}


def test_the_program_takes_the_arguments_that_read_records_out(blocks: list[str]) -> None:
    options = parsed(yaml.safe_load(blocks[1])["args"])
    assert options["topic"] == "trajectories"
    assert str(options["parquet"]).startswith("/results/")
