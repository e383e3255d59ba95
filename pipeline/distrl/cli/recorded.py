"""What `distrl demonstrate` and `distrl evaluate` do with --episodes: recorded episodes of published data sets."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import BarColumn, TextColumn

from distrl.cli.common import Sets, console, end_if_stopped, passing_bar, print_line, row, run_settings, started, table
from distrl.recordings.episode import Dataset
from distrl.recordings.folder import Found, dataset_of, episodes, files_of, ids_in
from distrl.telemetry import logs

if TYPE_CHECKING:
    from distrl.evaluate.recorded import Matched

EpisodeFormat = Annotated[
    Dataset | None,
    typer.Option("--format", help="Format of the files in the folder of --episodes; found out if not given."),
]


def demonstrate_recorded(
    config: Path | None,
    sets: Sets,
    verbose: bool,
    folder: Path,
    form: Dataset | None,
    count: int | None,
    without: Path | None,
) -> None:
    """Publish the folder's episodes but for those that the file `without` names, and print what became of them."""
    files, left_out = files_of(folder), frozenset[str]() if without is None else ids_in(without)
    dataset = form or dataset_of(files)
    settings, stop = started("demonstrator", config, sets, verbose, "training", lambda own: "demonstrate")
    from distrl.demonstrations.recorded import run_recorded
    from distrl.telemetry.exporter import exporting

    with exporting(settings, "demonstrator", "demonstrate") as monitor, reading(files, dataset) as found:
        result = run_recorded(settings, found, count, stop, monitor, left_out)
    print_line(f"{result.written} demonstrations published, {result.known} of the episodes were there before")
    if without is not None:
        print_line(f"left out: {result.left_out} episodes; {without} names {len(left_out)}")
    if result.already:
        print_line(
            f"{result.already} of those to be left out are demonstrations of this run already, and are learned from: "
            "begin another run"
        )
    print_skipped(result.skipped)
    wanted = settings.warmup.demonstrations
    if result.in_topic < wanted:
        print_line(
            f"the topic has {result.in_topic}, and the learner waits for warmup.demonstrations={wanted}: publish more, "
            f"or start it with -s warmup.demonstrations={result.in_topic}"
        )
    end_if_stopped(stop)


def match_recorded(
    config: Path | None,
    sets: Sets,
    verbose: bool,
    folder: Path,
    form: Dataset | None,
    versions: str | None,
    as_json: bool,
) -> None:
    """Print how often versions do what the people of the folder's episodes did."""
    files = files_of(folder)
    dataset = form or dataset_of(files)
    logs.configure("evaluate", verbose)
    settings = run_settings(config, sets)
    from distrl.evaluate.recorded import match_versions
    from distrl.evaluate.run import named, published

    wanted = named(versions or "last", published(settings))

    def read() -> Iterator[Found]:
        with reading(files, dataset) as found:
            yield from found

    lines = []
    for matched in match_versions(settings, wanted, dataset, read):
        if as_json:
            lines.append(matched.as_json())
        else:
            print_matched(matched)
    if as_json:
        json.dump({"run": settings.run, "versions": lines}, sys.stdout, indent=1)
        sys.stdout.write("\n")


def print_matched(matched: Matched) -> None:
    found = matched.as_json()

    def percent(share: float | None, interval: tuple[float, float] | None = None) -> list[str]:
        shown = "-" if share is None else f"{share:.1%}"
        return [shown, "-" if interval is None else f"{interval[0]:.1%} to {interval[1]:.1%}"]

    steps, episodes, possible = found["steps"], found["episodes"], matched.steps.total() - matched.impossible.total()
    shown = table("", "match", "95 %", "of")
    shown.add_row(*row("steps", *percent(found["match"], found["match_interval"]), steps))
    shown.add_row(*row("steps with a counterpart", *percent(found["match_of_possible"]), possible))
    shown.add_row(
        *row("mean of an episode", *percent(found["partial_match"], found["partial_match_interval"]), episodes)
    )
    complete = percent(found["complete_match"], found["complete_match_interval"])
    shown.add_row(*row("whole episodes", *complete, episodes))
    for name, each in found["by_type"].items():
        shown.add_row(*row(name, *percent(each["matched"] / each["steps"]), each["steps"]))
    print_line(f"version {matched.version} on {matched.dataset.value}")
    console.print(shown)
    if matched.unknown_goals:
        print_line(f"{matched.unknown_goals} episodes have a goal with words that the base model lacks")
    print_skipped(matched.skipped)


def print_skipped(skipped: Counter[str]) -> None:
    for why, number in skipped.most_common():
        print_line(f"skipped: {number} {why}")


@contextmanager
def reading(files: list[Path], dataset: Dataset) -> Iterator[Iterator[Found]]:
    """The episodes of `files`; meanwhile, on a terminal, how far they are read."""
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[episodes]} episodes"),
    )
    with passing_bar(*columns) as progress:
        bar = progress.add_task("reading", total=len(files), episodes=0)
        begun = 0

        def begin(path: Path) -> None:
            nonlocal begun
            progress.update(bar, description=path.name, completed=begun)
            begun += 1

        def counted() -> Iterator[Found]:
            for number, each in enumerate(episodes(files, dataset, begin), 1):
                progress.update(bar, episodes=number)
                yield each

        yield counted()
