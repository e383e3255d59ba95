"""What the CloudEvents headers of records cost, each beside the same records without them, in one run.

    bytes     of a record in the broker's log, compressed in the batches that the producer made
    produce   records a second from the first `publish` to the last acknowledgement
    read      records a second by the reader that every role has, undecoded

Starts a broker in a temporary directory. Rounds alternate between the two sides and the medians are compared, so that
what drifts falls on both alike.

    python bench/events.py --records 3000 --rounds 9
"""

from __future__ import annotations

import argparse
import random
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from distrl.broker import topic_admin
from distrl.broker.producer import RecordProducer
from distrl.broker.reader import LogReader
from distrl.broker.topics import topic_name
from distrl.config import Config, load, with_run
from distrl.stack.local import LocalStack
from distrl.types import Heartbeat, Record
from distrl.wire.codec import encode
from generator import trajectory
from log import Row, alternated, console
from rich.table import Table


def described(config: Config, topic: str, records: Sequence[Record]) -> None:
    with RecordProducer(config, "bench") as producer:
        for number, each in enumerate(records):
            producer.publish(topic, str(number), each)
        producer.flush(60)


def bare(config: Config, topic: str, records: Sequence[Record]) -> None:
    """The same without the headers, as it was before they were there."""
    name = topic_name(config.run, topic)
    with RecordProducer(config, "bench") as producer:
        for number, each in enumerate(records):
            producer.publish_bytes(name, str(number).encode(), encode(each))
        producer.flush(60)


def read(config: Config, topic: str) -> None:
    with LogReader(config, topic) as reader:
        for _ in reader.to_end():
            pass


def stored(folder: Path, config: Config, topic: str) -> int:
    """Bytes of the topic in the broker's log."""
    found = folder.glob(f"**/{topic_name(config.run, topic)}-0/*.log")
    return sum(path.stat().st_size for path in found)


def rows(config: Config, folder: Path, topic: str, records: Sequence[Record], rounds: int) -> Iterator[Row]:
    ours, peer = (with_run(config, f"{config.run}-{name}") for name in ("events", "bare"))
    mean = sum(len(encode(each)) for each in records) / len(records)
    a, b = alternated(rounds, lambda: described(ours, topic, records), lambda: bare(peer, topic, records))
    written = len(records) * (rounds + 1)
    sizes = [stored(folder, each, topic) / written for each in (ours, peer)]
    yield Row(f"{topic}: bytes", *sizes, "bytes", sizes[0] / sizes[1], f"{mean:.0f} bytes of value")
    yield Row(f"{topic}: produce", len(records) / a, len(records) / b, "records/s", b / a, "")
    a, b = alternated(rounds, lambda: read(ours, topic), lambda: read(peer, topic))
    yield Row(f"{topic}: read", written / a, written / b, "records/s", b / a, "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=3_000)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    made: dict[str, Callable[[int], Record]] = {
        "trajectories": lambda number: trajectory(number, random.Random(number)),
        "heartbeats": lambda number: Heartbeat(
            f"worker-{number % 8}", "worker", number, 7, "ab" * 32, {"steps": number}
        ),
    }
    table = Table("measured", "with headers", "without", "unit", "ratio", "")
    with tempfile.TemporaryDirectory(prefix="distrl-bench-") as folder, ExitStack() as after:
        own = [f"run=bench-{uuid.uuid4().hex[:8]}", f"stack.directory={folder}/stack"]
        config = load(
            sets=[*own, f"store.url=file://{folder}/objects", 'devices.addresses=["127.0.0.1:1"]'], environ={}
        )
        stack = LocalStack(config, console.print)
        config = stack.up(reuse=True)
        after.callback(stack.down)
        for name in ("events", "bare"):
            topic_admin.ensure(with_run(config, f"{config.run}-{name}"))
        for topic, make in made.items():
            records = [make(number) for number in range(given.records)]
            for each in rows(config, Path(folder), topic, records, given.rounds):
                table.add_row(
                    each.name, f"{each.ours:.5g}", f"{each.peer:.5g}", each.unit, f"{each.ratio:.2f}", each.note
                )
    console.print(table)


if __name__ == "__main__":
    main()
