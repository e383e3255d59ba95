"""Episodes that the step limit cut off, and the state that they ended in.

In the paper the horizon H is a real end (section 3). A limit that only saves time is none: the state after it is worth
V of it. `algorithm.truncation` chooses; see docs/learning.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from distrl.store.objects import is_reference
from distrl.types import Action, ActionKind, ObjectRef, Outcome, Step, Trajectory

EncodePrompt = Callable[[str, Sequence[Action]], tuple[int, ...]]
"""(instruction, earlier actions) -> token ids, as the policy reads them."""


def cut_off(trajectory: Trajectory) -> bool:
    """Whether a failure used up its steps before the policy said that it was done. Successes have their reward."""
    steps = trajectory.steps
    return (
        trajectory.outcome is Outcome.FAILURE
        and bool(steps)
        and len(steps) >= trajectory.task.max_steps
        and steps[-1].action.kind is not ActionKind.COMPLETE
    )


def screen_after(trajectory: Trajectory) -> ObjectRef | None:
    """The last screenshot of a cut-off episode; None where it was not cut off, or has none."""
    final = trajectory.final_screenshot
    return final if final is not None and is_reference(final) and cut_off(trajectory) else None


def step_after(trajectory: Trajectory, encode_prompt: EncodePrompt) -> Step | None:
    """The next step of a cut-off episode as the policy would have read it; None where it was not cut off.

    Its action is a copy of the last step's, a placeholder: V(s) does not read it.
    """
    screen = screen_after(trajectory)
    if screen is None:
        return None
    prompt = encode_prompt(trajectory.task.instruction, [step.action for step in trajectory.steps])
    return replace(trajectory.steps[-1], screenshot=screen, prompt_ids=prompt)
