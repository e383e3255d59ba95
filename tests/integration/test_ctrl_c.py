"""Ctrl-C while a command waits for the broker. confluent-kafka loses what a callback raises, and the poll raises
SystemError then: the command would end with that, and would not stop what it has started."""

from __future__ import annotations

import subprocess
import sys
import uuid

import pytest
from distrl.broker import topic_admin
from distrl.broker.topics import topic_name
from distrl.config import load
from faults.proxy import Proxy, behind

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

INTERRUPTS = 30
FOLLOWS = f"""
import logging, os, signal, sys, threading
from distrl.broker import reader
from distrl.broker.reader import LogReader
from distrl.config import load

logging.disable()
reader.LOOK_S = 0.02
config = load(sets=sys.argv[1:], environ={{}})
with LogReader(config, "heartbeats", follows=True) as log:
    log.read(0.1)
    print("reads", flush=True)
    sys.stdin.readline()
    interrupts = 0
    for _ in range({INTERRUPTS}):
        try:
            threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
            while True:
                log.read(1.0)
        except KeyboardInterrupt:
            interrupts += 1
print(interrupts)
"""
"""Follows the log and is interrupted, with statistics that come all the time, and errors if the broker is away."""
WRITES = f"""
import os, signal, sys, threading
from distrl.broker.fenced import FencedError, FencedProducer
from distrl.config import load

config = load(sets=sys.argv[1:-1], environ={{}})
interrupts = 0
with FencedProducer(config, "dlq", "a test", lambda: FencedError("a", "b", "c")) as producer:
    print("writes", flush=True)
    for _ in range({INTERRUPTS}):
        try:
            threading.Timer(0.05, os.kill, [os.getpid(), signal.SIGINT]).start()
            while True:
                producer.write(sys.argv[-1], None, b"value")
        except KeyboardInterrupt:
            interrupts += 1
print(interrupts)
"""
"""Writes one transaction after the other, and is interrupted."""


@pytest.mark.parametrize("away", [False, True], ids=["at rest", "the broker is away"])
def test_ctrl_c_is_one_wherever_the_client_is(broker: str, proxy: Proxy, away: bool) -> None:
    config = load(sets=[f"run=ctrl-c-{uuid.uuid4().hex[:10]}", f"kafka.bootstrap={broker}"], environ={})
    topic_admin.ensure(config)
    sets = [f"run={config.run}", f"kafka.bootstrap={behind(proxy, config).kafka.bootstrap}"]
    with subprocess.Popen(
        [sys.executable, "-c", FOLLOWS, *sets], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            assert child.stdout.readline() == "reads\n"
            if away:
                proxy.close()
            child.stdin.write("\n")
            child.stdin.flush()
            assert child.stdout.read().split() == [str(INTERRUPTS)]
        finally:
            child.kill()


def test_ctrl_c_is_one_also_while_a_record_is_written(broker: str) -> None:
    """Its acknowledgement is a callback, too."""
    config = load(sets=[f"run=ctrl-c-{uuid.uuid4().hex[:10]}", f"kafka.bootstrap={broker}"], environ={})
    topic_admin.ensure(config)
    line = [sys.executable, "-c", WRITES, f"run={config.run}", f"kafka.bootstrap={broker}"]
    ended = subprocess.run([*line, topic_name(config.run, "updates")], stdout=subprocess.PIPE, text=True, check=True)
    assert ended.stdout.split() == ["writes", str(INTERRUPTS)]
