"""The parameters that each address of the API takes."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
from distrl.config import Config
from distrl.view.app import application
from distrl.view.filters import EPISODES, PAGE
from distrl.view.in_process import InProcess
from distrl.view.runs import Runs

PARAMETERS = {
    "runs": ("again",),
    "runs/none": (),
    "runs/none/series": ("from", "to"),
    "runs/none/versions": PAGE,
    "runs/none/versions/1": (),
    "runs/none/trajectories": (*EPISODES, *PAGE),
    "runs/none/failures": ("version",),
    "runs/none/devices": (),
    "runs/none/dead-letters": PAGE,
    "runs/none/counts": (),
    "runs/none/events": (),
    "runs/none/tasks/a/b": (),
    "runs/none/images/trajectories/0:1/2": ("sha256",),
    "runs/none/verdicts/trajectories/0:1": (),
    "runs/none/trajectories.dlq/0:1": (),
    "runs/none/trajectories/0:1": (),
    "reports": (),
    "reports/none": (),
}


@pytest.fixture
def asked() -> Iterator[InProcess]:
    with Runs(list, lambda name: Config(run=name)) as runs, InProcess(application(runs, lambda: True)) as asked:
        yield asked


@pytest.mark.parametrize("path", PARAMETERS)
def test_an_unknown_parameter_is_refused_with_the_known_ones(asked: InProcess, path: str) -> None:
    """Else a typo in a filter chooses every episode."""
    refused = asked.get(f"/api/{path}?outcom=failure")
    answer = msgspec.json.decode(refused.body)
    assert refused.status == 400
    assert answer["error"].startswith("outcom: ")
    assert [name for name in PARAMETERS[path] if name not in answer["fix"]] == []


@pytest.mark.parametrize("path", PARAMETERS)
def test_a_known_parameter_is_taken(asked: InProcess, path: str) -> None:
    alone = asked.get(f"/api/{path}").status
    assert [name for name in PARAMETERS[path] if asked.get(f"/api/{path}?{name}=").status != alone] == []
