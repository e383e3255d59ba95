"""The settings of an algorithm that another package brings: found by its name, read, written and refused like DistRL's
own, which do not change by them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import brought
import pytest
from brought_algorithm import TYPE, edit, install, use
from distrl.config import UnsoundHereError, load
from distrl.config.algorithm_plugins import installed, settings_of
from distrl.config.algorithms import ALGORITHMS
from distrl.errors import ConfigError
from distrl.offline.ablation.arms import plan

OWN = "one of: aride, cloning, digirl, filtered_bc, grpo, r2d3, vtrace"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    use(made := install(tmp_path / "site"), monkeypatch)
    return made


def refused(*sets: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(sets=sets, environ={})
    return caught.value


def test_they_are_read_from_every_source_and_written_without_a_warning(site: Path, tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(f"algorithm: {{type: {TYPE}, beta: 0.5, replay: {{capacity: 7}}}}\n")
    found = load(file, ["algorithm.lr=0.5"], {"DISTRL_ALGORITHM__MOST": "3"})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tree = found.tree(with_secrets=True)
        assert found.model_dump(mode="json")["algorithm"] == tree["algorithm"]
        assert json.loads(found.model_dump_json())["algorithm"] == tree["algorithm"]
    given = {"type": TYPE, "beta": 0.5, "replay": {"capacity": 7}, "lr": 0.5, "most": 3.0}
    rest = {"minibatches": 16, "batch_size": 64, "grad_norm": 1.0, "gamma": 0.97, "critic_lr": 0.001}
    assert tree["algorithm"] == given | rest
    assert load(base=tree, environ={}) == found
    assert found.learning_settings()["algorithm"] == tree["algorithm"]
    assert "algorithm.beta" in found.effects()
    assert found.shared()["algorithm.replay.capacity"] == 7


@pytest.mark.parametrize(
    ("sets", "where", "said"),
    [
        ((f"algorithm.type={TYPE}", "algorithm.gama=1"), "algorithm.gama", f"no such setting of algorithm.type {TYPE}"),
        ((f"algorithm.type={TYPE}", "algorithm.gama=1"), "algorithm.gama", "one of: batch_size, beta, critic_lr, "),
        ((f"algorithm.type={TYPE}", "algorithm.beta=0"), "algorithm.beta", "a number above 0; the default is 0.3"),
        ((f"algorithm.type={TYPE}", "algorithm.replay.capacity=0"), "algorithm.replay.capacity", "of at least 1"),
        ((f"algorithm.type={TYPE}", "algorithm.replay.cap=1"), "algorithm.replay.cap", "one of: capacity"),
        ((f"algorithm.type={TYPE}", "algorithm.replay.capacity=99999"), "config", "learner.rebuild_window"),
        (("algorithm.type=vtrac",), "algorithm.type", f"(it is 'vtrac')\n  hint: {OWN}, {TYPE}"),
        (
            ("algorithm.type=users_awr.other",),
            "algorithm.type",
            f"{OWN}, {TYPE}; one of another package is found where",
        ),
        (
            ("algorithm.type=users_awr.other",),
            "algorithm.type",
            "entry point 'users_awr.other' in the group distrl.alg",
        ),
        (("algorithm.type=a.b.c",), "algorithm.type", f"(it is 'a.b.c')\n  hint: {OWN}, {TYPE}"),
    ],
)
def test_a_wrong_one_is_refused_as_an_own_one_is(site: Path, sets: tuple[str, ...], where: str, said: str) -> None:
    error = refused(*sets)
    assert error.where == where
    assert said in str(error)


def test_of_a_package_that_is_not_installed_it_is_said_how_it_would_be_found() -> None:
    assert TYPE not in installed()
    hint = (
        f"{OWN}; one of another package is found where that package is installed, by its entry point '{TYPE}' in the "
    )
    assert refused(f"algorithm.type={TYPE}").hint == f"{hint}group distrl.algorithms"


def test_a_setting_without_a_type_may_be_sound_in_a_run_of_the_package(site: Path) -> None:
    assert isinstance(refused("algorithm.most=3"), UnsoundHereError)
    assert not isinstance(refused("algorithm.mots=3"), UnsoundHereError)
    found = load(sets=["algorithm.beta=0.5"], environ={}, base={"algorithm": {"type": TYPE, "most": 3.0}})
    assert found.algorithm.model_dump(include={"type", "beta", "most"}) == {"type": TYPE, "beta": 0.5, "most": 3.0}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("from pydantic import Field", "import users_gone", "cannot be loaded: ModuleNotFoundError: No module named"),
        ("class AwrSettings(", "class Other(", "cannot be loaded: AttributeError"),
        ("(PluginSettings)", "", "is no subclass of distrl.config.PluginSettings"),
        ('= "users_awr.awr"', '= "users_awr.awe"', 'lacks `type: Literal["users_awr.awr"] = "users_awr.awr"`'),
        ('Literal["users_awr.awr"]', "str", 'lacks `type: Literal["users_awr.awr"] = "users_awr.awr"`'),
        ("Field(20.0, ", "Field(", "has no default of most"),
        (
            "    beta: float",
            "    replay: int = 5\n    beta: float",
            "has a `replay` whose default is no distrl.config.Buff",
        ),
        ('code: ClassVar[str] = "users_awr.algorithm:AWR"', "", "does not say where its code is: `code: ClassVar"),
        (
            'code: ClassVar[str] = "users_awr.algorithm:AWR"',
            'code: ClassVar[str] = "x:Y"\n    effect = Effect(When.LATER)',
            "has a `type` that does not count from the start",
        ),
    ],
)
def test_what_is_no_type_of_settings_is_refused_and_only_where_it_is_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, said: str
) -> None:
    site = install(tmp_path / "site")
    edit(site, old, new, "settings.py")
    edit(site, "import PluginSettings", "import Effect, PluginSettings, When", "settings.py")
    use(site, monkeypatch)
    error = refused(f"algorithm.type={TYPE}")
    assert error.where == f"entry point {TYPE}"
    assert said in error.what
    assert "correct its package" in error.hint
    assert load(environ={}).algorithm.type == "aride"
    other = refused("algorithm.most=3")
    assert (other.where, other.what) == ("algorithm.most", "no such setting of algorithm.type aride")
    assert not isinstance(other, UnsoundHereError), "the package is asked, and left out"


def test_a_name_that_two_packages_have_is_refused(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = brought.write(tmp_path / "other", "another", {}, {"distrl.algorithms": {TYPE: "another:Settings"}})
    monkeypatch.syspath_prepend(str(other))
    error = refused(f"algorithm.type={TYPE}")
    assert "two packages have it: another:Settings and users_awr.settings:AwrSettings" in error.what
    assert error.hint == "uninstall all but one"


def test_a_name_without_a_dot_takes_the_place_of_none_of_distrls_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    points = {"distrl.algorithms": {"aride": "another:Settings", "mine": "another:Settings"}}
    monkeypatch.syspath_prepend(str(brought.write(tmp_path, "another", {}, points)))
    assert installed() == []
    assert settings_of("aride") is None
    hint = f"{OWN}; a package here has an entry point 'mine', which must be called PACKAGE.NAME"
    assert refused("algorithm.type=mine").hint == hint


def test_nothing_of_a_package_is_imported_before_it_is_chosen_nor_torch_after(tmp_path: Path) -> None:
    code = (
        "import sys\nfrom distrl.config import load\nload(environ={})\nassert 'users_awr' not in sys.modules\n"
        "found = load(sets=['algorithm.type=users_awr.awr'], environ={}).algorithm\n"
        "print(type(found).__name__, 'torch' in sys.modules)"
    )
    assert brought.in_another_process(install(tmp_path / "site"), code) == "AwrSettings False"


def test_an_arm_shares_the_warm_up_only_where_a_setting_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = install(tmp_path / "site")
    edit(site, "beta: float", "beta: Annotated[float, Effect(When.LATER)]", "settings.py")
    edit(site, "from typing import ClassVar", "from typing import Annotated, ClassVar", "settings.py")
    edit(site, "import PluginSettings", "import Effect, PluginSettings, When", "settings.py")
    use(site, monkeypatch)
    config = load(sets=[f"algorithm.type={TYPE}"], environ={})
    _, beta, most = plan(config, ["algorithm.beta=0.5", "algorithm.most=3"]).arms
    assert beta.shares_warmup
    assert not most.shares_warmup


@pytest.mark.parametrize("kind", ALGORITHMS)
def test_the_settings_of_own_algorithms_are_written_with_all_that_they_have(kind: str) -> None:
    """And not with what all algorithms have; `runs/test_settings.py` compares their fingerprints with those of old."""
    whole = load(sets=[f"algorithm.type={kind}", "feeder.episodes_per_task=8"], environ={})
    assert f'"algorithm":{whole.algorithm.model_dump_json()},' in whole.model_dump_json()
