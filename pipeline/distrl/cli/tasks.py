"""`distrl tasks`: checks a suite or a list of tasks before a run uses it, and shows what it would feed."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distrl.cli import oracle
from distrl.cli.common import ConfigFile, Sets, console, load, print_line, row, table
from distrl.errors import ConfigError
from distrl.types import Split

if TYPE_CHECKING:
    from distrl.config import Config
    from distrl.tasks.lists import TaskList
    from distrl.tasks.row import Row

app = typer.Typer(help="Check a suite or a list of tasks, or print what it feeds.", no_args_is_help=True)

app.command("oracle")(oracle.oracle)

SHOWN = 10
"""Most words, and rows of each kind, that are printed; --json prints all."""

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object, for programs, in place of tables.")]


@app.command("check")
def check_lists(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH", help="Files: .jsonl, .csv, .json or .txt; the built-in suites if not given."),
    ] = None,
    config: ConfigFile = None,
    sets: Sets = None,
    as_json: AsJson = False,
) -> None:
    """Read lists of tasks as feeder.tasks would, and show what they hold. Lists every wrong row; exit 1 if there is
    one.

    Counts rows by suite and split, duplicates, words that the policy of policy.base_model does not know, checks that
    hold before anything is done, and what training shares with the held-out splits. Starts nothing. Without a file it
    shows the built-in suites.
    """
    settings = load(config, sets)
    if not files:
        _show_suites(_suites(settings), as_json)
        return
    from distrl.tasks.lists import read_lists

    found = read_lists(files, settings.feeder.task_steps)
    report = _report(found, None if found.problems else _unknown(settings, found))
    if as_json:
        json.dump(report, sys.stdout, indent=1)
        sys.stdout.write("\n")
    else:
        for problem in found.problems:
            console.print(str(problem), markup=False, highlight=False, soft_wrap=True)
        if not found.problems:
            _show(found, report)
    if found.problems:
        raise ConfigError(
            "tasks", f"{len(found.problems)} rows or files are wrong, listed above", "correct each, and check again"
        )


@app.command("ls")
def list_tasks(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="PATH", help="A list's files; feeder.tasks or feeder.suite if not given."),
    ] = None,
    config: ConfigFile = None,
    sets: Sets = None,
    suite: Annotated[str | None, typer.Option(help="A built-in suite, whatever feeder.tasks says.")] = None,
    split: Annotated[Split, typer.Option(help="Which tasks.")] = Split.TRAIN,
    count: Annotated[int, typer.Option(min=1, max=100_000, help="How many, from the first.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a line, for programs.")] = False,
) -> None:
    """Print the tasks that a run would be fed (train) or evaluated on (validation, test), in that order."""
    if files and suite is not None:
        raise typer.BadParameter("it is one or the other", param_hint="PATH, --suite")
    from distrl.offline.record_text import escaped
    from distrl.tasks.lists import suite_of
    from distrl.tasks.suite import EVALUATION_SEED
    from distrl.wire.convert import to_datum

    settings = load(config, sets)
    asked = {} if suite is None else {"suite": suite, "tasks": ()}
    chosen = suite_of(settings.feeder.model_copy(update={"tasks": tuple(files)} if files else asked))
    seed = settings.learner.seed if split is Split.TRAIN else EVALUATION_SEED
    tasks = [chosen.task(index, seed, split) for index in range(count)]
    if as_json:
        for task in tasks:
            sys.stdout.write(f"{json.dumps(to_datum(task))}\n")
        return
    shown = table("id", "family", "steps", "instruction")
    for task in tasks:
        shown.add_row(*row(escaped(task.task_id), escaped(task.family), task.max_steps, escaped(task.instruction)))
    console.print(shown)


def _suites(settings: Config) -> list[dict[str, Any]]:
    """A report of each built-in suite, JSON-able. tasks: None for endless splits."""
    from distrl.policy.registry import tokenizer_of
    from distrl.tasks.list_report import HELD_OUT, shared
    from distrl.tasks.suite import suites

    tokenizer = tokenizer_of(settings.policy)
    return [
        {
            "suite": suite.name,
            "families": list(suite.families),
            "steps": suite.task(0, 0, Split.TRAIN).max_steps,
            "tasks": {split.value: suite.size(split) for split in Split},
            "in_training": {split.value: shared(suite, split) for split in HELD_OUT},
            "unknown_words": list(tokenizer.unknown_words(suite.texts)),
        }
        for suite in suites().values()
    ]


def _show_suites(report: list[dict[str, Any]], as_json: bool) -> None:
    if as_json:
        json.dump(report, sys.stdout, indent=1)
        sys.stdout.write("\n")
        return
    shown = table("suite", *(split.value for split in Split), "steps", "in training too", "unknown words")
    for each in report:
        sizes = ["endless" if size is None else size for size in each["tasks"].values()]
        same = sum(each["in_training"].values())
        shown.add_row(*row(each["suite"], *sizes, each["steps"], same, len(each["unknown_words"])))
    console.print(shown)
    for each in report:
        print_line(f"families of {each['suite']}: {' '.join(each['families'])}")
    print_line(
        "in training too: validation and test tasks whose instruction training has; unknown words: those that the "
        "policy of policy.base_model reads as <unk>, none of what `distrl base-model train` makes"
    )


def _unknown(settings: Config, found: TaskList) -> Counter[str]:
    """The words of the list that the policy reads as <unk>, with their number of occurrences."""
    from distrl.policy.registry import tokenizer_of
    from distrl.tasks.list_report import unknown_words
    from distrl.text import plain_words

    unknown = frozenset(tokenizer_of(settings.policy).unknown_words(each.instruction for each in found.rows))
    return unknown_words(found.rows, lambda text: [word for word in plain_words(text) if word in unknown])


def _report(found: TaskList, unknown: Counter[str] | None) -> dict[str, Any]:
    """The report on a list, JSON-able. unknown: None where the list is wrong and was not checked."""
    from distrl.tasks.list_report import as_json, done_at_the_start, overlaps, shares

    return {
        "rows": len(found.rows),
        "duplicates": found.duplicates,
        "problems": [{"file": each.file, "line": each.line, "what": each.what} for each in found.problems],
        "splits": [
            {
                "suite": each.suite,
                "split": each.split.value,
                "rows": each.rows,
                "with_check": each.checked,
                "least_steps": each.steps[0],
                "most_steps": each.steps[1],
            }
            for each in shares(found.rows)
        ],
        "unknown_words": None if unknown is None else dict(unknown.most_common()),
        "done_at_the_start": [_named(each) for each in done_at_the_start(found.rows)],
        "overlap": [as_json(each) for each in overlaps(found.rows)],
    }


def _named(of: Row) -> dict[str, Any]:
    return {"file": of.file, "line": of.line, "instruction": of.instruction}


def _show(found: TaskList, report: dict[str, Any]) -> None:
    from distrl.offline.record_text import escaped
    from distrl.tasks.list_report import overlaps

    shown = table("suite", "split", "rows", "with a check", "steps")
    for each in report["splits"]:
        least, most = each["least_steps"], each["most_steps"]
        steps = str(least) if least == most else f"{least}-{most}"
        shown.add_row(*row(each["suite"], each["split"], each["rows"], each["with_check"], steps))
    console.print(shown)
    print_line(f"{report['rows']} rows, {report['duplicates']} of them repeat an earlier one")
    if missing := [each.value for each in Split if each.value not in {row["split"] for row in report["splits"]}]:
        print_line(f"no tasks of {', '.join(missing)}: `distrl train` refuses such a list, a feeder alone does not")
    words = report["unknown_words"]
    often = ", ".join(f"{escaped(word)} ({times})" for word, times in list(words.items())[:SHOWN])
    print_line(
        f"{sum(words.values())} words ({len(words)} different ones) are not the policy's and read <unk>"
        + (f": {often}{', …' if len(words) > SHOWN else ''}" if words else "")
    )
    if report["done_at_the_start"]:
        print_line(f"checks that hold on some phone before anything is done: {len(report['done_at_the_start'])}")
        _print_rows(report["done_at_the_start"])
    for one, each in zip(overlaps(found.rows), report["overlap"], strict=True):
        print_line(str(one))
        _print_rows(each["identical"])
        _print_rows(each["same_template"], "same template: ")


def _print_rows(named: list[dict[str, Any]], what: str = "") -> None:
    from distrl.offline.record_text import escaped

    for each in named[:SHOWN]:
        print_line(f"  {escaped(each['file'])}:{each['line']}: {what}{escaped(each['instruction'])}")
    if len(named) > SHOWN:
        print_line(f"  and {len(named) - SHOWN} more; --json lists all")
