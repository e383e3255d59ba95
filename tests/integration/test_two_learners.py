"""Two learners of a run on a real broker: the later one stays, whichever of them loses its producer."""

from __future__ import annotations

import uuid
from contextlib import ExitStack
from dataclasses import replace

import pytest
from confluent_kafka import OFFSET_END, TopicPartition
from distrl.broker import claims, fenced, topic_admin
from distrl.broker.claims import Claim, ReplacedError
from distrl.broker.connect import admin
from distrl.broker.fenced import FencedError, this_process
from distrl.broker.journal import Journal, journal_up_to
from distrl.broker.producer import RecordProducer
from distrl.broker.topics import topic_name
from distrl.config import Config, load
from distrl.learner import journal_writer
from distrl.learner.journal_writer import JournalWriter, OtherLinesError, UnwrittenError
from distrl.types import Heartbeat, Update, Watermark
from distrl.wire.codec import encode
from faults.going import until_written
from faults.proxy import Proxy, behind
from journals import updates_of

pytestmark = pytest.mark.integration

PATIENCE_S = 120.0
REPLACED = f"another learner has taken over run .* It is {this_process()}"


@pytest.fixture
def config(broker: str) -> Config:
    run = f"learners-{uuid.uuid4().hex[:10]}"
    made = load(sets=[f"run={run}", f"kafka.bootstrap={broker}"], environ={})
    topic_admin.ensure(made)
    return made


def update(u: int) -> Update:
    return Update(u, (Watermark("t", 0, u),), "f" * 64, 1_000 + u)


def test_a_learner_that_was_away_ends_where_another_has_taken_over_that_has_journalled_nothing_yet(
    config: Config, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fenced, "COMMIT_TIMEOUT_S", 1.0)
    with JournalWriter(behind(proxy, config, connect_timeout_s=3.0)) as away:
        away.append(update(0))
        proxy.cut()
        with pytest.raises(UnwrittenError):
            away.append(update(1))
        with JournalWriter(config) as successor:
            proxy.hint()
            with pytest.raises(ReplacedError, match=REPLACED):
                until_written(lambda: away.append(update(1)), PATIENCE_S)
            theirs = replace(update(1), journalled_at=2_000)
            successor.append(theirs)  # at the first attempt: nobody has fenced it
    assert updates_of(config, 2) == [update(0), theirs]


def test_who_deletes_without_a_record_asks_first_whether_another_has_taken_over(config: Config, proxy: Proxy) -> None:
    with JournalWriter(behind(proxy, config, connect_timeout_s=3.0)) as older:
        older.refuse_replaced()
        with JournalWriter(config) as successor:
            with pytest.raises(ReplacedError, match=REPLACED):
                older.refuse_replaced()
            successor.refuse_replaced()
        proxy.cut()
        with pytest.raises(UnwrittenError):
            older.refuse_replaced()


def test_one_that_takes_over_while_the_older_opens_again_stays(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """The older looks for a successor and finds none; the successor opens; the older opens, which fences it."""
    with JournalWriter(config) as older, ExitStack() as stack:
        later = JournalWriter(config)

        def opened_late(given: Config) -> Journal:
            monkeypatch.setattr(journal_writer, "Journal", Journal)
            stack.enter_context(later)
            return Journal(given)

        monkeypatch.setattr(journal_writer, "Journal", opened_late)
        older._in_doubt = True
        with pytest.raises(ReplacedError, match=REPLACED):
            older.append(update(0))
        until_written(lambda: later.append(update(0)), PATIENCE_S)
        later.append(update(1))
    assert updates_of(config, 2) == [update(0), update(1)]


def test_a_learner_that_was_fenced_by_none_that_stays_goes_on(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """As by one that was killed before it could say that it has taken over."""
    monkeypatch.setattr(claims, "SUCCESSOR_S", 0.5)
    with JournalWriter(config) as here:
        here.append(update(0))
        with Journal(config):
            pass
        until_written(lambda: here.append(update(1)), PATIENCE_S)
        here.append(update(2))
    assert updates_of(config, 3) == [update(0), update(1), update(2)]


def test_a_start_reads_the_journal_once_after_it_has_fenced_every_other(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What an older learner wrote until then counts, and it is read no sooner."""
    read = list[int]()

    def up_to(given: Config) -> tuple[list[Update], int]:
        lines, end = journal_up_to(given)
        read.append(len(lines))
        return lines, end

    monkeypatch.setattr(journal_writer, "journal_up_to", up_to)
    with Journal(config) as older:
        older.append(update(0))
        with JournalWriter(config) as later:
            with pytest.raises(FencedError):
                older.append(update(1))
            assert later.history().updates == (update(0),)
            assert read == [1]
            later.append(update(1))
    assert updates_of(config, 2) == [update(0), update(1)]


def test_what_an_older_learner_has_written_last_is_read_before_the_later_one_goes_on(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "SUCCESSOR_S", 0.5)
    with JournalWriter(config) as later:
        theirs = replace(update(0), journalled_at=2_000)
        with Journal(config) as older:
            older.append(theirs)
        with pytest.raises(OtherLinesError, match="an older learner has journalled"):
            until_written(lambda: later.append(update(0)), PATIENCE_S)
        assert later.history().updates == (theirs,)
        later.append(update(1))
    assert updates_of(config, 2) == [theirs, update(1)]


def claims_for_the_learner(config: Config, topic: str, *made: Claim) -> None:
    """Records as whoever may write `topic` can make them."""
    with RecordProducer(config, "stranger") as producer:
        beat = encode(Heartbeat("learner", "learner", 0, None, None))
        for each in made:
            headers = [(claims.PROCESS_HEADER, b"a stranger"), each.header]
            producer.publish_bytes(topic_name(config.run, topic), b"learner", beat, headers).result(PATIENCE_S)


def test_who_may_write_heartbeats_takes_over_from_nobody(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "SUCCESSOR_S", 0.5)
    with JournalWriter(config) as here:
        claims_for_the_learner(config, "heartbeats", Claim(here.claim.number + 1_000, "a"))
        with Journal(config):
            pass
        until_written(lambda: here.append(update(0)), PATIENCE_S)
    assert updates_of(config, 1) == [update(0)]


def test_a_claim_that_cannot_be_true_takes_over_from_nobody_and_bars_no_successor(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "SUCCESSOR_S", 0.5)
    with JournalWriter(config) as here:
        claims_for_the_learner(config, "learner.claims", Claim(10**claims.LONGEST_NUMBER - 1, "a"))
        with Journal(config):
            pass
        until_written(lambda: here.append(update(0)), PATIENCE_S)
        with JournalWriter(config) as successor:
            with pytest.raises(ReplacedError, match=REPLACED):
                until_written(lambda: here.append(update(1)), PATIENCE_S)
            successor.append(update(1))
    assert updates_of(config, 2) == [update(0), update(1)]


def test_a_claim_that_the_broker_has_lost_is_made_again(config: Config) -> None:
    with JournalWriter(config) as older, JournalWriter(config) as later:
        topic = topic_name(config.run, "learner.claims")
        place, client = TopicPartition(topic, 0, OFFSET_END), admin(config.kafka)
        client.delete_records([place])[place].result(PATIENCE_S)
        later.append(update(0))
        claims.refuse_replaced(later.claim, config, "learner")  # as after a failed write
        with pytest.raises(ReplacedError, match=REPLACED):
            until_written(lambda: older.append(update(0)), PATIENCE_S)
