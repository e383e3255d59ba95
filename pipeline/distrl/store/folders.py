"""The folders of the store: what lies in each, and which are a run's own.

A run's own folder has the run in its path, so that a role may be given the objects of one run and of no other
(distrl/rights). Objects that lie in `screenshots/`, `adapters/` and `verdicts/` themselves are of runs that were begun
before that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class Folder:
    name: str
    holds: str
    """For people."""
    is_shared: bool = False
    """By all runs of the store."""

    def of(self, run: str) -> str:
        """The folder of `run`, without a slash at its end."""
        return self.name if self.is_shared else f"{self.name}/{run}"


SCREENSHOTS = Folder("screenshots", "what the phones showed, by day")
ADAPTERS = Folder("adapters", "the weights of each version")
RUNS = Folder("runs", "checkpoints, and the numbers that versions were given")
VERDICTS = Folder("verdicts", "what a judge said, so that it is asked once")
AGENTS = Folder("agents", "descriptions of prompted agents, by their sha256", is_shared=True)
CHECK = Folder("check", "the probe of `distrl doctor`", is_shared=True)

FOLDERS: Mapping[str, Folder] = MappingProxyType(
    {each.name: each for each in (SCREENSHOTS, ADAPTERS, RUNS, VERDICTS, AGENTS, CHECK)}
)
