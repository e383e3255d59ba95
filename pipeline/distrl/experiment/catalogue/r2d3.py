"""R2D3 on phones, by the settings that DI-engine's study and the R2D3 paper vary. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from distrl.experiment.catalogue.arms import ASYNC, LEARNED, PHONES, episodes, until
from distrl.experiment.costs import PAPER, TAILS
from distrl.experiment.plan import Arm, Experiment, Preset

PRETRAINED: Final = ("warmup.updates=5", "warmup.minibatches=20")
"""100 gradient steps on demonstrations alone, as in DI-engine's study."""
NOT_PRETRAINED: Final = ("warmup.updates=0", "warmup.minibatches=20")
R2D2: Final = (*NOT_PRETRAINED, "warmup.demonstrations=0", "algorithm.demo_ratio=0")


def _capacity(transitions: int) -> str:
    return f"algorithm.replay.capacity={transitions}"


def _arms(preset: Preset) -> list[Arm]:
    """One setting at a time. A quick run has some 2,500 transitions, so a buffer of 5,000 is as good as one of 10,000
    there, and is left to `full`."""
    ways = {
        "r2d3": PRETRAINED,
        "demo ratio 1/16": (*PRETRAINED, "algorithm.demo_ratio=0.0625"),
        "demo ratio 1/2": (*PRETRAINED, "algorithm.demo_ratio=0.5"),
        "buffer 1,000": (*PRETRAINED, _capacity(1_000)),
        "buffer 5,000": (*PRETRAINED, _capacity(5_000)),
        "no pre-training": NOT_PRETRAINED,
        "no L2": (*PRETRAINED, "algorithm.l2_weight=0"),
        "r2d2": R2D2,
    }
    if preset == "quick":
        del ways["buffer 5,000"]
    common = ("algorithm.type=r2d3", ASYNC, *episodes(preset, 48, 4))
    arm = Arm("", PHONES, PAPER.with_tail(TAILS["plain"]), common, "home", learns=True, recurrent=True)
    return [replace(arm, name=name, sets=(*common, *sets)) for name, sets in ways.items()]


R2D3: Final = Experiment(
    "r2d3",
    "R2D3 by demonstrations, buffer, pre-training and L2, against R2D2 (DI-engine's study and the R2D3 paper)",
    "A recurrent Q over the base model, made in OUT, learns the suite `home` with 32 phones. `r2d3`: a demo ratio of "
    "1/4, buffers of 10,000 transitions, 100 gradient steps of pre-training on 128 demonstrations, L2 of 1e-5; each "
    "other arm changes one of these. `r2d2` has no demonstrations at all.",
    _arms,
    until(2400.0, 24_000.0),
    "success_last",
    "the first",
    LEARNED,
)
