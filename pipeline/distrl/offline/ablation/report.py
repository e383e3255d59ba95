"""An ablation as report.json, table.md and lines for a terminal. Pure: results in, text out.

report.json has sorted keys: the same command over the same log gives the same bytes but for `measured`, which holds
times and memory. A number that is not finite is null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from distrl.config import LEARNING, Config
from distrl.evaluate.curves import SuccessRate
from distrl.offline.ablation.arms import BASELINE, Plan
from distrl.offline.ablation.difference import Difference, difference
from distrl.offline.ablation.fold import HELD_OUT, SEEN, Folded, Identity
from distrl.offline.ablation.log import RunLog
from distrl.offline.estimates import LEAST_EPISODES, Estimate
from distrl.runs.settings import learning_fingerprint
from distrl.types import Watermark

FORMAT: Final = 1

LAST: Final = 8
"""Last updates that a number in the table is the mean of: a single one is noisy."""

SHOWN: Final = {
    "policy_loss": "policy loss",
    "value_loss": "V loss",
    "ratio": "ρ",
    "sample_share": "sample share",
    "entropy": "−log π",
}
"""Metrics of the table -> column titles; telemetry.metrics says what they mean."""

_SHORT: Final = {SEEN: "seen", HELD_OUT: "held out"}

PLACE: Final = ("update", "trajectories", "skipped")
"""Metrics without a curve: they count, and tell nothing of what was learned."""


@dataclass(frozen=True, slots=True)
class Evaluated:
    """Success on phones."""

    split: str
    tasks: int
    """How many were asked for."""
    outcomes: Mapping[str, bool]
    """Task id -> success, of those with a known outcome."""
    others: int = 0
    """Episodes without one."""

    @property
    def score(self) -> SuccessRate:
        return SuccessRate(len(self.outcomes), sum(self.outcomes.values()), self.others)


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one arm."""

    folded: Folded
    evaluated: Evaluated | None = None
    """Where it was played on phones."""
    identity: Identity | None = None
    """Of the baseline only."""


@dataclass
class Ablation:
    """The results so far; arms join as they are done."""

    config: Config
    plan: Plan
    log: RunLog
    identity: Identity = field(default_factory=Identity)
    arms: list[Folded] = field(default_factory=list)
    evaluations: dict[str, Evaluated] = field(default_factory=dict)
    unplayed: str = ""
    """Why no arm is played, where none is."""
    files: dict[str, str] = field(default_factory=dict)
    measured: dict[str, float] = field(default_factory=dict)
    reused: int = 0
    """Arms folded by an earlier, interrupted ablation, or one that played other tasks."""
    reused_played: int = 0
    """Those of them that had been played, too."""

    def join(self, result: Result, file: str) -> None:
        """Add an arm that is done. file: its adapter, within the report's folder."""
        name = result.folded.arm.name
        self.arms.append(result.folded)
        self.files[name] = file
        if result.evaluated is not None:
            self.evaluations[name] = result.evaluated
        self.identity = result.identity or self.identity

    def to_baseline(self, name: str) -> Difference | None:
        """The success of an arm minus that of the baseline; None where one of them was not played."""
        one, baseline = (self.evaluations.get(each) for each in (name, BASELINE))
        return None if one is None or baseline is None else difference(one.outcomes, baseline.outcomes)

    @property
    def complete(self) -> bool:
        return len(self.arms) == len(self.plan.arms)


def to_json(ablation: Ablation) -> str:
    """report.json."""
    log = ablation.log
    report = {
        "format": FORMAT,
        "complete": ablation.complete,
        "run": ablation.config.run,
        "range": {
            "from": log.range.first,
            "to": log.range.to,
            "hold_out": log.range.hold_out,
            "begins": [_mark(mark) for mark in log.begins],
            "ends": [_mark(mark) for mark in log.ends],
        },
        "same": dict(ablation.plan.same),
        "settings": settings_of(ablation.config),
        "baseline_is_the_run": {
            "holds": ablation.identity.holds,
            "versions": {str(update): equal for update, equal in ablation.identity.versions.items()},
            "checkpoint": ablation.identity.checkpoint,
        },
        "not_played": ablation.unplayed or None,
        "least_effective_episodes": LEAST_EPISODES,
        "arms": [_arm(ablation, folded) for folded in ablation.arms],
        "measured": {
            "seconds": {"reading": ablation.measured.get("reading")}
            | {folded.arm.name: folded.seconds for folded in ablation.arms},
            "peak_memory_mb": ablation.measured.get("peak_memory_mb"),
        },
    }
    return json.dumps(report, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


Table = tuple[list[str], list[list[str]]]
"""(header, a row for each finished arm). A cell may have lines: a number, and its interval below."""


def worth_table(ablation: Ablation) -> Table:
    """What each arm's last policy is worth: success and its difference to the baseline where arms were played, and the
    weighted estimate where it is no noise."""
    on = _estimated_on(ablation)
    header = ["arm", *(["success", "to baseline, points"] if ablation.evaluations else []), f"value ({_SHORT[on]})"]
    rows = []
    for folded in ablation.arms:
        name = folded.arm.name
        played = [_success(ablation.evaluations.get(name)), _difference(ablation, name)] if ablation.evaluations else []
        value = "diverged" if folded.diverged else _value(folded.estimates.get(on, {}).get("weighted"))
        rows.append([name, *played, value])
    return header, rows


def learning_table(ablation: Ablation) -> Table:
    """How each arm learned, and how many episodes carry its estimate."""
    on = _estimated_on(ablation)
    rows = []
    for folded in ablation.arms:
        means = [last_mean([metrics.get(name) for _, metrics in folded.updates]) for name in SHOWN]
        estimate = None if folded.diverged else folded.estimates.get(on, {}).get("weighted")
        rows.append(
            [folded.arm.name, *("–" if mean is None else f"{mean:.3f}" for mean in means), _effective(estimate)]
        )
    return ["arm", *SHOWN.values(), "effective episodes"], rows


def notes(ablation: Ablation) -> list[str]:
    """What to know about `worth_table`, a line each."""
    found = [f"–: nothing known, or noise: fewer than {LEAST_EPISODES:g} effective episodes carry the estimate."]
    if ablation.evaluations:
        tasks, split = next((each.tasks, each.split) for each in ablation.evaluations.values())
        found.append(f"success: {tasks} tasks of split {split}, by ground truth; 95 % Wilson intervals.")
        found.append("to baseline: over the same tasks; 95 % intervals for pairs (Newcombe 1998).")
    elif ablation.unplayed:
        found.append(f"success: not played, {ablation.unplayed}.")
    for arm in ablation.plan.arms:
        if unshared := arm.unshared(ablation.config):
            values = ", ".join(f"{path} {own} (the run: {theirs})" for path, (own, theirs) in unshared.items())
            found.append(f"{arm.name} has defaults of its own algorithm: {values}.")
    return found


def to_markdown(ablation: Ablation) -> str:
    """table.md: what was folded, the tables, every estimate, the digests."""
    log = ablation.log
    lines = [f"# Ablation of run {ablation.config.run}, updates {log.range.first} to {log.range.to - 1}", ""]
    lines += [identity_sentence(ablation), "", *_markdown_table(*worth_table(ablation)), ""]
    lines += [f"- {note}" for note in notes(ablation)]
    lines += ["", "## Learning", "", f"Means over the last {LAST} updates that have them.", ""]
    lines += _markdown_table(*learning_table(ablation))
    lines += ["", "## Estimates of value", "", NOTE, ""]
    lines += _markdown_table(["arm", "on", "estimate", "value", "95 %", "effective episodes"], _estimate_rows(ablation))
    lines += ["", "## Digests", ""]
    parts = sorted({part for folded in ablation.arms for part in folded.digests})
    lines += _markdown_table(
        ["arm", "settings", *parts, "adapter file"],
        [
            [
                folded.arm.name,
                learning_fingerprint(folded.arm.config)[:12],
                *(folded.digests.get(part, "–")[:12] for part in parts),  # an algorithm has parts of its own
                folded.adapter_sha256[:12],
            ]
            for folded in ablation.arms
        ],
    )
    same = [f"- `{name}` has the settings of `{first}`" for name, first in sorted(ablation.plan.same.items())]
    lines += ["", "Folded once:", "", *same] if same else []
    return "\n".join(lines) + "\n"


NOTE: Final = (
    "Success rate of each arm's last policy, sampling at temperature 1, estimated from episodes that the run's own "
    f"policies acted. Below {LEAST_EPISODES:g} effective episodes an estimate is noise, whatever its interval is, and "
    "a dash stands here; report.json has the number. "
    "`range` episodes were learned from, which flatters a policy; `held_out` ones were not."
)


def identity_sentence(ablation: Ablation) -> str:
    """One sentence on whether the baseline is the run."""
    identity = ablation.identity
    versions, equal = len(identity.versions), sum(identity.versions.values())
    checkpoint = {None: "", True: ", and the whole state of its checkpoint", False: ", but not its checkpoint"}
    if identity.holds is None:
        return "The run has published no version in this range, so the baseline could not be compared with it."
    if identity.holds:
        return f"The baseline is the run, bit for bit: all {versions} versions{checkpoint[identity.checkpoint]}."
    return (
        f"The baseline is NOT the run: {equal} of {versions} versions are equal{checkpoint[identity.checkpoint]}. Arms "
        "may be compared with each other; to compare them with the run, fold with the package versions and on the kind "
        "of processor that the run had."
    )


def curves(updates: Sequence[tuple[int, Mapping[str, float]]]) -> dict[str, list[float | None]]:
    """Metric -> its value at each update; None where an update has none, or it is not finite."""
    names = sorted({name for _, metrics in updates for name in metrics} - {*PLACE})
    return {name: [_number(metrics.get(name)) for _, metrics in updates] for name in names}


def last_mean(values: Sequence[float | None], most: int = LAST) -> float | None:
    """The mean of the last `most` values that are not None; None without any, or where it is not finite."""
    known = [value for value in values if value is not None][-most:]
    return _number(float(np.mean(known))) if known else None


def settings_of(config: Config) -> dict[str, Any]:
    """The settings that the fold reads, JSON-able."""
    return {name: getattr(config, name).model_dump(mode="json") for name in LEARNING}


def _arm(ablation: Ablation, folded: Folded) -> dict[str, Any]:
    evaluated = ablation.evaluations.get(folded.arm.name)
    return {
        "name": folded.arm.name,
        "set": dict(folded.arm.sets),
        "settings": settings_of(folded.arm.config),
        "unshared": {
            path: {"arm": own, "run": theirs} for path, (own, theirs) in folded.arm.unshared(ablation.config).items()
        },
        "config_fingerprint": learning_fingerprint(folded.arm.config),
        "cut_anew": folded.arm.other_windows,
        "updates": [u for u, _ in folded.updates],
        "records": folded.trajectories,
        "diverged": folded.diverged,
        "digests": dict(folded.digests),
        "adapter": {"file": ablation.files.get(folded.arm.name), "sha256": folded.adapter_sha256},
        "curves": curves(folded.updates),
        "last": {
            name: last_mean([metrics.get(name) for _, metrics in folded.updates]) for name in curves(folded.updates)
        },
        "estimates": {
            on: {name: _estimate(estimate) for name, estimate in found.items()}
            for on, found in folded.estimates.items()
        },
        "evaluation": None if evaluated is None else _evaluation(evaluated, ablation.to_baseline(folded.arm.name)),
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {
        "value": _number(estimate.value),
        "interval": [_number(estimate.low), _number(estimate.high)],
        "effective_episodes": estimate.episodes,
        "episodes": estimate.of,
        "noise": estimate.is_noise,
    }


def _evaluation(evaluated: Evaluated, to_baseline: Difference | None) -> dict[str, Any]:
    score = evaluated.score
    return {
        "split": evaluated.split,
        "tasks": evaluated.tasks,
        "episodes": score.episodes,
        "successes": score.successes,
        "without_outcome": score.others,
        "success": score.known,
        "wilson_interval": list(score.interval),
        "succeeded": dict(evaluated.outcomes),
        "to_baseline": None
        if to_baseline is None
        else {
            "tasks": to_baseline.tasks,
            "difference": to_baseline.value,
            "newcombe_interval": [to_baseline.low, to_baseline.high],
        },
    }


def _estimate_rows(ablation: Ablation) -> list[list[str]]:
    return [
        [folded.arm.name, on, name, *_value(estimate, "\n–").split("\n"), _effective(estimate)]
        for folded in ablation.arms
        for on, found in folded.estimates.items()
        for name, estimate in found.items()
    ]


def _estimated_on(ablation: Ablation) -> str:
    return HELD_OUT if any(HELD_OUT in folded.estimates for folded in ablation.arms) else SEEN


def _value(estimate: Estimate | None, otherwise: str = "") -> str:
    """The estimate over its interval; a dash, and `otherwise`, where there is none or it is noise."""
    if estimate is None or estimate.is_noise:
        return f"–{otherwise}"
    return f"{_short(estimate.value)}\n{_short(estimate.low)} to {_short(estimate.high)}"


def _effective(estimate: Estimate | None) -> str:
    return "–" if estimate is None else f"{estimate.episodes:.1f} of {estimate.of}"


def _success(evaluated: Evaluated | None) -> str:
    """Success over its interval, and how many episodes have no outcome, if any."""
    if evaluated is None or not evaluated.score.episodes:
        return "–"
    unknown = [f"{evaluated.others} without an outcome"] if evaluated.others else []
    return "\n".join([*evaluated.score.as_text(), *unknown])


def _difference(ablation: Ablation, name: str) -> str:
    """In percentage points, over its interval; a dash where there is none, nothing for the baseline."""
    if name == BASELINE:
        return ""
    found = ablation.to_baseline(name)
    if found is None:
        return "–"
    return f"{_points(found.value)}\n{_points(found.low)} to {_points(found.high)}"


def _points(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−")


def _short(value: float) -> str:
    """An estimate for people; importance sampling may give a success rate of 10^9."""
    return f"{value:.3f}" if abs(value) < 100 else f"{value:.1e}"


def _number(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _mark(mark: Watermark) -> dict[str, Any]:
    return {"topic": mark.topic, "partition": mark.partition, "offset": mark.offset}


def _markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(header) + " |", "| " + " | ".join(["---"] * len(header)) + " |"]
    return lines + ["| " + " | ".join(_inline(cell) for cell in row) + " |" for row in rows]


def _inline(cell: str) -> str:
    """A cell on one line: what stands below its first line goes into brackets."""
    first, *below = cell.split("\n")
    return " ".join([first, *([f"({', '.join(below)})"] if below else [])]).replace("|", "\\|")
