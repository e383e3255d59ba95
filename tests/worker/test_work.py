"""The worker over a log, a producer and phones in memory. Its own thread is real, and so are its actors."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import numpy as np
import pytest
from chat.server import serving, validity
from distrl.broker.connect import BeyondUseError
from distrl.broker.consumer import LoggedTask
from distrl.broker.producer import Headers, RecordTooLargeError
from distrl.chat.endpoint import Endpoint
from distrl.config import Config, JudgeSettings, PolicySettings, load
from distrl.errors import BrokerError, DistrlError
from distrl.judge.vlm import VlmJudge
from distrl.policy.recurrent_q.directory import Described
from distrl.policy.recurrent_q.network import NEVER
from distrl.policy.recurrent_q.policy import RecurrentQPolicy
from distrl.policy.registry import policy_of
from distrl.policy.sampling import FULL, Ladder, Sampling
from distrl.rollout import back_pressure as retry_module
from distrl.rollout.back_pressure import Retry
from distrl.rollout.batcher import Batcher
from distrl.rollout.decider import PolicyEndedError
from distrl.rollout.episode import SYSTEM_CLOCK, Phone
from distrl.rollout.reload import Reloader
from distrl.tasks.outcome import StateCheck
from distrl.telemetry.logs import Identity, JsonLines
from distrl.telemetry.monitor import Monitor
from distrl.types import Heartbeat, LogPosition, Outcome, Record, Task, Trajectory
from distrl.worker import action_judge, membership, work
from distrl.worker.work import Worker
from judge.test_validity import screen
from learner.world import q_base, save_tiny_base
from rollout.test_batcher import Weights, Words
from rollout.world import CountingPhone, OneByOne, Shelf, task, version
from waiting import until


@dataclass
class TaskLog:
    """The tasks topic: `poll` hands out what is fed, in order unless paused. As by a feeder, so many are fed that no
    more than `outstanding` are uncommitted."""

    tasks: list[Task]
    outstanding: int = 24
    headers: Headers = ()
    committed: list[int] = field(default_factory=list)
    paused: bool = False
    handed_out: int = 0
    handed_out_while_paused: int = 0
    all_committed: threading.Event = field(default_factory=threading.Event)
    phones: list[int] = field(default_factory=list)
    dropped: list[int] = field(default_factory=list)
    buffered: int = 0
    dead_letters: int = 0
    brokers_away: bool = False
    answers: threading.Event = field(default_factory=threading.Event)
    """Set: `poll` returns; a broker's client that hangs does not."""

    def __post_init__(self) -> None:
        self.answers.set()

    @property
    def partitions(self) -> frozenset[int]:
        return frozenset({0} if self.phones and self.phones[-1] else ())

    @property
    def running(self) -> int:
        return self.handed_out - len(self.committed)

    def take_for(self, phones: int) -> None:
        self.phones.append(phones)

    def drop(self, position: LogPosition) -> None:
        self.dropped.append(position.offset)

    def poll(self, timeout_s: float) -> LoggedTask | None:
        self.answers.wait(60)
        if not self.partitions:
            return None
        fed = min(len(self.tasks), len(self.committed) + self.outstanding)
        if self.paused or self.handed_out >= fed:
            return None
        self.handed_out += 1
        offset = self.handed_out - 1
        return LoggedTask(LogPosition("tasks", 0, offset), self.tasks[offset], self.headers)

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False

    def commit(self, position: LogPosition) -> None:
        self.committed.append(position.offset)
        if len(self.committed) == len(self.tasks):
            self.all_committed.set()


@dataclass
class Broker:
    """Acknowledges at once, unless `holds`; refuses what `refuses` says."""

    holds: bool = False
    refuses: Callable[[Record], Exception | None] = lambda record: None
    trajectories: list[Trajectory] = field(default_factory=list)
    headers: list[Headers] = field(default_factory=list)
    """Of the trajectories."""
    beats: list[Heartbeat] = field(default_factory=list)
    waiting: list[Future[LogPosition]] = field(default_factory=list)
    asked: threading.Event = field(default_factory=threading.Event)
    fails_with: Exception | None = None

    def publish(self, topic: str, key: str, record: Record, headers: Headers = ()) -> Future[LogPosition]:
        if isinstance(record, Heartbeat):
            self.beats.append(record)
            acknowledged: Future[LogPosition] = Future()
            acknowledged.set_result(LogPosition(topic, 0, len(self.beats)))
            return acknowledged
        assert (topic, isinstance(record, Trajectory)) == ("trajectories", True)
        assert isinstance(record, Trajectory)
        self.asked.set()
        error = self.refuses(record)
        if error is not None:
            raise error
        assert key == record.task_id
        self.trajectories.append(record)
        self.headers.append(headers)
        future: Future[LogPosition] = Future()
        if self.fails_with is not None:
            future.set_exception(self.fails_with)
        elif self.holds:
            self.waiting.append(future)
        else:
            future.set_result(LogPosition(topic, 0, len(self.trajectories) - 1))
        return future

    def answer(self) -> None:
        self.holds = False
        while self.waiting:
            self.waiting.pop().set_result(LogPosition("trajectories", 0, 0))


@dataclass
class Running:
    log: TaskLog
    broker: Broker
    batcher: Batcher
    fleet: OneByOne
    stop: threading.Event
    thread: threading.Thread
    failures: list[DistrlError]
    monitor: Monitor

    def end(self) -> None:
        self.stop.set()
        self.thread.join(30)
        assert not self.thread.is_alive()


Start = Callable[..., Running]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setattr(retry_module, "FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(retry_module, "ACKNOWLEDGE_WAIT_S", 0.01)
    started: list[Running] = []

    def begin(
        tasks: list[Task],
        phones: list[CountingPhone],
        broker: Broker | None = None,
        drain_s: float = 20,
        loaded: int = 0,
        judge: VlmJudge | None = None,
        shelf: Shelf | None = None,
        outstanding: int = 24,
        answers: int | None = None,
        headers: Headers = (),
        heartbeat_s: float = 0.001,
        batcher: Batcher | None = None,
        adapter: bytes = b"weights",
    ) -> Running:
        batcher = batcher or Batcher(Weights(), Words(), sampling=FULL, wait_s=0.0)
        threading.Thread(target=batcher.serve, daemon=True).start()
        batcher.swap(version(loaded), adapter)
        give_up, stop = threading.Event(), threading.Event()
        settings = Config.model_validate(
            {"worker": {"heartbeat_s": heartbeat_s, "drain_timeout_s": drain_s}, "feeder": {"outstanding": outstanding}}
            | ({"judge": {"endpoint": "http://unused", "model": "m", "validity": "vlm"}} if judge else {})
        )
        shelf, monitor = shelf or Shelf(), Monitor()
        log, publishing = TaskLog(tasks, outstanding, headers), broker or Broker()
        fleet = OneByOne(phones, answers=answers)
        reloader = Reloader(NoVersions(), lambda ref: b"", "base", batcher, SYSTEM_CLOCK)
        worker = Worker(
            settings,
            batcher,
            reloader,
            fleet,
            shelf.keep,
            lambda task, truth: StateCheck((), ""),
            publishing.publish,
            Retry(give_up),
            give_up,
            actions_judge=judge,
            image=shelf.get,
            monitor=monitor,
        )
        failures: list[DistrlError] = []

        def work() -> None:
            try:
                worker.work(log, stop, lambda: None)
            except (BrokerError, PolicyEndedError) as error:
                failures.append(error)

        thread = threading.Thread(target=work, daemon=True)
        running = Running(log, publishing, batcher, fleet, stop, thread, failures, monitor)
        started.append(running)
        thread.start()
        return running

    yield begin
    for running in started:
        running.broker.answer()
        running.stop.set()
        running.batcher.close()
        running.thread.join(30)


class NoVersions:
    def latest(self) -> None:
        return None

    def wait_newer(self, than: int | None, timeout_s: float) -> None:
        return None


def phones(count: int, **more: object) -> list[CountingPhone]:
    return [CountingPhone(f"phone-{n}", **more) for n in range(count)]  # type: ignore[arg-type]


def test_every_task_is_played_published_and_then_committed(start: Start) -> None:
    running = start([task(f"t-{n}") for n in range(9)], phones(3))
    assert running.log.all_committed.wait(30)
    running.end()
    assert sorted(running.log.committed) == list(range(9))
    assert sorted(t.task_id for t in running.broker.trajectories) == sorted(f"t-{n}" for n in range(9))
    assert all(step.version == 0 for t in running.broker.trajectories for step in t.steps)


def test_with_a_ladder_each_episode_records_the_probabilities_of_its_own_epsilon(start: Start, tmp_path: Path) -> None:
    """μ = (1 − ε) softmax(Q / 0.01) + ε / n with the ε of the task's id, whichever phone played it and whatever shared
    a batch with it: by the network's Q of what was recorded, in NumPy."""
    save_tiny_base(tmp_path / "eyes")
    policy = policy_of(PolicySettings(base_model=q_base(tmp_path / "q", tmp_path / "eyes")))
    assert isinstance(policy, RecurrentQPolicy)
    worker = load(sets=["worker.ladder.rungs=4"], environ={}).worker
    batcher = Batcher(policy, policy.tokenizer, sampling=Sampling.of(worker), wait_s=0.05)
    shelf, tasks = Shelf(), [task(f"t-{n}") for n in range(12)]
    running = start(tasks, phones(3), shelf=shelf, batcher=batcher, adapter=policy.adapter())
    assert running.log.all_committed.wait(60)
    running.end()
    epsilons, differs = set(), 0
    for played in running.broker.trajectories:
        epsilons.add(epsilon := Ladder(4).of(played.task_id))
        shown = [policy.image_features(shelf.get(step.screenshot)) for step in played.steps]
        for index, step in enumerate(played.steps):
            screen = shown[index]._replace(earlier=tuple(shown[:index]))
            q = policy.q(policy.seen(step.prompt_ids, screen)).detach().double().numpy()
            weight = np.where(possible := q > NEVER, np.exp((q - q.max()) / 0.01), 0.0)
            mu = {
                each: ((1 - each) * weight / weight.sum() + each / possible.sum())[policy.number(step)]
                for each in (epsilon, Described().epsilon)
            }
            assert np.exp(step.logprob) == pytest.approx(mu[epsilon], rel=1e-3)
            differs += np.exp(step.logprob) != pytest.approx(mu[Described().epsilon], rel=1e-2)
    assert len(epsilons) == 4
    assert differs, "from what is recorded without a ladder"


def test_a_task_and_its_trajectory_are_of_one_trace_which_json_lines_name(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    formatter = JsonLines(Identity("run", "worker", "w"))
    played = Worker._play

    def play(worker: Worker, of: Task, phone: Phone) -> Trajectory:
        lines.append(formatter.format(logging.LogRecord("distrl", logging.INFO, "", 0, "playing", None, None)))
        return played(worker, of, phone)

    monkeypatch.setattr(Worker, "_play", play)
    trace = ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
    running = start([task("t-0")], phones(1), headers=(("own", b"x"), trace))
    assert running.log.all_committed.wait(30)
    running.end()
    assert running.broker.headers == [(trace,)]
    assert [json.loads(line)["trace"] for line in lines] == ["0af7651916cd43dd8448eb211c80319c"]


def test_nothing_is_taken_while_all_phones_are_busy(start: Start) -> None:
    hold = threading.Event()
    busy = phones(2, hold=hold)
    running = start([task(f"t-{n}") for n in range(6)], busy)
    assert all(phone.seen.wait(30) for phone in busy)
    beats = len(running.broker.beats)
    while len(running.broker.beats) < beats + 3:  # three more rounds of the polling thread
        running.stop.wait(0.01)
    assert (running.log.handed_out, running.log.paused) == (2, True)
    hold.set()
    assert running.log.all_committed.wait(30)


def test_no_task_is_committed_or_begun_before_the_trajectory_is_acknowledged(start: Start) -> None:
    running = start([task("a"), task("b")], phones(1), Broker(holds=True))
    assert running.broker.asked.wait(30)
    beats = len(running.broker.beats)
    while len(running.broker.beats) < beats + 3:
        running.stop.wait(0.01)
    assert (running.log.committed, running.log.handed_out) == ([], 1)
    running.broker.answer()
    assert running.log.all_committed.wait(30)


def test_a_broker_that_is_away_stops_new_episodes_and_the_worker_recovers_unaided(start: Start) -> None:
    down = threading.Event()
    down.set()
    away = BrokerError("kafka.bootstrap", "does not answer", "start it")
    broker = Broker(refuses=lambda record: away if down.is_set() else None)
    running = start([task(f"t-{n}") for n in range(5)], phones(2), broker)
    assert broker.asked.wait(30)
    beats = len(broker.beats)
    while len(broker.beats) < beats + 3:
        running.stop.wait(0.01)
    assert running.log.handed_out <= 2
    assert running.log.committed == []
    down.clear()
    assert running.log.all_committed.wait(30)
    running.end()
    assert broker.beats[-1].metrics["publish_stalls"] >= 1


def test_a_record_too_large_is_published_without_its_steps_and_the_worker_goes_on(start: Start) -> None:
    def refuses(record: Record) -> Exception | None:
        assert isinstance(record, Trajectory)
        large = record.task_id == "large" and record.steps
        return RecordTooLargeError("trajectories", "2 MB are too large", "shrink it") if large else None

    running = start([task("large"), task("small")], phones(1), Broker(refuses=refuses))
    assert running.log.all_committed.wait(30)
    by_id = {t.task_id: t for t in running.broker.trajectories}
    assert (by_id["large"].outcome, by_id["large"].steps) == (Outcome.INTERRUPTED, ())
    assert "too large" in by_id["large"].note
    assert by_id["small"].outcome is Outcome.SUCCESS


def test_a_task_waits_for_the_version_that_was_the_newest_when_it_was_fed(start: Start) -> None:
    running = start([task("fresh", fed_version=2)], phones(1), loaded=1)
    beats = len(running.broker.beats)
    while len(running.broker.beats) < beats + 5:
        running.stop.wait(0.01)
    assert running.broker.trajectories == []
    running.batcher.swap(version(2), b"newer")
    assert running.log.all_committed.wait(30)
    assert {step.version for step in running.broker.trajectories[0].steps} == {2}


def test_a_version_that_never_comes_interrupts_its_task_and_is_named(
    start: Start, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for name, seconds in (("FRESH_WAIT_S", 0.01), ("FRESH_LOG_S", 0.02)):
        monkeypatch.setattr(work, name, seconds)
    running = start([task("lost", fed_version=7)], phones(1), loaded=1)
    until(lambda: "task lost waits for version 7; loaded is version 1" in caplog.text)
    monkeypatch.setattr(work, "FRESH_LIMIT_S", 0.2)
    assert running.log.all_committed.wait(30)
    (played,) = running.broker.trajectories
    assert played.outcome is Outcome.INTERRUPTED, "so it is fed again, under a version that there is"
    assert "was fed under version 7, which was not loaded within 0.2 s; loaded is version 1" in played.note
    running.end()
    assert running.broker.beats[-1].metrics["episodes"] == 1, "it is counted, however it ended"


def test_who_waits_for_a_version_ends_once_the_policy_has_failed(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()
    monkeypatch.setattr(work, "FRESH_WAIT_S", 0.01)
    running = start([task("lost", fed_version=7)], phones(1), loaded=1)
    waits = running.batcher.wait_loaded
    monkeypatch.setattr(
        running.batcher, "wait_loaded", lambda number, wait_s: asked.append(number) or waits(number, wait_s)
    )
    while not asked:
        running.stop.wait(0.001)
    running.batcher.fail(RuntimeError("refused"))
    running.thread.join(30)
    assert [type(each) for each in running.failures] == [PolicyEndedError]
    assert running.broker.trajectories == []


def test_a_stop_lets_running_episodes_end_and_commits_them(start: Start) -> None:
    hold = threading.Event()
    busy = phones(1, hold=hold)
    running = start([task("a"), task("b")], busy)
    assert busy[0].seen.wait(30)
    running.stop.set()
    hold.set()
    running.end()
    assert running.log.committed == [0]
    assert [t.task_id for t in running.broker.trajectories] == ["a"]


def test_what_has_not_ended_when_the_drain_is_over_is_left_uncommitted(start: Start) -> None:
    hold = threading.Event()
    busy = phones(1, hold=hold)
    running = start([task("a")], busy, drain_s=0.05)
    assert busy[0].seen.wait(30)
    running.end()
    assert running.log.committed == []
    hold.set()


def test_a_heartbeat_says_what_is_loaded_and_how_the_phones_are(start: Start) -> None:
    running = start([task()], phones(2))
    assert running.log.all_committed.wait(30)
    running.end()
    beat = running.broker.beats[-1]
    assert (beat.role, beat.process, beat.version) == ("worker", "worker-0", 0)
    assert beat.metrics["episodes"] == 1
    assert beat.metrics["steps"] == 4
    assert [device.serial for device in beat.devices] == ["phone-0", "phone-1"]


def test_the_last_heartbeat_holds_what_ended_after_the_one_before(start: Start) -> None:
    hold = threading.Event()
    busy = phones(1, hold=hold)
    running = start([task()], busy, heartbeat_s=5)
    assert busy[0].seen.wait(30)
    hold.set()
    running.end()
    assert running.broker.beats[-1].metrics["episodes"] == 1


def test_every_metric_of_the_heartbeat_is_a_known_one(start: Start) -> None:
    from distrl.telemetry.metrics import METRICS

    running = start([], phones(1))
    while not running.broker.beats:
        running.stop.wait(0.01)
    assert set(running.broker.beats[0].metrics) <= set(METRICS)


def test_a_worker_whose_broker_client_hangs_is_not_alive_and_one_that_waits_for_its_broker_is(start: Start) -> None:
    running = start([task("a")], phones(1), broker=Broker(holds=True))
    assert running.broker.asked.wait(30)
    until(lambda: running.monitor.last is not None and running.monitor.last.metrics["stalled"] == 1)
    until_beats(running, 3)  # the acknowledgement does not come, and the loop turns
    until(lambda: running.monitor.liveness(1.0).ok)
    running.log.answers.clear()
    until(lambda: not running.monitor.liveness(1.0).ok)
    assert running.monitor.liveness(1.0).why.startswith("stuck: the main loop made no progress for ")
    running.log.answers.set()
    until(lambda: running.monitor.liveness(1.0).ok)
    running.broker.answer()
    assert running.log.all_committed.wait(30)


def test_a_worker_is_ready_while_a_phone_answers(start: Start) -> None:
    running = start([], phones(1), answers=0)
    until(lambda: running.monitor.readiness().why == "waiting for a phone that answers")
    running.fleet.answers = 1
    until(lambda: running.monitor.readiness().ok)
    running.fleet.answers = 0
    until(lambda: not running.monitor.readiness().ok)


def test_the_ends_of_episodes_are_counted_by_suite(start: Start) -> None:
    running = start([task("a"), task("b")], phones(1))
    assert running.log.all_committed.wait(30)
    running.end()
    assert running.monitor.last is not None
    ends = {(task().suite, outcome.value): 0 for outcome in Outcome} | {(task().suite, "success"): 2}
    assert running.monitor.last.labelled["outcomes"] == ends, "a rate needs the outcomes that have not come, too"


def test_a_worker_takes_no_task_before_a_phone_answers_and_says_how_many_do(start: Start) -> None:
    running = start([task("a")], phones(2), answers=0)
    until_beats(running, 5)
    assert (running.log.phones, running.log.handed_out) == ([0], 0)
    assert running.broker.beats[-1].partitions == ()
    running.fleet.answers = 1
    assert running.log.all_committed.wait(30)
    assert running.log.phones == [0, 1]
    running.fleet.answers = 2
    until_beats(running, 3)
    assert running.log.phones == [0, 1, 2]
    assert running.broker.beats[-1].partitions == (0,)


def test_a_worker_whose_last_phone_is_gone_gives_its_tasks_up_and_comes_back_with_the_phone(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership, "AWAY_S", 0.05)
    running = start([task(f"t-{n}") for n in range(6)], phones(1), outstanding=2)
    assert running.log.all_committed.wait(30)
    running.fleet.answers = 0
    until(lambda: running.log.phones[-1] == 0)
    running.fleet.answers = 1
    until(lambda: running.log.phones == [1, 0, 1])


def until_beats(running: Running, more: int) -> None:
    """Until the polling thread has gone round that often."""
    wanted = len(running.broker.beats) + more
    until(lambda: len(running.broker.beats) >= wanted)


@dataclass
class PicturePhone(CountingPhone):
    """Its screen is a picture, which a judge can be shown."""

    def shown(self) -> bytes:
        return screen(10 * len(self.sent))


def test_a_task_is_committed_once_what_the_judge_says_of_its_actions_is_published(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    from distrl.telemetry.metrics import METRICS

    monkeypatch.setattr(action_judge, "THREADS", 1)
    shelf, ask, replies = Shelf(), threading.Event(), [validity(True), validity(False)]

    def once_asked(to: BaseHTTPRequestHandler) -> None:
        ask.wait(30)
        (replies.pop(0) if len(replies) > 1 else replies[0])(to)

    with serving(once_asked) as server:
        settings = JudgeSettings(endpoint=server.url, model="m", requests_per_minute=60_000)
        judge = VlmJudge(Endpoint(settings, "judge"), "m", shelf, "verdicts/a-run")
        running = start([task("a", max_steps=2), task("b", max_steps=2)], [PicturePhone()], judge=judge, shelf=shelf)
        while running.log.handed_out < 2:  # the phone plays the second while the first is being judged
            running.stop.wait(0.01)
        assert (running.broker.trajectories, running.log.committed) == ([], [])
        ask.set()
        assert running.log.all_committed.wait(30)
        running.end()
    assert len(server.requests) == 2
    said = [[step.valid for step in each.steps] for each in running.broker.trajectories]
    assert said == [[True, False]] * 2, "the second asks the same, and is not asked again"
    assert {each.validity_source for each in running.broker.trajectories} == {"vlm:m"}
    metrics = running.broker.beats[-1].metrics
    assert metrics["judge_requests"] == 2
    assert set(metrics) <= set(METRICS)


@pytest.mark.parametrize(("count", "outstanding", "held"), [(2, 6, 2), (2, 3, 0), (1, 24, 2), (8, 24, 8)])
def test_no_phone_waits_for_a_judge_that_does_not_answer(start: Start, count: int, outstanding: int, held: int) -> None:
    shelf, over = Shelf(), threading.Event()
    with serving(lambda to: over.wait(30) and validity(True)(to)) as server:
        settings = JudgeSettings(endpoint=server.url, model="m", requests_per_minute=60_000)
        judge = VlmJudge(Endpoint(settings, "judge"), "m", shelf, "verdicts/a-run")
        tasks = [task(f"t-{n}", max_steps=2) for n in range(40)]
        fleet = [PicturePhone(f"phone-{n}") for n in range(count)]
        running = start(tasks, fleet, judge=judge, shelf=shelf, outstanding=outstanding)
        until = time.monotonic() + 30
        while len(running.log.committed) < 40 - held and time.monotonic() < until:
            running.stop.wait(0.01)
        assert len(running.log.committed) == 40 - held
        over.set()
        assert running.log.all_committed.wait(30)
        running.end()


def test_a_stop_keeps_what_waits_for_a_judge_that_does_not_answer(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(action_judge, "THREADS", 1)
    shelf, over, hold = Shelf(), threading.Event(), threading.Event()
    hold.set()
    phone = PicturePhone(hold=hold)
    with serving(lambda to: over.wait(60) and validity(True)(to)) as server:
        settings = JudgeSettings(endpoint=server.url, model="m", requests_per_minute=60_000)
        judge = VlmJudge(Endpoint(settings, "judge"), "m", shelf, "verdicts/a-run")
        tasks = [task(name, max_steps=2) for name in ("asked", "waits", "played")]
        running = start(tasks[:2], [phone], judge=judge, shelf=shelf)
        while not server.requests:
            running.stop.wait(0.01)
        beats = len(running.broker.beats) + 2  # one that tells of now: an older one may have counted "asked" itself
        while not (len(running.broker.beats) > beats and running.broker.beats[-1].metrics["judge_queue"] == 1):
            running.stop.wait(0.01)
        hold.clear()
        phone.seen.clear()
        running.log.tasks.append(tasks[2])
        assert phone.seen.wait(30)
        running.stop.set()
        hold.set()
        until = time.monotonic() + 30
        while len(running.log.committed) < 2 and time.monotonic() < until:
            over.wait(0.01)
        assert sorted(running.log.committed) == [1, 2], "without the judge's having said a word"
        over.set()
        running.end()
    said = {each.task_id: [step.valid for step in each.steps] for each in running.broker.trajectories}
    assert said == {"asked": [True, None], "waits": [None, None], "played": [None, None]}
    assert sorted(running.log.committed) == [0, 1, 2]
    assert len(server.requests) == 1


def test_a_trajectory_that_the_broker_refuses_for_good_ends_the_worker_and_commits_nothing(start: Start) -> None:
    refused = BrokerError("distrl.run.trajectories", "not allowed to write", "give the worker its rights")
    running = start([task(f"t-{n}") for n in range(3)], [CountingPhone(), CountingPhone()], Broker(fails_with=refused))
    running.thread.join(30)
    assert not running.thread.is_alive()
    assert running.failures == [refused]
    assert running.log.committed == []


def test_a_producer_that_can_do_nothing_more_ends_the_worker_and_commits_nothing(start: Start) -> None:
    """To try again would be for ever."""
    over = BeyondUseError("distrl.run.trajectories", "cannot publish a record, now or later", "start it again")
    running = start([task(f"t-{n}") for n in range(3)], [CountingPhone()], Broker(refuses=lambda record: over))
    running.thread.join(30)
    assert not running.thread.is_alive()
    assert running.failures == [over]
    assert running.log.committed == []
