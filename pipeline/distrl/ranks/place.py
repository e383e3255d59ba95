"""Which rank this process is, read from the environment variables of torchrun and other launchers. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from distrl.errors import ConfigError

LOOPBACK = "127.0.0.1"
RESTARTS = "TORCHELASTIC_RESTART_COUNT"


@dataclass(frozen=True, slots=True)
class Place:
    """One of `world` ranks."""

    rank: int = 0
    world: int = 1
    local_rank: int = 0
    """Its number among the ranks of its machine."""
    attempt: int = 0
    """How often torchrun has started the ranks again, if all are on one machine; else 0, as each machine counts by
    itself."""

    @property
    def leads(self) -> bool:
        """Whether it is rank 0, which journals and publishes; the others carry out its orders."""
        return self.rank == 0

    def environ(self, port: int) -> dict[str, str]:
        """The variables from which `place_of` reads it. port: where rank 0 listens on this machine."""
        numbers = {"RANK": self.rank, "WORLD_SIZE": self.world, "LOCAL_RANK": self.local_rank, "MASTER_PORT": port}
        return {"MASTER_ADDR": LOOPBACK, **{name: str(number) for name, number in numbers.items()}}


def place_of(environ: Mapping[str, str]) -> Place | None:
    """The place that a launcher has given this process; None where none has. Raises ConfigError."""
    if "RANK" not in environ and "WORLD_SIZE" not in environ:
        return None
    rank, world = _number("RANK", environ), _number("WORLD_SIZE", environ)
    if not rank < world:
        raise ConfigError("RANK", f"is {rank}, and WORLD_SIZE is {world}", "ranks are 0 to WORLD_SIZE - 1")
    if world > 1 and not environ.get("MASTER_ADDR"):
        raise ConfigError("MASTER_ADDR", "is not set", "set it to the address of rank 0, as torchrun does")
    if world > 1:
        _number("MASTER_PORT", environ)
    local_rank = _number("LOCAL_RANK", environ) if "LOCAL_RANK" in environ else 0
    alone = environ.get("LOCAL_WORLD_SIZE") == environ["WORLD_SIZE"] and RESTARTS in environ
    return Place(rank, world, local_rank, _number(RESTARTS, environ) if alone else 0)


def _number(name: str, environ: Mapping[str, str]) -> int:
    given = environ.get(name, "")
    if not given.isascii() or not given.isdigit():
        raise ConfigError(
            name,
            f"is {given!r}, no number" if given else "is not set",
            "RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT belong together: start with torchrun or `--ranks`",
        )
    return int(given)
