"""Writes `fixtures/<record>-v<N>.bin`, one record of each kind as the newest schema writes it, where there is none yet:

    python -m tests.wire.write_fixtures

To be run when a version has landed. A fixture is never written again: it is what that version's writer wrote.
"""

from __future__ import annotations

from pathlib import Path

from distrl.wire.codec import encode
from distrl.wire.convert import NAMES
from distrl.wire.schemas import Schema, catalogue

from tests.wire.records import EXAMPLES

FOLDER = Path(__file__).parent / "fixtures"


def fixture(schema: Schema) -> Path:
    return FOLDER / f"{schema.record}-v{schema.version}.bin"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    if lacking := sorted(NAMES.keys() - set(map(type, EXAMPLES)), key=lambda kind: kind.__name__):
        names = ", ".join(kind.__name__ for kind in lacking)
        raise SystemExit(f"no example of {names}: add one to EXAMPLES in tests/wire/records.py, then run this again")
    for record in EXAMPLES:
        file = fixture(catalogue().newest[NAMES[type(record)]])
        if not file.exists():
            file.write_bytes(encode(record))
            print(f"wrote {file}")


if __name__ == "__main__":
    main()
