"""Records that cannot be read: when a role stops for them, how long it waits, and what a letter of one says."""

from __future__ import annotations

import hashlib
from concurrent.futures import Future
from dataclasses import replace

import pytest
from distrl.broker.connect import BeyondUseError
from distrl.broker.dead_letter_log import DeadLetterSummary, folded, own_headers
from distrl.broker.dead_letters import (
    CUT_BYTES,
    CUT_LOST,
    CUT_SHA256,
    ERROR_TEXT_BYTES,
    RETRY_S,
    BadRecordsError,
    BadWindow,
    DeadLetterId,
    DeadLetters,
    cut,
    error_headers,
    origin_of,
)
from distrl.broker.producer import HEADER_ROOM_BYTES, Headers, RecordProducer, RecordTooLargeError
from distrl.broker.reader import RawRecord
from distrl.broker.republish import retried_from, retry_headers
from distrl.cli.dlq import escaped, hex_dump
from distrl.config import Config, load
from distrl.errors import BrokerError, WireError
from distrl.types import LogPosition
from hypothesis import given
from hypothesis import strategies as st

TASKS = "distrl.r.tasks"
BAD = WireError("distrl.r.tasks[0] offset 17: record task", "the payload is garbage", "fix it")


def at(offset: int, partition: int = 0) -> LogPosition:
    return LogPosition(TASKS, partition, offset)


def bad(offset: int, headers: Headers = ()) -> RawRecord:
    return RawRecord(at(offset), b"key", b"\xff\x00", 5, headers)


def known(offset: int) -> DeadLetterId:
    """What is known of `bad(offset)` once its dead letter is in the log."""
    return at(offset), hashlib.sha256(b"\xff\x00").hexdigest()


class Topic:
    """A dead-letter topic that answers when it is told to. down: it refuses everything at once; over: for ever."""

    def __init__(self) -> None:
        self.sent: list[tuple[bytes | None, bytes | None, Headers]] = []
        self.futures: list[Future[LogPosition]] = []
        self.down = False
        self.over = False

    def __call__(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> Future[LogPosition]:
        assert topic == "distrl.r.trajectories.dlq"
        if self.over:
            raise BeyondUseError(topic, "cannot publish a record, now or later", "start it again")
        if self.down:
            raise BrokerError("kafka.bootstrap", "no more records fit", "start the broker")
        self.sent.append((key, value, headers))
        self.futures.append(Future())
        return self.futures[-1]

    def acknowledge(self) -> None:
        for n, future in enumerate(self.futures):
            if not future.done():
                future.set_result(LogPosition("distrl.r.trajectories.dlq", 0, n))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def topic() -> Topic:
    return Topic()


def config(*sets: str) -> Config:
    return load(sets=["run=r", *sets], environ={})


def test_nothing_is_settled_before_its_letter_is_acknowledged(topic: Topic) -> None:
    letters = DeadLetters(config(), topic)
    letters.put(bad(17), BAD)
    letters.put(bad(17), BAD)
    assert (letters.settled(), letters.waiting, letters.written, len(topic.sent)) == ([], True, 0, 1)
    assert letters.waits_before(TASKS, 0, 18)
    assert not letters.waits_before(TASKS, 0, 17)
    assert not letters.waits_before(TASKS, 1, 18)
    topic.acknowledge()
    assert (letters.settled(), letters.settled()) == ([at(17)], [])
    assert (letters.waiting, letters.written) == (False, 1)


def test_a_letter_that_cannot_be_written_is_tried_until_it_is_and_nothing_is_skipped(topic: Topic) -> None:
    clock = Clock()
    letters = DeadLetters(config(), topic, clock=clock)
    topic.down = True
    letters.put(bad(17), BAD)
    for _ in range(3):
        clock.now += RETRY_S
        assert (letters.settled(), letters.waiting, topic.sent) == ([], True, [])
    topic.down = False
    assert (letters.settled(), topic.sent) == ([], [])  # not yet time to try again
    clock.now += RETRY_S
    assert (letters.settled(), len(topic.sent)) == ([], 1)
    topic.futures[0].set_exception(BrokerError(TASKS, "no such topic", "make it"))
    assert (letters.settled(), letters.waiting) == ([], True)
    clock.now += RETRY_S
    letters.settled()
    topic.acknowledge()
    assert (letters.settled(), len(topic.sent)) == ([at(17)], 2)


TOO_LARGE = RecordTooLargeError(TASKS, "too large", "raise kafka.max_record_bytes")


def test_where_no_letter_can_be_written_any_more_the_role_ends(topic: Topic) -> None:
    letters = DeadLetters(config(), topic)
    letters.put(bad(17), BAD)
    topic.over = True
    with pytest.raises(BeyondUseError):
        letters.put(bad(18), BAD)


def test_a_letter_that_the_broker_finds_too_large_is_cut_until_it_fits(topic: Topic) -> None:
    letters = DeadLetters(config("kafka.max_record_bytes=65536"), topic)
    whole = bytes(range(256)) * 200
    letters.put(replace(bad(17), value=whole, headers=(("own", b"kept"),)), BAD)
    for attempt in range(2):
        topic.futures[attempt].set_exception(TOO_LARGE)
        assert (letters.settled(), letters.waiting) == ([], True)
    topic.acknowledge()
    assert letters.settled() == [at(17)]
    key, value, headers = topic.sent[-1]
    assert (key, headers[0]) == (b"key", ("own", b"kept"))
    assert value is not None
    assert whole.startswith(value)
    assert 25_000 < len(value) < 32_768
    said = dict(headers)
    assert said[CUT_BYTES] == b"51203"
    assert said[CUT_SHA256] == hashlib.sha256(whole).hexdigest().encode()
    assert said[CUT_LOST] == b"value"


def test_a_letter_whose_key_and_headers_leave_no_room_does_without_them() -> None:
    record = replace(bad(17), key=b"k" * 600, value=b"v" * 9_000, headers=(("own", b"h" * 1_600),))
    key, value, headers = cut(record, error_headers(at(17), BAD), 4_000)
    assert (key, dict(headers)[CUT_LOST]) == (None, b"key, headers, value")
    assert "own" not in dict(headers)
    assert value is not None
    assert 0 < len(value) < 4_000


def test_a_topic_that_takes_no_letter_at_all_ends_the_role(topic: Topic) -> None:
    letters = DeadLetters(config("kafka.max_record_bytes=65536"), topic)
    letters.put(bad(17), BAD)
    for _ in range(8):  # 64 KiB, halved down to 512 bytes
        topic.futures[-1].set_exception(TOO_LARGE)
        letters.settled()
    topic.futures[-1].set_exception(TOO_LARGE)
    with pytest.raises(RecordTooLargeError):
        letters.settled()
    assert letters.waiting


def test_a_record_whose_letter_is_in_the_log_is_settled_without_another(topic: Topic) -> None:
    found = DeadLetters(config("kafka.dead_letter_limit=2"), topic, known=[known(16), known(17)])
    found.put(bad(16), BAD)
    found.put(bad(17), BAD)
    assert (found.settled(), topic.sent, found.written) == ([at(16), at(17)], [], 0)


def test_another_record_at_the_place_of_one_that_was_lost_gets_a_dead_letter_of_its_own(topic: Topic) -> None:
    """A power cut takes the end of a partition, and not that of the dead letters; the log grows again."""
    found = DeadLetters(config(), topic, known=[known(16)])
    other = replace(bad(16), value=b"\xff\x01")
    found.put(other, BAD)
    topic.acknowledge()
    assert found.settled() == [at(16)]
    assert [value for _, value, _ in topic.sent] == [b"\xff\x01"]
    found.put(other, BAD)
    assert found.settled() == [at(16)]
    assert len(topic.sent) == 1, "it is known now"
    said = tuple(error_headers(at(16), BAD))
    both = [RawRecord(LogPosition("dlq", 0, n), b"", raw.value, 0, said) for n, raw in enumerate((bad(16), other))]
    assert [entry.offset for entry in folded(map(DeadLetterSummary.of, both))] == [0, 1]


def test_over_the_limit_the_role_stops_and_says_what_where_and_what_to_do(topic: Topic) -> None:
    letters = DeadLetters(config("kafka.dead_letter_limit=3", "kafka.dead_letter_window=10"), topic)
    for offset in (0, 5, 11, 16):  # two at most in any ten
        letters.put(bad(offset), BAD)
    with pytest.raises(BadRecordsError) as told:
        letters.put(bad(17), BAD)
    assert len(topic.sent) == 4
    assert told.value.where.startswith("distrl.r.tasks[0] offset 17")
    assert told.value.what.startswith("the payload is garbage. With it, 3 of the last 10 records")
    assert "distrl dlq show" in told.value.hint
    assert "kafka.dead_letter_limit=0" in told.value.hint


def test_a_restart_does_not_begin_to_count_anew(topic: Topic) -> None:
    """Else a supervisor that starts the role again and again would drain the topic by and by."""
    found = DeadLetters(config("kafka.dead_letter_limit=3"), topic, known=[known(0), known(1)])
    with pytest.raises(BadRecordsError):
        found.put(bad(2), BAD)
    assert topic.sent == []


def test_no_limit_skips_everything(topic: Topic) -> None:
    letters = DeadLetters(config("kafka.dead_letter_limit=0"), topic)
    for offset in range(500):
        letters.put(bad(offset), BAD)
    assert len(topic.sent) == 500


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 30))), st.integers(1, 12))
def test_the_window_counts_each_bad_record_of_the_partition_once(bad: list[tuple[int, int]], window: int) -> None:
    made, seen = BadWindow(window), set()
    for partition, offset in bad:
        seen.add((partition, offset))
        near = {o for p, o in seen if p == partition and offset - window < o <= offset}
        assert made.add(at(offset, partition)) == len(near)


# What a letter says


def test_a_letter_has_the_headers_of_its_record_and_those_of_kafka_connect(topic: Topic) -> None:
    own: Headers = (("trace", b"\xff\x01"), ("empty", None), ("trace", b"again"))
    DeadLetters(config(), topic).put(bad(17, own), WireError("record", "no such schema", "x" * 5000))
    ((key, value, headers),) = topic.sent
    assert (key, value, tuple(headers[:3])) == (b"key", b"\xff\x00", own)
    said = dict(headers)
    assert said["__connect.errors.topic"] == b"distrl.r.tasks"
    assert said["__connect.errors.partition"] == b"0"
    assert said["__connect.errors.offset"] == b"17"
    assert said["__connect.errors.exception.class.name"] == b"distrl.errors.WireError"
    assert (said["__connect.errors.exception.message"] or b"").startswith(b"record: no such schema")
    assert max(len(text or b"") for text in said.values()) == ERROR_TEXT_BYTES
    assert sum(len(name) + len(text or b"") for name, text in headers) < HEADER_ROOM_BYTES
    assert origin_of(headers) == at(17)
    assert own_headers(headers) == own


def test_a_record_that_was_a_letter_before_gets_its_own_headers_back() -> None:
    """Also one that was published again, and could not be read again."""
    first = [("a", b"1"), *error_headers(at(3), BAD), *retry_headers(at(3))]
    assert own_headers([*first, *error_headers(at(9), BAD)]) == tuple(first)
    twice = [*error_headers(at(3), BAD), *error_headers(at(9), BAD)]
    assert own_headers(twice) == tuple(error_headers(at(3), BAD))
    assert origin_of(twice) == at(9)


def test_of_two_dead_letters_of_a_record_the_whole_one_counts_with_its_own_headers() -> None:
    """A topic may be given more room, or less, between the crash and the second letter."""
    own: Headers = (("trace", b"x" * 300),)
    said = error_headers(at(3), BAD)
    whole = RawRecord(LogPosition("dlq", 0, 0), b"key", b"v" * 900, 0, (*own, *said))
    key, value, headers = cut(RawRecord(at(3), b"key", b"v" * 900, 0, own), said, 512)
    short = RawRecord(LogPosition("dlq", 0, 1), key, value, 0, tuple(headers))
    assert own_headers(short.headers) == ()
    for order in ((whole, short), (short, whole), (short, whole, short)):
        (found,) = folded(map(DeadLetterSummary.of, order))
        assert (found.position, found.origin, found.copies, found.cut) == (whole.position, at(3), len(order), "")
        assert (found.size, own_headers(whole.headers)) == (903, own)
    (found,) = folded(map(DeadLetterSummary.of, [short, replace(short, position=LogPosition("dlq", 0, 7))]))
    assert (found.offset, found.copies) == (1, 2)
    assert "it was too large" in found.cut


@pytest.mark.parametrize("partition", [b"", b"-1", b"x", b"9" * 5000, b"99999999999", "٣x".encode(), None])
def test_headers_that_name_no_place_are_no_origin(partition: bytes | None) -> None:
    headers = [(n, partition if n.endswith("partition") else v) for n, v in error_headers(at(3), BAD)]
    assert origin_of(headers) is None
    assert origin_of(headers[:-5]) is None
    assert origin_of([]) is None


@pytest.mark.parametrize("said", [b"", b"t/0", b"t/x/1", b"t/0/-1", b"t/0/" + b"9" * 5000, b"\xff/1/1", None])
def test_a_header_that_anyone_may_have_written_is_no_record_that_was_published_again(said: bytes | None) -> None:
    found = list(retried_from([("distrl.retry.of", said), *retry_headers(at(3))]))
    assert found[-1] == at(3)
    assert found[:-1] in ([], [LogPosition("\ufffd", 1, 1)])


def test_headers_count_towards_the_size_beyond_their_room() -> None:
    small = config("kafka.max_record_bytes=1024", "kafka.bootstrap=127.0.0.1:1")
    with RecordProducer(small, "a-test") as producer:
        with pytest.raises(RecordTooLargeError, match=r"kafka\.max_record_bytes"):
            producer.publish_bytes("t", None, b"v", [("h", b"x" * (HEADER_ROOM_BYTES + 1024))])
        producer.publish_bytes("t", None, b"v", [("h", b"x" * (HEADER_ROOM_BYTES - 1))])
        assert producer.close(0) == 1


# What a terminal is shown


def test_bytes_of_strangers_are_escaped_for_the_terminal() -> None:
    assert escaped("\x1b[2J\x9b31m\r\n\u202e[bold]ü") == "\\x1b[2J\\x9b31m\\r\\n\\u202e[bold]ü"
    assert escaped("x" * 3000).endswith("… (3000 characters)")
    assert list(hex_dump(b"\x1b[2J" + b"A" * 14)) == [
        "00000000  1b 5b 32 4a 41 41 41 41 41 41 41 41 41 41 41 41  .[2JAAAAAAAAAAAA",
        "00000010  41 41                                            AA",
    ]


def test_a_letter_tells_its_size_and_what_was_said() -> None:
    entry = DeadLetterSummary.of(bad(17, error_headers(at(17), BAD)))
    assert (entry.offset, entry.size, entry.reason) == (17, 5, "distrl.errors.WireError")
    assert entry.error.startswith("distrl.r.tasks[0] offset 17")
    nothing = DeadLetterSummary.of(bad(17))
    assert (nothing.origin, nothing.error, nothing.reason, nothing.cut) == (None, "", "", "")
