"""`distrl runs copy`: a run at another broker and store, and what proves that it is the same there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from distrl.cli.common import ConfigFile, RunName, Sets, passing_bar, print_line, run_and_log
from distrl.config import Config


def copy(
    run: RunName,
    to: Annotated[
        Path,
        typer.Option(help="YAML file with settings of the other side: kafka, store, and what else is to differ."),
    ],
    config: ConfigFile = None,
    sets: Sets = None,
    from_offset: Annotated[
        int | None, typer.Option(min=0, help="Copy trajectories from this offset on, and demonstrations; no journal.")
    ] = None,
    to_offset: Annotated[int | None, typer.Option(min=1, help="Copy trajectories before this offset.")] = None,
) -> None:
    """Copy a run to another broker and store, and verify it there: back-up, restore, hand-over.

    All records under the same offsets, all objects that they name, checkpoints and the workers' progress; then the
    records of every update are held against the journal, and the log is folded there from the newest checkpoint and
    compared with its versions, so other learning settings in the file are refused but for a range. Times of records
    are those of the copy. Variables (DISTRL_*) are not used for the other side. Interrupted, the same command names the
    one that removes what is there.
    """
    settings, log = run_and_log(config, sets, run)
    from distrl.config import load as load_settings
    from distrl.runs.copy import copy as copied
    from distrl.runs.recorded import base_tree
    from distrl.stack.local import connect
    from distrl.store.objects import open_store

    base = base_tree(log, settings) if log is not None else {}
    other = connect(load_settings(to, [f"run={run}"], environ={}, base=base))
    part = None if from_offset is None and to_offset is None else (from_offset, to_offset)
    with passing_bar() as progress:
        bar = progress.add_task("copying", total=None)

        def on_topic(topic: str, count: int) -> None:
            progress.update(bar, description=f"copied {count} {topic}")

        found = copied(settings, open_store(settings.store), other, open_store(other.store), on_topic, part, to)
    print_line(f"copied {found.records} records and {found.objects} objects of run {run} to {other.kafka.bootstrap}")
    if found.missing:
        print_line(f"{found.missing} objects that records name are missing in the store, or damaged")
    if part is None:
        _hold_against_journal(other, to)


def _hold_against_journal(other: Config, to: Path) -> None:
    """Compare what is there with the journal, and the weights with the versions where this machine can fold them.

    to: the file that names that side. Raises BrokerError, WireError where something differs.
    """
    from distrl.broker.journal import history as read_history
    from distrl.learner.verify import compare_records, other_processor, verify
    from distrl.text import ranges

    history = read_history(other)
    compared = compare_records(other, history)
    print_line(f"equal by their sha256 in the copy: the records that update {ranges(compared) or 'none'} folded")
    if (processor := other_processor(other, history)) is not None:
        print_line(
            f"the copy was not folded: updates were computed on {processor}, and other processors give other last "
            f"bits; `distrl learner --verify --run {other.run}`, with {to} on such a machine, holds the weights "
            "against the versions"
        )
        return
    state, same = verify(other)
    print_line(
        f"folded there from the newest checkpoint: {state.u} updates, bit for bit the weights of version "
        f"{ranges(same) or 'none'}"
    )
    for name, digest in state.digests().items():
        print_line(f"{name} {digest}")
