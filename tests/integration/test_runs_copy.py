"""A run is copied to another broker and store: the same bits there, under the same offsets, and it goes on there."""

from __future__ import annotations

import re
import shlex
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import factories
import pytest
import yaml
from commands import run_distrl
from confluent_kafka import Consumer, TopicPartition
from distrl import config as settings
from distrl.broker import topic_admin
from distrl.broker.connect import admin
from distrl.broker.connect import settings as client_settings
from distrl.broker.fenced import FencedError, FencedProducer, Outgoing
from distrl.broker.group import GroupOffsets, workers_group
from distrl.broker.journal import history
from distrl.broker.producer import Headers, RecordProducer
from distrl.broker.reader import LogReader
from distrl.broker.runs import run_names
from distrl.broker.topics import topic_name
from distrl.broker.versions import lineage
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.learner.skip import skip
from distrl.learner.verify import compare_records, other_processor, replay
from distrl.runs import extent, mirror
from distrl.runs.copy import copy
from distrl.runs.mirror import LINGER_MS
from distrl.runs.recorded import append, join, recorded
from distrl.stack import kafka
from distrl.stack.part import Site
from distrl.stack.processes import find_all, stop_all
from distrl.store.objects import open_store
from distrl.train.roles import write_settings
from distrl.wire.codec import encode
from learned import learn, publish
from learner.world import Screens, learning, save_tiny_base, trajectory

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

UPDATES = 7
LIMIT_S = 400.0
EXACT = ("tasks", "trajectories", "demonstrations")


@pytest.fixture
def run(broker: str, s3: settings.StoreSettings, tmp_path: Path) -> Config:
    """A run that learned, with a republished record in its queue, deleted tasks, transactions that were aborted without
    a record, and workers' progress."""
    save_tiny_base(tmp_path / "base")
    config = Config.model_validate(
        {
            "run": f"copied-{uuid.uuid4().hex[:8]}",
            "kafka": {"bootstrap": broker, "task_partitions": 2},
            "store": s3.model_dump() | {"secret_key": s3.secret_key.get_secret_value() if s3.secret_key else None},
            **learning(tmp_path / "base"),
        }
    )
    topic_admin.ensure(config)
    join(config, None, "learner", ())
    add_partitions(config, 3)  # more than the run has recorded
    publish(config, range(6), "demonstrations")
    publish(config, range(1000, 1008), "trajectories")
    again = trajectory(Screens(), 1008, store=open_store(config.store))
    with FencedProducer(config, "dlq", "a test", lambda: FencedError("a", "b", "c")) as republished:
        republished.write(topic_name(config.run, "trajectories"), again.task_id.encode(), encode(again))
    leave_marker(config, "trajectories", 0)  # behind that of a transaction with a record
    leave_marker(config, "tasks", 1)  # before the first record
    publish(config, range(1009, 1000 + 4 * (UPDATES - 3)), "trajectories")
    with RecordProducer(config, "test") as producer:
        for number in range(12):
            task = factories.task(f"task-{number}")
            producer.publish_bytes(
                topic_name(config.run, "tasks"), task.task_id.encode(), encode(task), (), number % 2
            ).result(LIMIT_S)
        added = factories.task("task-added")
        producer.publish_bytes(topic_name(config.run, "tasks"), added.task_id.encode(), encode(added), (), 2).result(
            LIMIT_S
        )
    feed(config, (0, 1, 2), (0, 1, 1, 2))
    leave_marker(config, "tasks", 1)
    feed(config, (1, 2), (0, 1, 2))
    place = TopicPartition(topic_name(config.run, "tasks"), 0, 2)
    leave_marker(config, "tasks", 0)  # behind the last
    client = admin(config.kafka)
    client.delete_records([place])[place].result(LIMIT_S)
    with closing(Consumer(client_settings(config.kafka, "test", {"group.id": workers_group(config)}))) as consumer:
        consumer.commit(offsets=[TopicPartition(place.topic, 1, 5)], asynchronous=False)
    learn(config, UPDATES)
    return config


def feed(config: Config, *rounds: tuple[int, ...]) -> None:
    """A task for each partition named, those of a round in one transaction, as a feeder writes them."""
    with FencedProducer(config, "dlq", "a test", lambda: FencedError("a", "b", "c")) as feeder:
        for partitions in rounds:
            tasks = [factories.task(f"fed-{uuid.uuid4().hex}") for _ in partitions]
            pairs = zip(tasks, partitions, strict=True)
            feeder.write_all([Outgoing.of(config.run, "tasks", task.task_id, task, (), part) for task, part in pairs])


def add_partitions(config: Config, count: int) -> None:
    """Of tasks, as a person adds some to a run that has begun."""
    kafka = config.kafka.model_copy(update={"task_partitions": count})
    topic_admin.ensure(config.model_copy(update={"kafka": kafka}), alter=True)


def leave_marker(config: Config, topic: str, partition: int) -> None:
    with FencedProducer(config, "dlq", "a test", lambda: FencedError("a", "b", "c"), linger_ms=LINGER_MS) as producer:
        before = ends(config, topic)[1][partition]
        deadline = time.monotonic() + LIMIT_S
        while ends(config, topic)[1][partition] == before:
            assert time.monotonic() < deadline
            producer.leave_marker(topic_name(config.run, topic), partition)
            time.sleep(0.5)
    assert ends(config, topic)[1][partition] == before + 1


@pytest.fixture
def other(run: Config, free_ports: Callable[[int], list[int]], tmp_path: Path) -> Iterator[Config]:
    """The same run's settings at another broker and store, which have nothing yet."""
    ports = free_ports(2)
    site = Site(tmp_path / "other", Path("~/.cache/distrl").expanduser(), threading.Event(), lambda text: None)
    part = kafka.start_kafka(site, {"heap_mb": 256}, *ports)
    elsewhere = settings.StoreSettings(url=f"file://{tmp_path / 'copy'}")
    broker = run.kafka.model_copy(update={"bootstrap": part.where})
    yield run.model_copy(update={"kafka": broker, "store": elsewhere})
    stop_all(find_all(site.directory), 30.0)


def copied(
    run: Config, other: Config, folder: Path, *arguments: str, **sections: dict[str, object]
) -> subprocess.CompletedProcess[str]:
    """sections: of the other side, beside its broker and store."""
    write_settings(run, folder / "run.yaml")
    there = {"kafka": {"bootstrap": other.kafka.bootstrap}, "store": {"url": other.store.url}, **sections}
    (folder / "other.yaml").write_text(yaml.safe_dump(there))
    line = ("runs", "copy", run.run, "--to", "other.yaml", *arguments, "--config", "run.yaml")
    return run_distrl(folder, *line, limit_s=LIMIT_S)


def held(config: Config, topic: str) -> dict[tuple[int, int], tuple[bytes | None, Headers]]:
    """(partition, offset) -> value and headers of every record."""
    with LogReader(config, topic) as reader:
        raws = [raw for batch in reader.to_end() for raw in batch]
    return {(raw.position.partition, raw.position.offset): (raw.value, raw.headers) for raw in raws}


def ends(config: Config, topic: str) -> tuple[dict[int, int], dict[int, int]]:
    with LogReader(config, topic) as reader:
        return dict(reader.next_offsets), dict(reader.ends)


def test_a_copy_has_the_same_bits_under_the_same_offsets_and_goes_on(
    run: Config, other: Config, tmp_path: Path
) -> None:
    done = copied(run, other, tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"equal by their sha256 in the copy: the records that update 0-{UPDATES - 1} folded" in done.stdout
    assert f"folded there from the newest checkpoint: {UPDATES} updates, bit for bit" in done.stdout
    for topic in EXACT:
        assert held(other, topic) == held(run, topic)
        assert ends(other, topic) == ends(run, topic)
    assert len(held(run, "figures")) == UPDATES
    for topic in ("updates", "versions", "evaluations", "figures"):
        assert list(held(other, topic).values()) == list(held(run, topic).values())
    with GroupOffsets(run) as here, GroupOffsets(other) as there:
        assert there.committed((0, 1)) == here.committed((0, 1)) == {1: 5}
    assert replay(other, from_start=True).digests() == replay(run).digests()
    found = recorded(other)
    assert found is not None
    assert found.values["learner.seed"] == run.learner.seed
    assert found.values["kafka.task_partitions"] == 3
    source = recorded(run)
    assert source is not None
    assert found.records[: len(source.records)] == source.records, "what said that the copy is incomplete is gone"

    refused = copied(run, other, tmp_path)
    assert refused.returncode == 1
    assert f"is at the broker {other.kafka.bootstrap} already" in refused.stderr

    versions = len(lineage(other))
    publish(other, range(2000, 2004), "trajectories")
    learn(other, UPDATES + 1)
    assert len(lineage(other)) == versions + 1
    assert len(lineage(run)) == versions, "the original is left alone"


def test_a_record_can_be_skipped_in_a_copy(run: Config, other: Config) -> None:
    """Its checkpoints name the topics of the source, and some hold what is void then: older ones are used."""
    copy(run, open_store(run.store), other, open_store(other.store), lambda topic, count: None)
    done = skip(other, "trajectories/0/5", "lost with a disk")
    assert (done.u, done.void) == (4, UPDATES - 4)
    learn(other, UPDATES - 1)  # a record less, and so an update less
    assert len(history(other).updates) == UPDATES - 1
    assert replay(other, from_start=True).digests() == replay(other).digests()
    assert len(history(run).updates) == UPDATES, "the original is left alone"


def test_the_records_of_every_update_are_held_against_the_journal(run: Config) -> None:
    """Whatever a checkpoint spares a fold: the next one from the start needs them."""
    journal = history(run)
    assert compare_records(run, journal) == list(range(UPDATES))
    updates = list(journal.updates)
    updates[3] = replace(updates[3], window_sha256="0" * 64)
    with pytest.raises(BrokerError, match="the log holds other records than update 3 folded"):
        compare_records(run, replace(journal, updates=tuple(updates)))
    client = admin(run.kafka)
    for mark in updates[4].watermarks:
        place = TopicPartition(mark.topic, mark.partition, mark.offset)
        client.delete_records([place])[place].result(LIMIT_S)
    assert compare_records(run, journal) == [5, 6], "what retention has deleted is no fault"
    assert other_processor(run, journal) is None
    elsewhere = replace(journal, updates=(*updates[:-1], replace(updates[-1], device="NVIDIA H100")))
    assert other_processor(run, elsewhere) == "NVIDIA H100"


def test_a_run_of_another_processor_is_copied_whole_and_not_folded(
    run: Config, other: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from a machine without a GPU: a copy that ends with an error would be removed, and made again for ever."""
    far = run.model_copy(update={"run": f"far-{uuid.uuid4().hex[:8]}"})
    topic_admin.ensure(far)
    join(far, None, "learner", ())
    publish(far, range(6), "demonstrations")
    publish(far, range(5000, 5008), "trajectories")
    with monkeypatch.context() as on_a_gpu:
        on_a_gpu.setattr("distrl.learner.loop.kind_of", lambda device: "NVIDIA H100")
        learn(far, 3)
    done = copied(far, other, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "equal by their sha256 in the copy: the records that update 0-2 folded" in done.stdout
    assert "the copy was not folded: updates were computed on NVIDIA H100" in done.stdout
    assert list(held(other.model_copy(update={"run": far.run}), "updates").values()) == list(
        held(far, "updates").values()
    )


def test_a_run_that_goes_on_is_copied_as_it_was_at_one_moment_and_goes_on_there(
    run: Config, other: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It learns between the looks at its journal and at its versions, and again once its trajectories are copied."""
    before, versions, ends_of = replay(run).digests(), len(lineage(run)), extent._ends

    def between_looks(source: Config, topic: str) -> extent.Ends:
        if topic == "versions" and len(lineage(run)) == versions:
            publish(run, range(3000, 3004), "trajectories")
            learn(run, UPDATES + 1)
            made = trajectory(Screens(), 3005, store=open_store(run.store))
            steps = tuple(replace(step, version=lineage(run)[-1].version) for step in made.steps)
            late = replace(made, task=replace(made.task, task_id="task-5"), steps=steps)
            with RecordProducer(run, "test") as producer:
                producer.publish("trajectories", late.task_id, late).result(LIMIT_S)
        return ends_of(source, topic)

    def after(topic: str, count: int) -> None:
        if topic == "trajectories":
            add_partitions(run, 4)
            publish(run, range(3010, 3018), "trajectories")
            learn(run, UPDATES + 3)

    monkeypatch.setattr(extent, "_ends", between_looks)
    monkeypatch.setattr(mirror, "HELD_BYTES", 0)  # as of a run with more than is held
    copy(run, open_store(run.store), other, open_store(other.store), after)
    assert (len(lineage(run)), len(lineage(other))) == (versions + 3, versions)
    assert replay(other, from_start=True).digests() == before
    ours, theirs = held(run, "trajectories"), held(other, "trajectories")
    assert theirs.items() <= ours.items()
    assert held(other, "tasks") == held(run, "tasks")
    assert ends(other, "tasks")[1].items() <= ends(run, "tasks")[1].items()
    assert len(theirs) == len(ours) - 9, "what acts under a version that the copy lacks, and what came after"
    with GroupOffsets(other) as group:
        assert group.committed((0, 1)) == {1: 3}, "task-5 is the third of its partition, and is played again"
    learn(other, UPDATES + 1)
    assert len(lineage(other)) == versions + 1


def test_a_range_is_copied_without_a_journal_and_what_cannot_be_is_refused_at_once(
    run: Config, other: Config, tmp_path: Path
) -> None:
    refused = copied(run, other, tmp_path, learner={"seed": 3})
    assert refused.returncode == 1
    assert f"learner.seed: the copy would not learn as run {run.run} does: learner.seed is " in refused.stderr
    assert f"is {run.learner.seed} here and 3 there" in refused.stderr
    assert run_names(other) == [], "nothing was begun"
    for nothing in (("--from-offset", "5", "--to-offset", "5"), ("--from-offset", "9999")):
        refused = copied(run, other, tmp_path, *nothing)
        assert refused.returncode == 1
        assert "and none of those" in refused.stderr
        assert run_names(other) == [], "nothing was begun"
    part = ("--from-offset", "3", "--to-offset", "7")
    refused = copied(run, other, tmp_path, *part, policy={"base_model": str(tmp_path / "absent")})
    assert (refused.returncode, "absent" in refused.stderr) == (1, True), refused.stderr
    assert run_names(other) == [], "nothing was begun"
    (tmp_path / "a file").touch()
    refused = copied(run, other, tmp_path, *part, store={"url": f"file://{tmp_path}/a file"})
    assert (refused.returncode, "a file" in refused.stderr) == (1, True), refused.stderr
    assert run_names(other) == [], "nothing was begun"
    done = copied(run, other, tmp_path, *part, learner={"seed": 3})
    assert done.returncode == 0, done.stderr
    found = recorded(other)
    assert found is not None
    assert found.values["learner.seed"] == 3, "without a journal it may learn in another way"
    source = held(run, "trajectories")
    assert list(held(other, "trajectories").values()) == [source[0, offset] for offset in range(3, 7)]
    assert len(held(other, "demonstrations")) == 6
    assert held(other, "updates") == {}
    assert held(other, "versions") == {}
    assert held(other, "figures") == {}


@pytest.mark.parametrize("fails_at", ["demonstrations", "updates", None])
def test_a_copy_names_its_own_store_also_where_it_fails(
    run: Config, other: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails_at: str | None
) -> None:
    """Else what is done with the copy, such as removing it, would be done to the objects of the original."""
    append(run, "runs set", (), {"store.url": "s3s://bucket.of/the-original", "store.region": "eu"}, is_change=True)
    there = open_store(other.store)

    def on_topic(topic: str, count: int) -> None:
        if topic == fails_at:
            raise BrokerError("a test", "the broker is gone", "start it")

    monkeypatch.chdir(tmp_path)
    if fails_at is None:
        copy(run, open_store(run.store), other, there, on_topic)
    else:
        with pytest.raises(BrokerError, match="the broker is gone"):
            copy(run, open_store(run.store), other, there, on_topic)
    found = recorded(other)
    assert found is not None
    assert not {"store.url", "store.region"} & found.values.keys()
    assert found.is_incomplete_copy == (fails_at is not None)
    original = recorded(run)
    assert original is not None
    assert original.values["store.url"] == "s3s://bucket.of/the-original"


@pytest.mark.parametrize("interrupted_at", ["objects", "updates"])
def test_no_role_starts_on_an_incomplete_copy(
    run: Config, other: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted_at: str
) -> None:
    """A learner would begin with an earlier part of the run, or anew."""

    def on_topic(topic: str, count: int) -> None:
        if topic == interrupted_at:
            raise KeyboardInterrupt

    def on_objects(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    with monkeypatch.context() as patched:
        if interrupted_at == "objects":
            patched.setattr("distrl.runs.copy.copy_checkpoints", on_objects)
        with pytest.raises(KeyboardInterrupt):
            copy(run, open_store(run.store), other, open_store(other.store), on_topic)
    before = {topic: held(other, topic) for topic in ("settings", "updates", "versions", "tasks")}
    for role in ("learner", "feed"):
        started = distrl(other, tmp_path, role)
        assert started.returncode == 1
        assert f"run {run.run}: is an incomplete copy at the broker {other.kafka.bootstrap}" in started.stderr
        assert "the same `distrl runs copy` again" in started.stderr
    assert {topic: held(other, topic) for topic in before} == before
    listed = distrl(other, tmp_path, "runs", "ls", "--json")
    assert (listed.returncode, run.run in listed.stdout) == (0, True), listed.stderr
    removed = distrl(other, tmp_path, "runs", "rm", run.run, "--yes")
    assert removed.returncode == 0, removed.stderr


def distrl(config: Config, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command with the broker and the store of `config`."""
    given = {
        "DISTRL_RUN": config.run,
        "DISTRL_KAFKA__BOOTSTRAP": config.kafka.bootstrap,
        "DISTRL_STORE__URL": config.store.url,
    }
    return run_distrl(folder, *arguments, limit_s=LIMIT_S, variables=given)


def test_what_is_there_of_an_interrupted_copy_is_removed_by_the_command_that_a_second_copy_names(
    run: Config, other: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where a variable names the broker of the original, which stays as it is."""

    def on_topic(topic: str, count: int) -> None:
        if topic == "versions":
            raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        copy(run, open_store(run.store), other, open_store(other.store), on_topic)
    refused = copied(run, other, tmp_path)
    assert refused.returncode == 1
    assert "copy that was interrupted" in refused.stderr
    command = shlex.split(refused.stderr.split("`")[1])
    before = {topic: held(run, topic) for topic in (*EXACT, "updates")}
    of_the_original = {"DISTRL_KAFKA__BOOTSTRAP": run.kafka.bootstrap, "DISTRL_STORE__URL": run.store.url}
    removed = run_distrl(tmp_path, *command[1:], "--yes", limit_s=LIMIT_S, variables=of_the_original)
    assert (command[0], removed.returncode) == ("distrl", 0), removed.stderr
    assert (run_names(other), list(open_store(other.store).list("runs/"))) == ([], [])
    assert {topic: held(run, topic) for topic in before} == before
    done = copied(run, other, tmp_path)
    assert done.returncode == 0, done.stderr
    sent = re.search(r"records and (\d+) objects", done.stdout)
    assert sent is not None
    own = sum(1 for _ in open_store(other.store).list("runs/"))
    assert int(sent.group(1)) == own, "adapters and screenshots lay there from the first time on"
    assert f"folded there from the newest checkpoint: {UPDATES} updates, bit for bit" in done.stdout
