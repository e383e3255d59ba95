"""Episodes that the step limit cut off, and the state that they ended in.

In the paper the horizon H is a real end (section 3). A limit that only saves time is not: the state after it still has
a value, V(s_{H+1}). `algorithm.truncation` chooses between the two; see docs/learning.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from distrl.store.objects import is_reference
from distrl.types import Action, ActionKind, ObjectRef, Outcome, ScreenSize, Step, Trajectory

EncodePrompt = Callable[[str, Sequence[Action], ScreenSize], tuple[int, ...]]
"""(instruction, earlier actions, size of the screen) -> token ids, as the policy reads them."""


def cut_off(trajectory: Trajectory) -> bool:
    """Whether a failed episode used up its steps before the policy ended it. Successes already have their reward."""
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


def step_after(trajectory: Trajectory, screen: ObjectRef, size: ScreenSize, encode_prompt: EncodePrompt) -> Step:
    """The next step of a cut-off episode as the policy would have read it. screen: `screen_after`, and its size.

    Its action is a copy of the last step's, a placeholder: V(s) does not read it.
    """
    prompt = encode_prompt(trajectory.task.instruction, [step.action for step in trajectory.steps], size)
    return replace(trajectory.steps[-1], screenshot=screen, prompt_ids=prompt)
