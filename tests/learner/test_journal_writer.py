"""A line of the journal that the broker has lost is found by where the next one lands. A learner that was replaced
writes nothing more."""

from __future__ import annotations

from dataclasses import dataclass, field

import factories
import pytest
from distrl.broker import claims
from distrl.broker.claims import Claim, ReplacedError
from distrl.broker.reader import CutError
from distrl.config import Config, load
from distrl.errors import BrokerError
from distrl.learner import journal_writer
from distrl.learner.journal_writer import JournalWriter, UnwrittenError
from distrl.types import LogPosition, Update, Version


@dataclass
class Log:
    """In place of the topic: each line at the offset that comes next, and one for the end of its transaction."""

    lines: list[Update] = field(default_factory=list)
    next_offset: int = 0

    def append(self, update: Update) -> LogPosition:
        place = LogPosition("updates", 0, self.next_offset)
        self.lines.append(update)
        self.next_offset += 2
        return place

    def end(self) -> int:
        return self.next_offset


def line(u: int) -> Update:
    return Update(u, (), "f", u)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    made = Log()
    monkeypatch.setattr(journal_writer, "journal_lines", lambda config, end: list(made.lines))
    monkeypatch.setattr(journal_writer, "journal_up_to", lambda config: (list(made.lines), made.next_offset))
    return made


@pytest.fixture
def writer(log: Log) -> JournalWriter:
    made = JournalWriter(load(sets=["run=demo"], environ={}))
    made._journal = log  # type: ignore[assignment]
    for u in range(3):
        made.append(line(u))
    return made


@pytest.mark.parametrize("ends_written_again", [0, 1])
def test_a_lost_line_is_found_also_where_the_end_of_its_transaction_was_written_again(
    log: Log, writer: JournalWriter, ends_written_again: int
) -> None:
    log.lines.pop()
    log.next_offset += ends_written_again - 2
    with pytest.raises(CutError, match="its tail is lost"):
        writer.append(line(3))


@pytest.mark.parametrize("ends_written_again", [0, 1, 5])
def test_a_journal_that_is_whole_is_written_on(log: Log, writer: JournalWriter, ends_written_again: int) -> None:
    log.next_offset += ends_written_again
    writer.append(line(3))
    assert log.lines == [line(u) for u in range(4)]


class Fenced(Log):
    """In place of a journal that another learner has opened since."""

    def publish_version(self, version: Version) -> None:
        raise claims.fenced("demo", "learner")


@pytest.mark.parametrize("unanswered", [0, 1])
def test_a_version_of_a_learner_that_was_replaced_opens_no_journal_again(
    monkeypatch: pytest.MonkeyPatch, unanswered: int
) -> None:
    """unanswered: how often no broker says first who has the role."""
    asked, opened = list[int](), list[Config]()

    def refuse_replaced(mine: Claim, config: Config, role: str, longest_s: float = 0.0) -> None:
        asked.append(len(asked))
        if len(asked) <= unanswered:
            raise BrokerError("kafka.bootstrap", "no broker answers", "start it")
        raise claims.replaced("demo", "learner")

    writer = JournalWriter(load(sets=["run=demo"], environ={}))
    writer._journal, writer.claim = Fenced(), Claim(1, "a")  # type: ignore[assignment]
    monkeypatch.setattr(claims, "refuse_replaced", refuse_replaced)
    monkeypatch.setattr(journal_writer, "Journal", opened.append)
    for error in [UnwrittenError] * unanswered + [ReplacedError] * 2:
        with pytest.raises(error):
            writer.publish_version(factories.version(1))
    assert (len(asked), opened) == (unanswered + 2, [])
