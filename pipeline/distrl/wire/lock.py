"""The lock file of the schemas that have landed: `schemas/lock.json` has, for each one, its CRC-64-AVRO fingerprint and
the file's sha256."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from distrl.errors import WireError
from distrl.wire.schemas import read_schema

Entry = Mapping[str, str]
Lock = Mapping[str, Entry]


def read_lock(folder: Path) -> Lock:
    """The entries that have landed, by "<record>/v<N>"; empty if there is no lock file yet.

    Raises WireError for an invalid file.
    """
    file = folder / "lock.json"
    try:
        entries = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    except ValueError as error:
        raise WireError(str(file), f"is no JSON ({error})", "put the file back (git checkout)") from None
    if not isinstance(entries, dict) or not all(isinstance(entry, dict) for entry in entries.values()):
        raise WireError(str(file), "does not hold an entry for each schema", "put the file back (git checkout)")
    return entries


def write_lock(folder: Path, entries: Lock) -> None:
    (folder / "lock.json").write_text(json.dumps(dict(sorted(entries.items())), indent=2) + "\n", encoding="utf-8")


def entry_of(file: Path) -> Entry | None:
    """The lock entry of a schema file; None if it is not a schema."""
    try:
        schema = read_schema(file)
    except WireError:
        return None
    return {"crc64_avro": schema.fingerprint.hex(), "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
