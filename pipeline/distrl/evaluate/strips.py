"""Film strips for the report: the screens of one task as two policies played it, with the touches drawn on."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from PIL import Image

from distrl.errors import StoreError
from distrl.images import ImageError, opened
from distrl.judge.marks import draw_touch
from distrl.types import Action, ActionKind, HeldBack, ObjectRef, Outcome, Step, Trajectory

WIDTH_PX = 150
CAPTION_CHARACTERS = 40
TALLEST = 20
"""Most times its width that a drawn screen is high: one pixel wide and millions high, a picture of few bytes would take
all memory once it is enlarged."""

Read = Callable[[ObjectRef], bytes]


@dataclass(frozen=True, slots=True)
class Frame:
    """One screen of a strip."""

    png: bytes | None
    """WIDTH_PX wide, with the touch drawn; None where it cannot be shown."""
    caption: str
    """Untrusted text."""


@dataclass(frozen=True, slots=True)
class Strip:
    title: str
    frames: tuple[Frame, ...]


def pick(before: Sequence[Trajectory], after: Sequence[Trajectory]) -> tuple[Trajectory, Trajectory] | None:
    """The task that failed before and was solved after with the most steps (ties: the first id); None without one."""
    failed: Mapping[str, Trajectory] = {t.task_id: t for t in before if t.outcome is Outcome.FAILURE and t.steps}
    solved = [t for t in after if t.outcome is Outcome.SUCCESS and t.task_id in failed and t.steps]
    if not solved:
        return None
    chosen = min(solved, key=lambda t: (-len(t.steps), t.task_id))
    return failed[chosen.task_id], chosen


def strip(title: str, trajectory: Trajectory, read: Read) -> Strip:
    """The steps of `trajectory` and its last screen. read: may raise StoreError, OSError, ValueError."""
    frames = [
        Frame(
            _screen(step.screenshot, step.action, read),
            "".join([caption(step.action), *(f" ({each})" for each in remarks(step))]),
        )
        for step in trajectory.steps
    ]
    last = trajectory.final_screenshot
    frames.append(Frame(_screen(last, None, read) if last else None, trajectory.outcome.value))
    return Strip(title, tuple(frames))


def caption(action: Action) -> str:
    """The action in a few words. Untrusted: it may hold text of the policy."""
    match action.kind:
        case ActionKind.TYPE:
            return f"type “{action.text[:CAPTION_CHARACTERS]}”"
        case ActionKind.INVALID:
            return f"no action: “{action.text[:CAPTION_CHARACTERS]}”"
        case _:
            return action.kind.value


def remarks(step: Step) -> list[str]:
    """How an action was held back, and that a judge called it invalid."""
    held = {
        HeldBack.UNSENT: "not sent",
        HeldBack.UNDONE: "left the allowed apps, undone",
        HeldBack.REFUSED: "refused by the phone",
    }
    return [*filter(None, (held.get(step.held_back), "judged invalid" if step.valid is False else None))]


def opened_screen(png: bytes) -> Image.Image:
    """The decoded screen. Raises ImageError for bytes that are no picture, and one that is over TALLEST."""
    image = opened(png)
    if image.height > TALLEST * image.width:
        raise ImageError(f"has {image.width} x {image.height} pixels, which is no screen")
    return image


def _screen(ref: ObjectRef, action: Action | None, read: Read) -> bytes | None:
    try:
        return draw(read(ref), action)
    except (StoreError, OSError, ValueError):
        return None  # retention may have deleted the screenshot; the captions still show what was done


def draw(png: bytes, action: Action | None) -> bytes:
    """The screen WIDTH_PX wide, a ring where it was tapped, a line with a ring at its end where it was swiped. Raises
    ImageError for bytes that are no picture of a screen."""
    source = opened_screen(png)
    size = (WIDTH_PX, max(1, round(source.height * WIDTH_PX / source.width)))
    image = source.resize(size, Image.Resampling.LANCZOS)
    if action is not None:
        draw_touch(image, action, 1.0)
    out = io.BytesIO()
    image.save(out, "PNG", optimize=True)
    return out.getvalue()
