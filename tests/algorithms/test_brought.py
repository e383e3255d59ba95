"""An algorithm that another package brings: found, refused where a part is lacking, and named where it fails."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from threading import Event

import brought_algorithm
import pytest
import torch
from brought_algorithm import TYPE, edit, install
from distrl.algorithms.registry import memory_of
from distrl.config import Config, load
from distrl.errors import AlgorithmError, ComputeError, ConfigError, PolicyError, StoreError
from distrl.learner.fold import fold
from distrl.learner.ranks import Leader
from distrl.learner.state import LearnerState
from distrl.ranks.group import ALONE
from learner.world import Screens, config, folded, save_tiny_base, update_of, windows

SMALL = (f"algorithm.type={TYPE}", "algorithm.minibatches=2", "algorithm.batch_size=8", "algorithm.replay.capacity=60")
UPDATE = "    def update(self, u: int) -> Metrics:\n"

Chosen = Callable[[Path], Config]


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Chosen:
    """Small settings of a run with the algorithm of the package in a folder."""

    def of(site: Path) -> Config:
        brought_algorithm.use(site, monkeypatch)
        save_tiny_base(tmp_path / "base")
        return config(tmp_path / "base").model_copy(update={"algorithm": load(sets=SMALL, environ={}).algorithm})

    return of


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return install(tmp_path / "site")


def test_its_weights_follow_the_advantages(site: Path, chosen: Chosen) -> None:
    """With a beta that makes all weights 1 it imitates, and ends elsewhere."""
    settings, screens = chosen(site), Screens()
    even = settings.model_copy(update={"algorithm": settings.algorithm.model_copy(update={"beta": 1e9})})
    found = [folded(LearnerState(each), windows(screens, each, 6), screens, each) for each in (settings, even)]
    first, second = (each.digests() for each in found)
    assert first["buffer"] == second["buffer"]
    assert first["adapter"] != second["adapter"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("users_awr.algorithm:Awr", "users_awr.algorithm:Awr is no distrl.algorithms.registry.Registered"),
        ("users_awr.algorithm:NONE", "users_awr.algorithm:NONE cannot be loaded: AttributeError"),
        ("users_awr.gone:AWR", "users_awr.gone:AWR cannot be loaded: ModuleNotFoundError"),
    ],
)
def test_code_that_is_not_there_is_refused_where_it_is_used(site: Path, chosen: Chosen, code: str, said: str) -> None:
    edit(site, "users_awr.algorithm:AWR", code, "settings.py")
    with pytest.raises(ConfigError) as refused:
        memory_of(chosen(site))
    assert refused.value.where == f"entry point {TYPE}"
    assert said in refused.value.what
    assert "correct its package" in refused.value.hint


def test_an_algorithm_or_a_memory_that_lacks_a_member_is_refused_at_the_start(site: Path, chosen: Chosen) -> None:
    edit(site, "    def values(", "    def value(")
    edit(site, "self.values(steps)", "self.value(steps)")
    with pytest.raises(
        ConfigError, match=r"^users_awr\.algorithm\.Awr: lacks Algorithm\.values\n.*algorithms\.protocol"
    ):
        LearnerState(chosen(site))


@pytest.mark.parametrize("ask", [memory_of, LearnerState])
def test_a_memory_that_lacks_a_member_is_refused(site: Path, chosen: Chosen, ask: Callable[[Config], object]) -> None:
    edit(site, "    return UniformMemory(", "    return Without(")
    edit(site, "class Awr(", "class Without(UniformMemory):\n    draws = property()\n\n\nclass Awr(")
    with pytest.raises(ConfigError, match=r"^users_awr\.algorithm\.Without: lacks Memory\.draws"):
        ask(chosen(site))


def failing(site: Path, how: str) -> Path:
    """The package, whose update 3, the first after the warm-up, does `how`."""
    edit(site, UPDATE, f"{UPDATE}        if u == 3:\n            {how}\n")
    return site


def test_an_error_in_its_update_names_the_update_and_the_package(
    site: Path, chosen: Chosen, caplog: pytest.LogCaptureFixture
) -> None:
    settings, screens = chosen(failing(site, "raise KeyError('advantage')")), Screens()
    records = windows(screens, settings, 4)
    state = folded(LearnerState(settings), records[:3], screens, settings)
    with caplog.at_level(logging.ERROR), pytest.raises(AlgorithmError) as ended:
        fold(state, records[3], update_of(3, records[3], state.watermarks, settings), screens, settings)
    assert ended.value.where == "update 3"
    assert ended.value.what == "algorithm.type users_awr.awr of the package users_awr raised KeyError: 'advantage'"
    assert "correct users_awr" in ended.value.hint
    assert "users_awr/algorithm.py" in caplog.text, "the traceback"


def test_an_error_in_its_memory_is_named_in_the_warm_up_too(site: Path, chosen: Chosen) -> None:
    edit(site, "    return UniformMemory(", "    return Failing(")
    admit = "def admit(self, logged):\n        raise RuntimeError(logged.trajectory.attempt_id)"
    edit(site, "class Awr(", f"class Failing(UniformMemory):\n    {admit}\n\n\nclass Awr(")
    settings, screens = chosen(site), Screens()
    with pytest.raises(
        AlgorithmError, match=r"^update 0: algorithm\.type users_awr\.awr of the package users_awr raised"
    ):
        folded(LearnerState(settings), windows(screens, settings, 1), screens, settings)


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        ("raise torch.OutOfMemoryError('out of memory')", ComputeError),
        ("from distrl.errors import StoreError; raise StoreError('a', 'b', 'c')", StoreError),
    ],
)
def test_errors_that_say_what_to_do_stay(site: Path, chosen: Chosen, how: str, kind: type[Exception]) -> None:
    settings, screens = chosen(failing(site, how)), Screens()
    with pytest.raises(kind):
        folded(LearnerState(settings), windows(screens, settings, 4), screens, settings)


def test_an_error_of_an_own_algorithm_stays_as_it_is(
    site: Path, chosen: Chosen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen(site)  # it is installed, and not chosen
    settings, screens = config(tmp_path / "base"), Screens()
    state = folded(LearnerState(settings), windows(screens, settings, 3), screens, settings)

    def broken(u: int) -> None:
        raise KeyError("its own")

    monkeypatch.setattr(state.algorithm, "update", broken)
    with pytest.raises(KeyError, match="its own"):
        fold(state, [], update_of(3, [], state.watermarks, settings), screens, settings)


@pytest.mark.parametrize("brought", [True, False])
def test_weights_that_are_not_finite_are_put_down_to_the_package_only_where_one_brings_the_algorithm(
    site: Path, chosen: Chosen, brought: bool
) -> None:
    settings, screens = chosen(site), Screens()
    if not brought:
        settings = settings.model_copy(update={"algorithm": Config().algorithm})
    state = LearnerState(settings)
    leader = Leader(settings, ALONE, screens, Event())
    leader.begin(state)
    with torch.no_grad():
        next(iter(state.policy.parameters().values())).fill_(torch.nan)
    with pytest.raises(PolicyError, match="not finite") as ended:
        leader.fold([], update_of(0, [], (), settings))
    leader.close()
    assert ("the algorithm (users_awr.awr of the package users_awr)" in ended.value.hint) == brought
