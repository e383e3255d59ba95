"""How the panels of an experiment's figure look."""

from __future__ import annotations

from typing import Final

from matplotlib.axes import Axes

from distrl.evaluate.figures import GRID, INK, MUTED

COLOURS: Final = ("#2f7f86", "#d08a2e", "#7b5ea7", "#4a78b5", "#b8544f", "#6b8f3c", "#a8628f", "#8a7350")
STYLES: Final = ("-", "--", ":", "-.")
SYNC: Final = INK


def colour_of(place: int) -> str:
    """The colour of the arm at a place. Colours repeat."""
    return COLOURS[place % len(COLOURS)]


def style_of(place: int) -> str:
    """The line style of the arm at a place: another one each time that colours repeat."""
    return STYLES[place // len(COLOURS) % len(STYLES)]


def dress(axes: Axes, title: str, label: str, *, legend: bool = True) -> None:
    axes.set_title(title, fontsize=9, color=INK, loc="left")
    axes.set_xlabel(label, fontsize=8, color=INK)
    axes.grid(color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(color=MUTED, labelsize=8)
    if legend:
        axes.legend(fontsize=8, frameon=False, labelcolor=INK)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(GRID)
