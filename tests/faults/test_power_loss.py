"""Power loss: the broker is killed and the tails of its logs are gone, each topic's on its own, acknowledged or not.

The log files are cut at a random byte; the broker recovers what is whole before it. Checkpoints and objects lie
elsewhere and survive, or do not. Whatever was lost, the run goes on, and a fold of what is left equals it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from confluent_kafka import Producer
from distrl.broker.journal import history, in_force
from distrl.broker.topics import topic_name
from distrl.broker.versions import lineage
from distrl.config import Config
from distrl.learner.recover import recover
from distrl.learner.verify import verify
from distrl.store.checkpoints import checkpoints, delete_checkpoints
from distrl.telemetry.fleet import transaction_findings
from distrl.types import Version
from waiting import until

from faults.live import PATIENCE_S, WARMUP, LiveRun
from faults.roles import Role

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

TRUTH = ("demonstrations", "trajectories", "updates", "versions")
ALONE = ("trajectories", "versions")
"""Topics whose loss alone is tested in each run of the tests; of the others, that with all at once is."""
LONG = pytest.mark.faults_long
PER_UPDATE = 3
LEARNED = WARMUP + 6
"""Updates before the first loss: two checkpoints are kept then, and their buffers span several updates."""


@dataclass
class Losses:
    """A run that loses power again and again, and what its versions meant whenever somebody looked."""

    run: LiveRun
    rule: random.Random
    meanings: dict[int, tuple[int, str]] = field(default_factory=dict)

    def begin(self) -> None:
        for _ in range(LEARNED - WARMUP):  # each in a batch of its own, as workers do
            self.run.record(demonstrations=1, trajectories=PER_UPDATE)
        self.run.learner()
        self.until_learned(LEARNED)

    def lose(
        self,
        topics: Sequence[str],
        newest_checkpoints: int = 0,
        left: Callable[[str], int | None] = lambda topic: None,
    ) -> None:
        """Power is gone: learner and broker are killed, `topics` are cut, so are the newest checkpoints.

        left: the bytes that are left of a topic, asked once the broker is dead; None: at random.
        """
        self.note_versions()
        self.run.roles["learner"].kill()
        self.run.servers.kill("kafka")
        for topic in topics:
            at, size = cut(self.run, topic, self.rule, left(topic))
            print(f"{topic}: cut at byte {at} of {size}")
        config, store = self.run.config, self.run.store
        gone = checkpoints(store, config.run)[:newest_checkpoints]
        delete_checkpoints(store, config.run, gone)
        print(f"checkpoints {gone} are gone, {checkpoints(store, config.run)} are left")
        self.run.servers.start("kafka")
        self.run.new_producer()

    def goes_on(self) -> Role:
        """Started again, the learner learns what comes: further demonstrations for those that may be lost as well."""
        learner = self.run.learner()
        self.run.record(demonstrations=6, trajectories=4 * PER_UPDATE)
        self.run.until("it to be at work", lambda: "pending" in self.metrics(learner))
        done = int(self.metrics(learner).get("update", 0))
        self.run.record(trajectories=2 * PER_UPDATE)
        self.until_learned(max(done, WARMUP) + 2)
        self.note_versions()
        return learner

    def equals_a_fresh_fold(self) -> None:
        """Ends the learner. Weights and versions are those of a fold from the start."""
        config, learner = self.run.config, self.run.roles["learner"]
        self.run.until(  # a stop in between would leave the rest for the next start
            "the whole journal to be redone",
            lambda: self.metrics(learner).get("update", 0) >= len(history(config).updates),
        )
        self.run.until("the newest version to be one that counts", lambda: self.counting()[-1:] == lineage(config)[-1:])
        self.run.stop("learner")
        state = recover(config, self.run.store).state
        fresh, same = verify(config, from_start=True)
        assert state.u == fresh.u == len(history(config).updates)
        assert state.digests() == fresh.digests()
        counting = self.counting()
        assert counting[-1].version in same
        assert counting[-1].adapter.sha256 == state.digests()["adapter"]

    def counting(self) -> list[Version]:
        return list(in_force(lineage(self.run.config), history(self.run.config)))

    def until_learned(self, updates: int) -> None:
        learner = self.run.roles["learner"]
        self.run.until(f"update {updates}", lambda: self.metrics(learner).get("update", 0) >= updates)

    def metrics(self, learner: Role) -> dict[str, float]:
        beats = self.run.beats("learner", learner)
        return dict(beats[-1].metrics) if beats else {}

    def note_versions(self) -> None:
        """No number may ever mean something else than it has meant."""
        for version in self.run.versions():
            meant = self.meanings.setdefault(version.version, meaning(version))
            assert meant == meaning(version), f"version {version.version} has a second meaning"


def meaning(version: Version) -> tuple[int, str]:
    return version.update, version.adapter.sha256


def cut(run: LiveRun, topic: str, rule: random.Random, left: int | None = None) -> tuple[int, int]:
    """Take away the end of the topic's log file. The broker must not run. Returns what is left, and what was there."""
    file = log_file(run, topic)
    size = file.stat().st_size
    left = rule.randrange(size + 1) if left is None else left
    with file.open("r+b") as log:
        log.truncate(left)
    return left, size


def log_file(run: LiveRun, topic: str) -> Path:
    (file,) = (run.servers.directory / "kafka" / "data").glob(f"{topic_name(run.config.run, topic)}-0/*.log")
    return file


def batches(log: bytes) -> Iterator[int]:
    """Where each record batch of a log file begins: 8 bytes of offset, 4 of the length that follows, and so on."""
    at = 0
    while at + 12 <= len(log):
        yield at
        at += 12 + int.from_bytes(log[at + 8 : at + 12], "big")


@pytest.fixture
def losses(run: LiveRun, rule: random.Random) -> Losses:
    made = Losses(run, rule)
    made.begin()
    return made


@pytest.mark.parametrize("topic", [pytest.param(each, marks=() if each in ALONE else LONG) for each in TRUTH])
def test_a_tail_that_is_lost_costs_repetitions_and_the_run_goes_on(losses: Losses, topic: str) -> None:
    losses.lose([topic], newest_checkpoints=losses.rule.randrange(2))
    losses.goes_on()
    losses.equals_a_fresh_fold()


def test_tails_of_all_topics_are_lost_at_once_and_the_run_goes_on(losses: Losses) -> None:
    losses.lose(TRUTH, newest_checkpoints=1)
    losses.goes_on()
    losses.equals_a_fresh_fold()


def test_a_version_whose_commit_alone_is_lost_is_void_when_it_shows(losses: Losses) -> None:
    """Its record is in the log and nobody sees it, until the next version's transaction ends and shows both."""

    def left(topic: str) -> int:
        log = log_file(losses.run, topic).read_bytes()
        return [*batches(log)][-1] if topic == "versions" else len(log) // 2  # the marker that commits the last version

    losses.lose(("versions", "trajectories", "updates"), LEARNED, left)
    losses.goes_on()
    losses.equals_a_fresh_fold()


@pytest.mark.parametrize("updates", [0, LEARNED - 3])
def test_a_version_is_void_when_it_shows_though_the_journal_has_lost_its_update_and_what_follows(
    losses: Losses, updates: int
) -> None:
    """No version that can be seen then lies beyond the journal: only the reserved numbers tell of the hidden one.

    updates: how many are left.
    """
    versions = LEARNED - max(updates, WARMUP - 1)
    lost = {"updates": 2 * (LEARNED - updates), "versions": 2 * versions - 1}  # behind each record stands a marker
    share = (updates - WARMUP + 0.5) / (LEARNED - WARMUP) if updates else 0.5

    def left(topic: str) -> int:
        log = log_file(losses.run, topic).read_bytes()
        return [*batches(log)][-lost[topic]] if topic in lost else int(len(log) * share)

    other = "trajectories" if updates else "demonstrations"  # so that what is lost is learned from other records
    losses.lose(("updates", "versions", other), LEARNED, left)
    losses.goes_on()
    losses.equals_a_fresh_fold()


def test_a_store_that_is_cut_back_under_a_whole_log_costs_repetitions(losses: Losses) -> None:
    losses.lose((), newest_checkpoints=len(checkpoints(losses.run.store, losses.run.config.run)))
    losses.goes_on()
    losses.equals_a_fresh_fold()


@pytest.mark.parametrize("spoilt", [b"half of it", None], ids=["cut", "gone"])
def test_a_store_that_has_lost_the_newest_weights_is_given_them_again(losses: Losses, spoilt: bytes | None) -> None:
    """A worker that is started then has none to begin with, and nothing is learned before it plays."""
    losses.lose(())
    newest, run = losses.run.versions()[-1], losses.run
    if spoilt is None:
        run.store.delete(newest.adapter.key)
    else:
        run.store.put_named(newest.adapter.key, spoilt)
    run.worker()
    (task,) = run.feed(1, version=newest.version)
    run.learner()
    run.until("the task to be played", lambda: task in run.counted())
    run.stop()
    assert [(each.version, each.update) for each in run.versions()[-2:]] == [
        (newest.version, newest.update),
        (newest.version + 1, newest.update),
    ]
    losses.goes_on()
    losses.equals_a_fresh_fold()


@pytest.mark.parametrize(
    "topics",
    [
        pytest.param(("versions",), marks=LONG, id="versions"),
        pytest.param(("updates",), marks=LONG, id="updates"),
        pytest.param(("trajectories", "updates", "versions"), id="all"),
    ],
)
def test_who_lives_through_a_loss_goes_on(run: LiveRun, rule: random.Random, topics: Sequence[str]) -> None:
    """The broker's machine alone has lost power: learner, worker and feeder are those of before."""
    run.record(demonstrations=6)
    run.learner()
    run.worker()
    run.start("feeder", "feed")
    run.until("two updates of the policy", lambda: len(run.updates()) >= WARMUP + 2)
    roles = dict(run.roles)
    run.servers.kill("kafka")
    for topic in topics:
        print(f"{topic}: cut at byte {cut(run, topic, rule)}")
    run.servers.start("kafka")
    began = len(run.trajectories())
    run.until("trajectories to come", lambda: len(run.trajectories()) >= began + 12)
    run.until("updates after them", lambda: len(history(run.config).updates) >= WARMUP + 3)
    newest = max(version.version for version in run.versions())
    run.until("versions after them", lambda: max(version.version for version in run.versions()) > newest)
    run.until(
        "the worker to act with them",
        lambda: any(step.version > newest for each in run.trajectories() for step in each.trajectory.steps),
    )
    assert {name: role.code for name, role in roles.items()} == dict.fromkeys(roles)
    run.stop("feeder")
    run.stop("worker-0")
    run.stop("learner")
    state, (fresh, _) = recover(run.config, run.store).state, verify(run.config, from_start=True)
    assert state.digests() == fresh.digests()


@pytest.mark.parametrize("left", [0, 1], ids=["whole", "end of its transaction"])
def test_a_learner_that_lives_through_the_loss_of_the_only_version_publishes_it_again(
    run: LiveRun, rule: random.Random, left: int
) -> None:
    """Nobody plays before there is a version, and nothing is learned before somebody plays."""
    run.record(demonstrations=6)
    learner = run.learner()
    run.until("version 0", lambda: len(run.versions()) == 1)
    first = run.versions()[0]
    run.servers.kill("kafka")
    cut(run, "versions", rule, [*batches(log_file(run, "versions").read_bytes())][left])
    run.servers.start("kafka")
    run.new_producer()
    run.until("a version to be shown again", lambda: len(run.versions()) > 0)
    newest = run.versions()[-1]
    assert (newest.update, newest.adapter) == (first.update, first.adapter)
    run.worker()
    (task,) = run.feed(1, version=newest.version)
    run.until("the task to be played", lambda: task in run.counted())
    assert learner.code is None
    run.stop()


def left_open(config: Config, topic: str) -> Producer:
    """A transaction as one is whose end was lost, and whose process the broker no longer knows. topic: a full name."""
    own = {"transactional.id": f"{config.run}-gone", "transaction.timeout.ms": 900_000}
    gone = Producer({"bootstrap.servers": config.kafka.bootstrap, **own})
    gone.init_transactions(PATIENCE_S)
    gone.begin_transaction()
    gone.produce(topic, b"of nobody", key=b"a compacted topic takes no record without one")
    gone.flush(PATIENCE_S)
    return gone


def test_a_transaction_that_nobody_ends_is_named_and_what_it_hid_counts_once_it_is_ended(run: LiveRun) -> None:
    config = run.config
    topic = topic_name(config.run, "versions")
    gone = left_open(config, topic)
    run.record(demonstrations=6)
    learner = run.learner()
    run.until("the learner to name it", lambda: "no process will end it" in learner.said())
    command = f"abort --topic {topic} --partition 0 --start-offset 0"
    assert command in learner.said()
    (found,) = transaction_findings(config)
    assert command in found.hint
    assert not run.versions()
    gone.abort_transaction(PATIENCE_S)  # as the command does
    run.until("the version to show, and that which was published again", lambda: len(run.versions()) == 2)
    assert not transaction_findings(config)
    run.worker()
    (task,) = run.feed(1, version=run.versions()[-1].version)
    run.until("the task to be played", lambda: task in run.counted())
    assert learner.code is None
    assert len({version.adapter for version in run.versions()}) == 1
    assert [update.u for update in history(config).lines] == [0, 1], "nothing was done again"
    run.stop()


def test_a_journal_that_an_open_transaction_hides_ends_a_start_with_what_ends_it(run: LiveRun) -> None:
    run.record(demonstrations=6)
    learner = run.learner()
    run.until("version 0", lambda: len(run.versions()) == 1)
    run.stop("learner")
    topic = topic_name(run.config.run, "updates")
    gone = left_open(run.config, topic)
    learner = run.learner()
    until(lambda: learner.code is not None, "the learner to end", PATIENCE_S)
    assert f"abort --topic {topic} --partition 0 --start-offset" in learner.said()
    assert "Traceback" not in learner.said()
    gone.abort_transaction(PATIENCE_S)
    learner = run.learner()
    run.record(trajectories=PER_UPDATE)
    run.until("an update", lambda: len(history(run.config).updates) == WARMUP + 1)
    run.stop()


@pytest.mark.faults_long
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("topic", TRUTH)
def test_a_run_goes_on_after_50_losses_of_a_tail(losses: Losses, topic: str) -> None:
    again_and_again(losses, lambda: (topic,), 50)


@pytest.mark.faults_long
@pytest.mark.timeout(7200)
def test_a_run_goes_on_after_50_losses_of_any_tails(losses: Losses) -> None:
    again_and_again(losses, lambda: [topic for topic in TRUTH if losses.rule.random() < 0.5], 50)


def again_and_again(losses: Losses, topics: Callable[[], Sequence[str]], times: int) -> None:
    for number in range(times):
        print(f"loss {number}")
        losses.lose(topics(), newest_checkpoints=losses.rule.choice((0, 0, 1, 2)))
        losses.goes_on()
        losses.equals_a_fresh_fold()
        losses.run.learner()
        losses.until_learned(0)
