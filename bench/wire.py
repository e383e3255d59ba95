"""What a record costs on its way to bytes and back, each beside a peer in the same run.

    encode    a trajectory to a payload, against fastavro writing a dict that is there already
    decode    a payload to a trajectory, against fastavro reading it into a dict
    datum     the conversion alone, to what fastavro takes, against `msgspec.to_builtins`

Processor time. Rounds alternate between the two sides and the medians are compared, so that what drifts falls on both
alike.

    python bench/wire.py --steps 12 --rounds 40 --json out/wire.json
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import fastavro
import msgspec
from distrl.types import Trajectory
from distrl.wire.codec import HEADER_BYTES, decode, encode
from distrl.wire.convert import to_datum
from distrl.wire.schemas import catalogue
from generator import trajectory
from log import Row, alternated, console
from rich.table import Table

TIMES = 50
"""Conversions in a round of one side: some ten milliseconds, so that both sides meet the same machine."""


def made(steps: int) -> Trajectory:
    """A trajectory as workers write it, with so many steps."""
    one = trajectory(0, random.Random(0))
    return replace(one, steps=tuple(one.steps[index % len(one.steps)] for index in range(steps)))


def rows(one: Trajectory, rounds: int) -> list[Row]:
    schema = catalogue().newest["trajectory"].parsed
    payload, datum = encode(one), to_datum(one)

    def read() -> Any:
        body = BytesIO(payload)
        body.seek(HEADER_BYTES)
        return fastavro.schemaless_reader(body, schema, None)

    def row(name: str, ours: Callable[[], object], peer: Callable[[], object], note: str) -> Row:
        def times(side: Callable[[], object]) -> Callable[[], None]:
            def go() -> None:
                for _ in range(TIMES):
                    side()

            return go

        a, b = (1e6 * seconds / TIMES for seconds in alternated(rounds, times(ours), times(peer), time.process_time))
        return Row(name, a, b, "µs", b / a, note)

    return [
        row(
            "encode",
            lambda: encode(one),
            lambda: fastavro.schemaless_writer(BytesIO(), schema, datum),
            f"{len(payload)} bytes; fastavro alone",
        ),
        row("decode", lambda: decode(payload, Trajectory), read, "fastavro alone: a dict, its form unchecked"),
        row("datum", lambda: to_datum(one), lambda: msgspec.to_builtins(one, order="deterministic"), "to_builtins"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--json", type=Path, help="write the numbers there")
    given = parser.parse_args()
    measured = rows(made(given.steps), given.rounds)
    table = Table("measured", "ours", "peer", "unit", "ratio", "")
    for each in measured:
        table.add_row(each.name, f"{each.ours:.1f}", f"{each.peer:.1f}", each.unit, f"{each.ratio:.2f}", each.note)
    console.print(table)
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps([asdict(each) for each in measured]))


if __name__ == "__main__":
    main()
