"""What has landed: `schemas/lock.json` holds, for each schema, its CRC-64-AVRO fingerprint and the file's sha256.

`python -m distrl.wire.lock` adds new schemas to it, and refuses when a landed one was edited or removed.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path

from distrl.errors import WireError
from distrl.wire.schemas import read_catalogue, read_schema, schema_folder

Lock = Mapping[str, Mapping[str, str]]


def read_lock(folder: Path) -> Lock:
    """The entries that have landed, by "<record>/v<N>"; none where there is no lock file yet."""
    file = folder / "lock.json"
    entries: Lock = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return entries


def current(folder: Path) -> Lock:
    """The entries that the schema files under `folder` have now."""
    read_catalogue(folder)
    entries = {}
    for file in sorted(folder.glob("*/*.avsc")):
        schema = read_schema(file)
        entries[str(schema)] = {
            "crc64_avro": schema.fingerprint.hex(),
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
        }
    return entries


def grown(landed: Lock, now: Lock) -> Lock:
    """`landed` with what is new in `now`. Raises WireError where a landed schema was edited or removed."""
    for name, entry in landed.items():
        if now.get(name) != entry:
            what = "was edited after it landed" if name in now else "has landed and is gone"
            raise WireError(f"schemas/{name}.avsc", what, "put the file back (git checkout) and add a new version")
    return dict(sorted(now.items()))


def main() -> int:
    """Add what is new to the lock file. Returns the exit status."""
    folder = schema_folder()
    try:
        entries = grown(read_lock(folder), current(folder))
    except WireError as error:
        print(error, file=sys.stderr)
        return 1
    (folder / "lock.json").write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
