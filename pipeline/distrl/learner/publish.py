"""Which updates publish a version, and how each version is published once, with the same weights after any restart."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable

from distrl.broker.journal import History, in_force
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.learner.reservations import Reservation, highest, reserve
from distrl.learner.state import LearnerState
from distrl.store.adapters import put_adapter
from distrl.store.objects import CorruptObjectError, MissingObjectError, ObjectStore
from distrl.telemetry.logs import about
from distrl.types import Update, Version

LOG = logging.getLogger("distrl.learner.publish")


def publishes(folded: int, config: Config) -> bool:
    """Whether a version is due after `folded` updates: after the warm-up, then every learner.publish_every updates."""
    since = folded - config.warmup.updates
    return since >= 0 and since % config.learner.publish_every == 0


class Publisher:
    """Publishes the state's weights where they are due.

    known: every version in the log. history: the journal's, which says whose updates are void. before_reuse: called
    before a version takes the adapter of an earlier one that is not the newest; once it returns, nothing may be about
    to delete that adapter.

    A version belongs to the update after which it was made; its number is one above the highest ever reserved. A
    learner that redoes an update finds its version in the log and only compares the weights. Versions of void updates
    are not compared; the next version supersedes them.
    """

    def __init__(
        self,
        config: Config,
        store: ObjectStore,
        publish: Callable[[Version], object],
        known: Iterable[Version],
        now_ms: Callable[[], int],
        history: History | None = None,
        before_reuse: Callable[[], object] = lambda: None,
    ) -> None:
        self._config, self._store, self._publish, self._now_ms = config, store, publish, now_ms
        self._before_reuse = before_reuse
        self._of_update: dict[int, Version] = {}
        self._made: Version | None = None
        self.reserved: list[Reservation] = []
        """The reservations with the highest number, as `look_up_reserved` found them or as made since."""
        every, history = list(known), history or History()
        counting = {version.version for version in in_force(every, history)}
        named = {number for version in every for number in version.supersedes}
        self._unnamed = sorted({version.version for version in every} - counting - named)
        self._given = max((history.version, *(version.version for version in every)))
        self._published = max((version.version for version in every), default=-1)
        self.newest: Version | None = None
        self.versions = every
        """Every version of the run, void ones too, ascending."""
        self._adapters = {version.adapter.sha256 for version in every}
        for version in every:
            if version.version in counting:
                self._remember(version)

    @property
    def highest(self) -> int:
        """The highest number known to be reserved or published; -1 for none."""
        return max((self._given, *(each.version for each in self.reserved)))

    def newest_adapters(self, count: int) -> frozenset[str]:
        """Keys of the adapters of the newest `count` versions, also of one that may not be in the log yet."""
        found = self.versions[-count:] if count else []
        return frozenset(each.adapter.key for each in [*found, self._made] if each is not None)

    def look_up_reserved(self) -> None:
        """Read the reserved numbers, so that `highest` includes them. Raises StoreError.

        A version can be in the log and still be invisible: if the broker has lost the marker of its transaction, it
        becomes visible with the next transaction. The journal line that makes updates void must cover its number.
        """
        self.reserved = highest(self._store, self._config.run)

    def journalled(self, update: Update) -> None:
        """`update` was journalled. The numbers that it names are of versions before it, and are given to none after it
        (`History.voided`)."""
        self._given = max(self._given, update.version)

    def due(self, state: LearnerState) -> None:
        """Publish the version that is due after the state's last update, unless it is in the log.

        Raises StoreError and BrokerError; may be called again then.
        """
        if not publishes(state.u, self._config):
            return
        update, weights = state.u - 1, state.policy.adapter()
        known = self._of_update.get(update)
        if known is not None:
            refuse_other_weights(known, weights)
            return
        if any(later > update for later in self._of_update):
            return  # its record is lost, a later version's is not: publishing now would make older weights the newest
        self._publish_after(update, weights, state)

    def settle(self, state: LearnerState) -> None:
        """After redoing: where versions are void or lost, or the newest one's adapter is, publish the state's weights
        as the newest version.

        Its number is above all reserved ones, so workers load it and start the tasks that wait for a version. Raises as
        `due`.
        """
        due = max((u for u in range(state.u + 1) if publishes(u, self._config)), default=None)
        if due is None:
            return  # the warm-up is redone first, and publishes
        lost = all(update < due - 1 for update in self._of_update)
        self.look_up_reserved()
        lost = lost or self._published < self.highest
        if self._unnamed or lost or not self._has_adapter(self.newest):
            self._publish_after(state.u - 1, state.policy.adapter(), state)

    def _has_adapter(self, version: Version | None) -> bool:
        """Whether the store can give the weights of `version` to workers; it may have lost its newest objects alone."""
        if version is None:
            return False
        try:
            self._store.get(version.adapter)
        except (MissingObjectError, CorruptObjectError) as error:
            LOG.warning("no worker can load version %d: %s; its weights are published anew", version.version, error)
            return False
        return True

    def _publish_after(self, update: int, weights: bytes, state: LearnerState) -> None:
        self._publish(version := self._version(update, weights, state))
        self._unnamed = []
        self.versions.append(version)
        self._remember(version)
        with about(version=version.version):
            LOG.info("version %d after update %d: %s", version.version, update, version.adapter.sha256[:12])
        if version.supersedes:
            numbers = ", ".join(map(str, version.supersedes))
            LOG.warning("version %d supersedes %s, whose updates are void", version.version, numbers)

    def _version(self, update: int, weights: bytes, state: LearnerState) -> Version:
        """The record of these weights. A retry returns the same record, as the first attempt may be in the log."""
        if self._made is not None and self._made.update == update and self._made.version > self._published:
            return self._made
        sha256 = hashlib.sha256(weights).hexdigest()
        if sha256 in self._adapters and sha256 != self.versions[-1].adapter.sha256:
            self._before_reuse()
        # Reserved first: weights that the store has lost are there again once they are put, and a learner that ended
        # right then would not know that workers have given their version up.
        number = self._reserve(update, sha256)
        adapter = put_adapter(self._store, self._config.run, weights)
        self._made = Version(
            version=number,
            parent=None if self.newest is None else self.newest.version,
            update=update,
            base_model_sha256=state.policy.base_sha256,
            adapter=adapter,
            config_fingerprint=state.fingerprint,
            published_at=self._now_ms(),
            supersedes=tuple(self._unnamed),
        )
        return self._made

    def _reserve(self, update: int, sha256: str) -> int:
        """The number for these weights: one that is reserved for exactly these and not published, else the next."""
        self.look_up_reserved()  # each time: a learner that has taken over may have reserved more
        if self.highest > self._given and self.reserved == [Reservation(self.highest, update, sha256)]:
            return self.highest
        made = Reservation(self.highest + 1, update, sha256)
        reserve(self._store, self._config.run, made)
        self.reserved = [made]
        return made.version

    def _remember(self, version: Version) -> None:
        self._of_update.setdefault(version.update, version)
        self._adapters.add(version.adapter.sha256)
        self._given, self._published = max(self._given, version.version), max(self._published, version.version)
        if self.newest is None or version.version > self.newest.version:
            self.newest = version


def refuse_other_weights(known: Version, weights: bytes) -> None:
    """Raises BrokerError where redoing the update of `known` gave other `weights` than were published."""
    found = hashlib.sha256(weights).hexdigest()
    if found != known.adapter.sha256:
        raise BrokerError(
            f"version {known.version}",
            f"redoing update {known.update} gives weights {found}; published were {known.adapter.sha256}",
            "use the package versions and the kind of processor that the run began with; where another package brings "
            "the policy or the algorithm, `distrl runs show` of the run says which code of it, and since when",
        )
