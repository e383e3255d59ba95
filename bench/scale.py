"""How costs grow with a run and its phones. One sub-command for each of them.

ids       memory and bytes of a checkpoint for the ids that a run has seen, and the time to add one
memory    the learner's memory with a full buffer of a large model's screens
restart   how long a learner takes to its first update where its features are kept (starts a broker)
start     how long a feeder and `distrl status` take to start behind a long log (starts a broker)
updates   what an update of A-RIDE costs by the size of its buffer, beside another revision
waits     what a learner whose data never lacks loses to input and output (starts a broker)
fleet     what 10,000 phones ask of feeder, consumers, producers, learner and versions (starts a broker)

python bench/scale.py ids --tasks 10000000 --retried 0.05 --json out/ids.json
python bench/scale.py memory --precision float16 --json out/memory.json
python bench/scale.py restart --transitions 10000 --json out/restart.json
python bench/scale.py start --trajectories 10000 100000 1000000 --json out/start.json
python bench/scale.py updates --against main~1 --plot out/updates.svg
python bench/scale.py waits --latency-ms 0,20 --against main~1 --json out/waits.json
python bench/scale.py fleet --phones 10000 --json out/fleet.json
"""

from __future__ import annotations

import argparse
import json
import random
import time
import tracemalloc
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import feature_memory
import fleet
import learner_waits
import long_log
import restart
import update_cost
from distrl.broker.duplicates import IdSet
from distrl.config import load
from distrl.feeder.facts import next_retry
from distrl.tasks.suite import suite_named
from distrl.types import Split
from rich.console import Console
from rich.table import Table

Figures = Mapping[str, Any]
"""What was measured, with its unit in the name: numbers, or for JSON alone whatever belongs together."""


@dataclass(frozen=True, slots=True)
class Command:
    """A sub-command: `arguments` declares its options, `run` measures."""

    arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Figures]


def ids_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", type=int, default=10_000_000)
    parser.add_argument("--retried", type=float, default=0.05, help="share of attempts that are fed again")


def ids(given: argparse.Namespace) -> Figures:
    """One set of ids, as a learner holds two and a feeder two."""
    config = load(environ={})
    first = suite_named(config.feeder.suite).task(0, 0, Split.TRAIN).task_id
    series, digits = f"{config.run}/{first.rstrip('0123456789')}", len(first) - len(first.rstrip("0123456789"))
    rule = random.Random(0)

    def attempts(tasks: range) -> Iterator[str]:
        for number in tasks:
            attempt: str | None = f"{series}{number:0{digits}d}"
            while attempt is not None:
                yield attempt
                attempt = next_retry(attempt, config.feeder.max_retries) if rule.random() < given.retried else None

    tracemalloc.start()
    found = IdSet(attempts(range(given.tasks)))
    memory, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    count = len(found)
    further = list(attempts(range(given.tasks, given.tasks + 100_000)))
    began = time.process_time()
    for each in further:
        found.add(each)
    adding = time.process_time() - began
    began = time.process_time()
    saved = json.dumps(found.to_json(), separators=(",", ":"))
    saving = time.process_time() - began
    began = time.process_time()
    IdSet.of(json.loads(saved))
    loading = time.process_time() - began
    return {
        "ids": count,
        "memory, MB": memory / 1e6,
        "checkpoint, MB": len(saved) / 1e6,
        "adding one, µs": 1e6 * adding / len(further),
        "to JSON, s": saving,
        "from JSON, s": loading,
    }


COMMANDS: Mapping[str, Command] = {
    "ids": Command(ids_arguments, ids),
    "memory": Command(feature_memory.arguments, feature_memory.measure),
    "restart": Command(restart.arguments, restart.measure),
    "start": Command(long_log.arguments, long_log.measure),
    "updates": Command(update_cost.arguments, update_cost.measure),
    "waits": Command(learner_waits.arguments, learner_waits.measure),
    "fleet": Command(fleet.arguments, fleet.measure),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, command in COMMANDS.items():
        described = commands.add_parser(name, help=command.run.__doc__)
        command.arguments(described)
        described.add_argument("--json", type=Path, help="write the numbers there")
    given = parser.parse_args()
    figures = COMMANDS[given.command].run(given)
    table = Table("measured", "figure")
    for name, figure in figures.items():
        if isinstance(figure, int | float):
            table.add_row(name, f"{figure:,.3f}".rstrip("0").rstrip("."))
    Console().print(table)
    if given.json is not None:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(figures))


if __name__ == "__main__":
    main()
