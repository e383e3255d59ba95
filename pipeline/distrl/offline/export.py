"""Exports a topic range to an Avro container or a Parquet file, with a manifest beside it.

The same range gives the same bytes: records in a fixed order, blocks cut by content and not by how the broker sent
them, a sync marker made from schema and range, no clock. (Parquet: with the same version of pyarrow.)
A file is written under a temporary name and renamed, then its manifest: a file with a manifest is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version as installed
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Protocol

import fastavro.write

from distrl.broker.topics import TOPICS
from distrl.errors import ConfigError, StoreError
from distrl.offline.replay import Item
from distrl.offline.topic_range import TopicRange
from distrl.wire.codec import HEADER_BYTES
from distrl.wire.convert import NAMES, to_datum
from distrl.wire.schemas import MARKER, catalogue, schema_folder

FORMAT: Final = "distrl-replay/1"
BLOCK_BYTES: Final = 65_536
"""Approximate size of a block of an Avro file."""
ROWS_TOGETHER: Final = 4_096
"""Rows of a Parquet row group, or a few more, since a record's rows stay together; the last may have fewer, as may one
of GROUP_BYTES."""
GROUP_BYTES: Final = 8 * 1024 * 1024
"""Bytes of the encoded records of a row group, but for its last one: rows of draws take gigabytes by the thousand."""


class Writer(Protocol):
    """Writes the decodable records of a range into an open file."""

    rows: int
    """Written so far."""

    def put(self, item: Item) -> None: ...

    def close(self) -> None:
        """Write what is buffered. The owner closes the file."""
        ...


class Digest:
    """The manifest's summary of the records. `put` them in the order of the range."""

    def __init__(self) -> None:
        self.records = 0
        self.undecodable: list[dict[str, Any]] = []
        self._bytes = hashlib.sha256()
        self._schemas: Counter[str] = Counter()

    def put(self, item: Item) -> None:
        raw = item.raw
        self.records += 1
        self._bytes.update(struct.pack(">iq", raw.position.partition, raw.position.offset))
        for part in (raw.key, raw.value):
            self._bytes.update(struct.pack(">q", -1 if part is None else len(part)) + (part or b""))
        if item.error is not None:
            place = {"partition": raw.position.partition, "offset": raw.position.offset}
            self.undecodable.append({**place, "error": item.error.what})
        elif raw.value is not None and raw.value[: len(MARKER)] == MARKER:
            self._schemas[raw.value[len(MARKER) : HEADER_BYTES].hex()] += 1

    def summary(self) -> dict[str, Any]:
        known = catalogue().by_fingerprint
        return {
            "records": self.records,
            "records_sha256": self._bytes.hexdigest(),
            "records_sha256_of": "of each record in order: partition (int32), offset (int64), then key and value, each "
            "after its length (int64, -1: none); big-endian",
            "schemas": {
                mark: {"schema": str(known.get(bytes.fromhex(mark), "unknown")), "records": count}
                for mark, count in sorted(self._schemas.items())
            },
            "undecodable": self.undecodable,
        }


class Export:
    """One file being written. A context manager: without `finish` nothing is left behind.

    Raises ConfigError, before anything is read, for a file that exists (unless `force`) or cannot be written.
    """

    def __init__(self, topic_range: TopicRange, file: Path, form: str, force: bool = False) -> None:
        self._range, self._form = topic_range, form
        self.file, self.manifest = file, manifest_of(file)
        refuse_existing([file, self.manifest], force)
        own = secrets.token_hex(8)  # not the process id: in containers all have the same
        self._partial, self._partial_manifest = (
            each.with_name(f".{each.name}.{own}.partial") for each in (file, self.manifest)
        )
        self._digest = Digest()
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            self._out: BinaryIO = self._partial.open("wb")
        except OSError as error:
            raise ConfigError(str(file), f"cannot be written ({error.strerror})", "name a file elsewhere") from None
        self._writer: Writer = WRITERS[form](self._out, topic_range)

    def __enter__(self) -> Export:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):
            self._out.close()
        for each in (self._partial, self._partial_manifest):
            each.unlink(missing_ok=True)

    def put(self, item: Item) -> None:
        """Add the next record; one that cannot be decoded goes into the manifest only."""
        self._digest.put(item)
        try:
            if item.error is None:
                self._writer.put(item)
        except OSError as error:
            raise self._not_written(error) from None

    def finish(self) -> dict[str, Any]:
        """Close the file, write the manifest, rename both; returns the manifest. Raises StoreError where that fails."""
        try:
            self._writer.close()
            _sync(self._out)
            self._out.close()
            made = self._manifest()
            with self._partial_manifest.open("wb") as out:
                out.write(json.dumps(made, indent=2, sort_keys=True).encode() + b"\n")
                _sync(out)
            self.manifest.unlink(missing_ok=True)  # an old manifest must never stand beside the new file
            self._partial.replace(self.file)
            self._partial_manifest.replace(self.manifest)
        except OSError as error:
            raise self._not_written(error) from None
        return made

    def _manifest(self) -> dict[str, Any]:
        with self._partial.open("rb") as whole:
            digest = hashlib.file_digest(whole, "sha256").hexdigest()
        kind = TOPICS[self._range.topic].record
        newest = None if kind is None else catalogue().newest[NAMES[kind]]
        packages = {"avro": "fastavro", "parquet": "pyarrow"}
        return {
            "format": FORMAT,
            **self._range.to_dict(),
            **self._digest.summary(),
            "file": self.file.name,
            "form": self._form,
            "rows": self._writer.rows,
            "bytes": self._partial.stat().st_size,
            "sha256": digest,
            "read_as": None if newest is None else {"schema": str(newest), "fingerprint": newest.fingerprint.hex()},
            "written_by": {name: installed(name) for name in ("distrl", packages[self._form])},
        }

    def _not_written(self, error: OSError) -> StoreError:
        return StoreError(
            str(self.file),
            f"could not be written ({error.strerror}); nothing is left of it",
            "make room on the disk, or name a file elsewhere",
        )


def manifest_of(file: Path) -> Path:
    """Path of the manifest of an exported file."""
    return file.parent / f"{file.name}.manifest.json"


def _sync(out: BinaryIO) -> None:
    out.flush()
    os.fsync(out.fileno())


def refuse_existing(files: Sequence[Path], force: bool) -> None:
    """Raises ConfigError for a file that exists, unless `force`; for a folder, a device or a pipe always."""
    for file in files:
        if file.exists() and not file.is_file():
            raise ConfigError(str(file), "exists already and is no file", "name a file elsewhere")
        if file.exists() and not force:
            raise ConfigError(str(file), "exists already", "name another file, or give --force to write over it")


def container_schema(topic: str) -> dict[str, Any]:
    """The Avro schema of an exported record of `topic` (a key of TOPICS): the record with its position in the log."""
    optional_bytes = ["null", "bytes"]
    kind = TOPICS[topic].record
    if kind is None:
        record: Any = optional_bytes
    else:
        newest = catalogue().newest[NAMES[kind]]
        file = schema_folder() / newest.record / f"v{newest.version}.avsc"
        record = json.loads(file.read_text(encoding="utf-8"))
    header = {
        "type": "record",
        "name": "Header",
        "fields": [{"name": "name", "type": "string"}, {"name": "value", "type": optional_bytes}],
    }
    return {
        "type": "record",
        "name": "Logged",
        "namespace": "distrl.replay",
        "doc": "A record of a log, and where it stands there.",
        "fields": [
            {"name": "topic", "type": "string"},
            {"name": "partition", "type": "int"},
            {"name": "offset", "type": "long"},
            {"name": "timestamp", "type": "long", "doc": "By the broker's clock: ms since the epoch; -1: none."},
            {"name": "key", "type": optional_bytes},
            {"name": "headers", "type": {"type": "array", "items": header}},
            {"name": "record", "type": record, "doc": "As the newest schema of its kind; of a dead letter, its bytes."},
        ],
    }


class AvroWriter:
    """An Avro container file, uncompressed: a compressor would have to give the same bytes everywhere."""

    def __init__(self, out: BinaryIO, topic_range: TopicRange) -> None:
        self.rows = 0
        schema = container_schema(topic_range.topic)
        marker = hashlib.sha256(json.dumps([schema, topic_range.sync_seed], sort_keys=True).encode()).digest()[:16]
        # Not parsed: a parsed schema enters the file's header with its keys in the order of the process's hash seed.
        self._writer = fastavro.write.Writer(out, schema, "null", BLOCK_BYTES, sync_marker=marker)

    def put(self, item: Item) -> None:
        raw = item.raw
        self.rows += 1
        self._writer.write(
            {
                "topic": raw.position.topic,
                "partition": raw.position.partition,
                "offset": raw.position.offset,
                "timestamp": raw.timestamp,
                "key": raw.key,
                "headers": [{"name": name, "value": value} for name, value in raw.headers],
                "record": raw.value if item.record is None else to_datum(item.record),
            }
        )

    def close(self) -> None:
        self._writer.flush()


class ParquetWriter:
    """A Parquet file, zstd: the columns of `offline/columns.py`."""

    def __init__(self, out: BinaryIO, topic_range: TopicRange) -> None:
        from pyarrow import parquet

        from distrl.offline.columns import rows_of, schema_of

        self.rows = 0
        kind = TOPICS[topic_range.topic].record
        self._schema, self._rows_of = schema_of(kind), rows_of
        self._pending: list[Mapping[str, Any]] = []
        self._bytes = 0
        """Of the pending rows' records."""
        self._writer = parquet.ParquetWriter(out, self._schema, compression="zstd")

    def put(self, item: Item) -> None:
        self._pending += self._rows_of(item)
        self._bytes += len(item.raw.value or b"")
        if len(self._pending) >= ROWS_TOGETHER or self._bytes >= GROUP_BYTES:
            self._write()

    def close(self) -> None:
        if self._pending:
            self._write()
        self._writer.close()

    def _write(self) -> None:
        import pyarrow

        self._writer.write_table(pyarrow.Table.from_pylist(self._pending, schema=self._schema))
        self.rows += len(self._pending)
        self._pending, self._bytes = [], 0


WRITERS: Final[Mapping[str, Callable[[BinaryIO, TopicRange], Writer]]] = {"avro": AvroWriter, "parquet": ParquetWriter}
