"""`distrl lineage`: what a version learned from, and what became of a trajectory."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from distrl.cli.common import ConfigFile, OfRun, Sets, console, print_line, row, run_settings, table

if TYPE_CHECKING:
    from distrl.offline.lineage.trace import Attempt, Learned, UpdateAdmission, UpdateInterval, VersionLineage

T = TypeVar("T")

EDGE = 5
"""Rows shown at each end of a long table."""
MOST_DIGITS = 19
"""Of a version's number, which has 63 bits; a longer one is a task id."""
SHOWN_RANGES = 4
"""Ranges of ids shown of many."""

NAMED = (
    "Exact: what each update took in, what of it was left out, what it could draw, and what the warm-up drew. Which "
    "trajectories A-RIDE then drew depends on priorities, so on the networks, and is not shown here."
)


def register(app: typer.Typer) -> None:
    app.command("lineage")(lineage)


def lineage(
    subject: Annotated[str, typer.Argument(metavar="VERSION|TASK_ID", help="A version's number, or a task id.")],
    config: ConfigFile = None,
    sets: Sets = None,
    run: OfRun = None,
    task: Annotated[bool, typer.Option("--task", help="It is a task id, even if it is a number.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, whole, for programs.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Every row and every id.")] = False,
    check_screens: Annotated[
        bool,
        typer.Option(
            "--check-screens",
            help="Fetch every screenshot, to leave out trajectories with an unreadable one, as a learner does.",
        ),
    ] = False,
) -> None:
    """Show what a version learned from, or what became of a trajectory, from the journal and the log.

    Needs the learning settings of the run: they decide how long a trajectory is learned from.
    """
    from distrl.offline.lineage.read import behind_trajectory, behind_version
    from distrl.offline.lineage.to_json import attempt_json, version_json

    settings = run_settings(config, sets, run)
    if is_version(subject) and not task:
        found = behind_version(settings, int(subject), check_screens)
        if as_json:
            _json({"run": settings.run, "screens_checked": check_screens, **version_json(found)})
        else:
            _show_version(settings.run, found, everything)
    else:
        attempts = behind_trajectory(settings, subject, check_screens)
        if as_json:
            records = [attempt_json(each) for each in attempts]
            _json({"run": settings.run, "screens_checked": check_screens, "task_id": subject, "records": records})
        else:
            for each in attempts:
                _show_attempt(each, everything)
    if not as_json:
        print_line(NAMED if check_screens else f"{NAMED} Screenshots are taken to be images (--check-screens looks).")


def is_version(subject: str) -> bool:
    return subject.isascii() and subject.isdigit() and len(subject) <= MOST_DIGITS


def _show_version(run: str, found: VersionLineage, everything: bool) -> None:
    from distrl.offline.record_text import utc_text
    from distrl.text import ranges

    version = found.version
    parents = ranges(sorted(each.version for each in found.parents)) or "none"
    used, critics, gone = found.used, len(found.critics_alone), len(found.gone)
    print_line(
        f"version {version.version} of run {run}, after update {version.update}, {utc_text(version.published_at)}"
    )
    print_line(f"  weights {version.adapter.sha256}")
    print_line(f"  config  {version.config_fingerprint}")
    print_line(f"  parents {parents}")
    print_line(
        f"  learned from {len(used)} trajectories, {sum(each.is_expert for each in used)} of them demonstrations; "
        f"{len(found.trajectories) - len(used) - critics - gone} left out"
        + (f", {critics} by the critics alone" if critics else "")
        + (f", {gone} in no buffer that an update drew from" if gone else "")
    )
    shown = table("update", "phase", "took in", "left out", "from the log", "could draw")
    for each in _ends(found.updates, everything, shown, 6):
        shown.add_row(*row(each.update.u, each.phase, each.admitted, each.left_out, _windows(each), _drawable(each)))
    console.print(shown)
    if everything:
        _show_all(found.trajectories)
    else:
        _show_grouped(found)


def _show_grouped(found: VersionLineage) -> None:
    from distrl.offline.lineage.trace import grouped

    shown = table("taken in at", "trajectories", "ids")
    for u, members in _ends(sorted(grouped(found.trajectories).items()), False, shown, 3):
        shown.add_row(*row(u, len(members), _ids(each.task_id for each in members)))
    console.print(shown)


def _show_all(trajectories: Iterable[Learned]) -> None:
    from distrl.offline.record_text import escaped

    shown = table(
        "taken in at", "task id", "from the log", "outcome", "steps", "cloned at", "could be drawn at", "left out"
    )
    for each in trajectories:
        at = each.position
        shown.add_row(
            *row(
                each.admitted,
                escaped(each.task_id),
                f"{_short(at.topic)}[{at.partition}]@{at.offset}",
                each.outcome.value,
                each.steps,
                _updates(each.cloned),
                _updates(each.resident),
                each.left_out or "",
            )
        )
    console.print(shown)


def _show_attempt(found: Attempt, everything: bool) -> None:
    from distrl.offline.record_text import escaped
    from distrl.text import ranges

    logged = found.logged
    at, record = logged.position, logged.trajectory
    asked = f"{record.outcome.value}, {len(record.steps)} steps: {escaped(record.task.instruction)}"
    tree = Tree(_text(f"{escaped(record.task_id)}  {_short(at.topic)}[{at.partition}]@{at.offset}  {asked}"))
    versions_tree = tree.add(_text(f"acted: {ranges(sorted({step.version for step in record.steps})) or 'no version'}"))
    steps = list(enumerate(record.steps))
    for index, step in steps if everything or len(steps) <= 2 * EDGE else [*steps[:EDGE], *steps[-EDGE:]]:
        versions_tree.add(
            _text(
                f"step {index}: version {step.version} {escaped(step.version_sha256[:12])}  {escaped(step.action_text)}"
            )
        )
    learned = tree.add(_text(f"learned: {fate(found)}"))
    if found.learned is not None and found.learned.learned is not None:
        if found.learned.cloned is not None:
            draws = sum(sum(counts) for counts in found.learned.drawn.values())
            learned.add(
                _text(f"cloned by updates {_updates(found.learned.cloned)}: its steps were drawn {draws} times")
            )
        if found.learned.resident is not None:
            learned.add(_text(f"could be drawn by updates {_updates(found.learned.resident)}"))
        learned.add(_text(f"made by those updates: versions {ranges(list(found.learned_by)) or 'none'}"))
        learned.add(_text(f"in the weights of: versions {ranges(list(found.in_weights_of)) or 'none'}"))
    console.print(tree)


def fate(found: Attempt) -> str:
    if found.skipped:
        return "no: the journal skips it, by `distrl skip` or as a record that could not be decoded"
    if not found.folded:
        return "not yet: no update has taken it in"
    if found.learned is None:
        return "no: an earlier record of its id counts"
    if found.learned.left_out is not None:
        return f"no: taken in by update {found.learned.admitted} and left out: {found.learned.left_out}"
    if found.learned.learned is None:
        return f"no: taken in by update {found.learned.admitted}, and gone before any update could draw it"
    return f"taken in by update {found.learned.admitted}"


def _ends(rows: Sequence[T], everything: bool, shown: Table, width: int) -> Iterable[T]:
    """`rows`, or their beginning and end, with a row between for how many are not shown."""
    if everything or len(rows) <= 2 * EDGE + 1:
        yield from rows
        return
    yield from rows[:EDGE]
    shown.add_row(*row("…", f"{len(rows) - 2 * EDGE} more", *[""] * (width - 3), "--all shows them"))
    yield from rows[-EDGE:]


def _windows(each: UpdateAdmission) -> str:
    return ", ".join(f"{_short(w.topic)}[{w.partition}] {w.first}-{w.to - 1}" for w in each.windows) or "nothing new"


def _drawable(each: UpdateAdmission) -> str:
    return f"{each.resident} trajectories, {each.transitions} steps"


def _updates(interval: UpdateInterval | None) -> str:
    return (
        "-" if interval is None else str(interval[0]) if interval[0] == interval[1] else f"{interval[0]}-{interval[1]}"
    )


def _short(topic: str) -> str:
    return topic.rpartition(".")[2]


def _ids(ids: Iterable[str]) -> str:
    """Ids as ranges where they are numbered (`demo-0 to demo-5`), at most SHOWN_RANGES of them."""
    from distrl.broker.duplicates import IdSet
    from distrl.offline.record_text import escaped

    texts = [" to ".join(escaped(end) for end in dict.fromkeys(ends)) for ends in IdSet(ids).ranges()]
    more = len(texts) - SHOWN_RANGES
    return ", ".join(texts[:SHOWN_RANGES]) + (f", … {more} more" if more > 0 else "")


def _text(text: str) -> Text:
    return row(text)[0]


def _json(value: object) -> None:
    sys.stdout.write(json.dumps(value) + "\n")
