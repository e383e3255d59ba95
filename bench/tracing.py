"""What traces cost, each beside the same without them, in one run.

    record     bytes of a batch of trajectories, compressed as the producer does it, with the header of each
    episode    processor time of a worker for one trajectory: its bytes, and the spans of the episode

The collector is a port of this process that reads what comes and keeps nothing; sending is part of the time.

    python bench/tracing.py --steps 12 --rounds 20
"""

from __future__ import annotations

import argparse
import random
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow
from distrl.broker.producer import Headers
from distrl.clock import SYSTEM_CLOCK
from distrl.config import load
from distrl.telemetry.tracing import OFF, Tracer, tracing
from distrl.types import Trajectory
from distrl.wire.codec import encode
from distrl.worker.traces import traced
from generator import trajectory
from log import Row, alternated, console
from rich.table import Table

BATCH = 100
"""Trajectories of a compressed batch, and of a round."""


class Collector(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def played(tracer: Tracer, batch: list[Trajectory]) -> list[tuple[bytes, Headers]]:
    """What a worker makes of each: the record's value and its headers."""
    found = []
    for each in batch:
        with traced(tracer, (), each, SYSTEM_CLOCK) as headers:
            found.append((encode(each), headers))
    return found


def compressed(records: list[tuple[bytes, Headers]]) -> int:
    parts = [[value, *(name.encode() + (text or b"") for name, text in headers)] for value, headers in records]
    return len(pyarrow.Codec("zstd").compress(b"".join(part for each in parts for part in each)))


def rows(tracer: Tracer, batch: list[Trajectory], rounds: int) -> list[Row]:
    plain, with_headers = compressed(played(OFF, batch)) / BATCH, compressed(played(tracer, batch)) / BATCH
    sides = alternated(rounds, lambda: played(tracer, batch), lambda: played(OFF, batch), time.process_time)
    a, b = (1e6 * seconds / BATCH for seconds in sides)
    return [
        Row("record", with_headers, plain, "bytes", with_headers / plain, f"of {len(encode(batch[0]))} uncompressed"),
        Row("episode", a, b, "µs", a / b, f"{len(batch[0].steps)} steps"),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--rounds", type=int, default=20)
    given = parser.parse_args()
    batch = []
    for number in range(BATCH):
        one = trajectory(number, random.Random(number))
        batch.append(replace(one, steps=tuple(one.steps[index % len(one.steps)] for index in range(given.steps))))
    with ThreadingHTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        config = load(sets=[f"tracing.endpoint=http://127.0.0.1:{server.server_port}"], environ={})
        with tracing(config, "worker", "worker-0") as tracer:
            measured = rows(tracer, batch, given.rounds)
        server.shutdown()
    table = Table("measured", "traced", "not", "unit", "ratio", "")
    for each in measured:
        table.add_row(each.name, f"{each.ours:.1f}", f"{each.peer:.1f}", each.unit, f"{each.ratio:.2f}", each.note)
    console.print(table)


if __name__ == "__main__":
    main()
