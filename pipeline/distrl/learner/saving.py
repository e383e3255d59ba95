"""Uploads checkpoints on a thread of their own, while further updates are folded.

    begin: takes a copy of the state ─▶ thread: tensors, manifest, deletion of old checkpoints ─▶ settle

The copy is made on the fold's thread, so later updates do not change it. One upload runs at a time. A kill during an
upload leaves tensors that no manifest names; the checkpoint before then remains the newest.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import partial
from typing import Final

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from distrl.broker.versions import Lineage
from distrl.config import Config
from distrl.errors import BrokerError, StoreError
from distrl.learner.adapters import NamedVersions, prune_adapters
from distrl.learner.recover import Snapshot
from distrl.store.checkpoints import delete_checkpoints, prune, save_checkpoint, tensor_files
from distrl.store.objects import ObjectStore

LOG = logging.getLogger("distrl.learner")

POLL_S: Final = 0.1
"""How often other work is done while an upload is waited for."""

Upload = Callable[[], frozenset[str]]
"""Returns `tensor_files` after the upload; empty where pruning failed, so that the next upload deletes no file."""


class CheckpointSaver:
    """Used by one thread, the learner's. After `close` no upload is running."""

    def __init__(
        self, config: Config, store: ObjectStore, saved: int, refused: Mapping[int, str], lineage: Lineage
    ) -> None:
        """saved: number of updates of the recovered checkpoint; 0 for none. refused: number of updates of each newer
        checkpoint that recovery refused -> why. lineage: from now on used by this saver only."""
        self._config, self._store, self._refused = config, store, dict(refused)
        self.saved = saved
        """Number of updates of the newest checkpoint that is known to be complete."""
        self._lineage = lineage
        self._pool = ThreadPoolExecutor(1, "checkpoint")
        self._begun = saved
        self._upload: Upload | None = None
        """The upload that is not known to be complete, if any."""
        self._future: Future[frozenset[str]] | None = None
        """The running `_upload`; None where it has failed and was not started again."""
        self._listed: frozenset[str] = frozenset()
        """The tensor files after the last upload."""
        self._prunable: frozenset[str] = frozenset()
        """Those of them that a later upload may delete; see `journalled`."""

    @property
    def has_ended(self) -> bool:
        """Whether `settle` would return, or raise, at once."""
        return self._future is not None and self._future.done()

    @property
    def has_refused(self) -> bool:
        """Whether `delete_refused` would delete anything."""
        return bool(self._refused)

    def begin(self, made: Snapshot, read: Mapping[int, int], announced: frozenset[str] = frozenset()) -> None:
        """Start to save `made`, a copy. The upload before it must be settled or abandoned.

        read: partition -> offset before which all trajectories are covered by the version names in `made`. announced:
        keys of adapters that are not pruned. An adapter that is pruned may be stored again only once this checkpoint
        is settled.
        """
        assert self._upload is None, "one at a time"
        prunable = None if self._refused else self._prunable
        self._begun = made.u
        self._upload = partial(self._save, made, dict(read), announced, prunable)
        self._future = self._pool.submit(self._upload)

    def settle(self, meanwhile: Callable[[], object]) -> None:
        """Return once the checkpoint that was begun is stored; if its upload has failed before, upload it again.

        meanwhile: called while it waits. Raises StoreError; it may be called again then.
        """
        if self._upload is None:
            return
        if self._future is None:
            self._future = self._pool.submit(self._upload)
        while not wait([self._future], POLL_S).done:
            meanwhile()
        ended, self._future = self._future, None
        self._listed = ended.result()
        self._upload, self.saved = None, self._begun
        self._refused.pop(self._begun, None)  # this checkpoint has overwritten the refused one

    def settle_within(self, longest_s: float, meanwhile: Callable[[], object]) -> None:
        """As `settle`, retrying while the store fails; no attempt starts after `longest_s`."""
        again = Retrying(
            retry=retry_if_exception_type(StoreError),
            wait=wait_exponential(0.5, max=5.0),
            stop=stop_after_delay(longest_s),
            reraise=True,
        )
        again(self.settle, meanwhile)

    def abandon(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Wait for the running upload, and forget it whether it succeeds or not."""
        if self._future is not None:
            with suppress(StoreError):
                self.settle(meanwhile)
        self._upload = None

    def journalled(self) -> None:
        """Note that an update was journalled. No other learner had taken over before, so no file that was listed before
        belongs to another learner's upload, and the listed files may be pruned."""
        self._prunable = self._listed

    def delete_refused(self) -> None:
        """Delete the checkpoints that recovery refused: pruning keeps the highest numbers, and would keep these.

        No upload may be running. Raises StoreError.
        """
        delete_checkpoints(self._store, self._config.run, self._refused)
        self._refused = {}

    def close(self) -> None:
        """Wait for the running upload, and end the thread."""
        try:
            self.abandon()
        finally:
            self._pool.shutdown()

    def _save(
        self, made: Snapshot, read: Mapping[int, int], announced: frozenset[str], prunable: frozenset[str] | None
    ) -> frozenset[str]:
        """Runs on the thread. prunable: tensor files that may be deleted; None: prune nothing."""
        run, learner = self._config.run, self._config.learner
        save_checkpoint(self._store, run, *made)
        # The checkpoint is stored: a store that fails to delete or list only costs space, so no error is raised.
        try:
            if prunable is not None:
                prune(self._store, run, learner.keep_checkpoints, prunable)
                self._prune_adapters(made, read, announced)
            return tensor_files(self._store, run)
        except StoreError as error:
            LOG.warning("checkpoints are pruned after a later one: %s", error)
            return frozenset()

    def _prune_adapters(self, made: Snapshot, read: Mapping[int, int], announced: frozenset[str]) -> None:
        named = NamedVersions.of(made.meta["named"])
        try:
            prune_adapters(self._config, self._store, self._lineage, named, read, announced)
        except (StoreError, BrokerError) as error:
            LOG.warning("adapters are pruned after the next checkpoint: %s", error)
