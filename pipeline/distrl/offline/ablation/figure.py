"""The curves of an ablation side by side, drawn by matplotlib as PNG bytes: equal numbers give equal bytes."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from typing import Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from distrl.evaluate.figures import GRID, INK, MUTED
from distrl.offline.ablation.fold import HELD_OUT, SEEN, Folded

PANELS: Final = {
    "clone_loss": "cloning loss",
    "policy_loss": "policy loss",
    "value_loss": "loss of V",
    "trajectory_value_loss": "loss of V_traj",
    "entropy": "−log π of the actions",
    "ratio": "importance ratio ρ",
    "sample_share": "effective share of a minibatch",
    "clipped": "share of ρ that is clipped",
}

NAMED: Final = 10
"""Most arms that get a colour and a name each; of a larger sweep the baseline stands out from the rest."""

COLUMNS: Final = 3
LEGEND: Final = 46
"""Characters of an arm's name in the legend."""


def draw(arms: Sequence[Folded]) -> bytes:
    """A panel for each metric over the updates, and one with the weighted estimates of value."""
    rows = math.ceil((len(PANELS) + 1) / COLUMNS)
    figure = Figure(figsize=(4.0 * COLUMNS, 2.6 * rows + 0.4), layout="constrained")
    panels = [axes for row in figure.subplots(rows, COLUMNS, squeeze=False) for axes in row]
    styles = _styles(arms)
    for axes, (metric, label) in zip(panels, PANELS.items(), strict=False):
        for folded, style in reversed(list(zip(arms, styles, strict=True))):  # the baseline last, on top
            points = [(u, found[metric]) for u, found in folded.updates if math.isfinite(found.get(metric, math.nan))]
            axes.plot([u for u, _ in points], [value for _, value in points], **style)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _dress(axes, label, "update")
    _values(panels[len(PANELS)], arms, styles)
    for axes in panels[len(PANELS) + 1 :]:
        axes.set_axis_off()
    if len(arms) <= NAMED:
        handles = [
            panels[0].plot([], [], **style, label=folded.arm.name[:LEGEND].replace("$", r"\$"))[0]
            for folded, style in zip(arms, styles, strict=True)
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=8, labelcolor=INK)
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=110, metadata={"Software": None})
    return out.getvalue()


def _values(axes: Axes, arms: Sequence[Folded], styles: Sequence[Mapping[str, object]]) -> None:
    """The weighted estimate of each arm with its interval; hollow where it is noise."""
    on = HELD_OUT if any(HELD_OUT in folded.estimates for folded in arms) else SEEN
    for place, (folded, style) in enumerate(zip(arms, styles, strict=True)):
        estimate = folded.estimates.get(on, {}).get("weighted")
        if estimate is None:
            continue
        colour = str(style["color"])
        axes.plot([place, place], [estimate.low, estimate.high], color=colour, linewidth=1.2)
        axes.plot(
            [place],
            [estimate.value],
            marker="o",
            markersize=4,
            color=colour,
            markerfacecolor="white" if estimate.is_noise else colour,
        )
    _dress(axes, f"value, {'held-out' if on == HELD_OUT else 'folded'} episodes (hollow: noise)", "arm")
    axes.set_xticks([])


def _styles(arms: Sequence[Folded]) -> list[dict[str, object]]:
    styles: list[dict[str, object]] = []
    for place in range(len(arms)):
        if place == 0:
            styles.append(
                {"color": INK, "linewidth": 2.0, "linestyle": (0, (4, 2))}
            )  # what is equal to it shows through
        elif len(arms) <= NAMED:
            styles.append({"color": f"C{place - 1}", "linewidth": 1.3})
        else:
            styles.append({"color": MUTED, "linewidth": 0.6, "alpha": 0.4})
    return styles


def _dress(axes: Axes, title: str, label: str) -> None:
    axes.set_title(title, fontsize=9, color=INK, loc="left")
    axes.set_xlabel(label, fontsize=8, color=INK)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(color=GRID, labelsize=8)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(GRID)
