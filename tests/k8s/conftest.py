"""The cluster of the tests: the one that KUBECONFIG names, else a node of their own that is started once a session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import gotools
import pytest
from fetching import Say

from k8s import image, servers
from k8s.cluster import Cluster
from k8s.node import needs
from k8s.node.images import Store
from k8s.node.node import MODULE, Node, running

IMAGE = "DISTRL_IMAGE"
"""Where KUBECONFIG names a cluster: the image of this checkout, as its nodes can pull it."""


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
    if asked and not session.config.option.collectonly and "KUBECONFIG" not in os.environ:
        needs.check()
        gotools.tool(MODULE, say=_say(session.config))
        image.build(Store.of_user(), _say(session.config))


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


@pytest.fixture
def space(kube: Cluster) -> Iterator[Cluster]:
    """The cluster, in a namespace of the test's own."""
    with kube.namespace_of_its_own() as mine:
        yield mine


def _say(config: pytest.Config) -> Say:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return reporter.write_line if reporter is not None else lambda text: None
