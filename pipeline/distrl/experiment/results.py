"""`docs/results.md`: experiments that were run, from their report.json and cost.json, beside the paper's figures."""

from __future__ import annotations

import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from distrl.errors import ConfigError
from distrl.experiment.catalogue import EXPERIMENTS
from distrl.experiment.page import LEARNED, OF_FEW_SEEDS, column_of, until_reached
from distrl.experiment.paper import EVERYWHERE, PAPER, Said
from distrl.experiment.plan import FORMAT, PRESETS
from distrl.experiment.spent import FILE as COST

REPORT: Final = "report.json"
HINT: Final = "name folders that `distrl experiment NAME --out DIR` has written"
OUTDATED: Final = "The code has format {} now: the same command may give other figures."
NOTHING_SAID: Final = Said("")
HEADER: Final = f"""# Results

Written by `distrl experiment --results DIR … > docs/results.md` from the folders of experiments that were run; not to \
be edited. [How they are made](experiments.md).

{EVERYWHERE} Success is in shares. Intervals of means are of 95 %, by a bootstrap over the seeds: {OF_FEW_SEEDS} In \
the probability of improvement a tie counts half.
"""

Content = Mapping[str, Any]


def results_page(folders: Sequence[Path]) -> str:
    """The page, in Markdown: a section for each, numbered from the second folder of an experiment on.

    Raises ConfigError for a folder without the report of an experiment.
    """
    reports = [(folder, _read(folder / REPORT)) for folder in folders]
    arms = defaultdict[str, set[str]](set)
    for folder, report in reports:
        with _understood(folder):
            arms[_name(report)].update(arm["name"] for arm in report["arms"])
    seen: Counter[str] = Counter()
    sections = []
    for folder, report in reports:
        seen[name := _name(report)] += 1
        sections.append(_section(folder, report, seen[name], arms[name]))
    return "\n".join([HEADER, *sections])


def _name(report: Content) -> str:
    return str(report["command"]).split()[2]


@contextmanager
def _understood(folder: Path) -> Iterator[None]:
    """Raises ConfigError for what is no report."""
    try:
        yield
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise ConfigError("--results", f"{folder / REPORT} is no report of an experiment ({error!r})", HINT) from None


def _section(folder: Path, report: Content, number: int, run: Set[str]) -> str:
    """number: among the sections of its experiment. run: the arms that these have together."""
    facts = _cost(folder / COST)
    with _understood(folder):
        name = _name(report)
        said = PAPER.get(name, NOTHING_SAID)
        parts = [
            f"## {name}" + (f" ({number})" if number > 1 else ""),
            _text(report["title"]) + ".",
            f"`{_text(report['command'])}`",
            f"{_run(report)} {facts}",
            _text(report["about"]),
            _arms(report, said, _not_run(name, said, run) if number == 1 else {}),
            _comparisons(report),
            f"The paper ({said.source}): {said.text}" if said.text else "",
            f"What differs: {said.differs}" if said.differs else "",
        ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _run(report: Content) -> str:
    seeds = ", ".join(map(str, report["seeds"]))
    return f"Seeds {seeds}; {report['virtual_seconds'] / 3600:.2f} virtual hours."


def _cost(file: Path) -> str:
    if not file.exists():
        return "Code and cost were not recorded."
    cost = _read(file)
    try:
        code = ", ".join(f"`{_text(each)}`" for each in cost["code"])
        lacking = f", without {cost['unknown']} parts that nobody timed" if cost["unknown"] else ""
        formats, processors = cost.get("format", []), ", ".join(map(_text, cost.get("processor", [])))
        made = f", format {', '.join(map(str, formats))}" if formats else ""
        on = f" of {processors}" if processors else ""
        old = f" {OUTDATED.format(FORMAT)}" if formats and min(formats) < FORMAT else ""
        return f"Code {code}{made}; {cost['processor_s'] / 60:.1f} minutes of processor time{on}{lacking}.{old}"
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError("--results", f"{file} does not say what an experiment took ({error!r})", HINT) from None


def _not_run(name: str, said: Said, run: Set[str]) -> dict[str, str]:
    """Arms of the paper's that no folder has -> how each is run."""
    experiment = EXPERIMENTS.get(name)
    there = set[str]() if experiment is None else {arm.name for preset in PRESETS for arm in experiment.arms(preset)}
    ways = {each: f"`--arm {shlex.quote(each)}`" if each in there else said.not_run for each in said.arms}
    return {each: f"not run: {way}" if way else "not run" for each, way in ways.items() if each not in run}


def _arms(report: Content, said: Said, not_run: Mapping[str, str]) -> str:
    experiment = EXPERIMENTS.get(_name(report))
    arms = report["arms"]
    there_are = dict.fromkeys(figure for arm in arms for figure in arm["figures"])
    shown = list(there_are if experiment is None else experiment.shown)
    learns = any(arm["held_out"] is not None for arm in arms)
    head = ["arm", *(column_of(figure)[0] for figure in shown)]
    head += LEARNED if learns else []
    head += [f"the paper, {said.source}"] if said.arms else []
    rows = []
    for arm in arms:
        row = [arm["name"], *(_figure(arm["figures"].get(figure), column_of(figure)[1]) for figure in shown)]
        if (held_out := arm["held_out"]) is None:
            row += ["–"] * len(LEARNED) if learns else []
        else:
            flipped = held_out["flipped"]
            there = arm.get("reached")  # reports of before lack it
            row.append("–" if there is None else until_reached(there["at_s"], there["low_s"], there["high_s"]))
            row += [_interval(held_out["interquartile_mean"], "value", 3), "–" if flipped is None else f"{flipped:.3f}"]
        if said.arms:
            row.append(_said(said.arms.get(arm["name"])))
        rows.append(row)
    for other, note in not_run.items():
        rows.append([other, note, *[""] * (len(head) - 3), _said(said.arms[other])])
    return _table(head, rows)


def _comparisons(report: Content) -> str:
    rows = [
        [
            each["arm"],
            each["other"],
            _interval(each["difference"], "mean", 3),
            _optional(each["difference_over_tasks"], "mean"),
            _optional(each["probability_of_improvement"], "value"),
            each["verdict"],
        ]
        for each in report["comparisons"]
    ]
    head = ["arm", "against", "difference", "over tasks", "probability of improvement", "which is"]
    return _table(head, rows) if rows else ""


def _said(figures: Mapping[str, str] | None) -> str:
    if figures is None:
        return "–"
    return "; ".join(f"{column_of(name)[0]} {value}" for name, value in figures.items())


def _figure(found: Content | None, decimals: int) -> str:
    return "–" if found is None else _interval(found, "mean", decimals)


def _optional(found: Content | None, middle: str) -> str:
    return "–" if found is None else _interval(found, middle, 3)


def _interval(found: Content, middle: str, decimals: int) -> str:
    if found["low"] is None:
        return f"{found[middle]:.{decimals}f}"
    return f"{found[middle]:.{decimals}f} ({found['low']:.{decimals}f} to {found['high']:.{decimals}f})"


def _read(file: Path) -> Content:
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError("--results", f"{file} cannot be read ({error})", HINT) from None
    if not isinstance(found, dict):
        raise ConfigError("--results", f"{file} is no report of an experiment", HINT)
    return found


def _table(head: Iterable[str], rows: Iterable[Sequence[object]]) -> str:
    columns = list(head)
    lines = [columns, ["---"] * len(columns), *([_text(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _text(value: object) -> str:
    """On one line, and no end of a table's cell."""
    return " ".join(str(value).split()).replace("|", "\\|")
