"""What a record may have deleted, or written over, with its run: objects that are named by their content."""

from __future__ import annotations

import factories
import pytest
from distrl.runs.named_objects import objects_of
from distrl.types import ObjectRef

SHA = "ab" * 32


@pytest.mark.parametrize(
    "key", [f"screenshots/run/2026-01-31/{SHA}.png", f"screenshots/2026-01-31/{SHA}.png", f"screenshots/{SHA}.png"]
)
def test_screenshots_of_today_and_of_earlier_runs_are_named(key: str) -> None:
    ref = ObjectRef(key, SHA, 1)
    assert objects_of(factories.trajectory(steps=(), final_screenshot=ref)) == [ref]


@pytest.mark.parametrize(
    "key",
    [
        "runs/prod/checkpoints/00000100.json",
        f"runs/prod/reserved-versions/000000000007-000000000009-{SHA}",
        f"runs/prod/tensors/{SHA}.safetensors",
        f"adapters/prod/{SHA}.safetensors",
        f"screenshots/run/2026-01-31/{'cd' * 32}.png",
        f"verdicts/prod/{SHA}.json",
        SHA,
        "screenshots",
    ],
)
def test_a_record_names_nothing_that_lies_elsewhere_or_has_another_content(key: str) -> None:
    ref = ObjectRef(key, SHA, 1)
    assert objects_of(factories.trajectory(steps=(factories.step(screenshot=ref),), final_screenshot=ref)) == []
    assert objects_of(factories.version(adapter=ref)) == ([ref] if key.startswith("adapters/") else [])
