"""Which adapters the learner deletes (`learner.keep_adapters`). Pure, but for `prune_adapters`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from distrl.broker.reader import LogReader, decoded, read_since
from distrl.broker.versions import Lineage
from distrl.config import Config
from distrl.errors import WireError
from distrl.store.adapters import delete_adapters
from distrl.store.objects import ObjectStore
from distrl.types import LogPosition, Trajectory, Version

LOG = logging.getLogger("distrl.learner.adapters")

BLOCK: Final = 16
"""Versions that are noted together: a run of 10^7 trajectories has 10^6 versions, and each checkpoint says all this."""


class NamedVersions:
    """Which versions the trajectories of the log name, as blocks of BLOCK: partition -> block -> the last offset.

    since: partition -> the first offset that was looked at; 0 for one left out.
    """

    def __init__(self, since: Mapping[int, int] | None = None) -> None:
        self._since = dict(since or {})
        self._last: dict[int, dict[int, int]] = {}

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> NamedVersions:
        """The inverse of `to_json`."""
        made = cls({int(partition): first for partition, first in saved["since"].items()})
        for partition, blocks in saved["last"].items():
            made._last[int(partition)] = {int(block): offset for block, offset in blocks.items()}
        return made

    def to_json(self) -> dict[str, Any]:
        """For a checkpoint."""
        return {
            "since": {str(partition): first for partition, first in sorted(self._since.items())},
            "last": {
                str(partition): {str(block): offset for block, offset in sorted(blocks.items())}
                for partition, blocks in sorted(self._last.items())
            },
        }

    def see(self, position: LogPosition, trajectory: Trajectory) -> None:
        """A record of the trajectories topic."""
        last = self._last.setdefault(position.partition, {})
        for block in {step.version // BLOCK for step in trajectory.steps if step.version >= 0}:
            last[block] = max(last.get(block, 0), position.offset)

    def named_from(self, first: Mapping[int, int]) -> frozenset[int] | None:
        """Blocks with a version that a record at or after `first`, by partition, names; None where that is unknown."""
        if any(offset < self._since.get(partition, 0) for partition, offset in first.items()):
            return None
        return frozenset(
            block
            for partition, blocks in self._last.items()
            for block, offset in blocks.items()
            if offset >= first.get(partition, 0)
        )


def prunable(
    versions: Iterable[Version], keep: int, every: int | None, is_named: Callable[[int], bool]
) -> list[Version]:
    """The versions whose adapters may go: all but the newest `keep`, every `every`-th number (None: none of them) and
    those of which `is_named` says that a retained trajectory names them.

    An adapter that a kept version points at too (a rollback) stays.
    """
    ordered = sorted(versions, key=lambda version: version.version)
    recent = {version.version for version in ordered[-keep:]}

    def stays(number: int) -> bool:
        return number in recent or (every is not None and number % every == 0) or is_named(number)

    needed = {version.adapter.key for version in ordered if stays(version.version)}
    return [version for version in ordered if version.adapter.key not in needed]


def prune_adapters(
    config: Config, store: ObjectStore, lineage: Lineage, named: NamedVersions, read: Mapping[int, int]
) -> int:
    """Delete the adapters that the settings let go; returns how many. Only the run's learner may call it.

    lineage: kept from call to call, so that each reads the new versions alone. named: by the trajectories before
    `read`, partition -> offset; those after it are looked at here. Interrupted anywhere, the next call goes on. Raises
    BrokerError, StoreError.
    """
    keep, every = config.learner.keep_adapters, config.learner.keep_adapters_every
    if keep is None:
        return 0
    # by the log, not by what this learner has published: one that was replaced unseen knows no later version, and would
    # take the weights of an earlier one that its successor has published again
    versions = lineage.read()
    if len(versions) <= keep:
        return 0
    for raw in read_since(config, "trajectories", read):
        with suppress(WireError):  # a record that nobody can read names no version
            named.see(raw.position, decoded(raw, Trajectory))
    with LogReader(config, "trajectories") as reader:
        blocks = named.named_from(reader.next_offsets)
    if blocks is None:
        LOG.info("no adapter is pruned yet: what the oldest trajectories name was not noted when they were learned")
        return 0
    doomed = prunable(versions, keep, every, lambda number: number // BLOCK in blocks)
    settings = f"learner.keep_adapters={keep}" + (f" and keep_adapters_every={every}" if every is not None else "")
    deleted = delete_adapters(store, config.run, doomed, settings)
    if deleted:
        LOG.info("%d adapters pruned (%s)", deleted, settings)
    return deleted
