"""Versions: which update publishes one, and that it does so once, with the same weights whoever redoes it."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable

from distrl.config import Config
from distrl.errors import BrokerError
from distrl.learner.state import LearnerState
from distrl.store.objects import ObjectStore
from distrl.types import Version

LOG = logging.getLogger("distrl.learner.publish")


def publishes(folded: int, config: Config) -> bool:
    """Whether a version is due once `folded` updates are: after the warm-up, then after every publish_every more."""
    since = folded - config.learner.warmup_updates
    return since >= 0 and since % config.learner.publish_every == 0


class Publisher:
    """Publishes the state's weights where they are due. known: every version in the log.

    A version belongs to the update after which it was made; its number is one above the highest. So a learner that
    redoes an update finds its version there and only compares.
    """

    def __init__(
        self,
        config: Config,
        store: ObjectStore,
        publish: Callable[[Version], object],
        known: Iterable[Version],
        now_ms: Callable[[], int],
    ) -> None:
        self._config, self._store, self._publish, self._now_ms = config, store, publish, now_ms
        self._of_update: dict[int, Version] = {}
        self._made: Version | None = None
        self.newest: Version | None = None
        for version in known:
            self._remember(version)

    def due(self, state: LearnerState) -> None:
        """Publish the version that is due after the state's last update, if one is and it is not there.

        Raises StoreError and BrokerError; may then be called again.
        """
        if not publishes(state.u, self._config):
            return
        update, weights = state.u - 1, state.agent.adapter()
        known = self._of_update.get(update)
        if known is not None:
            refuse_other_weights(known, weights)
            return
        self._publish(version := self._version(update, weights, state.agent.base_sha256))
        self._remember(version)
        LOG.info("version %d after update %d: %s", version.version, update, version.adapter.sha256[:12])

    def _version(self, update: int, weights: bytes, base_sha256: str) -> Version:
        """The record of these weights: the very same when it is asked for again, as its first try may be in the log."""
        if self._made is not None and self._made.update == update:
            return self._made
        self._made = Version(
            version=0 if self.newest is None else self.newest.version + 1,
            parent=None if self.newest is None else self.newest.version,
            update=update,
            base_model_sha256=base_sha256,
            adapter=self._store.put("adapters", weights, "safetensors"),
            config_fingerprint=self._config.learning_fingerprint(),
            published_at=self._now_ms(),
        )
        return self._made

    def _remember(self, version: Version) -> None:
        self._of_update.setdefault(version.update, version)
        if self.newest is None or version.version > self.newest.version:
            self.newest = version


def refuse_other_weights(known: Version, weights: bytes) -> None:
    """Raises BrokerError where `weights`, folded again, are not those that `known` was published with."""
    found = hashlib.sha256(weights).hexdigest()
    if found != known.adapter.sha256:
        raise BrokerError(
            f"version {known.version}",
            f"update {known.update}, redone, gives weights {found}; published are {known.adapter.sha256}",
            "redo it with the package versions and on the kind of processor that the run began with",
        )
