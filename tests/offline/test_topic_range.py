"""What `--from … --to …` means, and the command that is named where it means nothing that the broker keeps."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

import pytest
from distrl.errors import ConfigError
from distrl.offline.topic_range import Bound, Range, RangeRequest, as_bound, bound_of, milliseconds, resolve, written
from hypothesis import given
from hypothesis import strategies as st

LINE = ("distrl", "replay", "--run", "r", "--topic", "trajectories")
NOW = datetime(2025, 6, 1, 12, tzinfo=UTC)


@dataclass
class Log:
    """A topic in memory: partition -> (first kept, times of the records kept, in ms)."""

    partitions: Mapping[int, tuple[int, list[int]]]

    @property
    def offsets(self) -> Mapping[int, tuple[int, int]]:
        return {p: (first, first + len(times)) for p, (first, times) in self.partitions.items()}

    def at(self, at_ms: int) -> Mapping[int, int | None]:
        return {
            p: next((first + i for i, time in enumerate(times) if time >= at_ms), None)
            for p, (first, times) in self.partitions.items()
        }

    def oldest(self, partition: int) -> int:
        return self.partitions[partition][1][0]


def at(ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)


def asked_again(command: str) -> RangeRequest:
    """What a command of a message asks for."""
    words = shlex.split(command)
    assert words[:2] == ["distrl", "replay"]
    options: dict[str, list[str]] = {}
    for name, value in zip(words[2::2], words[3::2], strict=True):
        options.setdefault(name, []).append(value)
    bounds = [bound_of(options[name][0], NOW) if name in options else None for name in ("--from", "--to")]
    return RangeRequest(
        options["--run"][0], options["--topic"][0], *bounds, tuple(int(p) for p in options.get("--partition", []))
    )


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("0", 0),
        ("128", 128),
        ("20250131", 20250131),
        ("2025-01-31", datetime(2025, 1, 31, tzinfo=UTC)),
        ("2025-01-31T12:30", datetime(2025, 1, 31, 12, 30, tzinfo=UTC)),
        ("2025-01-31T12:30:00.250Z", datetime(2025, 1, 31, 12, 30, 0, 250_000, tzinfo=UTC)),
        ("2025-01-31T12:30+02:00", datetime(2025, 1, 31, 10, 30, tzinfo=UTC)),
        ("-90s", NOW - timedelta(seconds=90)),
        ("-1.5h", NOW - timedelta(minutes=90)),
        ("-7d", NOW - timedelta(days=7)),
        ("-2w", NOW - timedelta(days=14)),
    ],
)
def test_a_bound_is_an_offset_or_a_time(text: str, meant: Bound) -> None:
    assert bound_of(text, NOW) == meant
    assert as_bound(text, NOW) == meant


@pytest.mark.parametrize(
    "text", ["", "-5", "+5", "2h", "-2y", "yesterday", "1_0", "٣", "2025-13-01", "-99999999w", "1" * 5_000]
)
def test_what_is_neither_is_refused_with_the_forms_that_there_are(text: str) -> None:
    with pytest.raises(ConfigError, match="an offset like 128"):
        bound_of(text, NOW)


def test_a_program_may_give_a_datetime_or_a_timedelta() -> None:
    assert as_bound(None, NOW) is None
    assert as_bound(7, NOW) == 7
    assert as_bound(timedelta(hours=2), NOW) == NOW - timedelta(hours=2) == as_bound("-2h", NOW)
    assert as_bound(datetime(2025, 1, 1), NOW) == datetime(2025, 1, 1, tzinfo=UTC)
    with pytest.raises(ConfigError):
        as_bound(-1, NOW)


@given(st.integers(0, 2**62) | st.datetimes(timezones=st.just(UTC)))
def test_what_is_written_is_read_back(bound: Bound) -> None:
    assert bound_of(written(bound), NOW) == bound


def test_a_time_is_rounded_up_to_the_milliseconds_of_the_log() -> None:
    assert milliseconds(at(1_000)) == 1_000
    assert milliseconds(at(1_000) + timedelta(microseconds=1)) == 1_001


def test_without_bounds_everything_kept_is_meant() -> None:
    topic_range = resolve(RangeRequest("r"), Log({0: (3, [10, 20]), 1: (0, [])}))
    assert topic_range.ranges == (Range(0, 3, 5), Range(1, 0, 0))
    assert (topic_range.name, len(topic_range)) == ("distrl.r.trajectories", 2)


def test_times_are_looked_up_on_each_partition_and_the_end_is_before() -> None:
    log = Log({0: (0, [10, 20, 30]), 1: (0, [5, 20, 20, 25])})
    topic_range = resolve(RangeRequest("r", begin=at(20), end=at(25)), log)
    assert topic_range.ranges == (Range(0, 1, 2), Range(1, 1, 3))
    assert resolve(RangeRequest("r", begin=at(20), end=at(9_999)), log).ranges == (Range(0, 1, 3), Range(1, 1, 4))
    assert len(resolve(RangeRequest("r", begin=at(31)), log)) == 0


def test_a_named_partition_is_read_alone() -> None:
    log = Log({0: (0, [1]), 1: (0, [1, 2])})
    assert resolve(RangeRequest("r", partitions=(1,)), log).ranges == (Range(1, 0, 2),)
    with pytest.raises(ConfigError, match=r"--partition 7: .* has 2 partitions, counted from 0"):
        resolve(RangeRequest("r", partitions=(1, 7), line=LINE), log)


CUT = Log({0: (100, [1_000 + i for i in range(50)])})


@pytest.mark.parametrize(
    ("wanted", "says", "works"),
    [
        (RangeRequest("r", begin=7), r"--from 7: .*keeps 100 and later: retention", "--from 100"),
        (RangeRequest("r", begin=7, end=120), r"--from 7: ", "--from 100 --to 120"),
        (RangeRequest("r", begin=120, end=151), r"--to 151: .*ends at 150", "--from 120 --to 150"),
        (RangeRequest("r", begin=5, end=20), r"--from 5: ", "--from 100 --to 150"),
        (RangeRequest("r", begin=900), r"--from 900: ", "--from 100 --to 150"),
        (RangeRequest("r", begin=120, end=110), r"holds nothing", "--from 110 --to 120"),
        (RangeRequest("r", begin=120, end=120), r"holds nothing", "--from 120"),
        (RangeRequest("r", begin=120, end=at(1_010)), r"--from 120 --to 1970.*holds nothing", "--from 120"),
        (RangeRequest("r", begin=at(1_020), end=110), r"--to 110: holds nothing", "--from 1970-01-01T00:00:01.020000Z"),
        (RangeRequest("r", begin=at(999)), r"retention has deleted", "--from 1970-01-01T00:00:01Z"),
        (RangeRequest("r", end=at(900)), r"retention has deleted", "--from 1970-01-01T00:00:01Z"),
    ],
)
def test_a_range_outside_of_what_is_kept_names_the_command_that_works(
    wanted: RangeRequest, says: str, works: str
) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        resolve(replace(wanted, line=LINE), CUT)
    assert refused.value.hint == f"distrl replay --run r --topic trajectories {works}"
    assert len(resolve(asked_again(refused.value.hint), CUT)) > 0


EMPTIED = Log({0: (100, [])})


@pytest.mark.parametrize(
    "wanted",
    [
        RangeRequest("r", begin=at(20)),
        RangeRequest("r", end=at(20)),
        RangeRequest("r", begin=at(20), end=at(30)),
        RangeRequest("r", begin=at(20), end=100),
        RangeRequest("r", begin=100, end=at(20)),
    ],
)
def test_of_a_topic_that_retention_has_emptied_it_is_said_from_where_it_keeps_records(wanted: RangeRequest) -> None:
    with pytest.raises(ConfigError, match=r"nothing is kept in this range: .*\[0\] keeps 100 and later") as refused:
        resolve(replace(wanted, line=LINE), EMPTIED)
    assert refused.value.where == replace(wanted, line=LINE).where()
    assert asked_again(refused.value.hint) == RangeRequest("r", begin=100)
    assert len(resolve(RangeRequest("r", begin=100), EMPTIED)) == len(resolve(RangeRequest("r"), EMPTIED)) == 0


def test_a_range_is_empty_where_nothing_was_and_not_where_another_partition_was_emptied() -> None:
    """Whether what was deleted lay in the range, the log does not say; what is kept of it is shown."""
    apart = Log({0: (100, []), 1: (0, [10, 20]), 2: (30, [])})
    assert resolve(RangeRequest("r", begin=at(15)), apart).ranges == (
        Range(0, 100, 100),
        Range(1, 1, 2),
        Range(2, 30, 30),
    )
    with pytest.raises(ConfigError, match=r"\[0\] keeps 100 and later, .*\[2\] keeps 30 and later; ") as refused:
        resolve(RangeRequest("r", begin=at(21)), apart)
    assert refused.value.hint == "ask without bounds, for the whole log"
    assert len(resolve(RangeRequest("r", begin=at(21), partitions=(1,)), apart)) == 0
    assert len(resolve(RangeRequest("r", begin=at(21)), Log({0: (0, [])}))) == 0


def test_the_command_that_works_is_the_one_that_was_given() -> None:
    for line in (("distrl", "judge", "--run", "r", "--most", "3"), ("distrl", "replay", "--avro", "a file.avro")):
        with pytest.raises(ConfigError) as refused:
            resolve(RangeRequest("r", begin=7, line=line), CUT)
        assert refused.value.hint == shlex.join([*line, "--from", "100"])


@pytest.mark.parametrize(
    ("wanted", "says", "hint"),
    [
        (RangeRequest("r", begin=7), r"^begin=7: ", "ask for begin=100"),
        (
            RangeRequest("r", begin=120, end=110),
            r"^begin=120 end=110: .* end is exclusive",
            "ask for begin=110, end=120",
        ),
        (RangeRequest("r", end=at(900)), r"^end=1970-01-01T00:00:00.900000Z: ", "ask for begin='1970-01-01T00:00:01Z'"),
        (RangeRequest("r", partitions=(7,)), r"^partitions=\[7\]: ", "ask without bounds, for the whole log"),
    ],
)
def test_a_program_gets_the_arguments_that_work(wanted: RangeRequest, says: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        resolve(wanted, CUT)
    assert refused.value.hint == hint


def test_a_partition_alone_is_named_where_there_are_several() -> None:
    apart = {0: (100, [1_000]), 1: (0, [1_000, 2_000])}
    with pytest.raises(ConfigError) as refused:
        resolve(RangeRequest("r", "tasks", begin=7), Log(apart))
    assert refused.value.hint == "ask for begin=0, end=2, partitions=[1]"
    for name in apart:
        with pytest.raises(ConfigError) as refused:
            resolve(RangeRequest("r", begin=900), Log({name: apart[name]}))
        assert "partitions" not in refused.value.hint


def test_a_time_before_the_first_record_is_no_retention_where_nothing_was_deleted() -> None:
    assert resolve(RangeRequest("r", begin=at(0)), Log({0: (0, [10, 20])})).ranges == (Range(0, 0, 2),)


logs = st.dictionaries(
    st.integers(0, 3), st.tuples(st.integers(0, 6), st.lists(st.integers(0, 12), max_size=6).map(sorted)), min_size=1
).map(Log)
bounds = st.none() | st.integers(0, 14) | st.integers(0, 14).map(at)


@given(logs, bounds, bounds)
def test_a_range_is_within_what_is_kept_or_refused_with_a_command_that_is_not(
    log: Log, begin: Bound | None, end: Bound | None
) -> None:
    wanted = RangeRequest("r", begin=begin, end=end, line=LINE)
    try:
        topic_range = resolve(wanted, log)
    except ConfigError as refused:
        again = asked_again(refused.hint)
        assert again != replace(wanted, line=())
        resolve(again, log)  # raises nothing
    else:
        for each in topic_range.ranges:
            first, last = log.offsets[each.partition]
            assert first <= each.first <= each.to <= last
