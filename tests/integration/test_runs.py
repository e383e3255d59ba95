"""`distrl runs` on a real broker: what there is of a run, how it is changed, and that a removed one leaves others."""

from __future__ import annotations

import json
import subprocess
import threading
import time
import uuid
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import factories
import pytest
from commands import run_distrl
from confluent_kafka import Consumer, Producer
from distrl.broker import topic_admin
from distrl.broker.connect import settings as client_settings
from distrl.broker.group import GroupOffsets, commit, workers_group
from distrl.broker.journal import Journal
from distrl.broker.producer import RecordProducer
from distrl.broker.runs import run_names
from distrl.broker.topics import TOPICS, topic_name
from distrl.broker.versions import lineage
from distrl.config import Config, load, with_run
from distrl.errors import BrokerError
from distrl.runs.overview import SAMPLE, heard, overview
from distrl.runs.recorded import join, recorded
from distrl.runs.remove import named, remove
from distrl.store.adapters import put_adapter
from distrl.store.objects import MissingObjectError, ObjectStore, open_store
from distrl.types import Heartbeat, ObjectRef, Outcome, Trajectory, Version
from waiting import until

pytestmark = pytest.mark.integration

LIMIT_S = 400.0


@pytest.fixture
def config(broker: str, tmp_path: Path) -> Config:
    return begun(f"runs-{uuid.uuid4().hex[:12]}", broker, tmp_path)


def begun(run: str, broker: str, folder: Path) -> Config:
    sets = [
        f"run={run}",
        f"kafka.bootstrap={broker}",
        "kafka.task_partitions=2",
        f"store.url=file://{folder / 'store'}",
    ]
    made = load(sets=sets, environ={})
    topic_admin.ensure(made)
    join(made, None, "learner", ())
    return made


def played(store: ObjectStore, number: int, shot: bytes, outcome: Outcome = Outcome.SUCCESS) -> Trajectory:
    screen = store.put("screenshots", shot, "png", "2025-01-31")
    step = factories.step(screenshot=screen)
    return factories.trajectory(factories.task(f"task-{number}"), (step,), outcome=outcome, final_screenshot=None)


def publish(config: Config, *trajectories: Trajectory) -> None:
    with RecordProducer(config, "test") as producer:
        for each in trajectories:
            producer.publish("trajectories", each.task_id, each).result(LIMIT_S)


def publish_version(config: Config, adapter: ObjectRef) -> None:
    with Journal(config) as journal:
        journal.publish_version(Version(0, -1, 0, "ef" * 32, adapter, "01" * 32, 9))
    until(lambda: lineage(config), "a committed version, which is visible some milliseconds later")


def distrl(folder: Path, config: Config, *arguments: str, answer: str = "") -> subprocess.CompletedProcess[str]:
    given = {"DISTRL_KAFKA__BOOTSTRAP": config.kafka.bootstrap, "DISTRL_STORE__URL": config.store.url, "COLUMNS": "80"}
    return run_distrl(folder, "runs", *arguments, limit_s=LIMIT_S, variables=given, answer=answer)


def test_an_overview_counts_what_there_is(config: Config) -> None:
    store = open_store(config.store)
    publish(config, played(store, 0, b"a"), played(store, 1, b"bb", Outcome.FAILURE), played(store, 2, b"c"))
    adapter = store.put("adapters", b"weights", "safetensors")
    publish_version(config, adapter)
    store.put_named(f"runs/{config.run}/note", b"x" * 100)
    with RecordProducer(config, "worker-7") as producer:
        producer.publish("heartbeats", "worker-7", Heartbeat("worker-7", "worker", 1, None, None)).result(LIMIT_S)
    found = overview(config, store)
    assert (found.trajectories, found.version, found.success, found.alive) == (3, 0, 2 / 3, ("worker-7",))
    assert found.objects is not None
    assert (found.objects.own, found.objects.adapters, found.objects.about_screenshots) == (100, 7, 4)
    assert {topic.name for topic in found.topics} == set(TOPICS)
    assert all((topic.about_bytes > 0) == (topic.records > 0) for topic in found.topics)


def test_each_process_of_a_large_fleet_is_alive(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("distrl.runs.overview.HEARTBEAT_STALE_MS", 1000 * LIMIT_S)  # on a busy machine, too
    names = [f"worker-{number:03}" for number in range(SAMPLE + 60)]
    with RecordProducer(config, "test") as producer:
        sent = [producer.publish("heartbeats", name, Heartbeat(name, "worker", 1, None, None)) for name in names]
        for each in sent:
            each.result(LIMIT_S)
    store = open_store(config.store)
    assert overview(config, store).alive == tuple(names)
    monkeypatch.setattr("distrl.runs.overview.MOST_BEATS", SAMPLE + 10)
    assert overview(config, store).alive == tuple(names[-SAMPLE - 10 :])


def test_ls_prints_every_run_within_80_columns_and_one_whose_settings_cannot_be_read_hides_no_other(
    config: Config, broker: str, tmp_path: Path
) -> None:
    """That one can be removed. Each `ls` reads all runs that tests of this process have left, and takes its time."""
    other = with_run(config, f"{config.run}-other")
    topic_admin.ensure(other)
    producer = Producer({"bootstrap.servers": broker})
    producer.produce(topic_name(other.run, "settings"), b"written by another program")
    assert producer.flush(LIMIT_S) == 0
    listed = distrl(tmp_path, config, "ls")
    assert listed.returncode == 0, listed.stderr
    header = listed.stdout.splitlines()[1]
    assert header.replace("┃", " ").split() == [
        "run",
        "algorithm",
        "age",
        "played",
        "success",
        "topics",
        "objects",
        "alive",
    ]
    (said,) = (line for line in listed.stdout.splitlines() if line.startswith(f"settings of run {other.run}: "))
    assert max(len(line) for line in listed.stdout.splitlines() if not line.startswith("settings of run ")) <= 80
    runs = {each["run"]: each for each in json.loads(distrl(tmp_path, config, "ls", "--json").stdout)["runs"]}
    assert runs[config.run]["unreadable"] is None
    assert runs[config.run]["settings"]["algorithm.type"] == "aride"
    assert "c3 01" in runs[other.run]["unreadable"]
    assert "c3 01" in said
    removed = distrl(tmp_path, config, "rm", other.run, "--yes")
    assert removed.returncode == 0, removed.stderr
    assert other.run not in run_names(config)


def test_show_prints_its_settings_and_processes(config: Config, tmp_path: Path) -> None:
    shown = distrl(tmp_path, config, "show", config.run)
    assert "learner.seed" in shown.stdout, shown.stderr
    assert "alive: no process" in shown.stdout


def test_set_changes_a_setting_of_the_run_and_no_setting_of_a_machine(config: Config, tmp_path: Path) -> None:
    done = distrl(tmp_path, config, "set", config.run, "feeder.max_lag=7")
    assert done.returncode == 0, done.stderr
    found = recorded(config)
    assert found is not None
    assert found.values["feeder.max_lag"] == 7
    assert found.history[-1].sources[-1] == "--set feeder.max_lag"
    refused = distrl(tmp_path, config, "set", config.run, "worker.name=w-9")
    assert refused.returncode == 1
    assert "worker.name: belongs to a machine or a process" in refused.stderr
    assert recorded(config) == found
    unknown = distrl(tmp_path, config, "set", config.run, "feeder.max_lagg=7")
    assert unknown.returncode == 1
    assert "no such setting" in unknown.stderr


def test_rm_asks_and_is_refused_while_a_process_is_alive(config: Config, tmp_path: Path) -> None:
    kept = distrl(tmp_path, config, "rm", config.run, answer="n\n")
    assert kept.returncode == 1
    assert f"remove run {config.run} at {config.kafka.bootstrap} for good?" in kept.stdout
    assert "and the verdicts of judges" in kept.stdout, "which are paid for"
    assert config.run in run_names(config)
    with RecordProducer(config, "worker-7") as producer:
        producer.publish("heartbeats", "worker-7", Heartbeat("worker-7", "worker", 1, None, None)).result(LIMIT_S)
    refused = distrl(tmp_path, config, "rm", config.run, "--yes")
    assert refused.returncode == 1
    assert "is at work: worker-7" in refused.stderr
    assert config.run in run_names(config)


def test_a_process_is_heard_though_the_clocks_differ(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that is 20 s ahead, no process has sent anything of late."""
    beat = Heartbeat("worker-7", "worker", 1, None, None)
    with RecordProducer(config, "worker-7") as producer:
        producer.publish("heartbeats", "worker-7", beat).result(LIMIT_S)
        found = replace(overview(config, open_store(config.store)), alive=())
        beating = threading.Timer(1.0, lambda: producer.publish("heartbeats", "worker-7", beat).result(LIMIT_S))
        beating.start()
        assert heard(config, found) == ("worker-7",)
        beating.join()
    monkeypatch.setattr("distrl.runs.overview.LISTEN_S", 1.0)
    assert heard(config, found) == ()
    monkeypatch.setattr("distrl.runs.overview.LISTEN_S", LIMIT_S)
    assert heard(config, replace(found, last_heartbeat=0)) == (), "at once"


def test_a_removed_run_leaves_what_another_one_names(config: Config, broker: str, tmp_path: Path) -> None:
    store = open_store(config.store)
    other = begun(f"{config.run}-other", broker, tmp_path)
    mine, shared = played(store, 0, b"mine"), played(store, 1, b"shared")
    publish(config, mine, shared)
    publish(other, shared)
    adapter = store.put("adapters", b"weights", "safetensors")
    publish_version(config, adapter)
    publish_version(other, adapter)
    store.put_named(f"runs/{config.run}/note", b"x")
    store.put_named(f"runs/{other.run}/note", b"y")
    for each in (config, other):
        store.put_named(f"verdicts/{each.run}/asked.json", b"z")
    screens = (mine.steps[0].screenshot, shared.steps[0].screenshot)
    assert {ref.key for ref in named(config)} == {ref.key for ref in (*screens, adapter)}
    others = [each for each in run_names(config) if each.startswith(f"{config.run}-")]  # not those of other tests
    assert remove(config, store, others, with_shared=True) == 3
    assert config.run not in run_names(config)
    assert other.run in run_names(config)
    with pytest.raises(MissingObjectError):
        store.get(mine.steps[0].screenshot)
    assert store.get(shared.steps[0].screenshot) == b"shared"
    assert store.get(adapter) == b"weights"
    assert store.usage(f"runs/{config.run}/") == (0, 0)
    assert store.usage(f"runs/{other.run}/") == (1, 1)
    assert list(store.list("verdicts/")) == [f"verdicts/{other.run}/asked.json"]


def test_no_object_goes_where_another_run_has_records_of_a_newer_version(
    config: Config, broker: str, tmp_path: Path
) -> None:
    """What those name is not known here; garbage, which nobody can read, names nothing."""
    store = open_store(config.store)
    other = begun(f"{config.run}-other", broker, tmp_path)
    mine = played(store, 0, b"mine")
    publish(config, mine)
    commit(config, {0: 0})
    newer = b"\xc3\x01" + b"schema+1" + b"body"
    for value in (b"garbage", newer):
        with RecordProducer(other, "test") as producer:
            producer.publish_bytes(topic_name(other.run, "trajectories"), b"t", value).result(10)
        if value != newer:
            assert list(named(other, refuse_newer=True)) == []
    with pytest.raises(BrokerError, match="was written by a newer version of DistRL"):
        remove(config, store, [other.run], with_shared=True)
    assert store.get(mine.steps[0].screenshot) == b"mine"
    assert config.run in run_names(config)
    with GroupOffsets(config) as offsets:
        assert offsets.committed([0]) == {0: 0}, "workers go on where they were"
    remove(config, store, [other.run], with_shared=False)
    assert config.run not in run_names(config)


def test_a_removed_runs_adapter_goes_though_another_run_has_the_same_bytes_under_its_own_key(
    config: Config, broker: str, tmp_path: Path
) -> None:
    store = open_store(config.store)
    other = begun(f"{config.run}-other", broker, tmp_path)
    mine, theirs = (put_adapter(store, each.run, b"weights") for each in (config, other))
    assert (mine.sha256, mine.key == theirs.key) == (theirs.sha256, False)
    publish_version(config, mine)
    publish_version(other, theirs)
    assert remove(config, store, [other.run], with_shared=True) == 1
    with pytest.raises(MissingObjectError):
        store.get(mine)
    assert store.get(theirs) == b"weights"


def test_a_run_with_a_worker_keeps_all_that_it_has_whatever_the_clock_says(config: Config) -> None:
    """The broker knows who is in the group; that nobody was alive may be the mistake of a clock."""
    store = open_store(config.store)
    store.put_named(f"runs/{config.run}/note", b"x")
    own = {"group.id": workers_group(config), "enable.auto.commit": False}
    with closing(Consumer(client_settings(config.kafka, "test", own))) as worker:
        worker.subscribe([topic_name(config.run, "tasks")])
        deadline = time.monotonic() + LIMIT_S
        while not worker.assignment():
            assert time.monotonic() < deadline
            worker.poll(0.1)
        with pytest.raises(BrokerError, match="group"):
            remove(config, store, [], with_shared=True)
    assert store.get_named(f"runs/{config.run}/note") == b"x"
    assert config.run in run_names(config)


def test_an_interrupted_removal_goes_on(config: Config) -> None:
    store = open_store(config.store)
    publish(config, played(store, 0, b"mine"))
    client = topic_admin.admin(config.kafka)
    names = [topic_admin.topic_name(config.run, name) for name in TOPICS if name != "trajectories"]
    for future in client.delete_topics(names).values():
        future.result(LIMIT_S)
    assert overview(with_run(config, config.run), store).trajectories == 1
    remove(config, store, [], with_shared=True)
    assert config.run not in run_names(config)
