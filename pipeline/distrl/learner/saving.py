"""Checkpoints, uploaded on a thread of their own beside the updates that follow.

    begin: copies the state ─▶ thread: tensors, manifest, then what it replaces is deleted ─▶ settle

The copy is made on the fold's thread, so a checkpoint is that of its update whatever comes after it. One at a time: the
next one begins once this one is there. A kill meanwhile leaves tensors that no manifest names; the checkpoint before is
the newest then.
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
"""Between two looks at something else while an upload is waited for."""

Upload = Callable[[], frozenset[str]]
"""Returns `tensor_files` after it; none where what is old could not be deleted, so that the next one deletes none."""


class CheckpointSaver:
    """Used by one thread, the learner's. After `close` nothing is under way."""

    def __init__(
        self, config: Config, store: ObjectStore, saved: int, refused: Mapping[int, str], lineage: Lineage
    ) -> None:
        """saved: how many updates the checkpoint has that was recovered; 0 for none. refused: newer checkpoints that
        were refused, by their updates. lineage: from now on read by this saver alone."""
        self._config, self._store, self._refused = config, store, dict(refused)
        self.saved = saved
        """How many updates the newest checkpoint has that is known to be whole."""
        self._lineage = lineage
        self._pool = ThreadPoolExecutor(1, "checkpoint")
        self._begun = saved
        self._upload: Upload | None = None
        """Not known to be whole."""
        self._future: Future[frozenset[str]] | None = None
        """Of `_upload`; None where that has failed and was not begun again."""
        self._listed: frozenset[str] = frozenset()
        self._prunable: frozenset[str] = frozenset()

    @property
    def has_ended(self) -> bool:
        """Whether `settle` would return, or raise, at once."""
        return self._future is not None and self._future.done()

    @property
    def has_refused(self) -> bool:
        """Whether `delete_refused` would delete anything."""
        return bool(self._refused)

    def begin(self, made: Snapshot, read: Mapping[int, int]) -> None:
        """Save `made`, a copy. The one before it must be settled or abandoned.

        read: the trajectories before it, partition -> offset, were looked at for the versions that `made` says are
        named.
        """
        assert self._upload is None, "one at a time"
        prunable = None if self._refused else self._prunable
        self._begun = made.u
        self._upload = partial(self._save, made, dict(read), prunable)
        self._future = self._pool.submit(self._upload)

    def settle(self, meanwhile: Callable[[], object]) -> None:
        """Return once the checkpoint that was begun is there; where it has failed before, upload it again.

        meanwhile: called while it waits. Raises StoreError; may be called again then.
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
        self._refused.pop(self._begun, None)  # its update was redone, and this one has taken its place

    def settle_within(self, longest_s: float, meanwhile: Callable[[], object]) -> None:
        """As `settle`; a store that fails is asked again for `longest_s`, the last attempt not counted."""
        again = Retrying(
            retry=retry_if_exception_type(StoreError),
            wait=wait_exponential(0.5, max=5.0),
            stop=stop_after_delay(longest_s),
            reraise=True,
        )
        again(self.settle, meanwhile)

    def abandon(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Wait for what is under way, whatever comes of it."""
        if self._future is not None:
            with suppress(StoreError):
                self.settle(meanwhile)
        self._upload = None

    def journalled(self) -> None:
        """An update is in the journal, so no other learner had taken over when the files were listed."""
        self._prunable = self._listed

    def delete_refused(self) -> None:
        """Delete the checkpoints that recovery refused: pruning keeps the highest numbers, and would keep these.

        Nothing may be under way. Raises StoreError.
        """
        delete_checkpoints(self._store, self._config.run, self._refused)
        self._refused = {}

    def close(self) -> None:
        """Wait for what is under way, and end the thread."""
        self.abandon()
        self._pool.shutdown()

    def _save(self, made: Snapshot, read: Mapping[int, int], prunable: frozenset[str] | None) -> frozenset[str]:
        """On the thread. prunable: None where nothing is pruned."""
        run, learner = self._config.run, self._config.learner
        save_checkpoint(self._store, run, *made)
        # It is there: a store that refuses to delete or to list costs room, and no update.
        try:
            if prunable is not None:
                prune(self._store, run, learner.keep_checkpoints, prunable)
                self._prune_adapters(made, read)
            return tensor_files(self._store, run)
        except StoreError as error:
            LOG.warning("checkpoints are pruned after a later one: %s", error)
            return frozenset()

    def _prune_adapters(self, made: Snapshot, read: Mapping[int, int]) -> None:
        try:
            prune_adapters(self._config, self._store, self._lineage, NamedVersions.of(made.meta["named"]), read)
        except (StoreError, BrokerError) as error:
            LOG.warning("adapters are pruned after the next checkpoint: %s", error)
