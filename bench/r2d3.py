"""R2D3 away from phones: with demonstrations and a memory it solves the key-and-door task (key_door.py).

R2D2, which has no demonstrations, and DQfD, which has no memory, do not. Its other parts can be left out or changed one
by one.

    python bench/r2d3.py --arms r2d3,r2d2,dqfd --seeds 0,1,2 --json out/r2d3.json
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from distrl.replay.sequences import Shape
from key_door import chance_of_random, starts
from r2d3_agent import Agent, Settings
from rich.console import Console
from rich.table import Table

R2D3: Final = Settings()
ARMS: Final[Mapping[str, Settings]] = {
    "r2d3": R2D3,
    "r2d2": replace(R2D3, demonstrations=0),
    "dqfd": replace(R2D3, recurrent=False, shape=Shape(burn_in=0, length=1, ahead=R2D3.shape.ahead, stride=1)),
    "ratio-1-16": replace(R2D3, demo_ratio=1 / 16),
    "ratio-1-2": replace(R2D3, demo_ratio=1 / 2),
    "ratio-1": replace(R2D3, demo_ratio=1.0),
    "demonstrations-10": replace(R2D3, demonstrations=10),
    "demonstrations-10-alone": replace(R2D3, demonstrations=10, demo_ratio=1.0),
    "no-pretraining": replace(R2D3, pretraining=0),
    "no-margin": replace(R2D3, loss=replace(R2D3.loss, margin_weight=0.0)),
    "no-l2": replace(R2D3, loss=replace(R2D3.loss, l2_weight=0.0)),
    "no-burn-in": replace(R2D3, shape=replace(R2D3.shape, burn_in=0)),
}
EVERY: Final = 10
"""Rounds from one look at the greedy policy to the next."""
SOLVED: Final = 0.9

console = Console()


@dataclass(frozen=True, slots=True)
class Result:
    """success: share of all starts from which the greedy policy succeeds at the end. solved_after: rounds until it was
    SOLVED or more for the first time, None for never. rewarded: how many of its own episodes had a reward."""

    arm: str
    seed: int
    success: float
    solved_after: int | None
    rewarded: int
    episodes: int
    cpu_s: float
    curve: tuple[float, ...]


def measured(arm: str, settings: Settings, seed: int) -> Result:
    begun = time.process_time()
    agent, rewarded, curve = Agent(settings, seed), 0, []

    def look(number: int, share: float) -> None:
        nonlocal rewarded
        rewarded += round(share * settings.actors)
        if number % EVERY == EVERY - 1:
            curve.append(agent.evaluate())

    success = agent.run(look)
    solved = next((EVERY * (i + 1) for i, each in enumerate(curve) if each >= SOLVED), None)
    episodes = settings.rounds * settings.actors
    return Result(arm, seed, success, solved, rewarded, episodes, time.process_time() - begun, tuple(curve))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arms", default="r2d3,r2d2,dqfd", help=f"of {', '.join(ARMS)}")
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--rounds", type=int, default=R2D3.rounds, help="of 16 episodes and 16 updates each")
    parser.add_argument("--json", type=Path, help="write the numbers there")
    options = parser.parse_args()
    torch.set_num_threads(1)
    chance = chance_of_random(R2D3.room)
    console.print(f"{len(starts(R2D3.room))} starts; random actions succeed with probability {chance:.1e}")
    found = []
    for arm in options.arms.split(","):
        for seed in map(int, options.seeds.split(",")):
            found.append(measured(arm, replace(ARMS[arm], rounds=options.rounds), seed))
            console.print(f"{arm} {seed}: {found[-1].success:.0%} after {found[-1].cpu_s:.0f} s of the processor")
    console.print(table(found))
    if options.json:
        shown: dict[str, Any] = {"chance": chance, "results": [asdict(each) for each in found]}
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(shown, indent=1) + "\n")


def table(found: list[Result]) -> Table:
    shown = Table("arm", "success of each seed", "mean", "rounds until 90 %", "rewarded episodes", "processor")
    for arm in dict.fromkeys(each.arm for each in found):
        rows = [each for each in found if each.arm == arm]
        shown.add_row(
            arm,
            " ".join(f"{each.success:.0%}" for each in rows),
            f"{np.mean([each.success for each in rows]):.0%}",
            " ".join(str(each.solved_after or "–") for each in rows),
            " ".join(f"{each.rewarded}/{each.episodes}" for each in rows),
            f"{np.mean([each.cpu_s for each in rows]):.0f} s",
        )
    return shown


if __name__ == "__main__":
    main()
