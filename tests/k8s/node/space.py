"""Namespaces of the node's own, held by one process: with it every other process in them ends."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from k8s.node import cgroups
from k8s.node.calls import called
from k8s.node.layout import ADDRESS, NAME, Layout

START_S = 30.0
HIDDEN_SETTINGS = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""Settings of the whole machine that kubelet insists on. It finds them in files of the node; the machine's stay."""


class Space:
    """The namespaces, from `open` until `close`, or until the process that opened them ends, however it does."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._outer: subprocess.Popen[bytes] | None = None
        self._init = 0
        self._started: list[subprocess.Popen[bytes]] = []

    def open(self) -> None:
        unshare = ["unshare", "--kill-child", "--mount", "--pid", "--fork", "--net", "--uts", "--ipc", "--mount-proc"]
        with (self._layout.logs / "init.log").open("wb") as log:
            self._outer = subprocess.Popen(
                # Killed with whoever opened the space, so that a killed test session leaves no node behind.
                ["setpriv", "--pdeathsig", "KILL", *unshare, self._layout.programs / "pause"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._init = self._first_process()
        cgroups.make()
        for name in HIDDEN_SETTINGS:
            _setting(self._layout, name).parent.mkdir(parents=True, exist_ok=True)
            _setting(self._layout, name).write_text(HIDDEN_SETTINGS[name])
        called(self.enter(["bash", "-euc", _furnish(self._layout)]))

    def close(self) -> None:
        if self._outer is not None:
            with suppress(ProcessLookupError):
                if self._init:
                    os.kill(self._init, signal.SIGKILL)
            self._outer.kill()
            for process in [self._outer, *self._started]:
                process.wait()
        cgroups.remove()

    def enter(self, command: Sequence[str | Path]) -> list[str]:
        """The command line that runs `command` as a process of the node."""
        return ["nsenter", "-t", str(self._init), "-m", "-p", "-n", "-u", "-i", "--", *map(str, command)]

    def enter_network(self, command: Sequence[str | Path]) -> list[str]:
        """The command line that runs `command` as a process of this machine, in the node's network."""
        return ["nsenter", "-t", str(self._init), "-n", "--", *map(str, command)]

    def start(self, name: str, command: Sequence[str | Path]) -> subprocess.Popen[bytes]:
        """A program of the node, which runs until the space closes; it writes to its own log."""
        with (self._layout.logs / f"{name}.log").open("wb") as log:
            path = f"{self._layout.programs}:{os.environ['PATH']}"
            process = subprocess.Popen(
                self.enter(["env", f"PATH={path}", *command]),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._started.append(process)
        return process

    def _first_process(self) -> int:
        """Process 1 of the new pid namespace, once it is what it is to be."""
        assert self._outer is not None
        children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children")
        deadline = time.monotonic() + START_S
        while self._outer.poll() is None and time.monotonic() < deadline:
            for child in children.read_text().split():
                with suppress(OSError):
                    if Path(f"/proc/{child}/exe").resolve().name == "pause":
                        return int(child)
            time.sleep(0.02)
        raise RuntimeError(f"no namespaces: {(self._layout.logs / 'init.log').read_text().strip()}")


def _setting(layout: Layout, name: str) -> Path:
    return layout.state / "settings" / name


def _furnish(layout: Layout) -> str:
    """The script that makes mounts and network as Kubernetes wants them. node0 is one end of a pair without a far end:
    not every kernel has dummy devices."""
    hidden = "\n".join(f"mount --bind {_setting(layout, name)} /proc/sys/{name}" for name in HIDDEN_SETTINGS)
    return f"""
echo {NAME} > /proc/sys/kernel/hostname
mount --make-rshared /
mount -t tmpfs tmpfs /run
mount --bind {layout.state}/var-lib /var/lib
mount --bind {layout.state}/var-log /var/log
{hidden}
ip link set lo up
ip link add node0 type veth peer name node0-peer
ip address add {ADDRESS}/24 dev node0
ip link set node0 up
ip link set node0-peer up
ip route add default dev node0
echo 1 > /proc/sys/net/ipv4/ip_forward
"""
