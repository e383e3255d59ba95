"""The learner's journal (the topic `updates`) and its published versions.

Both are written by one fenced producer per run, so a learner that was thought dead and comes back publishes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from distrl.broker import claims
from distrl.broker.fenced import FencedProducer, Outgoing
from distrl.broker.open_transactions import lasting_transactions
from distrl.broker.reader import LogReader, decoded
from distrl.broker.topics import topic_name
from distrl.broker.versions import lineage
from distrl.config import Config
from distrl.errors import BrokerError
from distrl.types import LogPosition, Skipped, Update, Version, Watermark

ROLE: Final = "learner"
FROM_THE_FIRST: Final = {0: 0}
"""The start of a reader that has read no line of the journal yet."""


class Journal(FencedProducer):
    """Appends updates and publishes versions, each in a transaction of its own, as the only learner of a run.

    After an error, make a new Journal, open it and read `journalled`: only the log shows whether the last record was
    written.
    """

    def __init__(self, config: Config) -> None:
        super().__init__(config, ROLE, "the journal", lambda: claims.fenced(config.run, ROLE))
        self._run = config.run

    def append(self, update: Update) -> LogPosition | None:
        """Append `update`; when this returns, every later learner will redo it.

        Raises FencedError if another process has opened the journal since, else BrokerError.
        """
        return self.write_one(Outgoing.of(self._run, "updates", self._run, update))

    def end(self) -> int:
        """The end of the journal, by its leader: `journal_lines` up to this offset are complete. Raises as `append`
        does."""
        return self.end_of(topic_name(self._run, "updates"), 0)

    def publish_version(self, version: Version) -> LogPosition | None:
        """Publish `version` to all workers. Its objects must be in the store already. Raises as `append` does."""
        return self.write_one(Outgoing.of(self._run, "versions", str(version.version), version))


@dataclass(frozen=True, slots=True)
class History:
    """The result of a journal's lines (docs/adr/0010). Pure."""

    lines: tuple[Update, ...] = ()
    """All of them, void ones too."""
    updates: tuple[Update, ...] = ()
    """Those that count, in order."""
    voids: tuple[Update, ...] = ()
    """The lines that made others void, in order."""
    skipped: tuple[Skipped, ...] = ()
    """Records that a person excluded from the fold."""
    version: int = -1
    """The highest number that any line names, -1 for none."""
    log_id: str = ""
    """Of the last line that has one."""

    @classmethod
    def of(cls, lines: Iterable[Update]) -> History:
        """Ignores a line that leaves a gap before it: the line it follows was lost."""
        every = tuple(lines)
        updates: list[Update] = []
        for line in every:
            _follow(updates, line)
        return cls(
            every,
            tuple(updates),
            tuple(line for line in every if line.void),
            tuple(each for line in every for each in line.skipped),
            max((line.version for line in every), default=-1),
            next((line.log_id for line in reversed(every) if line.log_id), ""),
        )

    def before_voids(self) -> Iterator[tuple[Update, ...]]:
        """For each line that made updates void, those that counted before it."""
        updates: list[Update] = []
        for line in self.lines:
            if line.void and line.u < len(updates):
                yield tuple(updates)
            _follow(updates, line)

    @property
    def watermarks(self) -> tuple[Watermark, ...]:
        """How far the log is folded."""
        return self.updates[-1].watermarks if self.updates else ()

    def voided(self, version: Version) -> bool:
        """Whether `version` was made after an update that is void, or that the journal has lost.

        An update's line names the highest number given before it, and the versions made after the update have higher
        ones. A version with a number up to that one was made after an earlier update of the same `u`, whose line is
        lost together with the one that made it void.
        """
        if 0 <= version.update < len(self.updates) and version.version <= self.updates[version.update].version:
            return True
        return any(line.u <= version.update and version.version <= line.version for line in self.voids)


def _follow(updates: list[Update], line: Update) -> None:
    """`updates`, those that count up to `line`, become those that count after it."""
    if line.u > len(updates):
        return
    del updates[line.u :]
    if not line.void:
        updates.append(line)


def in_force(versions: Iterable[Version], history: History) -> list[Version]:
    """The versions whose updates count, in the order given."""
    every = list(versions)
    superseded = {number for version in every for number in version.supersedes}
    return [each for each in every if each.version not in superseded and not history.voided(each)]


def journal_lines(config: Config, end: int = 0) -> list[Update]:
    """The lines of `journal_up_to`."""
    lines, _ = journal_up_to(config, end)
    return lines


def journal_up_to(config: Config, end: int = 0) -> tuple[list[Update], int]:
    """Every line in the journal of a run, in log order, also void ones, and the offset at which it ends.

    end: `Journal.end` of an open journal. The lines are complete and final then: `open` waits for an older learner's
    commits, and nobody else can append. Without it the last ones may be missing for a moment: an appended line is
    visible a few milliseconds later, and a broker that was frozen goes on with what it had (reader.py).

    Raises BrokerError where no broker has the journal up to `end`, and where its first line was deleted, as by
    retention: the lines that are left would all count as following a gap, and the learner would begin anew.
    """
    with LogReader(config, "updates", FROM_THE_FIRST, reach={0: end}) as reader:
        if reader.ends[0] < end:
            raise _unread(config, reader.topic, reader.ends[0], end)
        return [decoded(raw, Update) for batch in reader.to_end() for raw in batch], reader.ends[0]


def _unread(config: Config, topic: str, shown: int, end: int) -> BrokerError:
    for each in lasting_transactions(config, ("updates",)):
        return BrokerError(topic, str(each), f"{each.how_to_end(config.kafka)}, then start this again")
    what = f"a broker says that it ends at {shown}, and {end} was written"
    return BrokerError(topic, what, "see what `distrl doctor` says of the brokers, then start this again")


def history(config: Config) -> History:
    return History.of(journal_lines(config))


def versions_in_force(config: Config) -> list[Version]:
    """The versions of a run whose updates count, ascending."""
    return in_force(lineage(config), history(config))


def journalled(config: Config) -> list[Update]:
    """Every update in the journal of a run that counts, in order. Complete as `journal_lines` are."""
    return list(history(config).updates)
