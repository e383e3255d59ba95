"""report.json of `distrl ablate` (distrl/offline/ablation/report.py) as a page shows it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from distrl.view.report_form import Cell, Curve, Interval, ReportForm, Table, curve

FORMAT: Final = 1
HELD_OUT: Final = "held_out"
BASELINE: Final = "baseline"
Triple = tuple[float | None, float | None]


class Range(msgspec.Struct):
    first: int = msgspec.field(name="from")
    to: int
    hold_out: int


class Identity(msgspec.Struct):
    holds: bool | None
    versions: dict[str, bool]


class Estimate(msgspec.Struct):
    value: float | None
    interval: Triple
    effective_episodes: float
    episodes: int
    noise: bool


class ToBaseline(msgspec.Struct):
    tasks: int
    difference: float
    newcombe_interval: Triple


class Played(msgspec.Struct):
    split: str
    tasks: int
    episodes: int
    success: float | None
    wilson_interval: Triple
    to_baseline: ToBaseline | None = None


class Adapter(msgspec.Struct):
    sha256: str


class Unshared(msgspec.Struct):
    arm: bool | int | float | str | None
    run: bool | int | float | str | None


class Arm(msgspec.Struct):
    name: str
    sets: dict[str, Any] = msgspec.field(name="set")
    config_fingerprint: str
    updates: list[int]
    records: int
    diverged: bool
    adapter: Adapter
    curves: dict[str, list[float | None]]
    last: dict[str, float | None]
    estimates: dict[str, dict[str, Estimate]]
    evaluation: Played | None = None
    unshared: dict[str, Unshared] = {}


class Ablation(msgspec.Struct):
    """The parts of the file that are shown."""

    format: int
    complete: bool
    run: str
    range: Range
    settings: dict[str, msgspec.Raw]
    baseline_is_the_run: Identity
    least_effective_episodes: float
    arms: list[Arm]
    not_played: str | None = None


def ablation_form(content: bytes) -> ReportForm:
    """Raises msgspec.DecodeError for what is no such report."""
    found = msgspec.json.decode(content, type=Ablation)
    if found.format != FORMAT:
        raise msgspec.ValidationError(f"format {found.format} is of another version of DistRL")
    return ReportForm(
        kind="ablation",
        title=f"Ablation of run {found.run}, updates {found.range.first} to {found.range.to - 1}",
        about="One range of a run's log, folded under other settings.",
        complete=found.complete,
        arms=len(found.arms),
        notes=_notes(found),
        facts=[
            ("Run", found.run),
            ("Updates", f"{found.range.first} to {found.range.to - 1}"),
            ("Held out", f"the last {found.range.hold_out} updates" if found.range.hold_out else "nothing"),
            ("The baseline is the run", _identity(found.baseline_is_the_run)),
        ],
        tables=[_worth(found), _learning(found), _arms(found)],
        curves=_curves(found.arms),
        settings=found.settings,
    )


def _notes(found: Ablation) -> list[str]:
    notes = [f"An estimate with fewer than {found.least_effective_episodes:g} effective episodes is noise."]
    if found.not_played is not None:
        notes.append(f"No arm was played: {found.not_played}.")
    if found.baseline_is_the_run.holds is False:
        notes.append("The baseline is NOT the run: arms may be compared with each other alone.")
    for arm in found.arms:
        if arm.unshared:
            values = ", ".join(f"{path} {each.arm} (the run: {each.run})" for path, each in arm.unshared.items())
            notes.append(f"{arm.name} has defaults of its own algorithm: {values}.")
    return notes


def _identity(identity: Identity) -> str:
    if identity.holds is None:
        return "not known: the run published no version in this range"
    equal = f"{sum(identity.versions.values())} of {len(identity.versions)} versions are equal"
    return f"{'yes' if identity.holds else 'no'}: {equal}"


def _worth(found: Ablation) -> Table:
    on = HELD_OUT if any(HELD_OUT in arm.estimates for arm in found.arms) else "range"
    rows: list[list[Cell]] = []
    for arm in found.arms:
        played, estimate = arm.evaluation, arm.estimates.get(on, {}).get("weighted")
        success = None if played is None else _interval(played.success, played.wilson_interval)
        apart = played.to_baseline if played is not None and arm.name != BASELINE else None
        difference = None if apart is None else _interval(apart.difference, apart.newcombe_interval)
        rows.append([arm.name, success, difference, _verdict(difference), *_value(arm, estimate)])
    return Table(
        "What each arm's last policy is worth",
        ["arm", "success", "to baseline", "verdict", f"value ({on.replace('_', ' ')})", "effective episodes"],
        rows,
        "Success by ground truth with 95 % Wilson intervals; the difference over the same tasks, with Newcombe's. A "
        "verdict is undecided where the interval holds 0.",
    )


def _value(arm: Arm, estimate: Estimate | None) -> list[Cell]:
    if estimate is None or arm.diverged:
        return ["diverged" if arm.diverged else None, None]
    value: Cell = "noise" if estimate.noise else _interval(estimate.value, estimate.interval)
    return [value, f"{estimate.effective_episodes:.1f} of {estimate.episodes}"]


def _interval(value: float | None, bounds: Triple) -> Interval | None:
    return None if value is None else (value, *bounds)


def _verdict(difference: Interval | None) -> str | None:
    if difference is None:
        return None
    _, low, high = difference
    if low is None or high is None or low <= 0 <= high:
        return "undecided"
    return "better" if low > 0 else "worse"


def _learning(found: Ablation) -> Table:
    names = sorted({name for arm in found.arms for name in arm.last})
    rows: list[list[Cell]] = [[arm.name, *(arm.last.get(name) for name in names)] for arm in found.arms]
    return Table("How each arm learned", ["arm", *names], rows, "Means over the last updates that have them.")


def _arms(found: Ablation) -> Table:
    rows: list[list[Cell]] = [
        [
            arm.name,
            ", ".join(f"{name}={value}" for name, value in arm.sets.items()) or "the run's own settings",
            len(arm.updates),
            arm.records,
            arm.config_fingerprint[:12],
            arm.adapter.sha256[:12],
        ]
        for arm in found.arms
    ]
    return Table("Arms", ["arm", "sets", "updates", "records", "settings", "adapter"], rows)


def _curves(arms: Sequence[Arm]) -> list[Curve]:
    names = sorted({name for arm in arms for name in arm.curves})
    made = (
        curve(
            name, "update", [(arm.name, list(zip(arm.updates, arm.curves.get(name, []), strict=False))) for arm in arms]
        )
        for name in names
    )
    return [each for each in made if each is not None]
