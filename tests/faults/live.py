"""Real servers that may be killed, and one run on them: what is fed, who lives, and what the log says in the end."""

from __future__ import annotations

import hashlib
import io
import os
import random
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import factories
import numpy as np
import psutil
from babbling import CODEC, save_babbling
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from distrl import config as settings
from distrl.broker import topic_admin
from distrl.broker.connect import admin
from distrl.broker.journal import Journal
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader, RawRecord, decoded
from distrl.broker.topics import topic_name
from distrl.clock import SYSTEM_CLOCK
from distrl.config import Config
from distrl.errors import BrokerError, StoreError, WireError
from distrl.learner.recover import recover
from distrl.learner.state import LearnerState
from distrl.learner.verify import replay
from distrl.policy.registry import policy_of
from distrl.rollout.back_pressure import Retry
from distrl.runs.settings import learning_fingerprint
from distrl.stack import adb, kafka, minio, ports
from distrl.stack import s3 as object_store
from distrl.stack.part import Part, Site
from distrl.stack.phones import start_phones
from distrl.stack.processes import find_all, last_lines, stop_all
from distrl.store.objects import ObjectStore, open_store
from distrl.tasks.suite import suites
from distrl.train.roles import write_settings
from distrl.types import (
    Evaluation,
    Heartbeat,
    LoggedTrajectory,
    ObjectRef,
    Outcome,
    Record,
    Split,
    Step,
    Task,
    Trajectory,
    Update,
    Version,
)
from groups import committed
from learner.world import learning
from PIL import Image
from waiting import until

from faults.roles import KILLED, Launcher, Role

PHONES = 4
WARMUP = 2
"""Updates of behaviour cloning; the last of them publishes version 0."""
PATIENCE_S = 300.0
POLL_S = 0.05
STOP_S = 30.0
SCREENS = 40
LEFT_TO_THE_NEXT = "stopping without a checkpoint"
"""What a learner says that ends with less than it had journalled."""
UNHURRIED = "devices.settle_unchanged_s=0.3"
"""An episode takes a second or two. Tasks that a worker has fetched ahead then last for as long as librdkafka may
sleep before it fetches more, so that no phone is without a task when the broker goes."""
DAY = "2026-01-01"

Json = dict[str, Any]


class Servers:
    """A broker, an object store, an adb server and phones, each on a port that it keeps when it is started again."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.base_model = directory / "base"
        self.launcher = Launcher()
        self._site = Site(directory, settings.load().stack.cache.expanduser().absolute(), threading.Event(), print)
        self._ports = [ports.draw("the fault tests") for _ in range(4)]
        self._phones_port = ports.draw("the fault tests", count=PHONES)
        self._parts: dict[str, Part] = {}
        save_babbling(self.base_model, 64, 128, (8, 8, 16))

    def start(self, *names: str) -> None:
        """The named servers, side by side; those that live are left alone."""
        starters: dict[str, Callable[[], Part]] = {
            "kafka": lambda: kafka.start_kafka(self._site, {"heap_mb": 512}, self._ports[0], self._ports[1]),
            "s3": lambda: object_store.start_s3(self._site, {"object_store": "auto"}, self._ports[2]),
            "adb": lambda: adb.start_adb(self._site, settings.AdbSettings(port=self._ports[3])),
            "phones": lambda: start_phones(self._site, self.phones()),
        }
        missing = [name for name in names if not self.lives(name)]
        with ThreadPoolExecutor(len(starters)) as pool:
            self._parts.update(zip(missing, pool.map(lambda name: starters[name](), missing), strict=True))

    def lives(self, name: str) -> bool:
        part = self._parts.get(name)
        return part is not None and (part.child is None or part.child.lives())

    def signal(self, name: str, number: signal.Signals) -> None:
        """SIGKILL, or SIGSTOP for a server that hangs."""
        child = self._parts[name].child
        assert child is not None
        os.kill(child.pid, number)
        if number is signal.SIGKILL:
            stop_all([child], STOP_S)

    def kill(self, name: str) -> None:
        self.signal(name, signal.SIGKILL)

    def store_is_s3(self) -> bool:
        return self._parts["s3"].child is not None

    def store_can_be_killed(self) -> bool:
        """In Docker it is the client that we would kill, and not the store."""
        return self.store_is_s3() and minio.way(self._site.cache).kind is not minio.Kind.DOCKER

    def adapter(self, config: Config, number: int) -> tuple[bytes, str]:
        """Weights that differ with `number`, and the base model that they belong to."""
        agent = policy_of(config.policy, number)
        return agent.adapter(), agent.base_sha256

    def phones(self) -> settings.PhoneSettings:
        given = {"count": PHONES, "evaluation_count": 0, "base_port": self._phones_port, "latency_median_ms": 2.0}
        return settings.PhoneSettings.model_validate(given | {"latency_max_ms": 50.0, "popup_probability": 0.0})

    @property
    def broker_port(self) -> int:
        return self._ports[0]

    def config(self, run: str, tree: Json) -> Config:
        """Small everything: an update takes some 50 ms, and a checkpoint is due after every third."""
        made: Json = {
            "run": run,
            "kafka": {"bootstrap": f"127.0.0.1:{self.broker_port}", "task_partitions": 4},
            "adb": {"port": self._ports[3]},
            "phones": self.phones().model_dump(),
            "devices": {
                "addresses": [f"127.0.0.1:{self._phones_port + i}" for i in range(PHONES)],
                "operation_timeout_s": 3.0,
                "settle_timeout_s": 1.0,
                "settle_unchanged_s": 0.0,
            },
            "feeder": {"outstanding": 12, "max_lag": 1000},
            "worker": {"heartbeat_s": 0.3, "drain_timeout_s": 20.0},
            **learning(self.base_model, warmup_updates=WARMUP, trajectories=3),
        }
        made["learner"]["keep_checkpoints"] = 2
        for section, values in tree.items():
            made[section] = {**made.get(section, {}), **values}
        store = object_store.fill(Config(), self._parts["s3"], self.directory).store
        secret = store.secret_key.get_secret_value() if store.secret_key else None
        made["store"] = store.model_dump() | {"secret_key": secret, "timeout_s": 3.0} | tree.get("store", {})
        return Config.model_validate(made)

    def stop(self) -> None:
        self.launcher.close()
        stop_all(find_all(self.directory), STOP_S)
        for found in psutil.net_connections("tcp"):  # a killed worker's own adb server outlives it
            if found.status == psutil.CONN_LISTEN and found.laddr.port == self._ports[3] and found.pid:
                os.kill(found.pid, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Learned:
    """What a learner has come to, all of it from the log and the store."""

    updates: int
    digests: dict[str, str]
    adapters: dict[int, str]
    """sha256 by version."""


class LiveRun:
    """One run with topics of its own. `close` kills what is left of its roles."""

    def __init__(self, servers: Servers, directory: Path, tree: Json | None = None) -> None:
        self.servers, self.directory = servers, directory
        self.config = servers.config(f"fault-{uuid.uuid4().hex[:10]}", tree or {})
        self.store: ObjectStore = open_store(self.config.store)
        self._retry = Retry(threading.Event())
        self.roles: dict[str, Role] = {}
        self.restarted: set[str] = set()
        """Roles that may end with an error that says why, and are then started again."""
        self.fed: list[str] = []
        self.settings = directory / "settings.yaml"
        """What each role is started with."""
        directory.mkdir(parents=True, exist_ok=True)
        write_settings(self.config, self.settings)
        topic_admin.ensure(self.config)
        self._producer = RecordProducer(self.config, "the test")
        self._admin = admin(self.config.kafka)
        self._recorded = {"demonstrations": 0, "trajectories": 0}

    # Who lives

    def start(
        self,
        name: str,
        command: str,
        *arguments: str,
        sets: Sequence[str] = (),
        point: str | None = None,
        nth: int = 1,
        clock: Path | None = None,
    ) -> Role:
        """`distrl COMMAND` as process `name`; with `point`, it kills itself there (points.py)."""
        flags = [flag for item in sets for flag in ("--set", item)]
        line = [command, "--config", str(self.settings), *flags, *arguments]
        self.roles[name] = self._start(name, line, point, nth, clock)
        return self.roles[name]

    def _start(
        self, name: str, line: Sequence[str], point: str | None = None, nth: int = 1, clock: Path | None = None
    ) -> Role:
        log = self.directory / f"{name}.log"
        began_at = log.stat().st_size if log.exists() else 0
        pid = self.servers.launcher.start(line, log, point, nth, clock)
        return Role(name, line, self.servers.launcher, pid, log, began_at)

    def learner(self, point: str | None = None, nth: int = 1, sets: Sequence[str] = ()) -> Role:
        return self.start("learner", "learner", point=point, nth=nth, sets=sets)

    def worker(self, number: int = 0, of: int = 1, **given: Any) -> Role:
        """Worker `number` of `of`, with its share of the phones."""
        addresses = list(self.config.devices.addresses)[number::of]
        sets = [f"worker.name=worker-{number}", "devices.addresses=[" + ",".join(f"'{at}'" for at in addresses) + "]"]
        return self.start(f"worker-{number}", "worker", sets=[*sets, *given.pop("sets", ())], **given)

    def until(
        self, what: str, condition: Callable[[], bool], timeout_s: float = PATIENCE_S, poll_s: float = POLL_S
    ) -> None:
        """Wait for `condition`; a role that ended by itself, or the deadline, fails the test with its last words.
        poll_s: to ask costs some ms, much of what a role has that computes for a minute."""
        deadline = time.monotonic() + timeout_s
        while not self._holds(condition, deadline):
            self.supervise()
            for role in self.roles.values():
                assert role.code in (None, 0, KILLED), f"{role.name} ended with {role.code}:\n{last_lines(role.log)}"
            if time.monotonic() > deadline:
                words = "\n".join(f"{role.name}:\n{last_lines(role.log)}" for role in self.roles.values())
                raise AssertionError(f"waited {timeout_s:.0f} s for {what}\n{words}")
            time.sleep(poll_s)

    @staticmethod
    def _holds(condition: Callable[[], bool], deadline: float) -> bool:
        """A broker that has just come back may refuse a reader for some seconds: it is asked again."""
        try:
            return condition()
        except BrokerError:
            if time.monotonic() > deadline:
                raise
            return False

    def supervise(self) -> None:
        """Start again each role of `restarted` that has ended and said why, as a cluster or a person does."""
        for name in self.restarted:
            role = self.roles[name]
            if role.code == 1:
                assert "Traceback" not in role.said(), role.said()[-2000:]
                print(f"{name} ended: {role.said().strip().splitlines()[-2]}")
                self.roles[name] = self._start(role.name, role.line)

    def stop(self, *names: str) -> None:
        """SIGTERM to the named roles (all, if none is named), together; each must end well."""
        chosen = [self.roles[name] for name in names or self.roles if self.roles[name].code is None]
        for role in chosen:
            role.ask_to_stop()
        for role in chosen:
            role.stop()

    def close(self) -> None:
        for role in self.roles.values():
            role.kill()
        self._producer.close(5.0)

    # What is fed

    def feed(self, tasks: int, version: int = -1) -> list[str]:
        """That many further tasks of the suite, which a worker begins once it has loaded `version`; their ids."""
        suite = suites()[self.config.feeder.suite]
        wanted = range(len(self.fed), len(self.fed) + tasks)
        made = [suite.task(index, self.config.learner.seed, Split.TRAIN) for index in wanted]
        made = [replace(task, fed_version=version) for task in made]
        self._publish("tasks", {task.task_id: task for task in made})
        self.fed += [task.task_id for task in made]
        return [task.task_id for task in made]

    def record(self, demonstrations: int = 0, trajectories: int = 0) -> None:
        """Put that many further trajectories into the log, as workers would, screenshots first."""
        for topic, count in (("demonstrations", demonstrations), ("trajectories", trajectories)):
            begin = self._recorded[topic]
            made = [self._played(number, topic == "demonstrations") for number in range(begin, begin + count)]
            self._publish(topic, {each.task_id: each for each in made})
            self._recorded[topic] += count

    def _played(self, number: int, expert: bool) -> Trajectory:
        """As a worker does, a store that refuses a screenshot is asked again."""
        return self._retry.call("a screenshot", lambda: trajectory(self.store, number, expert), StoreError)

    def store_screens(self) -> None:
        """Every screen that a recorded trajectory shows: none needs the store from now on."""
        for seed in range(SCREENS):
            self.store.put("screenshots", noise(seed), "png", DAY)

    def publish_bytes(self, topic: str, key: bytes, value: bytes) -> int:
        """Anything at all, into a topic of the run; its offset."""
        return self._producer.publish_bytes(topic_name(self.config.run, topic), key, value).result(PATIENCE_S).offset

    def publish(self, topic: str, key: str, record: Record) -> int:
        return self._producer.publish(topic, key, record).result(PATIENCE_S).offset

    def publish_version(
        self, number: int, spoilt: bool = False, ahead_ms: int = 0, base_sha256: str | None = None
    ) -> Version:
        """A version as a learner publishes it, with weights of its own; `spoilt`: the store holds other bytes.
        ahead_ms: of the learner's clock. base_sha256: of another base model than the run's."""
        weights, own_sha256 = self.servers.adapter(self.config, number)
        ref = self.store.put("adapters", weights, "safetensors")
        if spoilt:
            self.store.put_named(ref.key, weights[::-1])
        fingerprint, at = learning_fingerprint(self.config), SYSTEM_CLOCK.now_ms() + ahead_ms
        version = Version(number, None, number, base_sha256 or own_sha256, ref, fingerprint, at)
        with Journal(self.config) as journal:
            journal.publish_version(version)
        return version

    def store_adapter(self, number: int) -> None:
        """The weights of version `number`: to publish it does not need the store from now on."""
        self.store.put("adapters", self.servers.adapter(self.config, number)[0], "safetensors")

    def alter(self, topic: str, changes: dict[str, str]) -> None:
        """Settings of a topic that somebody else has changed."""
        entries = [ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET) for k, v in changes.items()]
        name = topic_name(self.config.run, topic)
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        self._admin.incremental_alter_configs([resource])[resource].result(PATIENCE_S)

    def delete_before(self, topic: str, offset: int) -> None:
        """What retention does: the records before `offset` are gone."""
        place = TopicPartition(topic_name(self.config.run, topic), 0, offset)
        self._admin.delete_records([place])[place].result(PATIENCE_S)

    def forget_learning(self) -> None:
        """Take away journal, versions and checkpoints, and leave the log: a learner then learns it all anew."""
        names = [topic_name(self.config.run, name) for name in ("updates", "versions")]
        self._delete_topics(*names)
        for key in list(self.store.list(f"runs/{self.config.run}/")):
            self.store.delete(key)
        topic_admin.ensure(self.config)

    def make_again(self, topic: str) -> None:
        """Delete the topic and make it anew: empty, under its name, with another id."""
        self._delete_topics(topic_name(self.config.run, topic))
        topic_admin.ensure(self.config)
        self.new_producer()

    def _delete_topics(self, *names: str) -> None:
        """A broker tells of a topic for a moment longer, and one that is looked for then would not be made anew."""
        for future in self._admin.delete_topics(list(names)).values():
            future.result(PATIENCE_S)
        until(lambda: not set(names) & self._admin.list_topics(timeout=10).topics.keys(), "the topics to be gone")

    def new_producer(self) -> None:
        """After a loss of acknowledged records: the broker refuses what follows them, and ends that producer."""
        self._producer.close(5.0)
        self._producer = RecordProducer(self.config, "the test")

    def _publish(self, topic: str, records: dict[str, Any]) -> None:
        for future in [self._producer.publish(topic, key, record) for key, record in records.items()]:
            future.result(PATIENCE_S)

    # What the log says

    def raw(self, topic: str) -> list[RawRecord]:
        with LogReader(self.config, topic) as reader:
            return [raw for batch in reader.to_end() for raw in batch]

    def trajectories(self) -> list[LoggedTrajectory]:
        """Every readable record of the trajectories topic, later ones of a task too."""
        found = []
        for raw in self.raw("trajectories"):
            try:
                found.append(LoggedTrajectory(raw.position, decoded(raw, Trajectory)))
            except WireError:
                continue
        return found

    def counted(self) -> dict[str, Trajectory]:
        """Task id -> the trajectory that counts: the first in the log."""
        counted: dict[str, Trajectory] = {}
        for logged in self.trajectories():
            counted.setdefault(logged.trajectory.task_id, logged.trajectory)
        return counted

    def evaluations(self) -> list[Evaluation]:
        """Every record of an evaluation, later ones of a task too."""
        return [decoded(raw, Evaluation) for raw in self.raw("evaluations")]

    def counted_evaluations(self) -> dict[tuple[int, str], Trajectory]:
        """(version, task id) -> the evaluation that counts: the first in the log."""
        counted: dict[tuple[int, str], Trajectory] = {}
        for found in self.evaluations():
            counted.setdefault((found.version, found.trajectory.task_id), found.trajectory)
        return counted

    def tasks(self) -> list[str]:
        """The ids of all that was fed, by whomever."""
        return [decoded(raw, Task).task_id for raw in self.raw("tasks")]

    def committed(self) -> int:
        """How many records of the tasks topic the workers' group has committed."""
        return sum(committed(self.config).values())

    def loaded(self, worker: Role) -> int | None:
        """The version that a worker says to have loaded."""
        beats = self.beats(worker.name, worker)
        return beats[-1].version if beats else None

    def until_all_play(self, worker: Role) -> None:
        """Each phone then comes to hold a record if the broker goes now."""

        def busy() -> float:
            beats = self.beats(worker.name, worker)
            return beats[-1].metrics["busy_devices"] if beats else 0

        self.until("every phone to play", lambda: busy() == PHONES)

    def duplicates(self) -> int:
        ids = [each.trajectory.task_id for each in self.trajectories()]  # read once: more may come meanwhile
        return len(ids) - len(set(ids))

    def updates(self) -> list[Update]:
        return [decoded(raw, Update) for raw in self.raw("updates")]

    def versions(self) -> list[Version]:
        """Every version record, as often as it is in the log."""
        return [decoded(raw, Version) for raw in self.raw("versions")]

    def beats(self, process: str, since: Role | None = None) -> list[Heartbeat]:
        """Its heartbeats, in order; with `since`, those of that very process alone."""
        found = [decoded(raw, Heartbeat) for raw in self.raw("heartbeats") if raw.key == process.encode()]
        return [beat for beat in found if since is None or beat.at >= since.started_at]

    def missing_objects(self) -> list[str]:
        """The objects that a record of the log names and the store does not have."""
        refs = {
            ref
            for played in [each.trajectory for each in [*self.trajectories(), *self.evaluations()]]
            for ref in [*(step.screenshot for step in played.steps), played.final_screenshot]
            if ref is not None
        } | {version.adapter for version in self.versions()}
        there = set(self.store.list("screenshots/")) | set(self.store.list("adapters/"))
        return sorted(ref.key for ref in refs if ref.key not in there)

    # What was learned

    def until_learned(self, updates: int | None = None, timeout_s: float = PATIENCE_S, poll_s: float = POLL_S) -> None:
        """Until the learner that lives now has folded `updates` (all that are journalled), be it again, and published
        what is due."""

        def done() -> bool:
            wanted = len(self.updates()) if updates is None else updates
            beats = [beat for beat in self.beats("learner", since=self.roles["learner"]) if "pending" in beat.metrics]
            # The first heartbeat says no more than its name. A later one without an update: nothing was left to redo.
            folded = beats[-1].metrics.get("update", wanted) if beats else None
            return folded == wanted and len(self.versions()) == wanted - WARMUP + 1

        self.until(f"{updates or 'all'} updates", done, timeout_s, poll_s)

    def end_learning(self, after_a_fault: bool = False) -> Learned:
        """Stop the learner in order; what it came to, which a fold of the log from its start must come to as well.

        after_a_fault: a server has just come back; one that fails in the very moment of the stop leaves updates to the
        next start, and the learner says so: it is started once more then.
        """
        self.stop("learner")
        if after_a_fault and LEFT_TO_THE_NEXT in self.roles["learner"].said():
            self.learner()
            self.until_learned()
            self.stop("learner")
        lived = self.learned()
        assert lived == self.fresh_fold()
        return lived

    def learned(self) -> Learned:
        """What the learner that lived came to. It was stopped in order, so its checkpoint is its last state."""
        state, learner = recover(self.config, self.store).state, self.roles["learner"]
        assert [each.u for each in self.updates()] == list(range(state.u)), (
            f"the last checkpoint is that of update {state.u}:\n{learner.said()}"
        )
        return self._learned(state)

    def fresh_fold(self) -> Learned:
        """What a learner that was never killed comes to: the log folded from its start, without a checkpoint."""
        return self._learned(replay(self.config, from_start=True))

    def _learned(self, state: LearnerState) -> Learned:
        versions = self.versions()
        twice = {number: n for number, n in Counter(each.version for each in versions).items() if n > 1}
        assert not twice, f"versions published more than once: {twice}"
        assert [each.version for each in versions] == list(range(len(versions)))
        return Learned(state.u, state.digests(), {each.version: each.adapter.sha256 for each in versions})


def trajectory(store: ObjectStore, number: int, expert: bool) -> Trajectory:
    """A trajectory of screens of noise and random actions, a function of its number; its screenshots are stored."""
    rule = random.Random(2 * number + expert)
    task_id = f"{'demo' if expert else 'task'}-{number}"
    task = factories.task(task_id, family="any", instruction="open the clock", max_steps=8, phone_seed=number)
    steps = tuple(_step(store, rule) for _ in range(rule.randint(1, 5)))
    outcome = rule.choice([Outcome.SUCCESS, Outcome.FAILURE])
    return factories.trajectory(
        task, steps, attempt_id=f"a{number}", final_screenshot=None, outcome=outcome, is_expert=expert
    )


def _step(store: ObjectStore, rule: random.Random) -> Step:
    ids = (*(rule.randrange(2, len(CODEC.tokens)) for _ in range(3)), 1)
    action = CODEC.decode_action(ids)
    screenshot = store.put("screenshots", noise(rule.randrange(SCREENS)), "png", DAY)
    prompt = CODEC.encode_prompt("open the clock", [])
    return factories.step(
        action,
        screenshot=screenshot,
        prompt_ids=prompt,
        action_ids=ids,
        action_text=repr(action),
        logprob=-3.0 * rule.random(),
        version_sha256="",
    )


def noise(seed: int) -> bytes:
    """A PNG."""
    out = io.BytesIO()
    pixels = np.random.default_rng(seed).integers(0, 256, (128, 64, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def reference(data: bytes, folder: str, suffix: str) -> ObjectRef:
    """What an object of these bytes would be called, without its being stored."""
    sha256 = hashlib.sha256(data).hexdigest()
    return ObjectRef(f"{folder}/{sha256}.{suffix}", sha256, len(data))
