"""Every algorithm, by the type of its settings. `algorithm.type` chooses one; a run's warm-up comes before it,
or is its own.

Another package brings one with an entry point of the group `distrl.algorithms` (config/algorithm_plugins.py). Its
settings name its `Registered`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import EntryPoint

from distrl import plugins
from distrl.accelerator import is_explained
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
from distrl.config import Config, PluginSettings, Section
from distrl.config import algorithms as settings
from distrl.config.algorithm_plugins import TYPE, package_of
from distrl.errors import AlgorithmError, ConfigError, DistrlError
from distrl.policy.protocol import Tokenizer

LOG = logging.getLogger("distrl.algorithms")


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
    """The algorithm over a policy. Raises ConfigError as `memory_of`."""
    found = _registered(context.config).algorithm(context)
    if isinstance(context.config.algorithm, PluginSettings):
        plugins.refuse_lacking(found, Algorithm, ConfigError)
        plugins.refuse_lacking(found.memory, Memory, ConfigError)
    return found


def refuse_other_policy(config: Config, tokenizer: Tokenizer) -> None:
    """Raises ConfigError where the algorithm cannot train a policy with this tokenizer, and as `memory_of`."""
    _registered(config).needs(tokenizer)


def cloning_updates(config: Config) -> int:
    """How many updates of behaviour cloning come before the algorithm's own. Raises ConfigError as `memory_of`."""
    return 0 if _registered(config).pretrains else config.warmup.updates


def memory_of(config: Config) -> Memory:
    """The algorithm's memory alone. Raises ConfigError where another package brings the algorithm and it cannot be
    loaded, or lacks a part."""
    found = _registered(config).memory(config)
    if isinstance(config.algorithm, PluginSettings):
        plugins.refuse_lacking(found, Memory, ConfigError)
    return found


@contextmanager
def named_where_brought(config: Config, u: int) -> Iterator[None]:
    """Within, an error of an algorithm that another package brings becomes an AlgorithmError, which names update `u`
    and the package; the log has its traceback. DistRL's own errors stay, and those that `accelerator.explained`
    explains."""
    try:
        yield
    except DistrlError:
        raise
    except Exception as error:  # whatever the code of another package raises
        if not isinstance(config.algorithm, PluginSettings) or is_explained(error):
            raise
        kind, package = config.algorithm.type, package_of(config.algorithm)
        LOG.exception("update %d failed in %s (%s=%s)", u, package, TYPE, kind)
        raise AlgorithmError(
            f"update {u}",
            f"{TYPE} {kind} of the package {package} raised {type(error).__name__}: {error}",
            f"correct {package} (the log has the traceback); a learner that starts again makes this update again, of "
            "the same records",
        ) from error


def _registered(config: Config) -> Registered:
    brought = config.algorithm
    if not isinstance(brought, PluginSettings):
        return ALGORITHMS[type(brought)]
    entry = EntryPoint(brought.type, brought.code, plugins.ALGORITHMS)
    return plugins.instance(entry, Registered, ConfigError)
