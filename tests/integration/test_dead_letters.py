"""Dead letters on a real broker: nothing is skipped, nothing is drained, and what was put aside comes back once."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import confluent_kafka
import factories
import pytest
from confluent_kafka import Producer
from distrl.broker import republish as retrying
from distrl.broker import topic_admin
from distrl.broker.connect import admin, settings
from distrl.broker.consumer import LoggedTask, TaskConsumer
from distrl.broker.dead_letter_log import DeadLetter, dead_letters_of, entries, own_headers
from distrl.broker.dead_letters import BadRecordsError, DeadLetters
from distrl.broker.fenced import FencedError
from distrl.broker.journal import journalled
from distrl.broker.producer import Headers, RecordProducer
from distrl.broker.reader import LogReader, RawRecord
from distrl.broker.republish import retry, retry_headers
from distrl.broker.topics import topic_name
from distrl.cli.main import app
from distrl.config import Config, load
from distrl.errors import WireError
from distrl.learner.run import run_learner
from distrl.learner.verify import replay
from distrl.store.objects import open_store
from distrl.types import LogPosition, PutAside, Task
from distrl.wire import codec
from distrl.wire.codec import encode
from distrl.wire.schemas import catalogue, read_catalogue, schema_folder
from groups import member
from learner.world import Screens, save_tiny_base, trajectory
from learner.world import config as small
from typer.testing import CliRunner
from waiting import until

pytestmark = pytest.mark.integration

PATIENCE_S = 60.0
LOOK_S = 2.0
"""How long something is watched not to happen: many polls of a broker that answers within milliseconds."""
DLQ = "trajectories.dlq"


@pytest.fixture
def config(broker: str) -> Config:
    sets = [f"run=dlq-{uuid.uuid4().hex[:12]}", f"kafka.bootstrap={broker}", "kafka.task_partitions=1"]
    made = load(sets=[*sets, "kafka.dead_letter_limit=4", "kafka.dead_letter_window=20"], environ={})
    topic_admin.ensure(made)
    return made


@pytest.fixture
def producer(config: Config) -> Iterator[RecordProducer]:
    with RecordProducer(config, "a-test") as made:
        yield made


def with_limit(config: Config, limit: int) -> Config:
    return config.model_copy(update={"kafka": config.kafka.model_copy(update={"dead_letter_limit": limit})})


def task(number: int) -> Task:
    return factories.task(f"task-{number}", family="alarm", instruction="set an alarm", phone_seed=number)


def send(
    producer: RecordProducer, config: Config, topic: str, *values: bytes, headers: Headers = ()
) -> list[LogPosition]:
    name = topic_name(config.run, topic)
    return [producer.publish_bytes(name, b"k", value, headers).result(PATIENCE_S) for value in values]


def poll_until(consumer: TaskConsumer, done: Callable[[list[LoggedTask]], bool]) -> list[LoggedTask]:
    """What the consumer hands out until `done`; each is committed at once."""
    got: list[LoggedTask] = []
    deadline = time.monotonic() + PATIENCE_S
    while not done(got):
        assert time.monotonic() < deadline, f"only {len(got)} tasks came"
        found = consumer.poll(0.05)
        if found is not None:
            consumer.commit(found.position)
            got.append(found)
    return got


def in_the_log(config: Config) -> list[RawRecord]:
    with LogReader(config, DLQ) as reader:
        return [raw for batch in reader.to_end() for raw in batch]


def without_dead_letter_topic(config: Config) -> None:
    client, name = admin(config.kafka), topic_name(config.run, DLQ)
    client.delete_topics([name])[name].result(PATIENCE_S)
    until(lambda: name not in client.list_topics(timeout=5).topics, "the topic is gone")


def send_headers_that_are_no_utf8(config: Config, topic: str, value: bytes) -> None:
    """By librdkafka itself: no Python client lets such a name out."""
    (file,) = (Path(confluent_kafka.__file__).parents[1] / "confluent_kafka.libs").glob("librdkafka*")
    library, pointer, size = ctypes.CDLL(str(file)), ctypes.c_void_p, ctypes.c_ssize_t
    for name in ("rd_kafka_conf_new", "rd_kafka_new", "rd_kafka_headers_new"):
        getattr(library, name).restype = pointer
    settings = pointer(library.rd_kafka_conf_new())
    library.rd_kafka_conf_set(settings, b"bootstrap.servers", config.kafka.bootstrap.encode(), None, size(0))
    client = pointer(library.rd_kafka_new(0, settings, None, size(0)))
    headers = pointer(library.rd_kafka_headers_new(size(1)))
    library.rd_kafka_header_add(headers, b"\xff\xfe", size(-1), b"v", size(1))
    copied = 2
    kinds = {"topic": 1, "value": 4, "flags": 7, "headers": 10, "end": 0}
    refused = library.rd_kafka_producev(
        client,
        kinds["topic"],
        topic_name(config.run, topic).encode(),
        kinds["value"],
        value,
        size(len(value)),
        kinds["flags"],
        copied,
        kinds["headers"],
        headers,
        kinds["end"],
    )
    assert (refused, library.rd_kafka_flush(client, int(PATIENCE_S * 1000))) == (0, 0)
    library.rd_kafka_destroy(client)


def test_headers_that_are_no_text_stop_nobody(config: Config, producer: RecordProducer) -> None:
    send(producer, config, "tasks", *[encode(task(0))] * 40)  # the interpreter makes calls fast that it knows
    for value in (b"no record", encode(task(1))):
        send_headers_that_are_no_utf8(config, "tasks", value)
    with RecordProducer(config, "a-worker") as own, member(config, DeadLetters.of(config, own)) as consumer:
        *_, good = poll_until(consumer, lambda got: len(got) == 41)
    assert good.task == task(1)
    assert [(raw.value, own_headers(raw.headers)) for raw in in_the_log(config)] == [(b"no record", ())]


# The roles


def test_a_worker_stands_still_while_its_dead_letter_cannot_be_written(
    config: Config, producer: RecordProducer
) -> None:
    send(producer, config, "tasks", b"no record", encode(task(1)))
    with RecordProducer(config, "a-worker") as own:
        bad = DeadLetters.of(config, own)
        without_dead_letter_topic(config)
        with member(config, bad, poll_interval_s=10) as consumer:
            poll_until(consumer, lambda _: bad.waiting)
            watched = time.monotonic() + LOOK_S
            assert poll_until(consumer, lambda _: time.monotonic() > watched) == []
            assert consumer.partitions == {0}
            topic_admin.ensure(config)
            (good,) = poll_until(consumer, lambda got: len(got) == 1)
            assert not bad.waiting
    assert good.task == task(1)
    assert [raw.value for raw in in_the_log(config)] == [b"no record"]


def test_a_bad_deploy_stops_the_worker_and_a_restart_drains_no_more(config: Config, producer: RecordProducer) -> None:
    send(producer, config, "tasks", *[b"bad %d" % n for n in range(10)], encode(task(1)))
    for _ in range(3):
        with (
            RecordProducer(config, "a-worker") as own,
            member(config, DeadLetters.of(config, own)) as consumer,
            pytest.raises(BadRecordsError, match=r"tasks\[0\] offset 3: .*4 of the last 20 records"),
        ):
            poll_until(consumer, lambda _: False)
        assert [raw.value for raw in in_the_log(config)] == [b"bad 0", b"bad 1", b"bad 2"]
    free = with_limit(config, 0)
    with RecordProducer(free, "a-worker") as own, member(free, DeadLetters.of(free, own)) as consumer:
        (good,) = poll_until(consumer, lambda got: len(got) == 1)
    assert good.task == task(1)
    assert len(in_the_log(config)) == 10


@pytest.fixture
def learning(config: Config, tmp_path: Path) -> Config:
    """A run that folds six demonstrations, then four trajectories an update, without a warm-up."""
    save_tiny_base(tmp_path)
    learned = small(tmp_path, "warmup.updates=1", "algorithm.critic_warmup_updates=0")
    store = config.store.model_copy(update={"url": f"file://{tmp_path}/objects"})
    return learned.model_copy(update={"run": config.run, "kafka": config.kafka, "store": store})


class Learner:
    """run_learner in a thread, for as long as the block lasts; a failure that nobody has met is raised at its end."""

    def __init__(self, config: Config) -> None:
        self._config, self._stop, self._pool = config, threading.Event(), ThreadPoolExecutor(1)
        self._told = False
        self.metrics: dict[str, float] = {}

    def __enter__(self) -> Learner:
        self._running = self._pool.submit(
            run_learner, self._config, self._stop, lambda metrics, _: self.metrics.update(metrics)
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._pool.shutdown()
        if not self._told:
            self._running.result()

    def until_folded(self, updates: int) -> None:
        """Raises what the learner ended with, where it ended before."""

        def reached() -> bool:
            if self._running.done():
                self._told = True
                self._running.result()
            return self.metrics.get("update", 0) >= updates

        until(reached, f"update {updates} is folded")


def feed(config: Config, producer: RecordProducer, numbers: range, expert: bool = False) -> None:
    store, screens = open_store(config.store), Screens()
    made = [trajectory(screens, n, expert=expert, store=store) for n in numbers]
    send(producer, config, "demonstrations" if expert else "trajectories", *map(encode, made))


def test_no_update_is_journalled_past_a_bad_record_before_its_dead_letter_is_acknowledged(
    learning: Config, producer: RecordProducer
) -> None:
    feed(learning, producer, range(6), expert=True)
    with Learner(learning) as learner:
        learner.until_folded(1)
        without_dead_letter_topic(learning)
        feed(learning, producer, range(2))
        send(producer, learning, "trajectories", b"no record")
        feed(learning, producer, range(2, 4))
        watched = time.monotonic() + LOOK_S
        until(lambda: time.monotonic() > watched, "it has looked for long")
        assert len(journalled(learning)) == 1
        topic_admin.ensure(learning)
        learner.until_folded(2)
    assert [raw.value for raw in in_the_log(learning)] == [b"no record"]
    assert len(journalled(learning)) == 2
    with Learner(learning) as learner:  # from its checkpoint, past what it has read before
        feed(learning, producer, range(4, 8))
        learner.until_folded(3)
    assert replay(learning, from_start=True).digests() == replay(learning).digests()
    assert len(in_the_log(learning)) == 1


def test_a_redo_writes_no_letter_again_and_counts_none(learning: Config, producer: RecordProducer) -> None:
    """Three bad records are put aside; a learner with a lower limit that reads the log anew is not stopped by them."""
    feed(learning, producer, range(6), expert=True)
    send(producer, learning, "trajectories", *[b"bad %d" % n for n in range(3)])
    feed(learning, producer, range(4))
    unsaved = learning.model_copy(update={"learner": learning.learner.model_copy(update={"checkpoint_every": 1000})})
    with Learner(unsaved) as learner:
        learner.until_folded(2)
    rmtree(Path(learning.store.url.removeprefix("file://")) / "runs")  # its checkpoints: all is to be folded again
    strict = with_limit(unsaved, 2)
    with Learner(strict) as learner:
        learner.until_folded(2)
        send(producer, learning, "trajectories", b"bad 3")
        feed(learning, producer, range(4, 8))
        with pytest.raises(BadRecordsError, match=r"trajectories\[0\] offset 7"):
            learner.until_folded(3)
    assert [raw.value for raw in in_the_log(learning)] == [b"bad 0", b"bad 1", b"bad 2"]


def test_what_was_skipped_is_not_folded_by_a_newer_reader_who_can_read_it(
    learning: Config, producer: RecordProducer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal names it, so that the same log gives the same weights. Published again, it is learned from."""
    schemas = tmp_path / "schemas"
    copytree(schema_folder(), schemas)
    newest = catalogue().newest["trajectory"]
    schema = json.loads((schemas / f"{newest}.avsc").read_text())
    schema["fields"].append({"name": "new", "type": "long", "default": 5})
    (schemas / f"trajectory/v{newest.version + 1}.avsc").write_text(json.dumps(schema))
    newer = read_catalogue(schemas)
    feed(learning, producer, range(6), expert=True)
    feed(learning, producer, range(2))
    with monkeypatch.context() as writer:
        writer.setattr(codec, "catalogue", lambda: newer)
        feed(learning, producer, range(2, 3))
    feed(learning, producer, range(3, 5))
    with Learner(learning) as learner:
        learner.until_folded(2)
    name = topic_name(learning.run, "trajectories")
    assert journalled(learning)[1].put_aside == (PutAside(name, 0, (2,)),)
    before = replay(learning, from_start=True).digests()
    monkeypatch.setattr(codec, "catalogue", lambda: newer)
    assert replay(learning, from_start=True).digests() == before == replay(learning).digests()
    (done,) = retry(all_letters(learning), learning)
    assert done.at == LogPosition(name, 0, 5)
    rmtree(Path(learning.store.url.removeprefix("file://")) / "runs")
    with Learner(learning) as learner:
        feed(learning, producer, range(5, 8))
        learner.until_folded(3)
    assert [len(update.put_aside) for update in journalled(learning)] == [0, 1, 0]
    assert replay(learning, from_start=True).algorithm.memory.uses(3)[-4].logged.position == done.at


# What a person does


def put_aside(config: Config, producer: RecordProducer, raw: RawRecord) -> None:
    bad = DeadLetters(config, producer.publish_bytes)
    bad.put(raw, WireError("a place", "is \x1b[2Jgarbage", "fix it"))
    assert producer.flush(PATIENCE_S) == 0
    assert bad.settled() == [raw.position]


def all_letters(config: Config) -> list[DeadLetter]:
    return dead_letters_of(config, entries(config))


def read(config: Config, topic: str) -> list[RawRecord]:
    with LogReader(config, topic) as reader:
        return [raw for batch in reader.to_end() for raw in batch]


def command(config: Config, *arguments: str) -> list[str]:
    return ["dlq", *arguments, f"--set=run={config.run}", f"--set=kafka.bootstrap={config.kafka.bootstrap}"]


def run(config: Config, *arguments: str) -> Any:
    return CliRunner().invoke(app, command(config, *arguments), env={"COLUMNS": "200"})


OWN: Headers = (("trace", b"\x1b]0;title\x07"), ("empty", None))


@pytest.fixture
def aside(config: Config, producer: RecordProducer) -> list[DeadLetter]:
    """Two tasks that this code can read by now; the first was put aside twice, as by a worker that was killed."""
    places = send(producer, config, "tasks", encode(task(1)), encode(task(2)), headers=OWN)
    for place, number in ((places[0], 1), (places[1], 2), (places[0], 1)):
        put_aside(config, producer, RawRecord(place, b"k", encode(task(number)), 0, OWN))
    return all_letters(config)


def test_a_record_that_was_skipped_twice_is_one_dead_letter(config: Config, aside: list[DeadLetter]) -> None:
    assert [(letter.offset, letter.entry.copies) for letter in aside] == [(0, 2), (1, 1)]
    assert len(in_the_log(config)) == 3
    (first, second) = json.loads(run(config, "ls", "--json").output)
    assert (first["offset"], first["topic"], first["origin_offset"], first["letters"]) == (
        0,
        topic_name(config.run, "tasks"),
        0,
        2,
    )
    assert (second["class"], second["bytes"]) == ("distrl.errors.WireError", 1 + len(encode(task(2))))
    table = run(config, "ls").output
    assert f"{topic_name(config.run, 'tasks')}[0]@1" in table
    assert "is \\x1b[2Jgarbage" in table
    assert "\x1b" not in table


PEAK = """
import sys, tracemalloc
from distrl.cli.main import app

app(sys.argv[1:], standalone_mode=False)  # what is loaded once is no matter
tracemalloc.start()
app(sys.argv[1:], standalone_mode=False)
print("peak", tracemalloc.get_traced_memory()[1])
"""
"""In a process of its own: in that of the tests, threads of other tests take memory, too."""


@pytest.mark.parametrize("arguments", [("ls",), ("ls", "--json"), ("show", "3")])
def test_what_lists_letters_or_shows_one_holds_the_bytes_of_one_at_a_time(
    config: Config, producer: RecordProducer, arguments: tuple[str, ...]
) -> None:
    count, size = 40, 500_000
    (place, *_) = send(producer, config, "tasks", b"no record")
    for number in range(count):
        origin = LogPosition(place.topic, 0, number)
        put_aside(with_limit(config, 0), producer, RawRecord(origin, b"k", b"x" * size, 0))
    asked, environment = [sys.executable, "-c", PEAK, *command(config, *arguments)], {**os.environ, "COLUMNS": "200"}
    done = subprocess.run(asked, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    shown, _, peak = done.stdout.rpartition("peak ")
    assert shown.count(str(size + 1)) == 2 * (1 if arguments[0] == "show" else count), "asked twice"
    # one is there a few times over (read, decoded, shown), and some wait for the collector; all of them are 40
    assert int(peak) < count * size // 2, f"{peak} bytes for {count} dead letters of {size}"


def test_show_tells_headers_bytes_and_what_is_read_now_and_nothing_to_the_terminal(
    config: Config, producer: RecordProducer, aside: list[DeadLetter]
) -> None:
    shown = run(config, "show", "1").output
    assert "trace: \\x1b]0;title\\x07" in shown
    assert "empty: null" in shown
    assert "00000000  c3 01" in shown
    assert "decodes now as: Task(task_id='task-2'" in shown
    assert "\x1b" not in shown
    (place,) = send(producer, config, "tasks", b"\x1b[31mred")
    put_aside(config, producer, RawRecord(place, None, b"\x1b[31mred", 0))
    shown = run(config, "show", "3").output
    assert "key: null" in shown
    assert "1b 5b 33 31" in shown
    assert "still cannot be decoded: starts with 1b 5b" in shown
    assert "\x1b" not in shown
    missing = run(config, "show", "99")
    assert "dead letter 99: there is none" in str(missing.exception)


def test_retry_publishes_key_bytes_and_headers_again_and_never_twice(
    config: Config, producer: RecordProducer, aside: list[DeadLetter]
) -> None:
    assert "0 from " in run(config, "retry", "--all", "--dry-run").output
    assert len(read(config, "tasks")) == 2
    (once,) = retry(aside[:1], config)
    assert (once.at, once.before) == (LogPosition(topic_name(config.run, "tasks"), 0, 2), False)
    again = retry(aside, config)
    assert [(each.before, each.at.offset) for each in again if each.at] == [(True, 2), (False, 4)]  # 3: a commit
    found = run(config, "retry", "0", "1")
    assert found.exit_code == 0
    assert found.output.count("was published before") == 2
    records = read(config, "tasks")
    assert [(raw.key, raw.value) for raw in records] == [(b"k", encode(task(n))) for n in (1, 2, 1, 2)]
    assert [raw.headers[:2] for raw in records[2:]] == [OWN, OWN]
    put_aside(config, producer, RawRecord(records[2].position, b"k", encode(task(1)), 0, records[2].headers))
    (fresh,) = [letter for letter in all_letters(config) if letter.origin == records[2].position]
    assert own_headers(fresh.raw.headers) == tuple(records[2].headers)
    (third,) = retry([fresh], config)
    assert (third.before, third.at) == (False, LogPosition(topic_name(config.run, "tasks"), 0, 6))


def test_of_two_retries_at_once_the_earlier_is_fenced_and_no_record_is_published_twice(
    config: Config, aside: list[DeadLetter], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second begins, and ends, between the first one's look at the log and its publishing."""
    real = retrying.retried_before
    second: list[retrying.Retried] = []

    def look_then_be_overtaken(found: list[DeadLetter], looked: Config) -> object:
        before = real(found, looked)
        if not second:
            second.append(retrying.Retried(found[0]))
            second[:] = retry(found, looked)
        return before

    monkeypatch.setattr(retrying, "retried_before", look_then_be_overtaken)
    monkeypatch.setattr(retrying, "this_process", iter(["the second"] * 2 + ["the first"] * 9).__next__)
    with pytest.raises(FencedError, match=r"another `distrl dlq retry` has taken over \(the second\)") as told:
        retry(aside, config)
    assert f"`distrl dlq retry --all --run {config.run}`" in told.value.hint
    assert [each.before for each in second] == [False, False]
    assert [each.before for each in retry(aside, config)] == [True, True]
    assert [raw.value for raw in read(config, "tasks")] == [encode(task(n)) for n in (1, 2, 1, 2)]


def test_many_retries_at_once_publish_each_record_once(config: Config, producer: RecordProducer) -> None:
    places = send(producer, config, "tasks", *(encode(task(number)) for number in range(12)))
    for place, number in zip(places, range(12), strict=True):
        put_aside(config, producer, RawRecord(place, b"k", encode(task(number)), 0))
    found = all_letters(config)

    def one(_: int) -> bool:
        try:
            retry(found, config)
        except FencedError:
            return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert any(pool.map(one, range(4))), "the last to begin is fenced by nobody"
    values = [raw.value for raw in read(config, "tasks")]
    assert sorted(values[12:]) == sorted(values[:12])


def test_a_record_of_a_retry_that_was_killed_before_its_commit_is_read_and_not_published_again(
    config: Config, aside: list[DeadLetter]
) -> None:
    killed = Producer(settings(config.kafka, "killed", {"transactional.id": f"distrl.{config.run}.dlq"}))
    killed.init_transactions(PATIENCE_S)
    killed.begin_transaction()
    origin = aside[0].origin
    assert origin is not None
    killed.produce(origin.topic, key=b"k", value=encode(task(1)), headers=list(retry_headers(origin)))
    assert killed.flush(PATIENCE_S) == 0
    assert [each.before for each in retry(aside, config)] == [True, False]
    with member(config) as consumer:
        got = poll_until(consumer, lambda got: len(got) == 4)
    assert [found.task for found in got] == [task(n) for n in (1, 2, 1, 2)]


def test_a_record_too_large_for_its_dead_letter_is_skipped_cut_and_not_published_again(
    config: Config, producer: RecordProducer
) -> None:
    """The broker counts compressed bytes, so a topic may hold a record that our producers refuse."""
    name, whole = topic_name(config.run, "tasks"), b"spoilt " * (config.kafka.max_record_bytes // 5)
    made = settings(config.kafka, "another", {"compression.type": "zstd", "message.max.bytes": 2 * len(whole)})
    other = Producer(made)
    other.produce(name, key=b"k", value=whole, headers=list(OWN))
    assert other.flush(PATIENCE_S) == 0
    send(producer, config, "tasks", encode(task(1)))
    with member(config, DeadLetters.of(config, producer)) as consumer:
        (got,) = poll_until(consumer, lambda got: len(got) == 1)
    assert got.task == task(1)
    (letter,) = all_letters(config)
    assert (letter.origin, letter.headers, letter.raw.key) == (LogPosition(name, 0, 0), OWN, b"k")
    assert whole.startswith(letter.raw.value or b"?")
    assert config.kafka.max_record_bytes // 2 < letter.entry.size < config.kafka.max_record_bytes
    refused = run(config, "retry", "0")
    assert f"is truncated to {letter.entry.size} of {len(whole) + 1} bytes" in refused.output
    assert sha256(whole).hexdigest() in refused.output
    assert "dead letters 0: were not published again" in str(refused.exception)
    assert len(read(config, "tasks")) == 2
    assert "still cannot be decoded: it was too large and is truncated" in run(config, "show", "0").output


def test_a_record_larger_than_is_let_out_by_now_keeps_no_other_from_being_published_again(
    config: Config, producer: RecordProducer
) -> None:
    long = task(1)
    places = send(producer, config, "tasks", b"no record", b"no record")
    for place, value in zip(places, (encode(replace(long, instruction="x" * 2000)), encode(task(2))), strict=True):
        put_aside(config, producer, RawRecord(place, b"k", value, 0))
    small = config.model_copy(update={"kafka": config.kafka.model_copy(update={"max_record_bytes": 1024})})
    first, second = retry(all_letters(config), small)
    assert (first.at, "kafka.max_record_bytes" in first.refused) == (None, True)
    assert second.at is not None
    assert [(raw.value or b"")[:2] for raw in read(config, "tasks")] == [b"no", b"no", b"\xc3\x01"]
    assert [each.before for each in retry(all_letters(config), config)] == [False, True], "with more room it goes too"


@pytest.mark.parametrize(
    ("origin", "why"),
    [
        (LogPosition("distrl.another.tasks", 0, 0), "is not a topic of tasks or trajectories of run"),
        (LogPosition("", 0, 0), "is not a topic of tasks or trajectories of run"),
        (None, "has no partition 7"),
        ("versions", "is not a topic of tasks or trajectories of run"),
        (DLQ, "is not a topic of tasks or trajectories of run"),
    ],
)
def test_retry_writes_to_topics_of_this_run_alone(
    config: Config, producer: RecordProducer, aside: list[DeadLetter], origin: LogPosition | str | None, why: str
) -> None:
    if isinstance(origin, str) or origin is None:
        origin = LogPosition(topic_name(config.run, origin or "tasks"), 0 if origin else 7, 0)
    put_aside(config, producer, RawRecord(origin, b"k", b"v", 0))
    found = run(config, "retry", "--all")
    assert why in found.output
    assert found.output.count(": published at") == 2, "the others are published all the same"
    assert "dead letters 3: were not published again" in str(found.exception)


def test_a_letter_whose_headers_say_nothing_is_listed_and_not_published(
    config: Config, producer: RecordProducer
) -> None:
    send(producer, config, DLQ, b"anything")
    (letter,) = all_letters(config)
    assert (letter.origin, letter.entry.copies) == (None, 1)
    assert "do not name its origin" in run(config, "retry", "0").output
    assert " ? " in run(config, "ls").output
    assert "name no topic of tasks or trajectories" in run(config, "show", "0").output
