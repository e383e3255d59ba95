"""Records of every landed version are read by the newest code, and its records by the oldest schema."""

from __future__ import annotations

import json
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import avro.io
import avro.schema
import pytest
from distrl.errors import WireError
from distrl.types import Outcome, Record, Trajectory
from distrl.wire import codec
from distrl.wire.codec import HEADER_BYTES, decode, encode
from distrl.wire.convert import NAMES
from distrl.wire.schemas import Catalogue, Schema, catalogue, read_catalogue, schema_folder
from fastavro import schemaless_reader, schemaless_writer

from tests.wire.records import EXAMPLES, KINDS, TASK, TRAJECTORY, plain
from tests.wire.write_fixtures import FOLDER, fixture

LANDED = sorted(catalogue().by_fingerprint.values(), key=str)
KIND_OF = {NAMES[kind]: kind for kind in KINDS}


def text_of(schema: Schema, folder: Path | None = None) -> str:
    return ((folder or schema_folder()) / f"{schema}.avsc").read_text()


def reference_read(payload: bytes, writer: str, reader: str) -> Any:
    """What the Avro project's own package reads in the body of `payload`."""
    body = avro.io.BinaryDecoder(BytesIO(payload[HEADER_BYTES:]))
    return avro.io.DatumReader(avro.schema.parse(writer), avro.schema.parse(reader)).read(body)


def test_every_landed_version_has_its_fixture_and_every_fixture_its_version() -> None:
    """Broken by a version that has just landed: `python -m tests.wire.write_fixtures`, and commit what it writes."""
    assert {fixture(schema) for schema in LANDED} == set(FOLDER.iterdir())


@pytest.mark.parametrize("schema", LANDED, ids=str)
def test_what_a_landed_version_wrote_is_read_by_the_newest_code(schema: Schema) -> None:
    payload = fixture(schema).read_bytes()
    assert payload.startswith(schema.header)
    newest = catalogue().newest[schema.record]
    assert plain(decode(payload, KIND_OF[schema.record])) == reference_read(payload, text_of(schema), text_of(newest))


def known_to(read: Any, written: Any) -> Any:
    """`written` without what an older schema, which gave `read`, has no field for."""
    if isinstance(read, dict):
        return {field: known_to(value, written[field]) for field, value in read.items()}
    return [known_to(*pair) for pair in zip(read, written, strict=True)] if isinstance(read, list) else written


@pytest.mark.parametrize("record", EXAMPLES, ids=lambda record: type(record).__name__)
def test_what_the_newest_code_writes_is_read_with_the_oldest_schema(record: Record) -> None:
    name = NAMES[type(record)]
    newest, oldest = catalogue().newest[name], min((s for s in LANDED if s.record == name), key=lambda s: s.version)
    read = reference_read(encode(record), text_of(newest), text_of(oldest))
    assert read == known_to(read, plain(record))


def next_trajectories() -> tuple[str, str]:
    """The two versions that will come after the newest one."""
    landed = max(schema.version for schema in LANDED if schema.record == "trajectory")
    return f"trajectory/v{landed + 1}", f"trajectory/v{landed + 2}"


@pytest.fixture
def grown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The landed schemas; a task v2 with a further field; a further outcome in the next version of a trajectory, and
    none in the one after it."""
    for file in schema_folder().glob("*/*.avsc"):
        (tmp_path / file.parent.name).mkdir(exist_ok=True)
        (tmp_path / file.parent.name / file.name).write_text(file.read_text())
    task = json.loads((tmp_path / "task/v1.avsc").read_text())
    task["fields"].insert(0, {"name": "new", "type": "long", "default": 5})
    (tmp_path / "task/v2.avsc").write_text(json.dumps(task))
    newest = (tmp_path / f"{catalogue().newest['trajectory']}.avsc").read_text()
    further, after = next_trajectories()
    later = json.loads(newest)
    (outcome,) = [field["type"] for field in later["fields"] if field["name"] == "outcome"]
    outcome["symbols"].append("unheard_of")
    (tmp_path / f"{further}.avsc").write_text(json.dumps(later))
    last = json.loads(newest)
    last["fields"].append({"name": "new", "type": "long", "default": 5})
    (tmp_path / f"{after}.avsc").write_text(json.dumps(last))
    use(read_catalogue(tmp_path), monkeypatch)
    return tmp_path


def written(schema: Schema, datum: dict[str, Any]) -> bytes:
    out = BytesIO()
    out.write(schema.header)
    schemaless_writer(out, schema.parsed, datum)
    return out.getvalue()


def use(known: Catalogue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(codec, "catalogue", lambda: known)


def test_a_newer_reader_reads_what_an_older_writer_wrote(grown: Path) -> None:
    old = fixture(catalogue().newest["task"]).read_bytes()
    assert old[2:10] != codec.catalogue().newest["task"].fingerprint
    assert plain(decode(old, type(TASK))) == reference_read(old, *[(grown / "task/v1.avsc").read_text()] * 2)
    with pytest.raises(WireError, match="are not what task/v1 writes"):
        decode(old + b"\0", type(TASK))


def test_an_older_schema_reads_what_a_newer_writer_wrote(grown: Path) -> None:
    payload = encode(TASK)
    assert payload.startswith(codec.catalogue().newest["task"].header)
    texts = [(grown / f"task/v{n}.avsc").read_text() for n in (2, 1)]
    assert reference_read(payload, *texts) == plain(TASK)
    read = schemaless_reader(BytesIO(payload[HEADER_BYTES:]), *(json.loads(text) for text in texts))
    assert read == plain(TASK)


def test_a_symbol_that_the_newest_schema_does_not_know_is_read_as_its_default(grown: Path) -> None:
    known = codec.catalogue()
    (further,) = [s for s in known.by_fingerprint.values() if str(s) == next_trajectories()[0]]
    datum = plain(replace(TRAJECTORY, outcome=Outcome.SUCCESS)) | {"outcome": "unheard_of"}
    payload = written(further, datum)
    assert decode(payload, Trajectory) == replace(TRAJECTORY, outcome=Outcome.UNKNOWN)


def test_a_symbol_that_the_newest_schema_has_and_the_type_has_not_is_refused(
    grown: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Avro reads it; the code that would fold it does not know what it means."""
    (grown / f"{next_trajectories()[1]}.avsc").unlink()
    use(read_catalogue(grown), monkeypatch)
    newest = codec.catalogue().newest["trajectory"]
    payload = written(newest, plain(TRAJECTORY) | {"outcome": "unheard_of"})
    with pytest.raises(WireError, match=r"says is no Trajectory .*'unheard_of'.*outcome"):
        decode(payload, Trajectory)
