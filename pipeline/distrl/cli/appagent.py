"""`distrl appagent`: a vision-language model that is prompted to act, as a baseline beside the trained versions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn

from distrl.cli.common import (
    ConfigFile,
    Sets,
    Verbose,
    connected,
    end_if_stopped,
    passing_bar,
    print_line,
    run_settings,
    show_cost,
    start_role,
)
from distrl.config import Config
from distrl.types import Split

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="A vision-language model behind a chat endpoint (appagent.*), prompted to act after AppAgent, as a baseline.",
)
Notes = Annotated[
    Path | None,
    typer.Option("--notes", help="JSON file of notes on apps; appagent.notes if not given."),
]


@app.command("explore")
def explore(
    config: ConfigFile = None,
    sets: Sets = None,
    verbose: Verbose = False,
    notes: Notes = None,
    tasks: Annotated[
        int, typer.Option(min=1, help="How many training tasks to try, the first that would be fed.")
    ] = 14,
    instruction: Annotated[
        list[str] | None,
        typer.Option(help="What to try in their place, in words; may be given often."),
    ] = None,
) -> None:
    """Let the model try tasks on phones and write down what each element of an app does. Records nothing else.

    Notes are added to those that the file has; no held-out task is tried.
    """
    settings = _with_notes(connected(config, sets, "evaluation"), notes)
    from distrl.rollout.explore import exploration_tasks
    from distrl.rollout.explore import explore as run

    stop = start_role("explore", verbose)
    chosen = exploration_tasks(settings, tasks, instruction or ())
    with _bar("exploring") as advance:
        found = run(settings, chosen, stop, advance)
    print_line(
        f"{found.notes} notes in {settings.appagent.notes}, {found.notes - found.before} of them new; "
        f"{found.tasks} of {len(chosen)} tasks were tried, {found.interrupted} of them interrupted"
    )
    print_line(_counted(found.counters))
    show_cost(found.spent)
    end_if_stopped(stop)


@app.command("evaluate")
def evaluate(
    config: ConfigFile = None,
    sets: Sets = None,
    verbose: Verbose = False,
    notes: Notes = None,
    split: Annotated[Split, typer.Option(help="Which tasks.")] = Split.TEST,
    episodes: Annotated[int | None, typer.Option(min=1, help="How many tasks; evaluate.episodes if not given.")] = None,
) -> None:
    """Measure the agent's success on the tasks that versions are evaluated on. `distrl scores` compares them.

    Records go into the same topic. Stopped and started again, it goes on with the tasks that have no record.
    """
    settings = _with_notes(run_settings(config, sets, share="evaluation"), notes)
    from distrl.evaluate.prompted import evaluate_agent

    stop = start_role(settings.evaluate.name, verbose)
    with _bar("evaluating") as advance:
        score = evaluate_agent(settings, split, episodes or settings.evaluate.episodes, stop, advance)
    print_line(str(score))
    print_line(_counted(score.counters))
    show_cost(score.spent)
    end_if_stopped(stop)


def _with_notes(settings: Config, notes: Path | None) -> Config:
    if notes is None:
        return settings
    return settings.model_copy(update={"appagent": settings.appagent.model_copy(update={"notes": notes})})


@contextmanager
def _bar(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on standard error. Yields a function of (done, total) that updates it."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with passing_bar(*columns) as progress:
        bar = progress.add_task(what, total=None)
        yield lambda done, total: progress.update(bar, completed=done, total=total)


def _counted(counters: Mapping[str, int]) -> str:
    words = {
        "decisions": "decisions",
        "invalid": "were no action",
        "on_grid": "on a grid",
        "grid_instead": "of those for want of elements",
        "reflections": "reflections",
        "invalid_reflections": "of those unreadable",
        "unanswered": "questions without an answer",
    }
    return (
        ", ".join(f"{counters[name]} {words}" for name, words in words.items() if counters.get(name)) or "no decision"
    )
