"""Episodes that the step limit cut off, and the state that they were left in.

The paper's horizon H is an end like any other (section 3). A limit that only saves time is none: the state after it
is worth what V says of it. `algorithm.truncation` chooses; see docs/learning.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from distrl.store.objects import is_reference
from distrl.types import Action, ActionKind, ObjectRef, Outcome, Step, Trajectory

EncodePrompt = Callable[[str, Sequence[Action]], tuple[int, ...]]
"""(instruction, earlier actions) -> token ids, as the policy reads them."""


def cut_off(trajectory: Trajectory) -> bool:
    """A failure whose steps were used up before the policy said that it was done. A success has its reward already."""
    steps = trajectory.steps
    return (
        trajectory.outcome is Outcome.FAILURE
        and bool(steps)
        and len(steps) >= trajectory.task.max_steps
        and steps[-1].action.kind is not ActionKind.COMPLETE
    )


def screen_after(trajectory: Trajectory) -> ObjectRef | None:
    """What a cut off episode was left on. None where it was not cut off, or no screenshot says."""
    final = trajectory.final_screenshot
    return final if final is not None and is_reference(final) and cut_off(trajectory) else None


def step_after(trajectory: Trajectory, encode_prompt: EncodePrompt) -> Step | None:
    """The step that a cut off episode would have gone on with, as the policy would have read it; else None.

    Its action is that of the last step and stands for none: V(s) does not read it.
    """
    screen = screen_after(trajectory)
    if screen is None:
        return None
    prompt = encode_prompt(trajectory.task.instruction, [step.action for step in trajectory.steps])
    return replace(trajectory.steps[-1], screenshot=screen, prompt_ids=prompt)
