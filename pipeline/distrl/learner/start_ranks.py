"""Starts or joins the ranks of a learner: started here, by torchrun, or each in a pod of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

from distrl.compute import refuse_idle_ranks
from distrl.config import Config
from distrl.errors import ConfigError
from distrl.learner.ranks import follow, refuse_other_settings
from distrl.ranks.group import ALONE, Ranks, joined, leave
from distrl.ranks.place import Place, place_of
from distrl.ranks.processes import RankProcesses
from distrl.store.objects import open_store
from distrl.telemetry.monitor import Monitor


@contextmanager
def leading(config: Config, stop: threading.Event, command: Sequence[str]) -> Iterator[Ranks | None]:
    """The group of all ranks, with this process as rank 0; None where `stop` was set before all had joined.

    command: arguments of `distrl` for the other ranks, where they are started here. Raises ConfigError, RankError.
    """
    place = place_of(os.environ)
    world = config.learner.ranks if place is None else place.world
    if world != config.learner.ranks != 1:
        raise ConfigError(
            "learner.ranks",
            f"is {config.learner.ranks}, and a launcher says that there are {world} ranks (WORLD_SIZE)",
            "leave it out: the launcher decides",
        )
    refuse_idle_ranks(config, world)
    if world == 1:
        yield ALONE
        return
    with RankProcesses(command, world) if place is None else nullcontext() as others:
        try:
            listener, check = (None, lambda: None) if others is None else (others.listener, others.check)
            ranks = joined(place or Place(0, world), config.monitoring.stuck_s, stop, listener, check)
            if ranks is not None:
                refuse_other_settings(config, ranks)
            yield ranks
        finally:
            leave()


def follow_first(
    given: Config, place: Place, stop: threading.Event, monitor: Monitor, of_run: Callable[[], Config]
) -> None:
    """Run every rank but 0 to its end. given: its own settings; of_run: returns the run's settings, which are in the
    log once rank 0 has joined."""
    ranks = joined(place, given.monitoring.stuck_s, stop)
    if ranks is None:
        return
    try:
        config = of_run()
        refuse_other_settings(config, ranks)
        follow(config, ranks, open_store(config.store).get, stop, monitor)
    finally:
        leave()
