"""`distrl judge`: a vision-language model's verdicts on trajectories of the log, and how reliable they are."""

from __future__ import annotations

import itertools
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from distrl.cli.common import (
    Begin,
    ConfigFile,
    End,
    OfRun,
    Sets,
    command_line,
    console,
    passing_bar,
    print_line,
    row,
    run_settings,
    show_cost,
    table,
)

if TYPE_CHECKING:
    from distrl.chat.endpoint import Counted
    from distrl.judge.truth import Confusion
    from distrl.offline.judging import Judged
    from distrl.types import LoggedTrajectory

log = logging.getLogger(__name__)


def register(app: typer.Typer) -> None:
    app.command("judge")(judge)


def judge(
    config: ConfigFile = None,
    sets: Sets = None,
    run: OfRun = None,
    begin: Begin = None,
    end: End = None,
    most: Annotated[int | None, typer.Option("--most", min=1, help="Judge at most this many.")] = None,
    against_truth: Annotated[
        bool,
        typer.Option("--against-truth", help="Only those judged by the phone's own state, and how often both agree."),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object, for programs.")] = False,
) -> None:
    """Ask the judge of the settings (judge.*) whether tasks were done. Writes nothing to the log.

    Trajectories without a last screenshot are left out and counted. Verdicts are cached in the object store under the
    hash of the question, so that each is paid for once. The page of an episode in `distrl view` shows what each judge
    said.
    """
    from distrl.chat.endpoint import LONGEST_PAUSES_S, Endpoint
    from distrl.errors import StoreError
    from distrl.judge import verdict_log
    from distrl.judge.truth import Confusion
    from distrl.judge.vlm import VlmJudge
    from distrl.offline.judging import judged
    from distrl.offline.runs import Run
    from distrl.rollout.episode import GROUND_TRUTH
    from distrl.store.folders import VERDICTS

    settings = run_settings(config, sets, run)
    given = {"--run": settings.run, "--most": most, "--against-truth": against_truth, "--json": as_json}
    endpoint, whole = Endpoint(settings.judge, "judge"), Run(settings, command_line("judge", config, sets, given))
    without_screen = 0

    def candidates() -> Iterator[LoggedTrajectory]:
        nonlocal without_screen
        for logged in whole.trajectories(begin, end):
            if against_truth and logged.trajectory.outcome_source != GROUND_TRUTH:
                continue
            if logged.trajectory.final_screenshot is None:
                without_screen += 1
            else:
                yield without_ids(logged)

    chosen = list(itertools.islice(candidates(), most))
    vlm = VlmJudge(endpoint, settings.judge.model, whole.store, VERDICTS.of(settings.run), LONGEST_PAUSES_S)
    with passing_bar() as progress:
        bar = progress.add_task("judging", total=len(chosen))

        def done(each: Judged | None) -> None:
            progress.advance(bar)
            if each is None:
                return
            at = each.logged.position
            episode = verdict_log.Episode(VERDICTS.of(settings.run), "trajectories", at.partition, at.offset)
            try:
                verdict_log.put(whole.store, episode, verdict_log.Said(vlm.source, each.verdict))
            except StoreError as error:
                log.warning("a verdict will not be on the page of %s:%s: %s", at.partition, at.offset, error)

        found = judged(chosen, vlm.ask, whole.store.get, done)
    confusion = Confusion.of((each.truth, each.verdict.outcome) for each in found) if against_truth else None
    if as_json:
        json.dump(_report(found, without_screen, confusion, endpoint.counted), sys.stdout, indent=1)
        sys.stdout.write("\n")
        return
    if confusion is None:
        _show_verdicts(found)
    else:
        _show_confusion(confusion)
    if without_screen:
        print_line(f"{without_screen} left out: they have no last screenshot")
    show_cost(endpoint.counted)


def without_ids(logged: LoggedTrajectory) -> LoggedTrajectory:
    """Without its token ids, which no question has: those of a run of weeks do not fit into memory."""
    steps = tuple(replace(step, prompt_ids=(), action_ids=()) for step in logged.trajectory.steps)
    return replace(logged, trajectory=replace(logged.trajectory, steps=steps))


def _report(
    found: Sequence[Judged], without_screen: int, confusion: Confusion | None, counted: Counted
) -> dict[str, Any]:
    verdicts = [
        {
            "task_id": each.logged.trajectory.task_id,
            "partition": each.logged.position.partition,
            "offset": each.logged.position.offset,
            "truth": each.truth.value,
            "verdict": each.verdict.outcome.value,
            "reason": each.verdict.reason,
        }
        for each in found
    ]
    report: dict[str, Any] = {"verdicts": verdicts, "without_last_screenshot": without_screen, "spent": asdict(counted)}
    if confusion is not None:
        report["against_truth"] = {
            "counts": {f"{truth.value}/{verdict.value}": count for (truth, verdict), count in confusion.counts.items()},
            "judged": confusion.judged,
            "total": confusion.total,
            "accuracy": confusion.accuracy,
            "precision": confusion.precision,
            "recall": confusion.recall,
            "discrepancy": confusion.discrepancy,
        }
    return report


def _show_verdicts(found: Sequence[Judged]) -> None:
    from distrl.offline.record_text import escaped

    shown = table("offset", "task", "instruction", "verdict", "reason")
    for each in found:
        trajectory = each.logged.trajectory
        texts = (escaped(text) for text in (trajectory.task_id, trajectory.task.instruction))
        shown.add_row(
            *row(each.logged.position.offset, *texts, each.verdict.outcome.value, escaped(each.verdict.reason))
        )
    console.print(shown)


def _show_confusion(confusion: Confusion) -> None:
    from distrl.judge.truth import KNOWN, VERDICTS

    shown = table("truth", *(f"called {verdict.value}" for verdict in VERDICTS))
    for truth in KNOWN:
        shown.add_row(*row(truth.value, *(confusion.counts[truth, verdict] for verdict in VERDICTS)))
    console.print(shown)
    shares = {
        "accuracy": confusion.accuracy,
        "precision": confusion.precision,
        "recall": confusion.recall,
        "success by the judge minus by the truth": confusion.discrepancy,
    }
    text = ", ".join(f"{name} {'-' if share is None else f'{share:.1%}'}" for name, share in shares.items())
    console.print(f"{confusion.judged} of {confusion.total} judged; {text}", markup=False, highlight=False)
