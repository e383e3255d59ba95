"""The cluster of the tests: the one that KUBECONFIG names, else a node of their own that is started once a session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import gotools
import pytest
from fetching import Say

from k8s import image, keda, servers
from k8s.cluster import Cluster
from k8s.node.node import Node, running
from k8s.prepare import prepare

IMAGE = "K8S_IMAGE"
"""Where KUBECONFIG names a cluster: the image of this checkout, as its nodes can pull it. A name that begins with
DISTRL_ would be read as a setting."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    mine = [item for item in items if item.path.parent == Path(__file__).parent]
    for item in mine:
        item.add_marker(pytest.mark.k8s)
        if not _on_cluster(item) and "KUBECONFIG" in os.environ:
            item.add_marker(pytest.mark.skip(reason="KUBECONFIG names a cluster, so none is started"))
    items.sort(key=_on_cluster)  # one node at a time: those that start their own come before the session's is there


def _on_cluster(item: pytest.Item) -> bool:
    return "kube" in getattr(item, "fixturenames", ())


@pytest.hookimpl(trylast=True)  # once the tests that are left out are
def pytest_collection_finish(session: pytest.Session) -> None:
    """No test's own time limit may pay for what is built once."""
    asked = [item for item in session.items if item.get_closest_marker("k8s")]
    if not asked or session.config.option.collectonly:
        return
    say = _say(session.config)
    if "KUBECONFIG" in os.environ:
        gotools.tool("helm", say=say)
        return
    prepare(say, with_keda=any("with_keda" in item.fixturenames for item in asked))


@pytest.fixture(scope="session")
def own_node(pytestconfig: pytest.Config) -> Iterator[Node | None]:
    """The node; None where KUBECONFIG names a cluster."""
    if "KUBECONFIG" in os.environ:
        yield None
        return
    with running(_say(pytestconfig)) as node:
        yield node


@pytest.fixture(scope="session")
def kube(own_node: Node | None, pytestconfig: pytest.Config) -> Cluster:
    """The cluster, with the image of this checkout."""
    if own_node is not None:
        name = image.build(own_node.store, _say(pytestconfig))
        own_node.load(name)
        return Cluster(name, own_node.command)
    if IMAGE not in os.environ:
        pytest.fail(f"KUBECONFIG names a cluster: {IMAGE} has to name an image that its nodes can pull")
    return Cluster(os.environ[IMAGE], lambda command: [*map(str, command)])


@pytest.fixture(scope="session")
def demo_servers(own_node: Node | None, kube: Cluster) -> list[str]:
    """Words of helm that name Kafka and the S3 endpoint: none where the published images can be pulled."""
    if own_node is None:
        return []
    kafka, s3 = servers.kafka(own_node.store), servers.s3(own_node.store)
    for name in (kafka, s3):
        own_node.load(name)
    values = Path(__file__).parent / "own-node-values.yaml"
    return ["--values", str(values), "--set-string", f"demo.kafka.image={kafka},demo.s3.image={s3}"]


@pytest.fixture(scope="session")
def with_keda(own_node: Node | None, kube: Cluster) -> None:
    """KEDA in the cluster: in the tests' own node from source, elsewhere the one that is there."""
    if own_node is not None:
        keda.install(own_node, kube)
    elif "scaledobjects.keda.sh" not in kube.kubectl("get", "customresourcedefinitions", "--output=name"):
        pytest.skip("the cluster that KUBECONFIG names has no KEDA (https://keda.sh/docs/latest/deploy)")


@pytest.fixture(scope="session")
def undefined(own_node: Node | None, kube: Cluster) -> set[str]:
    """Groups of operators' resources that the cluster may lack. The tests' own node gets the definitions of the others;
    no operator is needed. Strimzi's are in no package registry: tests/charts/test_strimzi.py looks at such objects."""
    if own_node is not None:
        folder = gotools.source("definitions", "github.com/prometheus-operator/prometheus-operator")
        prometheus = folder / "example" / "prometheus-operator-crd"
        kinds = [prometheus / f"monitoring.coreos.com_{kind}.yaml" for kind in ("podmonitors", "prometheusrules")]
        group = gotools.source("definitions", "sigs.k8s.io/lws") / "config" / "crd" / "bases"
        kinds.append(group / "leaderworkerset.x-k8s.io_leaderworkersets.yaml")
        files = [f"--filename={file}" for file in [*kinds, *keda.definitions()]]
        kube.kubectl("apply", "--server-side", *files)
        kube.kubectl("wait", "--for=condition=Established", *files, "--timeout=60s")
        return {"kafka.strimzi.io"}
    return {"kafka.strimzi.io", "keda.sh", "leaderworkerset.x-k8s.io", "monitoring.coreos.com"}


@pytest.fixture
def space(kube: Cluster) -> Iterator[Cluster]:
    """The cluster, in a namespace of the test's own."""
    with kube.namespace_of_its_own() as mine:
        yield mine


def _say(config: pytest.Config) -> Say:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return reporter.write_line if reporter is not None else lambda text: None
