"""The touch of an action as SVG over its screenshot. Pure."""

from __future__ import annotations

import math
from typing import Final

from distrl.types import Action, Point

Place = tuple[float, float]
"""(x, y) in px of the screenshot."""

RADIUS: Final = 0.055
"""Of a tap's ring, as a share of the screenshot's width: about a fingertip."""
HEAD: Final = 0.075
"""Length of an arrow's head, as a share of the width."""


def touch_svg(action: Action, width: int, height: int) -> str:
    """A ring for a tap, an arrow for a swipe; empty for other actions, and for a point that is none.

    width, height: of the screenshot, px; the drawing scales with it. Points outside of it are drawn at its edge.
    """
    start, end = (place(point, width, height) for point in (action.touch, action.lift))
    if start is None:
        return ""
    drawn = [_ring(start, width)] if end is None else _arrow(start, end, width)
    return (
        f'<svg class="touch" viewBox="0 0 {width} {height}" aria-hidden="true">'
        f'<g fill="none" stroke-width="{0.012 * width:.2f}">{"".join(drawn)}</g></svg>'
    )


def place(point: Point | None, width: int, height: int) -> Place | None:
    """Where a point is on the screenshot; None for none, and for one that is no number."""
    if point is None or math.isnan(point.x) or math.isnan(point.y):
        return None
    return min(max(point.x, 0.0), 1.0) * width, min(max(point.y, 0.0), 1.0) * height


def arrow_head(start: Place, end: Place, length: float) -> tuple[Place, Place, Place]:
    """The corners of the head of an arrow from `start` to `end`: its tip, which is `end`, and the two behind it."""
    angle = math.atan2(end[1] - start[1], end[0] - start[0])
    left, right = (
        (end[0] - length * math.cos(angle + side), end[1] - length * math.sin(angle + side)) for side in (-0.45, 0.45)
    )
    return end, left, right


def _ring(at: Place, width: int) -> str:
    x, y = at
    dot = f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS * width / 4:.2f}"/>'
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS * width:.2f}"/>{dot}'


def _arrow(start: Place, end: Place, width: int) -> list[str]:
    if start == end:
        return [_ring(start, width)]
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in arrow_head(start, end, HEAD * width))
    (x1, y1), (x2, y2) = start, end
    return [
        f'<circle class="dot" cx="{x1:.1f}" cy="{y1:.1f}" r="{RADIUS * width / 4:.2f}"/>',
        f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>',
        f'<polygon class="head" points="{corners}"/>',
    ]
