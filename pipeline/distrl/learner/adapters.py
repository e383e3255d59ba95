"""Which adapters the learner deletes (`learner.keep_adapters`). Pure, except `prune_adapters`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Container, Iterable, Mapping
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
"""Versions that are recorded together: a run of 10^7 trajectories has 10^6 versions, and every checkpoint holds them.
"""


class NamedVersions:
    """Which versions the trajectories of the log name, in blocks of BLOCK versions.

    For each partition and block it stores the offset of the last trajectory that names a version of the block.
    since: partition -> the first offset that was examined; 0 for a partition that is not in it.
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
        """Note the versions that `trajectory`, read from `position`, names."""
        last = self._last.setdefault(position.partition, {})
        for block in {step.version // BLOCK for step in trajectory.steps if step.version >= 0}:
            last[block] = max(last.get(block, 0), position.offset)

    def named_from(self, first: Mapping[int, int]) -> frozenset[int] | None:
        """The blocks with a version that some record from `first` (partition -> offset) on names.

        None where that is unknown, because the records from `first` on were not all examined.
        """
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
    """The versions whose adapters may be deleted.

    An adapter stays for the newest `keep` versions, for every `every`-th version (None: for none of these), and for
    each version for which `is_named` returns True, because a retained trajectory names it. An adapter that one of these
    shares with an older version (after a rollback) stays too.
    """
    ordered = sorted(versions, key=lambda version: version.version)
    recent = {version.version for version in ordered[-keep:]}

    def stays(number: int) -> bool:
        return number in recent or (every is not None and number % every == 0) or is_named(number)

    needed = {version.adapter.key for version in ordered if stays(version.version)}
    return [version for version in ordered if version.adapter.key not in needed]


def prune_adapters(
    config: Config,
    store: ObjectStore,
    lineage: Lineage,
    named: NamedVersions,
    read: Mapping[int, int],
    announced: Container[str] = (),
) -> int:
    """Delete the adapters that the settings no longer retain; returns how many. Only the run's learner may call it.

    lineage: reused from call to call, so that each call reads only the new versions. named: what the trajectories
    before `read` (partition -> offset) name; those after it are read here. announced: keys of adapters that stay, as
    their versions may not be visible in the log yet. If it is interrupted, the next call continues. Raises
    BrokerError, StoreError.
    """
    keep, every = config.learner.keep_adapters, config.learner.keep_adapters_every
    if keep is None:
        return 0
    # From the log, not from what this learner has published: a learner that was replaced without noticing knows no
    # later version, and would delete weights that its successor has published again under a new number.
    versions = lineage.read()
    if len(versions) <= keep:
        return 0
    for raw in read_since(config, "trajectories", read):
        with suppress(WireError):  # a record that nobody can read names no version
            named.see(raw.position, decoded(raw, Trajectory))
    with LogReader(config, "trajectories") as reader:
        blocks = named.named_from(reader.next_offsets)
    if blocks is None:
        LOG.info("no adapter is pruned yet: which versions the oldest trajectories name was not recorded at that time")
        return 0
    doomed = [
        version
        for version in prunable(versions, keep, every, lambda number: number // BLOCK in blocks)
        if version.adapter.key not in announced
    ]
    settings = f"learner.keep_adapters={keep}" + (f" and keep_adapters_every={every}" if every is not None else "")
    deleted = delete_adapters(store, config.run, doomed, settings)
    if deleted:
        LOG.info("%d adapters pruned (%s)", deleted, settings)
    return deleted
