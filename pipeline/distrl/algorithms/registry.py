"""Every algorithm, by the type of its settings. `algorithm.type` chooses one; a run's warm-up comes before it,
or is its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from distrl.algorithms.aride.algorithm import Aride
from distrl.algorithms.aride.memory import ArideMemory
from distrl.algorithms.cloning import cloning, cloning_memory
from distrl.algorithms.digirl import DigiRl, DigiRlMemory
from distrl.algorithms.filtered_bc import filtered_bc, filtered_memory
from distrl.algorithms.grpo import GroupMemory, Grpo
from distrl.algorithms.protocol import Algorithm, Context, Memory
from distrl.algorithms.r2d3.algorithm import R2d3
from distrl.algorithms.r2d3.memory import R2d3Memory
from distrl.algorithms.r2d3.needs import refuse_other
from distrl.algorithms.vtrace import Vtrace, vtrace_memory
from distrl.config import Config, Section
from distrl.config import algorithms as settings
from distrl.policy.protocol import Tokenizer


@dataclass(frozen=True, slots=True)
class Registered:
    """algorithm: makes the algorithm over a policy. memory: makes its memory alone, for callers without a network.
    pretrains: whether its own updates learn from the demonstrations in the warm-up, instead of cloning. needs: raises
    ConfigError for the tokenizer of a policy that it cannot train."""

    algorithm: Callable[[Context], Algorithm]
    memory: Callable[[Config], Memory]
    pretrains: bool = False
    needs: Callable[[Tokenizer], None] = lambda tokenizer: None


ALGORITHMS: Mapping[type[Section], Registered] = {
    settings.ArideSettings: Registered(Aride, ArideMemory),
    settings.CloningSettings: Registered(cloning, cloning_memory),
    settings.DigiRlSettings: Registered(DigiRl, DigiRlMemory),
    settings.FilteredBcSettings: Registered(filtered_bc, filtered_memory),
    settings.GrpoSettings: Registered(Grpo, GroupMemory),
    settings.R2d3Settings: Registered(R2d3, R2d3Memory, pretrains=True, needs=refuse_other),
    settings.VtraceSettings: Registered(Vtrace, vtrace_memory),
}


def algorithm_of(context: Context) -> Algorithm:
    return ALGORITHMS[type(context.config.algorithm)].algorithm(context)


def refuse_other_policy(config: Config, tokenizer: Tokenizer) -> None:
    """Raises ConfigError where the algorithm cannot train a policy with this tokenizer."""
    ALGORITHMS[type(config.algorithm)].needs(tokenizer)


def cloning_updates(config: Config) -> int:
    """How many updates of behaviour cloning come before the algorithm's own."""
    return 0 if ALGORITHMS[type(config.algorithm)].pretrains else config.warmup.updates


def memory_of(config: Config) -> Memory:
    return ALGORITHMS[type(config.algorithm)].memory(config)
