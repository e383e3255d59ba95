"""What names the code of a package that brings a policy changes with the code, whatever its version says."""

from __future__ import annotations

from pathlib import Path

import brought
import byte_policy
import pytest
from distrl.config import PolicySettings
from distrl.policy.plugin import plugin_code, sources_sha256


def seen(site: Path, base: Path) -> str:
    return brought.in_another_process(
        site,
        "from distrl.config import PolicySettings\nfrom distrl.policy.plugin import plugin_code\n"
        f"print(plugin_code(PolicySettings(base_model={str(base)!r})))",
    )


def test_an_edit_is_seen_under_the_same_version_and_a_version_over_the_same_code(tmp_path: Path) -> None:
    base, site = byte_policy.save(tmp_path / "base"), brought.install(tmp_path / "site")
    before = seen(site, base)
    assert before.startswith("users_family 1 (sources ")
    next_one = seen(brought.install(tmp_path / "elsewhere", "2"), base)
    assert next_one == before.replace(" 1 (", " 2 ("), "the same code, at another place"
    brought.edit(site)
    after = seen(site, base)
    assert after.startswith("users_family 1 (sources ")
    assert after != before


def test_a_policy_of_distrl_itself_has_no_such_code() -> None:
    assert plugin_code(PolicySettings()) is None


def test_a_process_goes_by_the_code_that_it_has_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "imported_once.py").write_text("x = 1\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = sources_sha256("imported_once")
    (tmp_path / "imported_once.py").write_text("x = 2\n")
    assert sources_sha256("imported_once") == before


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
