"""Every command line and every variable of the rendered chart is one that the program takes."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from chart_commands import FROM_THE_CLUSTER, parsed, programs, settings
from chart_examples import EXAMPLES, containers, pods, rendered
from distrl.config import ENV_PREFIX

pytestmark = pytest.mark.kubernetes


@pytest.mark.parametrize("values", EXAMPLES, ids=lambda path: path.stem)
def test_every_container_of_an_example_would_start(helm: Path, values: Path, tmp_path: Path) -> None:
    objects = rendered(helm, values)
    given = yaml.safe_load(values.read_text())["config"]
    found = programs(objects)
    assert {container["args"][0] for _, container, _ in found} >= {"learner", "worker", "feed", "topics", "doctor"}
    for name, container, files in found:
        own = settings(container, files, tmp_path)
        if container["name"] == "phones":
            continue
        assert own.run == given.get("run", "main"), name
        assert not own.store.url.startswith("file://"), name
        if container["name"] == "worker":
            assert own.worker.name == FROM_THE_CLUSTER
            assert own.devices.named, name


def test_phones_of_a_pod_are_those_that_its_worker_drives(helm: Path, tmp_path: Path) -> None:
    found = programs(rendered(helm, EXAMPLES[[path.name for path in EXAMPLES].index("minimal-values.yaml")]))
    own = {name.rpartition("/")[2]: (container, files) for name, container, files in found if "simulated" in name}
    served = parsed(own["phones"][0]["args"])["count"]
    base = settings(*own["phones"], tmp_path).phones.base_port
    driven = settings(*own["worker"], tmp_path).devices.addresses
    assert driven == tuple(f"127.0.0.1:{port}" for port in range(base, base + served))


@pytest.mark.parametrize("values", EXAMPLES, ids=lambda path: path.stem)
def test_no_variable_of_a_pod_is_taken_for_a_setting_by_accident(helm: Path, values: Path) -> None:
    """A Service named distrl-… would bring DISTRL_…_PORT, which no setting is called."""
    for name, pod in pods(rendered(helm, values, release="distrl")):
        assert pod["spec"]["enableServiceLinks"] is False, name
        for container in containers(pod):
            own = [each["name"] for each in container.get("env", ()) if each["name"].startswith(ENV_PREFIX)]
            assert all("__" in variable for variable in own), name


def test_the_parser_refuses_what_the_program_does_not_know() -> None:
    assert str(parsed(["learner", "--config", "a.yaml"])["config"]) == "a.yaml"
    with pytest.raises(Exception, match="No such option"):
        parsed(["learner", "--confg", "a.yaml"])
