"""`distrl schemas`: the Avro schemas of records, and the check that a changed one must pass."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from distrl.cli.common import console, row, table
from distrl.errors import WireError
from distrl.wire.lock import entry_of, write_lock
from distrl.wire.schema_check import SchemaProblem, SchemaReport, check
from distrl.wire.schemas import schema_folder

app = typer.Typer(help="Check, list or lock the Avro schemas of the records.", no_args_is_help=True)

Directory = Annotated[
    Path | None,
    typer.Option(
        "--directory", exists=True, file_okay=False, help="Holds <record>/v<N>.avsc and lock.json; ours if not given."
    ),
]


@app.command("check")
def check_schemas(directory: Directory = None) -> None:
    """Report versions that cannot read each other, and edited or unlocked files. Exit 1 for any.

    Every version must read every other (Avro's FULL_TRANSITIVE), under the same full name. Prints a table of all
    records, versions and fingerprints where nothing is wrong.
    """
    verdict = check(directory or schema_folder())
    _refuse(verdict.problems)
    _print(verdict)


@app.command("ls")
def list_schemas(directory: Directory = None) -> None:
    """Print every record, its versions, their fingerprints, and whether each has landed."""
    _print(check(directory or schema_folder()))


@app.command("lock")
def lock_schemas(directory: Directory = None) -> None:
    """Lock new schemas, which must pass the check; from then on their files never change."""
    folder = directory or schema_folder()
    verdict = check(folder)
    _refuse([problem for problem in verdict.problems if not problem.new])
    landed = dict(verdict.landed)
    for problem in verdict.problems:
        entry = entry_of(folder / f"{problem.where}.avsc")
        assert entry is not None, "a file that is no schema was refused before"
        landed[problem.where] = entry
        console.print(f"{problem.where} has landed", markup=False, highlight=False)
    write_lock(folder, landed)


def _refuse(problems: Sequence[SchemaProblem]) -> None:
    """Print each problem, then end with exit status 1; nothing where there is none."""
    for problem in problems:
        console.print(str(problem), markup=False, highlight=False, soft_wrap=True)
    if problems:
        raise WireError(
            "schemas", f"{len(problems)} of their rules are broken, listed above", "fix each, and check again"
        )


def _print(verdict: SchemaReport) -> None:
    shown = table("record", "version", "fingerprint", "state")
    for schema in verdict.schemas:
        state = "landed" if str(schema) in verdict.landed else "not locked"
        shown.add_row(*row(schema.record, f"v{schema.version}", schema.fingerprint.hex(), state))
    console.print(shown)
