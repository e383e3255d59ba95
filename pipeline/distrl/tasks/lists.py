"""A user's suite: tasks from files instead of a built-in suite. The only module here that reads files.

A process reads a list once, completely, before anything starts, and refuses it with all its wrong rows.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

from simphone.state import chance

from distrl.config import FeederSettings
from distrl.errors import ConfigError
from distrl.tasks.formats import FORMATS, RowProblem, rows_in
from distrl.tasks.list_report import Overlap, overlaps
from distrl.tasks.outcome import CHECK
from distrl.tasks.row import NAME, SPLITS, Defaults, Row, row_of
from distrl.tasks.suite import Suite, suite_named
from distrl.types import Split, Task

log = logging.getLogger(__name__)

MAX_FILE: Final = 32 * 2**20
"""Bytes of one file."""
SHOWN: Final = 20
"""Problems of a refused list that a role reports; `distrl tasks check` reports all."""
_SPLIT_IN_NAME: Final = re.compile(rf"(?:^|[._-])({'|'.join(SPLITS)})(?=[._-]|$)", re.IGNORECASE)
NAMELESS: Final = "list"
"""The suite of rows without one, if the file's name has none either."""


@dataclass(frozen=True)
class TaskList:
    """The content of files. rows: in the order of the files and their lines. problems: of the other rows."""

    rows: tuple[Row, ...]
    problems: tuple[RowProblem, ...]

    @property
    def duplicates(self) -> int:
        """Rows that ask the same as an earlier one. They are fed like the others, each as a task of its own."""
        return len(self.rows) - len({row.asked for row in self.rows})


class ListSuite:
    """The tasks of a list, as a suite.

    Training goes through its rows in rounds, each in another order; a held-out split keeps the order of the list, and
    starts again after its end. A task's id is its row's digest and its round, so a list that grows during a run feeds
    the new rows, and no other task gets the id of one that was played.
    """

    families: Final = (NAMELESS,)
    """Families do not take turns: the whole list counts as one."""

    def __init__(self, name: str, rows: Sequence[Row]) -> None:
        self.name: Final = name
        self.overlaps: Final[tuple[Overlap, ...]] = overlaps(rows)
        self._rows = {split: tuple(row for row in rows if row.split is split) for split in Split}
        self._order: tuple[tuple[int, int], tuple[Row, ...]] = ((0, -1), ())

    def task(self, index: int, seed: int, split: Split) -> Task:
        """Task number `index` of a split under a seed. Raises ConfigError if the list has no row of that split."""
        rows = self._rows[split]
        if not rows:
            raise ConfigError(
                "feeder.tasks", f"{self.name} has no {split.value} task", f"add rows with the split {split.value}"
            )
        turn, place = divmod(index, len(rows))
        row = self._shuffled(seed, turn)[place] if split is Split.TRAIN else rows[place]
        return task_of(row, seed, turn)

    @property
    def round_length(self) -> int:
        """Training tasks of a round, which has each row once."""
        return len(self._rows[Split.TRAIN])

    def said(self, split: Split) -> tuple[str, ...]:
        return tuple(row.instruction for row in self._rows[split])

    def never_played(self, split: Split, tasks: int) -> tuple[str, ...]:
        """The suites of a held-out split of which no row is among its first `tasks`; SUITE/FAMILY, where every suite
        has one."""
        rows = self._rows[split]
        for names in ([row.suite for row in rows], [f"{row.suite}/{row.family}" for row in rows]):
            if missing := set(names) - set(names[:tasks]):
                return tuple(sorted(missing))
        return ()

    def _shuffled(self, seed: int, turn: int) -> tuple[Row, ...]:
        """The training rows in the order of a round. The last order is cached, as tasks are requested in sequence."""
        kept, order = self._order
        if kept != (seed, turn):
            rows = self._rows[Split.TRAIN]
            order = tuple(chance("list", seed, turn).sample(rows, len(rows)))
            self._order = ((seed, turn), order)
        return order


def task_of(row: Row, seed: int, turn: int) -> Task:
    """The task of a row in a round of its list, with a phone seed of its own."""
    name = f"{row.digest}-{row.copy}" if row.copy else row.digest
    return Task(
        task_id=f"{row.suite}-{row.split.value}-{seed}-{name}-{turn:04d}",
        suite=row.suite,
        family=row.family,
        split=row.split,
        instruction=row.instruction,
        max_steps=row.steps,
        phone_seed=chance(row.suite, row.split.value, seed, name, turn).randrange(2**31),
        params={**dict(row.params), **({CHECK: row.check} if row.check else {})},
        setup=row.setup,
    )


def suite_of(feeder: FeederSettings) -> Suite:
    """The suite that tasks are fed and evaluated from: the list that feeder.tasks names, else feeder.suite.

    Raises ConfigError for an unknown suite or a list that cannot be read. A list is read once by a process.
    """
    return _read_once(feeder.tasks, feeder.task_steps) if feeder.tasks else suite_named(feeder.suite)


@cache
def _read_once(files: tuple[Path, ...], steps: int) -> ListSuite:
    found = read_lists(files, steps)
    name = ", ".join(path.name for path in files)
    if found.problems:
        first = "".join(f"\n  {problem}" for problem in found.problems[:SHOWN])
        more = f"\n  and {len(found.problems) - SHOWN} more" if len(found.problems) > SHOWN else ""
        raise ConfigError(
            "feeder.tasks",
            f"{name} is wrong in {len(found.problems)} places{first}{more}",
            "correct the rows; `distrl tasks check FILE` lists every one that is wrong",
        )
    suite = ListSuite(name, found.rows)
    log.info("%s: %d tasks, %d of them duplicates", name, len(found.rows), found.duplicates)
    for overlap in suite.overlaps:
        log.log(logging.WARNING if overlap.identical else logging.INFO, "%s: %s", name, overlap)
    return suite


def read_lists(files: Iterable[Path], steps: int) -> TaskList:
    """All rows of the files, and all problems. steps: the default of rows without."""
    rows: list[Row] = []
    problems: list[RowProblem] = []
    copies: dict[str, int] = {}
    for path in files:
        before = len(rows) + len(problems)
        for found in _rows_of(path, steps):
            if isinstance(found, RowProblem):
                problems.append(found)
                continue
            copies[found.digest] = copies.get(found.digest, -1) + 1
            rows.append(replace(found, copy=copies[found.digest]))
        if len(rows) + len(problems) == before:
            problems.append(RowProblem(str(path), 0, "holds no task"))
    return TaskList(tuple(rows), tuple(problems))


def _rows_of(path: Path, steps: int) -> Iterable[Row | RowProblem]:
    file, suffix = str(path), path.suffix.lower()
    if suffix not in FORMATS:
        yield RowProblem(file, 0, f"the name has to end with one of {', '.join(FORMATS)}, which says how it is read")
        return
    try:
        with path.open("rb") as opened:
            data = opened.read(MAX_FILE + 1)
    except OSError as error:
        yield RowProblem(file, 0, f"cannot be read ({error.strerror})")
        return
    if len(data) > MAX_FILE:
        yield RowProblem(file, 0, f"has more than {MAX_FILE} bytes")
        return
    defaults = defaults_of(path.stem, steps)
    for found in rows_in(file, suffix, data):
        if isinstance(found, RowProblem):
            yield found
            continue
        try:
            yield row_of(file, found.line, found.fields, defaults)
        except (ValueError, RecursionError) as error:
            yield RowProblem(file, found.line, str(error))


def defaults_of(stem: str, steps: int) -> Defaults:
    """Defaults from a file's name: general_train is suite `general`, split train."""
    splits = {SPLITS[found[1].lower()] for found in _SPLIT_IN_NAME.finditer(stem)}
    suite = re.sub(r"[^A-Za-z0-9._-]+", "-", _SPLIT_IN_NAME.sub("", stem)).strip("._-")
    return Defaults(
        suite=suite if NAME.fullmatch(suite) else NAMELESS,
        split=splits.pop() if len(splits) == 1 else None,
        steps=steps,
    )
