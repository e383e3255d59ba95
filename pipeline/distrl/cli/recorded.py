"""What `distrl demonstrate` and `distrl evaluate` do with --episodes: recorded episodes of published data sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from distrl.cli.common import Sets, print_line, started
from distrl.recordings.episode import Dataset
from distrl.recordings.folder import Found, dataset_of, episodes, files_of

EpisodeFormat = Annotated[
    Dataset | None,
    typer.Option("--format", help="Format of the files in the folder of --episodes; found out if not given."),
]


def demonstrate_recorded(
    config: Path | None, sets: Sets, verbose: bool, folder: Path, form: Dataset | None, count: int | None
) -> None:
    """Publish the folder's episodes, and print what became of them."""
    files = files_of(folder)
    dataset = form or dataset_of(files)
    settings, stop = started("demonstrator", config, sets, verbose, "training", lambda own: "demonstrate")
    from distrl.demonstrations.recorded import run_recorded
    from distrl.telemetry.exporter import exporting

    with exporting(settings, "demonstrator", "demonstrate") as monitor, reading(files, dataset) as found:
        result = run_recorded(settings, found, count, stop, monitor)
    print_line(f"{result.written} demonstrations published, {result.known} of the episodes were there before")
    print_passed_over(result.passed_over)
    wanted = settings.warmup.demonstrations
    if result.in_topic < wanted:
        print_line(
            f"the topic has {result.in_topic}, and the learner waits for warmup.demonstrations={wanted}: publish more, "
            f"or start it with -s warmup.demonstrations={result.in_topic}"
        )


def print_passed_over(passed_over: Counter[str]) -> None:
    for why, number in passed_over.most_common():
        print_line(f"passed over: {number} episodes: {why}")


@contextmanager
def reading(files: list[Path], dataset: Dataset) -> Iterator[Iterator[Found]]:
    """The episodes of `files`; meanwhile, on a terminal, how far they are read."""
    screen = Console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[episodes]} episodes"),
    )
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
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
