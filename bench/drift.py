"""What agents of a run make of phones whose UI is of a later generation, as in the paper's case study (A.1).

The run's versions are taken from its log and store, so its stack has to be up. They play the held-out tasks on phones
in this process, greedily, in each generation; the tasks and the phones' seeds are the same in all.

    python bench/drift.py --config out/demo/latest/settings.yaml --versions first,last --episodes 128
"""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path

import torch
from distrl.broker.versions import lineage
from distrl.config import load
from distrl.errors import DistrlError
from distrl.evaluate.curves import score
from distrl.evaluate.run import named
from distrl.policy.registry import policy_of
from distrl.store.objects import open_store
from distrl.tasks.lists import suite_of
from distrl.tasks.suite import EVALUATION_SEED
from distrl.types import Split
from learning import episodes, policy
from rich.console import Console
from rich.progress import track
from rich.table import Table
from simphone.generations import NEWEST

CHANGES = ("as it was learned", "recoloured", "and moved", "and renamed", "and restyled")
console = Console()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, help="the run's settings")
    parser.add_argument("--set", action="append", default=[], help="one setting as path.to.it=value")
    parser.add_argument("--versions", default="first,last")
    parser.add_argument("--episodes", type=int, default=128)
    parser.add_argument("--json", type=Path, help="write the numbers there")
    options = parser.parse_args()
    torch.set_num_threads(2)
    config = load(options.config, options.set)
    store, suite = open_store(config.store), suite_of(config.feeder)
    tasks = [suite.task(index, EVALUATION_SEED, Split.TEST) for index in range(options.episodes)]
    versions = named(options.versions, lineage(config))
    table = Table("generation", *(f"version {each.version}" for each in versions))
    measured = []
    for generation in track(range(NEWEST + 1), "generations", console=console, transient=True):
        cells = []
        for version in versions:
            agent = policy_of(config.policy)
            agent.load(store.get(version.adapter))
            popups = config.phones.popup_probability
            found = score(episodes(tasks, policy(agent, None, 1), {}, popups, False, generation))
            measured.append({"generation": generation, "version": version.version} | dataclasses.asdict(found))
            cells.append(" ".join(found.as_text()))
        table.add_row(f"{generation}: {CHANGES[generation]}", *cells)
    console.print(table)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(measured, indent=1))


if __name__ == "__main__":
    try:
        main()
    except DistrlError as error:
        raise SystemExit(str(error)) from None
