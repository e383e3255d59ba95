"""`distrl dlq`: dead letters, the records that no role could decode.

Their content is untrusted, so everything shown of it is escaped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from distrl.cli.common import ConfigFile, OfRun, Sets, console, print_line, row, run_settings, table
from distrl.errors import BrokerError, WireError
from distrl.text import printable
from distrl.types import LogPosition

if TYPE_CHECKING:
    from distrl.broker.dead_letter_log import DeadLetterSummary
    from distrl.broker.republish import Retried

app = typer.Typer(
    help="List, show and publish again the records that could not be decoded. OFFSET is that of the dead letter.",
    no_args_is_help=True,
)

DUMPED_BYTES = 256
"""The head of a value: a record's schema and its first fields."""

LONGEST_TEXT = 2_048
"""Most characters shown of one header or error."""


@app.command("ls")
def list_dead_letters(
    run: OfRun = None,
    config: ConfigFile = None,
    sets: Sets = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON array, for programs.")] = False,
) -> None:
    """One line per dead letter: offset, time, origin, error, bytes of key and value.

    A record with several copies, written where its role crashed in between, is one line.
    """
    from distrl.broker.dead_letter_log import entries

    found = entries(run_settings(config, sets, run))
    if as_json:
        console.print(json.dumps([_as_json(entry) for entry in found]), markup=False, highlight=False, soft_wrap=True)
        return
    shown = table("offset", "when", "from", "error", "bytes", "copies")
    for entry in found:
        error = escaped(entry.error.partition("\n")[0])
        shown.add_row(*row(entry.offset, _when(entry), _place(entry.origin), error, entry.size, entry.copies))
    console.print(shown)


@app.command("show")
def show_dead_letter(
    offset: Annotated[int, typer.Argument(min=0, help="The dead letter's offset, as `distrl dlq ls` says.")],
    run: OfRun = None,
    config: ConfigFile = None,
    sets: Sets = None,
) -> None:
    """Print one dead letter: headers, key, the first bytes, and the record as this version decodes it."""
    from distrl.broker.dead_letter_log import chosen, dead_letters_of, entries, reading

    settings = run_settings(config, sets, run)
    (entry,) = chosen(entries(settings), [offset])
    (dead_letter,) = dead_letters_of(settings, [entry])
    print_line(f"{_place(entry.origin)}, dead letter of {_when(entry)}, {entry.size} bytes, copies: {entry.copies}")
    for name, value in dead_letter.raw.headers:
        print_line(
            f"  {escaped(name)}: {'null' if value is None else escaped(value.decode(errors='backslashreplace'))}"
        )
    key, value = dead_letter.raw.key, dead_letter.raw.value
    print_line(f"key: {'null' if key is None else escaped(key.decode(errors='backslashreplace'))}")
    print_line("value: null" if value is None else f"value: {len(value)} bytes")
    for line in hex_dump((value or b"")[:DUMPED_BYTES]):
        print_line(f"  {line}")
    try:
        print_line(f"decodes now as: {escaped(repr(reading(dead_letter, settings)))}")
    except WireError as error:
        print_line(f"still cannot be decoded: {escaped(error.what)}")


@app.command("retry")
def retry_dead_letters(
    offsets: Annotated[
        list[int] | None, typer.Argument(min=0, help="Dead letters, by offset.", show_default=False)
    ] = None,
    run: OfRun = None,
    config: ConfigFile = None,
    sets: Sets = None,
    everything: Annotated[bool, typer.Option("--all", help="Every dead letter.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be done; publish nothing.")] = False,
) -> None:
    """Publish records again to their own topic, with their key, bytes and headers; each at most once.

    Use it once their reader is fixed. Only for tasks, trajectories and demonstrations of this run. One retry at a time:
    a second one takes over.
    """
    from distrl.broker.dead_letter_log import chosen, dead_letters_of, entries
    from distrl.broker.republish import retry

    if bool(offsets) == everything:
        raise typer.BadParameter("name either OFFSETs or --all", param_hint="OFFSET, --all")
    settings = run_settings(config, sets, run)
    found = entries(settings)
    done = retry(dead_letters_of(settings, found if everything else chosen(found, offsets or ())), settings, dry_run)
    for each in done:
        print_line(f"{each.dead_letter.offset} from {_place(each.dead_letter.origin)}: {_outcome(each, dry_run)}")
    refused = [str(each.dead_letter.offset) for each in done if each.refused]
    if refused:
        raise BrokerError(
            f"dead letters {', '.join(refused)}",
            "were not published again, for the reasons above",
            f"`distrl dlq show OFFSET --run {settings.run}` prints their headers; choose the run that they belong to",
        )


def escaped(text: str) -> str:
    """`text` with controls, line ends and marks of direction escaped; long text is cut."""
    shown = printable(text[:LONGEST_TEXT])
    return f"{shown}… ({len(text)} characters)" if len(text) > LONGEST_TEXT else shown


def hex_dump(data: bytes) -> Iterator[str]:
    """`data` as a hex dump, 16 bytes per line: position, bytes, printable ASCII."""
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
    return "published, at an unknown position" if done.at is None else f"published at {_place(done.at)}"


def _as_json(entry: DeadLetterSummary) -> dict[str, object]:
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


def _when(entry: DeadLetterSummary) -> str:
    try:
        return datetime.fromtimestamp(entry.timestamp / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")
    except (ValueError, OverflowError, OSError):
        return "?"  # the producer may have sent any time


def _place(position: LogPosition | None) -> str:
    return "?" if position is None else f"{escaped(position.topic)}[{position.partition}]@{position.offset}"
