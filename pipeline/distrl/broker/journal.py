"""The learner's journal, and the one door through which its versions leave.

Both go through one fenced producer whose id is the run's: a learner that was thought dead and comes back publishes
nothing.
"""

from __future__ import annotations

from distrl.broker.fenced import FencedError, FencedProducer
from distrl.broker.reader import LogReader, decoded
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.types import LogPosition, Update, Version
from distrl.wire.codec import encode


class Journal(FencedProducer):
    """Appends updates and publishes versions, each in a transaction of its own, as the only learner of a run.

    After an error, make a new Journal, open it and read `journalled`: only the log says whether the last record is in
    it.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config, "learner", "the journal", lambda: fenced(config.run))
        self._run = config.run
        self._updates = topic_name(config.run, "updates")
        self._versions = topic_name(config.run, "versions")

    def append(self, update: Update) -> LogPosition:
        """Write `update` down; when this returns, every later learner will redo it.

        Raises FencedError if another learner has taken over, else BrokerError.
        """
        return self.write(self._updates, self._run.encode(), encode(update))

    def publish_version(self, version: Version) -> LogPosition:
        """Tell every worker of `version`. Its objects must be in the store already. Raises as `append` does."""
        return self.write(self._versions, str(version.version).encode(), encode(version))


def journalled(config: Config) -> list[Update]:
    """Every update in the journal of a run, in the order of the log.

    Complete and final where the caller has a Journal open: `open` waits for what an older learner has committed, and
    nobody else can add one then. What is appended shows a few milliseconds later.
    """
    with LogReader(config, "updates") as reader:
        return [decoded(raw, Update) for batch in reader.to_end() for raw in batch]


def fenced(run: str) -> FencedError:
    return FencedError(
        f"learner of run {run}",
        f"another learner has taken over run {run}; this one may write no more",
        "let this process end; start one learner per run, or choose another `run`",
    )
