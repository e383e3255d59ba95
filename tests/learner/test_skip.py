"""An update that waits for an object names the records that need it, and how to go on without them."""

from __future__ import annotations

import factories
import pytest
from distrl.learner.skip import naming_records
from distrl.store.objects import CorruptObjectError, MissingObjectError
from distrl.types import LoggedTrajectory, LogPosition, ObjectRef

SCREEN, OTHER = (ObjectRef(f"screenshots/{name}", "0" * 64, 1) for name in ("a.png", "b.png"))


@pytest.mark.parametrize("kind", [MissingObjectError, CorruptObjectError])
@pytest.mark.parametrize(
    "last", [False, True], ids=["the screenshot of a step", "the one after the last step, which is bootstrapped from"]
)
def test_a_record_that_needs_it_is_named(kind: type[MissingObjectError | CorruptObjectError], last: bool) -> None:
    screens = (OTHER, SCREEN) if last else (SCREEN, OTHER)
    made = factories.trajectory(steps=(factories.step(screenshot=screens[0]),), final_screenshot=screens[1])
    other = factories.trajectory(steps=(factories.step(screenshot=OTHER),), final_screenshot=None)
    held = [
        LoggedTrajectory(LogPosition("run.trajectories", 0, 7), made),
        LoggedTrajectory(LogPosition("run.trajectories", 0, 8), other),
    ]
    error = naming_records(kind(f"object {SCREEN.key}", "is not usable", "do this"), held, "demo")
    assert type(error) is kind
    assert "needed by trajectories/0/7" in str(error)
    assert "trajectories/0/8" not in str(error)
    assert "if it is gone for good: distrl skip trajectories/0/7 --run demo --reason WHY" in str(error)
