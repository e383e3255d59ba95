"""Files of any records: what is in them, and that they depend on nothing but the records."""

from __future__ import annotations

import hashlib
import json
import math
import os
import resource
import subprocess
import sys
from base64 import b64encode
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from avro.datafile import DataFileReader
from avro.io import DatumReader
from distrl.broker.reader import RawRecord
from distrl.broker.topics import TOPICS
from distrl.errors import ConfigError, StoreError
from distrl.offline import export
from distrl.offline.export import Export
from distrl.offline.record_text import gist_of, json_line, summary_line
from distrl.offline.replay import Item, item_of
from distrl.offline.topic_range import Range, TopicRange
from distrl.types import Evaluation, HeldBack, LogPosition, Record, Trajectory
from distrl.wire.codec import encode
from distrl.wire.schemas import catalogue
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from wire.records import EXAMPLES, TRAJECTORY, plain, records

TOPIC_OF = {topic.record: name for name, topic in TOPICS.items()}


def item(record: Record, offset: int = 0, key: bytes | None = b"k") -> Item:
    raw = RawRecord(LogPosition("t", 0, offset), key, encode(record), 1_700_000_000_000, (("h", b"\x00"), ("n", None)))
    return item_of(raw, type(record))


def topic_range(kind: type[Record] | None, count: int) -> TopicRange:
    return TopicRange("r", TOPIC_OF[kind], (Range(0, 0, count),))


def written(directory: Path, form: str, items: list[Item], kind: type[Record] | None) -> dict[str, Any]:
    with Export(topic_range(kind, len(items)), directory / f"a.{form}", form, force=True) as export:
        for each in items:
            export.put(each)
        return export.finish()


def read_avro(file: Path) -> list[Any]:
    with DataFileReader(file.open("rb"), DatumReader()) as reader:
        return list(reader)


def same(one: Any, other: Any) -> bool:
    """Equal, where NaN equals NaN."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other or (isinstance(one, float) and math.isnan(one) and math.isnan(other))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(records, min_size=1, max_size=4))
def test_any_records_are_read_back_by_the_reference(tmp_path: Path, drawn: list[Record]) -> None:
    kind = type(drawn[0])
    items = [item(record, offset) for offset, record in enumerate(each for each in drawn if type(each) is kind)]
    made = written(tmp_path, "avro", items, kind)
    first = (tmp_path / "a.avro").read_bytes()
    found = read_avro(tmp_path / "a.avro")
    assert len(found) == len(items) == made["rows"]
    for each, read in zip(items, found, strict=True):
        assert same(plain(each.record), read["record"])
        assert (read["offset"], read["key"]) == (each.raw.position.offset, b"k")
        assert read["headers"] == [{"name": "h", "value": b"\x00"}, {"name": "n", "value": None}]
    assert written(tmp_path, "avro", items, kind) == made
    assert (tmp_path / "a.avro").read_bytes() == first


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(records, min_size=1, max_size=4))
def test_any_records_become_columns(tmp_path: Path, drawn: list[Record]) -> None:
    kind = type(drawn[0])
    chosen = [each for each in drawn if type(each) is kind]
    made = written(tmp_path, "parquet", [item(record, i) for i, record in enumerate(chosen)], kind)
    inner = [each.trajectory if isinstance(each, Evaluation) else each for each in chosen]
    rows = sum(len(each.steps) if isinstance(each, Trajectory) else 1 for each in inner)
    assert made["rows"] == parquet.read_metadata(tmp_path / "a.parquet").num_rows == rows
    assert made["records"] == len(chosen)


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)
def test_a_nested_record_keeps_its_shape_in_columns(tmp_path: Path, record: Record) -> None:
    written(tmp_path, "parquet", [item(record)], type(record))
    row = parquet.read_table(tmp_path / "a.parquet").to_pylist()[0]
    if isinstance(record, Trajectory | Evaluation):
        assert (row["instruction"], row["touch_y"], row["lift_y"]) == ("set an alarm für 07:30", 0.25, 0.75)
        assert dict(row["params"]) == {"hour": "07", "minute": "30"}
        assert [each["path"] for each in row["unmet"]] == ["clock.alarms", "notes.notes"]
    else:
        for name, value in plain(record).items():
            read = row[name]
            assert (
                dict(read) if name in ("params", "metrics", "settings") else str(read) if name == "devices" else read
            ) == (
                str([{"serial": "phone-0", "state": "ready", "counters": [("lost", 1)]}])
                if name == "devices"
                else value
            )


def test_large_records_are_cut_by_their_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As draws: 4,096 rows of them took gigabytes."""
    items = [item(TRAJECTORY, offset) for offset in range(7)]
    monkeypatch.setattr(export, "GROUP_BYTES", 2 * len(items[0].raw.value or b"") + 1)
    written(tmp_path, "parquet", items, Trajectory)
    found = parquet.ParquetFile(tmp_path / "a.parquet").metadata
    rows = found.num_rows // len(items)
    assert [found.row_group(i).num_rows for i in range(found.num_row_groups)] == [3 * rows, 3 * rows, rows]


def test_many_rows_are_cut_by_their_number_alone(tmp_path: Path) -> None:
    items = [item(TRAJECTORY, offset) for offset in range(2_100)]
    written(tmp_path, "parquet", items, Trajectory)
    found = parquet.ParquetFile(tmp_path / "a.parquet").metadata
    assert [found.row_group(i).num_rows for i in range(found.num_row_groups)] == [4_096, 104]


def test_what_cannot_be_decoded_is_in_the_manifest_alone(tmp_path: Path) -> None:
    broken = item_of(RawRecord(LogPosition("t", 0, 1), None, b"\xc3\x01broken", 5), Trajectory)
    nothing = item_of(RawRecord(LogPosition("t", 0, 2), b"k", None, 5), Trajectory)
    made = written(tmp_path, "avro", [item(TRAJECTORY), broken, nothing], Trajectory)
    assert (made["records"], made["rows"], len(read_avro(tmp_path / "a.avro"))) == (3, 1, 1)
    assert [(each["partition"], each["offset"]) for each in made["undecodable"]] == [(0, 1), (0, 2)]
    assert [each["schema"] for each in made["schemas"].values()] == [str(catalogue().newest["trajectory"])]


WRITE = """
import sys
from pathlib import Path
from distrl.types import Trajectory
from offline.test_export import TRAJECTORY, item, written
written(Path(sys.argv[1]), sys.argv[2], [item(TRAJECTORY)], Trajectory)
"""


@pytest.mark.parametrize("form", ["avro", "parquet"])
def test_another_process_writes_the_same_bytes(form: str, tmp_path: Path) -> None:
    """A process orders the keys of a set by a seed of its own."""
    found = set()
    for seed in ("1", "2", "3"):
        (folder := tmp_path / seed).mkdir()
        environ = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)}
        subprocess.run([sys.executable, "-c", WRITE, folder, form], env=environ, check=True)
        found.add((folder / f"a.{form}").read_bytes())
    assert len(found) == 1


def test_the_digest_of_the_records_sees_keys_places_and_bytes(tmp_path: Path) -> None:
    def digest(*items: Item) -> str:
        return str(written(tmp_path, "avro", list(items), Trajectory)["records_sha256"])

    one = item(TRAJECTORY)
    assert digest(one) == digest(one)
    other_bytes = item_of(RawRecord(one.raw.position, b"k", (one.raw.value or b"") + b"\0", 1), Trajectory)
    others = [item(TRAJECTORY, 1), item(TRAJECTORY, 0, b"kk"), item(TRAJECTORY, 0, None), other_bytes]
    assert len({digest(one), *(digest(each) for each in others)}) == 5


def test_bytes_of_no_schema_are_kept_as_they_are(tmp_path: Path) -> None:
    raw = item_of(RawRecord(LogPosition("t", 0, 0), b"k", b"\x00any", 1, (("why", b"x"),)), None)
    written(tmp_path, "avro", [raw], None)
    written(tmp_path, "parquet", [raw], None)
    assert read_avro(tmp_path / "a.avro")[0]["record"] == b"\x00any"
    row = parquet.read_table(tmp_path / "a.parquet").to_pylist()[0]
    assert (row["value"], row["headers"]) == (b"\x00any", [{"name": "why", "value": b"x"}])


def test_what_is_given_up_leaves_nothing_and_a_folder_is_never_written_over(tmp_path: Path) -> None:
    with Export(topic_range(Trajectory, 1), tmp_path / "a.avro", "avro") as export:
        export.put(item(TRAJECTORY))
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError, match="exists already"):
        Export(topic_range(Trajectory, 1), tmp_path / "folder", "avro", force=True)
    (tmp_path / "b.avro.manifest.json").write_text("{}")
    with pytest.raises(ConfigError, match="exists already"):
        Export(topic_range(Trajectory, 1), tmp_path / "b.avro", "avro")


def test_where_only_the_manifest_finds_no_room_nothing_is_left_and_the_older_file_stays(tmp_path: Path) -> None:
    """A limit on the size of files stands for a full disk: the manifest names each record that nobody can read."""
    before = written(tmp_path, "avro", [item(TRAJECTORY)], Trajectory)
    broken = [item_of(RawRecord(LogPosition("t", 0, n), None, b"no record", 5), Trajectory) for n in range(400)]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, hard))
    try:
        with pytest.raises(StoreError, match="nothing is left of it"):
            written(tmp_path, "avro", broken, Trajectory)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert sorted(file.name for file in tmp_path.iterdir()) == ["a.avro", "a.avro.manifest.json"]
    assert json.loads((tmp_path / "a.avro.manifest.json").read_text()) == before
    assert hashlib.sha256((tmp_path / "a.avro").read_bytes()).hexdigest() == before["sha256"]


def test_a_pipe_or_a_device_is_never_replaced_by_a_file(tmp_path: Path) -> None:
    """As /dev/stdout with --force."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="is no file"):
        Export(topic_range(Trajectory, 1), tmp_path / "pipe", "avro", force=True)
    assert [(each.name, each.is_fifo()) for each in tmp_path.iterdir()] == [("pipe", True)]


@settings(deadline=None)
@given(records, st.binary(max_size=8))
def test_a_line_is_ascii_without_controls_and_holds_the_record(record: Record, key: bytes) -> None:
    line = json_line(item(record, 3, key))
    assert line.isascii()
    assert line.isprintable()
    read = json.loads(line)
    assert read["offset"] == 3

    def told(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: told(each) for name, each in value.items()}
        if isinstance(value, list):
            return [told(each) for each in value]
        if isinstance(value, bytes):
            return b64encode(value).decode()
        return repr(value) if isinstance(value, float) and not math.isfinite(value) else value

    assert read["record"] == told(plain(record))


@settings(deadline=None)
@given(records, st.binary(max_size=8))
def test_a_summary_moves_no_cursor(record: Record, key: bytes) -> None:
    assert summary_line(item(record, 3, key)).isprintable()
    assert gist_of(record)


def test_a_summary_counts_what_was_judged_invalid_and_what_was_held_back() -> None:
    (first, second) = TRAJECTORY.steps
    plain = {"held_back": HeldBack.NO, "restless": False}
    plain_ones = replace(first, valid=True, **plain), replace(second, valid=None, **plain)
    assert " 2 steps  versions" in gist_of(replace(TRAJECTORY, steps=plain_ones))
    both = replace(first, valid=False, held_back=HeldBack.UNSENT, restless=False), replace(second, valid=False)
    said = " 2 steps, 2 invalid, 1 unsent, 1 refused, 1 restless  versions"
    assert said in gist_of(replace(TRAJECTORY, steps=both))
