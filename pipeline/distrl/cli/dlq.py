"""`distrl dlq`: the records that no role could read, and how they come back.

What a dead letter holds is whatever somebody sent, so nothing of it reaches the terminal unescaped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.cli.common import ConfigFile, Sets, console, row, run_settings, table
from distrl.errors import BrokerError, WireError
from distrl.types import LogPosition

if TYPE_CHECKING:
    from distrl.broker.dead_letter_log import Entry
    from distrl.broker.retry import Retried

app = typer.Typer(
    help="List, look into and publish again the records that could not be read. OFFSET is that of the dead letter.",
    no_args_is_help=True,
)

DUMPED_BYTES = 256
"""The head of a value: a record's schema and its first fields."""

LONGEST_TEXT = 2_048
"""Most characters shown of one header or error."""


@app.command("ls")
def list_letters(
    config: ConfigFile = None,
    sets: Sets = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array, for programs.")] = False,
) -> None:
    """One line a record that was put aside: offset, when, from where, why, bytes of key and value.

    A record that was put aside twice, as its role crashed in between, is one line.
    """
    from distrl.broker.dead_letter_log import entries

    found = entries(run_settings(config, sets))
    if as_json:
        console.print(json.dumps([_as_json(entry) for entry in found]), markup=False, highlight=False, soft_wrap=True)
        return
    shown = table("offset", "when", "from", "error", "bytes", "letters")
    for entry in found:
        error = escaped(entry.error.partition("\n")[0])
        shown.add_row(*row(entry.offset, _when(entry), _place(entry.origin), error, entry.size, entry.copies))
    console.print(shown)


@app.command("show")
def show_letter(
    offset: Annotated[int, typer.Argument(min=0, help="The dead letter's offset, as `distrl dlq ls` says.")],
    config: ConfigFile = None,
    sets: Sets = None,
) -> None:
    """Print one dead letter: its headers, its key, the head of its bytes, and what this code reads in it now."""
    from distrl.broker.dead_letter_log import chosen, entries, letters, reading

    settings = run_settings(config, sets)
    (entry,) = chosen(entries(settings), [offset])
    (letter,) = letters(settings, [entry])
    _say(f"{_place(entry.origin)}, put aside {_when(entry)}, {entry.size} bytes, letters: {entry.copies}")
    for name, value in letter.raw.headers:
        _say(f"  {escaped(name)}: {'null' if value is None else escaped(value.decode(errors='backslashreplace'))}")
    _say(f"key: {'null' if letter.raw.key is None else escaped(letter.raw.key.decode(errors='backslashreplace'))}")
    value = letter.raw.value
    _say("value: null" if value is None else f"value: {len(value)} bytes")
    for line in dumped((value or b"")[:DUMPED_BYTES]):
        _say(f"  {line}")
    try:
        _say(f"reads now as: {escaped(repr(reading(letter, settings)))}")
    except WireError as error:
        _say(f"cannot be read now either: {escaped(error.what)}")


@app.command("retry")
def retry_letters(
    offsets: Annotated[
        list[int] | None, typer.Argument(min=0, help="Dead letters, by offset.", show_default=False)
    ] = None,
    config: ConfigFile = None,
    sets: Sets = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and publish nothing.")] = False,
) -> None:
    """Publish records again where they came from, with their own key, bytes and headers; none of them twice.

    For once their reader is mended. Only to tasks, trajectories and demonstrations of this run. One retry at a time:
    another that is begun beside it takes over.
    """
    from distrl.broker.dead_letter_log import chosen, entries, letters
    from distrl.broker.retry import retry

    if bool(offsets) == everything:
        raise typer.BadParameter("name either OFFSETs or --all", param_hint="OFFSET, --all")
    settings = run_settings(config, sets)
    found = entries(settings)
    done = retry(letters(settings, found if everything else chosen(found, offsets or ())), settings, dry_run)
    for each in done:
        _say(f"{each.letter.offset} from {_place(each.letter.origin)}: {_outcome(each, dry_run)}")
    refused = [str(each.letter.offset) for each in done if each.refused]
    if refused:
        raise BrokerError(
            f"dead letters {', '.join(refused)}",
            "were not published again, as said above",
            "`distrl dlq show OFFSET` prints their headers; choose the `run` that they belong to",
        )


def escaped(text: str) -> str:
    """`text` without what a terminal would act on: controls, line ends and marks of direction become escapes."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:LONGEST_TEXT])
    return f"{shown}… ({len(text)} characters)" if len(text) > LONGEST_TEXT else shown


def dumped(data: bytes) -> Iterator[str]:
    """`data` as a hex dump, 16 bytes a line: place, bytes, and those that are printable ASCII."""
    for at in range(0, len(data), 16):
        part = data[at : at + 16]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        yield f"{at:08x}  {part.hex(' '):<47}  {text}"


def _outcome(done: Retried, dry_run: bool) -> str:
    if done.refused:
        return f"not published: {escaped(done.refused)}"
    if done.before:
        return f"was published before, at {_place(done.at)}"
    if dry_run:
        return "would be published again"
    return "published; the broker does not tell where" if done.at is None else f"published at {_place(done.at)}"


def _as_json(entry: Entry) -> dict[str, object]:
    origin = entry.origin
    return {
        "offset": entry.offset,
        "at": entry.timestamp,
        "topic": origin.topic if origin else None,
        "partition": origin.partition if origin else None,
        "origin_offset": origin.offset if origin else None,
        "class": entry.reason,
        "error": entry.error,
        "bytes": entry.size,
        "letters": entry.copies,
    }


def _when(entry: Entry) -> str:
    try:
        return datetime.fromtimestamp(entry.timestamp / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return "?"  # a time of its producer's, who may have sent any


def _place(position: LogPosition | None) -> str:
    return "?" if position is None else f"{escaped(position.topic)}[{position.partition}]@{position.offset}"


def _say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
