"""Looks, while the learner waits, whether the version that it published last can still be read.

A broker that loses power may lose that version, or the end of its transaction. A worker or feeder that starts then has
no version to go on with, so no trajectory comes that would lead to the next one: the learner publishes anew by itself.
That ends a transaction of its own whose end was lost. One that hides the version even then is of nobody, and would hide
the next one, too: the learner says what ends it, and waits.
"""

from __future__ import annotations

import logging
from functools import partial

from distrl.broker.open_transactions import OpenTransaction, open_transactions
from distrl.broker.reader import CutError
from distrl.broker.topics import topic_name
from distrl.broker.versions import Lineage
from distrl.clock import SYSTEM_CLOCK, Clock
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.supervised import SupervisedThread
from distrl.types import Version

LOG = logging.getLogger("distrl.learner.newest_version")

LOOK_S = 10.0
"""How long a version has to be the newest one before it is looked for, and the time between two looks."""

MISSED = 2
"""Looks in a row that miss it. One may be answered by a broker that was frozen, and goes on with what it had."""


class NewestVersionWatch:
    """Of one learner, also while it begins again. One thread calls `look`; the broker is asked in another, as its
    answer may take half a minute."""

    def __init__(self, config: Config, clock: Clock = SYSTEM_CLOCK) -> None:
        self._config, self._clock = config, clock
        self._lineage = Lineage(config)
        self._newest: Version | None = None
        self._next = 0.0
        self._missed = 0
        self._hidden_by: tuple[OpenTransaction, ...] = ()
        """The open transactions at the last look that missed the version."""
        self._of_nobody: tuple[OpenTransaction, ...] = ()
        """Those that were open when it had to be published again."""
        self._asking: SupervisedThread | None = None

    def look(self, newest: Version | None) -> None:
        """Call while nothing is to be done; returns at once. newest: what this learner knows as the newest version.

        Raises CutError where the log does not show it any more.
        """
        if self._asking is not None:
            if self._asking.running:
                return
            self._asking.check()
        now = self._clock.ticks()
        if newest != self._newest:
            self._newest, self._next, self._missed = newest, now + LOOK_S, 0
        if newest is None or now < self._next:
            return
        if self._missed >= MISSED:
            self._of_nobody = self._hidden_by
            raise CutError(
                topic_name(self._config.run, "versions"), f"it no longer shows version {newest.version}", "wait"
            )
        self._next = now + LOOK_S
        self._asking = SupervisedThread(partial(self._ask, newest.version), "newest version")

    def _ask(self, number: int) -> None:
        try:
            shown = any(each.version == number for each in self._lineage.read())
            hidden_by = () if shown else open_transactions(self._config, "versions")
        except BrokerError as error:
            LOG.info("whether the log still shows version %d cannot be seen now: %s", number, error)
            return
        self._hidden_by = hidden_by
        if hidden_by and hidden_by == self._of_nobody:
            for each in hidden_by:
                LOG.warning("%s; %s", each, each.how_to_end(self._config.kafka))
        else:
            self._missed = 0 if shown else self._missed + 1
