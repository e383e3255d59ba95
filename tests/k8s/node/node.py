"""Starts the node and ends it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import gotools
from distrl.stack.processes import last_lines
from fetching import Say, cache
from filelock import FileLock, Timeout

from k8s.node import commands, keys, needs
from k8s.node.calls import CallError, called
from k8s.node.images import Store
from k8s.node.layout import NAME, VOLUMES, Layout
from k8s.node.needs import NodeError
from k8s.node.space import Space

MODULE = "kubernetes"
NAMES = (
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "netpol",
)
"""What the one program of Kubernetes is called by."""
READY_S = 180.0
"""Until a part answers. A free machine needs 12 s for all of them."""
POLL_S = 0.1


class Node:
    """A running node. Made by `running`; ends with that block."""

    def __init__(self, layout: Layout, space: Space, store: Store, say: Say) -> None:
        self.kubeconfig = layout.kubeconfig
        self.store = store
        self._layout = layout
        self._space = space
        self._say = say
        self._programs: dict[str, subprocess.Popen[bytes]] = {}

    def command(self, command: Sequence[str | Path]) -> list[str]:
        """The command line that runs `command` on this machine in the node's network, as its administrator."""
        path = f"{self._layout.programs}:{os.environ['PATH']}"
        where = [f"KUBECONFIG={self.kubeconfig}", f"KUBECACHEDIR={self._layout.state}/kubectl", f"PATH={path}"]
        return self._space.enter_network(["env", *where, *command])

    def has_image(self, name: str) -> bool:
        return name in self._ctr("images", "list", "--quiet").splitlines()

    def load(self, name: str) -> None:
        """Bring an image from the store into the node, unless it is there; others of its repository go."""
        if self.has_image(name):
            return
        began = time.monotonic()
        archive = self._layout.state / "image.tar"
        self.store.archive(name, archive)
        self._ctr("images", "import", archive)
        archive.unlink()
        self._forget_older(name)
        self._say(f"loaded {name} in {time.monotonic() - began:.0f} s")

    def _forget_older(self, name: str) -> None:
        """Remove other images of the repository of `name`; each has a second name, of its digest."""
        rows = [line.split() for line in self._ctr("images", "list").splitlines()[1:]]
        digests = {row[0]: row[2] for row in rows}
        repository = name.rpartition(":")[0]
        tags = [each for each in digests if not each.startswith("sha256:")]
        used = {digests[tag] for tag in tags if tag == name or tag.rpartition(":")[0] != repository}
        names = [each for each, digest in digests.items() if digest not in used]
        if names:
            self._ctr("images", "remove", "--sync", *names)

    def start(self) -> None:
        """Every part, in order: each once those that it needs answer."""
        made = keys.make(self._layout.state / "keys", self.kubeconfig)
        images = _own_images(self._layout, self.store)
        self._write_files(images)
        self._run("containerd", commands.containerd(self._layout))
        self._run("etcd", commands.etcd(self._layout))
        self._run("kube-apiserver", commands.apiserver(made))
        self._until("containerd answers", lambda: bool(self._ctr("version")))
        for name in images.values():
            self.load(name)
        self._until("the API server is ready", lambda: self._kubectl("get", "--raw", "/readyz") == "ok")
        self._run("kube-controller-manager", commands.controller_manager(self._layout, made))
        self._run("kube-scheduler", commands.scheduler(self._layout))
        self._run("kubelet", commands.kubelet(self._layout, made))
        self._run("kube-proxy", commands.proxy(made))
        self._run("netpol", commands.netpol(self._layout))
        self._kubectl("apply", "--filename", f"{self._layout.state}/cluster.yaml")
        self._until("the node is ready", lambda: "True" in self._kubectl("get", "node", NAME, "--output", READY))
        self._until("DNS answers", lambda: "1" in self._kubectl(*COREDNS_READY))

    def check(self) -> None:
        """Raises NodeError where a part has ended: none is started again."""
        for name, process in self._programs.items():
            if process.poll() is not None:
                last = last_lines(self._layout.logs / f"{name}.log", 0)
                raise NodeError(f"{name} ended with {process.returncode}:\n{last}")

    def _write_files(self, images: dict[str, str]) -> None:
        layout = self._layout
        (layout.state / "resolv.conf").write_text("nameserver 127.0.0.1\n")  # no server outside is asked
        (layout.state / "cni" / "pods.conflist").write_text(layout.fill("pods.conflist"))
        (layout.state / "containerd.toml").write_text(layout.fill("containerd.toml", **images))
        (layout.state / "kubelet.yaml").write_text(layout.fill("kubelet.yaml"))
        numbers = [f"{number:02}" for number in range(VOLUMES)]
        for number in numbers:
            (layout.state / "volumes" / number).mkdir(parents=True)
        volumes = [layout.fill("volume.yaml", number=number) for number in numbers]
        (layout.state / "cluster.yaml").write_text(layout.fill("cluster.yaml", **images) + "".join(volumes))

    def _run(self, name: str, command: Sequence[str]) -> None:
        self._programs[name] = self._space.start(name, command)

    def _until(self, what: str, done: Callable[[], bool]) -> None:
        """Waits until `done`. Raises NodeError as soon as a program has ended, or after READY_S."""
        began = time.monotonic()
        problem = ""
        while True:
            try:
                if done():
                    break
            except CallError as error:
                problem = str(error)
            self.check()
            if time.monotonic() - began > READY_S:
                raise NodeError(f"after {READY_S:.0f} s not yet so: {what}. {problem}\nLogs: {self._layout.logs}")
            time.sleep(POLL_S)
        self._say(f"{what} ({time.monotonic() - began:.1f} s)")

    def _ctr(self, *arguments: str | Path) -> str:
        return called(self._space.enter([self._layout.programs / "ctr", "--namespace", "k8s.io", *arguments]))

    def _kubectl(self, *arguments: str) -> str:
        return called(self.command(["kubectl", *arguments]))


READY = 'jsonpath={.status.conditions[?(@.type=="Ready")].status}'
COREDNS_READY = (
    "--namespace=kube-system",
    "get",
    "deployment",
    "coredns",
    "--output",
    "jsonpath={.status.readyReplicas}",
)


@contextmanager
def running(say: Say) -> Iterator[Node]:
    """A node, for as long as the block: built, if this user never did, started, and ended without a trace but caches.

    Raises NodeError where the machine lacks something, or another node of this user runs.
    """
    needs.check()
    root = cache() / "node"
    root.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(root / "lock", timeout=0):
            layout = _lay_out(root, gotools.tool(MODULE, say=say).parent)
            space = Space(layout)
            try:
                space.open()
                node = Node(layout, space, Store.of_user(), say)
                node.start()
                yield node
                node.check()
            finally:
                space.close()
                shutil.rmtree(layout.state)
    except Timeout:
        raise NodeError(f"another node runs in {root}: end it, or set DISTRL_STACK__CACHE to another folder") from None


def _lay_out(root: Path, built: Path) -> Layout:
    """New folders; what a node that was killed has left goes first."""
    layout = Layout(root, root / "programs")
    for old in (layout.state, layout.programs):
        if old.exists():
            shutil.rmtree(old)
    for folder in ("log", "keys", "cni", "volumes", "etcd", "var-lib", "var-log"):
        (layout.state / folder).mkdir(parents=True)
    layout.programs.mkdir()
    for program in built.iterdir():
        (layout.programs / program.name).symlink_to(program)
    for name in NAMES:
        (layout.programs / name).symlink_to(built / MODULE)
    return layout


def _own_images(layout: Layout, store: Store) -> dict[str, str]:
    """The images of the sandbox and of DNS, by the names that the node's files have for them."""
    names = {}
    for program in ("pause", "coredns"):
        built = (layout.programs / program).resolve()
        names[program] = f"localhost/{program}:{built.parent.name}"
        if not store.has(names[program]):
            store.of_program(names[program], built)
    return names
