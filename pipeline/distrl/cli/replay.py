"""`distrl replay`: a range of a run's log, listed, printed or written to a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from distrl.cli.common import (
    Begin,
    ConfigFile,
    End,
    OfRun,
    Sets,
    command_line,
    connected_to_broker,
    console,
    ended_as_interrupted,
    note,
    passing_bar,
    print_line,
    row,
    run_settings,
    table,
)

if TYPE_CHECKING:
    from distrl.config import Config
    from distrl.offline.episode_folder import EpisodeFolder
    from distrl.offline.replay import Item
    from distrl.offline.topic_range import TopicRange

COLUMNS = (
    TextColumn("{task.description}"),
    BarColumn(),
    MofNCompleteColumn(),
    TextColumn("left"),
    TimeRemainingColumn(),
)


def register(app: typer.Typer) -> None:
    app.command("replay")(replay)


def replay(
    config: ConfigFile = None,
    sets: Sets = None,
    run: OfRun = None,
    topic: Annotated[str, typer.Option(help="Which topic of the run.")] = "trajectories",
    begin: Begin = None,
    end: End = None,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", min=0, help="This partition alone; may be given often.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--print", help="Print whole records, one JSON object a line.")] = False,
    avro: Annotated[Path | None, typer.Option(help="Write an Avro container file, and FILE.manifest.json.")] = None,
    parquet: Annotated[
        Path | None, typer.Option(help="Write a Parquet file, a row per step, and FILE.manifest.json.")
    ] = None,
    dataset: Annotated[
        Path | None,
        typer.Option(help="Write a folder for Hugging Face `datasets`, a row per step with its screenshot."),
    ] = None,
    atif: Annotated[
        Path | None,
        typer.Option(help="Write a folder of ATIF documents, one for each attempt, with the screenshots."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over what exists.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be read, and about how much; write nothing.")
    ] = False,
) -> None:
    """Read a range of a run's log: list it, print it, or export it. Joins no group and writes nothing to the broker.

    An offset counts on each partition. The same range gives the same files, byte for byte.
    """
    from distrl.broker.runs import check_run
    from distrl.broker.topics import topic_name
    from distrl.offline.atif_folder import AtifFolder
    from distrl.offline.dataset_folder import DatasetFolder
    from distrl.offline.export import manifest_of, refuse_existing
    from distrl.offline.new_folder import refuse_folder
    from distrl.offline.replay import about_bytes, topic_range_of
    from distrl.offline.topic_range import RangeRequest, bound_of

    settings = connected_to_broker(config, [*(sets or ()), *([] if run is None else [f"run={run}"])])
    topic_name(settings.run, topic)  # refuses an unknown topic before the broker is asked
    wanted = [(form, file) for form, file in (("avro", avro), ("parquet", parquet)) if file is not None]
    files = [each for _, file in wanted for each in (file, manifest_of(file))]
    folders: list[tuple[type[EpisodeFolder], Path]] = [
        (kind, place) for kind, place in ((DatasetFolder, dataset), (AtifFolder, atif)) if place is not None
    ]
    if files or folders:
        ended_as_interrupted()  # what is half written is removed
    _refuse_same_place(files, [place for _, place in folders])
    refuse_existing(files, force)
    for kind, place in folders:
        refuse_folder(place, kind.form, force)
    now = datetime.now(UTC)
    given = {
        "--run": settings.run,
        "--topic": topic,
        "--avro": avro,
        "--parquet": parquet,
        "--dataset": dataset,
        "--atif": atif,
        "--print": as_json,
        "--force": force,
        "--dry-run": dry_run,
    }
    words = command_line("replay", config, sets, given)
    bounds = [None if text is None else bound_of(text, now) for text in (begin, end)]
    request = RangeRequest(settings.run, topic, bounds[0], bounds[1], tuple(partitions or ()), words)
    check_run(settings)
    topic_range = topic_range_of(settings, request)
    if dry_run:
        targets = [str(place) for _, place in (*wanted, *folders)]
        _show_plan(topic_range, about_bytes(settings, topic_range), targets)
        return
    if folders:  # their screenshots are in the run's store
        settings = run_settings(config, sets, run)
    _read_out(settings, topic_range, wanted, folders, force, as_json)


def _read_out(
    settings: Config,
    topic_range: TopicRange,
    wanted: list[tuple[str, Path]],
    wanted_folders: list[tuple[type[EpisodeFolder], Path]],
    force: bool,
    as_json: bool,
) -> None:
    """Write every record of the range to the wanted files and folders, or else to standard output."""
    from distrl.offline.export import Export
    from distrl.offline.replay import read
    from distrl.store.objects import open_store

    with ExitStack() as stack:
        exports = [stack.enter_context(Export(topic_range, file, form, force)) for form, file in wanted]
        folders: list[EpisodeFolder] = []
        if wanted_folders:  # nothing else needs the store
            fetch = open_store(settings.store).get
            folders = [stack.enter_context(kind(topic_range, place, fetch, force)) for kind, place in wanted_folders]
        to_files: list[Export | EpisodeFolder] = [*exports, *folders]
        found = unreadable = 0
        for item in _shown(read(settings, topic_range), topic_range, lines=as_json or not to_files):
            found += 1
            unreadable += item.error is not None
            for target in to_files:
                target.put(item)
            if as_json or not to_files:
                _print(item, as_json)
        for export in exports:
            made = export.finish()
            note(
                f"{export.file}: {made['records']} records, {made['rows']} rows, {made['bytes']} bytes, "
                f"sha256 {made['sha256']}; {export.manifest.name} beside it"
            )
        for folder in folders:
            note(folder.finish())
    if not found:
        note("no record in the range")
    if unreadable:
        note(f"{unreadable} records could not be decoded", style="yellow")


def _shown(items: Iterator[Item], topic_range: TopicRange, lines: bool) -> Iterator[Item]:
    """`items`, with a progress bar on standard error, unless lines go to the same terminal."""
    with passing_bar(*COLUMNS, hidden=lines and sys.stdout.isatty()) as progress:
        bar = progress.add_task(topic_range.name, total=len(topic_range))
        done, here = (
            {each.partition: 0 for each in topic_range.ranges},
            {each.partition: each for each in topic_range.ranges},
        )
        for item in items:
            yield item
            at = item.raw.position
            done[at.partition] = at.offset + 1 - here[at.partition].first
            progress.update(bar, completed=sum(done.values()))
        progress.update(bar, completed=len(topic_range))


def _print(item: Item, as_json: bool) -> None:
    from distrl.offline.record_text import json_line, summary_line

    sys.stdout.write((json_line(item) if as_json else summary_line(item)) + "\n")


def _show_plan(topic_range: TopicRange, size: int, files: list[str]) -> None:
    shown = table("topic", "partition", "from", "to", "records, at most")
    for each in topic_range.ranges:
        shown.add_row(*row(topic_range.name, each.partition, each.first, each.to, len(each)))
    console.print(shown)
    print_line(
        f"at most {len(topic_range)} records, about {size} bytes; would go to {', '.join(files) or 'standard output'}"
    )


def _refuse_same_place(files: list[Path], folders: list[Path]) -> None:
    places, new = {each.resolve() for each in (*files, *folders)}, {each.resolve() for each in folders}
    if len(places) < len(files) + len(folders):
        raise typer.BadParameter(
            "name two files, neither of them the other's manifest", param_hint="--avro, --parquet, --dataset, --atif"
        )
    if any(not new.isdisjoint(place.parents) for place in places) or any(
        not places.isdisjoint(folder.parents) for folder in new
    ):
        raise typer.BadParameter(
            "name no file or folder inside another", param_hint="--avro, --parquet, --dataset, --atif"
        )
