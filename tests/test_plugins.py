"""What names the code of a package that brings a policy or an algorithm changes with the code, whatever its version
says."""

from __future__ import annotations

import shutil
from pathlib import Path

import brought
import brought_algorithm
import byte_policy
import pytest
from distrl.config import load
from distrl.plugins import files_sha256, sources_sha256
from distrl.runs.plugin_code import plugin_code


def seen(site: Path, base: Path) -> str:
    return brought.in_another_process(
        site,
        "from distrl.config import load\nfrom distrl.runs.plugin_code import plugin_code\n"
        f"print(plugin_code(load(sets=['policy.base_model={base}'], environ={{}}))['plugin.policy'])",
    )


def test_an_edit_is_seen_under_the_same_version_and_a_version_over_the_same_code(tmp_path: Path) -> None:
    base, site = byte_policy.save(tmp_path / "base"), brought.install(tmp_path / "site")
    before = seen(site, base)
    assert before.startswith("users_family 1 (files ")
    next_one = seen(brought.install(tmp_path / "elsewhere", "2"), base)
    assert next_one == before.replace(" 1 (", " 2 ("), "the same code, at another place"
    brought.edit(site)
    after = seen(site, base)
    assert after.startswith("users_family 1 (files ")
    assert after != before


def test_what_is_of_distrl_itself_has_no_such_code() -> None:
    assert plugin_code(load(environ={})) == {}


def test_an_algorithm_has_its_code_beside_that_of_the_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policies, algorithms = brought.install(tmp_path / "policies"), brought_algorithm.install(tmp_path / "algorithms")
    brought.use(policies, monkeypatch)
    brought_algorithm.use(algorithms, monkeypatch)
    of_policy = f"policy.base_model={byte_policy.save(tmp_path / 'base')}"
    of_algorithm = f"algorithm.type={brought_algorithm.TYPE}"
    both = plugin_code(load(sets=[of_policy, of_algorithm], environ={}))
    assert both["plugin.policy"].startswith("users_family 1 (files ")
    assert both["plugin.algorithm"].startswith("users_awr 1 (files ")
    assert plugin_code(load(sets=[of_algorithm], environ={})) == {"plugin.algorithm": both["plugin.algorithm"]}
    brought_algorithm.edit(algorithms, "np.minimum", "np.fmin")
    brought_algorithm.use(algorithms, monkeypatch)
    after = plugin_code(load(sets=[of_policy, of_algorithm], environ={}))
    assert {path for path in both if after[path] != both[path]} == {"plugin.algorithm"}


def test_a_process_goes_by_the_code_that_it_has_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_once.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = sources_sha256("imported_once"), files_sha256("imported_once")
    (tmp_path / "imported_once.py").write_text("x = 2\n")
    assert (sources_sha256("imported_once"), files_sha256("imported_once")) == before


OF_THE_PACKAGE = ("users_family/__init__.py", "users_family/family.py", "users_family/prompts/first.txt")
BESIDE = ("users_words/__init__.py", "users_words/weights.pth", "users_table.json")
NO_CODE = (
    "../bin/users_family",
    "_editable_impl_users_family.pth",
    "__editable___users_family_1_finder.py",
    "users_family/__pycache__/family.cpython-311.pyc",
    "users_family/.cache/answer.json",
    "users_family-1.dist-info/direct_url.json",
)


def installed(site: Path) -> Path:
    """The package with all that an installer and a run of it leave beside its code."""
    brought.install(site)
    for name in {*OF_THE_PACKAGE, *BESIDE, *NO_CODE} - {"users_family/family.py"}:
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(name)
    (site / "users_family/__init__.py").write_text("")
    return site


def digest(site: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """As the next process has it."""
    brought.use(site, monkeypatch)
    return files_sha256("users_family")


@pytest.mark.parametrize("name", [*OF_THE_PACKAGE, *BESIDE])
def test_an_edit_of_any_file_of_the_distribution_is_seen(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = installed(tmp_path / "site")
    brought.list_files(site, *OF_THE_PACKAGE, *BESIDE, *NO_CODE)
    before = digest(site, monkeypatch)
    (site / name).write_text("# other\n")
    assert digest(site, monkeypatch) != before


@pytest.mark.parametrize("name", OF_THE_PACKAGE)
def test_an_edit_of_any_file_of_the_package_is_seen_where_no_files_are_listed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of an editable install."""
    site = installed(tmp_path / "site")
    before = digest(site, monkeypatch)
    (site / name).write_text("# other\n")
    assert digest(site, monkeypatch) != before


def test_a_digest_is_the_same_on_each_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever an installer, a run or a cache has left there, and whether the files are listed."""
    found = set()
    for name in ("listed", "editable"):
        site = installed(tmp_path / name / "site")
        if name == "listed":
            brought.list_files(site, *OF_THE_PACKAGE, *NO_CODE)
        for no_code in NO_CODE:
            (site / no_code).write_text(str(site))
        found.add(digest(site, monkeypatch))
    assert len(found) == 1


def test_the_code_that_is_imported_counts_where_another_copy_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, copy = installed(tmp_path / "site"), tmp_path / "copy"
    brought.list_files(site, *OF_THE_PACKAGE)
    monkeypatch.syspath_prepend(str(site))
    shutil.copytree(site / "users_family", copy / "users_family")
    before = digest(copy, monkeypatch)
    (copy / "users_family/prompts/first.txt").write_text("other")
    assert digest(copy, monkeypatch) != before


def test_a_digest_of_sources_stays_the_one_that_arms_are_persisted_under(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Computed by the code before it was asked for elsewhere, too."""
    for name in ("digested_a", "digested_b"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "__init__.py").touch()
        (tmp_path / name / "sub" / "x.py").write_text(f"{name} = 1\n")
        (tmp_path / name / "data.json").write_text("{}")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert (
        sources_sha256("digested_a", "digested_b") == "7a2cb0153549527e23e7b995a8abfe269e35a5aa78b9177044f32fe3add23299"
    )
