"""Three real brokers on this machine, each of which may be killed, frozen, emptied and started again."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from string import Template

from confluent_kafka import ElectionType, KafkaException, TopicPartition
from distrl.broker.connect import admin
from distrl.config import KafkaSettings
from distrl.stack import jars, kafka, ports
from distrl.stack.infra_files import declared
from distrl.stack.processes import Child, find_all, last_lines, start, stop_all, wait_ready

NODES = (1, 2, 3)
HEAP_MB = 256
READY_S = 120.0
STOP_S = 30.0
WHOLE_S = 90.0
POLL_S = 0.2
TRANSACTIONS = "__transaction_state"
SMALL = """
offsets.topic.num.partitions=3
transaction.state.log.num.partitions=3
share.coordinator.state.topic.num.partitions=3
num.network.threads=2
num.io.threads=2
group.initial.rebalance.delay.ms=0
controlled.shutdown.enable=false
"""
"""Fewer internal partitions and threads than in production: three brokers share one small machine with the tests."""


class Cluster:
    """A directory and six ports, kept when a node is started again. `stop` ends every node."""

    def __init__(self, directory: Path, cache: Path) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        first = ports.draw("the cluster's tests", count=2 * len(NODES))
        self._ports = {node: first + index for index, node in enumerate(NODES)}
        self._controllers = {node: first + len(NODES) + index for index, node in enumerate(NODES)}
        self._java = kafka._java_line(jars.KAFKA.class_path(cache), HEAP_MB)
        self._children: dict[int, Child] = {}
        self._format()
        try:
            self.start(*NODES)
        except BaseException:
            self.stop()
            raise

    @property
    def bootstrap(self) -> str:
        return ",".join(self.address(node) for node in NODES)

    def address(self, node: int) -> str:
        return f"{ports.HOST}:{self._ports[node]}"

    def start(self, *nodes: int) -> None:
        """Start the named nodes that do not run, side by side, and wait until they serve."""
        with ThreadPoolExecutor(len(NODES)) as pool:
            list(pool.map(self._start, nodes))

    def kill(self, node: int) -> None:
        self._children[node].kill()
        stop_all([self._children[node]], STOP_S)

    def freeze(self, node: int) -> None:
        """Its connections stay open, and nobody answers."""
        self._children[node]._signal(signal.SIGSTOP)

    def thaw(self, node: int) -> None:
        self._children[node]._signal(signal.SIGCONT)

    def empty(self, node: int) -> None:
        """Kill a node and take everything that it held away; `start` then begins with a new disk."""
        self.kill(node)
        home = self._home(node)
        shutil.rmtree(home / "data")
        shutil.copytree(home / "formatted", home / "data")

    def until_whole(self) -> None:
        """Wait until each broker lives and each partition has all its copies in sync."""
        deadline = time.monotonic() + WHOLE_S
        client = admin(KafkaSettings(bootstrap=self.bootstrap))
        lacks = ""
        while time.monotonic() < deadline:
            try:
                found = client.list_topics(timeout=10.0)
            except KafkaException as error:  # those that have just begun answer late on a busy machine
                lacks = str(error)
                continue
            partitions = [each for topic in found.topics.values() for each in topic.partitions.values()]
            late = [each for each in partitions if len(each.isrs) < len(each.replicas) or each.leader < 0]
            if len(found.brokers) == len(NODES) and not late:
                return
            lacks = f"brokers {sorted(found.brokers)}; {len(late)} partitions lack copies"
            time.sleep(POLL_S)
        raise AssertionError(lacks)

    def leader(self, topic: str, partition: int = 0) -> int:
        """The node that leads a partition of the topic of this full name."""
        found = admin(KafkaSettings(bootstrap=self.bootstrap)).list_topics(topic, timeout=WHOLE_S)
        return int(found.topics[topic].partitions[partition].leader)

    def coordinator(self, transactional_id: str) -> int:
        """The node that coordinates the transactions of this id: who leads the id's partition of Kafka's own topic."""
        found = admin(KafkaSettings(bootstrap=self.bootstrap)).list_topics(TRANSACTIONS, timeout=WHOLE_S)
        partitions = found.topics[TRANSACTIONS].partitions
        return int(partitions[_java_hash(transactional_id) % len(partitions)].leader)

    def controller(self) -> int:
        """The node that makes others leaders: who leads the quorum, by what each node has written of it."""
        found = []
        for node in NODES:
            state = self._home(node) / "data" / "__cluster_metadata-0" / "quorum-state"
            vote = json.loads(state.read_text())
            found.append((vote["leaderEpoch"], vote["leaderId"]))
        return int(max(found)[1])

    def repair(self) -> None:
        """Whole again, whatever a test has done."""
        for node in NODES:
            if self._children[node].lives():
                self.thaw(node)
        self.start(*NODES)
        self.until_whole()
        self._elect_preferred()

    def _elect_preferred(self) -> None:
        """Let each partition be led by who was to lead it at first. Where a test has left one node with all of them,
        one that looks for a topic of a certain leader would make topics until no broker has room for more."""
        client = admin(KafkaSettings(bootstrap=self.bootstrap))
        topics = client.list_topics(timeout=WHOLE_S).topics
        every = [TopicPartition(name, number) for name, topic in topics.items() for number in topic.partitions]
        client.elect_leaders(ElectionType.PREFERRED, every).result(WHOLE_S)

    def stop(self) -> None:
        for child in self._children.values():
            child._signal(signal.SIGCONT)
        stop_all(find_all(self.directory), STOP_S)

    def _home(self, node: int) -> Path:
        return self.directory / f"kafka-{node}"

    def _start(self, node: int) -> None:
        if node in self._children and self._children[node].lives():
            return
        line = [*self._java, "kafka.Kafka", "server.properties"]
        child = self._children[node] = start(f"kafka-{node}", line, self.directory, cwd=self._home(node))
        port = self._ports[node]
        wait_ready(child, lambda: ports.listens(port), READY_S, threading.Event(), "read that log")

    def _properties(self, node: int) -> str:
        voters = ",".join(f"{each}@{ports.HOST}:{self._controllers[each]}" for each in NODES)
        given = {"node": node, "voters": voters, "host": ports.HOST, "port": self._ports[node], "log_dirs": "data"}
        text = declared("kafka/cluster.properties").replace("${...}", "$${...}")
        return Template(text).substitute(given, controller_port=self._controllers[node]) + SMALL

    def _format(self) -> None:
        """One format for all: the others get a copy with a name of their own, as each run of the tool takes seconds."""
        for node in NODES:
            self._home(node).mkdir()
            (self._home(node) / "server.properties").write_text(self._properties(node), encoding="latin-1")
        first = self._home(NODES[0])
        tool = [
            "kafka.tools.StorageTool",
            "format",
            "--cluster-id",
            kafka.cluster_id(),
            "--config",
            "server.properties",
        ]
        log = first / "format.log"
        with log.open("wb") as out:
            done = subprocess.run([*self._java, *tool], cwd=first, stdout=out, stderr=subprocess.STDOUT, check=False)
        assert done.returncode == 0, last_lines(log)
        for node in NODES:
            home = self._home(node)
            shutil.copytree(first / "data", home / "formatted")
            meta = home / "formatted" / "meta.properties"
            lines = [line for line in meta.read_text().splitlines() if not line.startswith(("node.id", "directory.id"))]
            meta.write_text("\n".join([*lines, f"node.id={node}", f"directory.id={kafka.cluster_id()}"]) + "\n")
        for node in NODES:
            shutil.rmtree(self._home(node) / "data", ignore_errors=True)
            shutil.copytree(self._home(node) / "formatted", self._home(node) / "data")


def _java_hash(text: str) -> int:
    """The absolute value of String.hashCode of ASCII, by which Kafka finds the partition of an id."""
    total = 0
    for character in text:
        total = (31 * total + ord(character)) & 0xFFFFFFFF
    return total if total < 1 << 31 else (1 << 32) - total
