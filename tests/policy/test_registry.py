"""Which family a base model belongs to is its own word, and another package's family is found."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import byte_policy
import factories
import numpy as np
import pytest
import torch
from distrl.config import PolicySettings
from distrl.errors import PolicyError
from distrl.policy.autoui.tokenizer import WordTokenizer
from distrl.policy.registry import base_sha256, package_of, policy_of, tokenizer_of
from distrl.policy.sampling import FULL
from distrl.types import Action, ActionKind, Point, ScreenSize
from torch import nn

from policy.conftest import png


@pytest.fixture
def bytes_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PolicySettings:
    monkeypatch.syspath_prepend(str(byte_policy.install(tmp_path / "site")))
    return PolicySettings(base_model=byte_policy.save(tmp_path / "base"))


def test_the_shipped_base_model_is_of_the_family_that_its_config_names() -> None:
    assert isinstance(tokenizer_of(PolicySettings()), WordTokenizer)
    assert policy_of(PolicySettings()).base_sha256 == base_sha256(PolicySettings())


def test_a_family_of_another_package_is_found(bytes_base: PolicySettings) -> None:
    assert isinstance(tokenizer_of(bytes_base), byte_policy.ByteTokenizer)
    assert policy_of(bytes_base).base_sha256 == base_sha256(bytes_base) != base_sha256(PolicySettings())


def test_a_second_family_scores_what_it_wrote(bytes_base: PolicySettings) -> None:
    policy = policy_of(bytes_base)
    prompt = policy.tokenizer.encode_prompt(
        "touch ünïcode", [Action(ActionKind.TAP, touch=Point(0.5, 0.5))], ScreenSize(1, 1)
    )
    (made,) = policy.decide([png(0)], [prompt], FULL, [3])
    step = factories.step(prompt_ids=prompt, action_ids=made.action_ids)
    assert policy.tokenizer.accepts(step)
    score = policy.score([step], [policy.image_features(png(0))])
    assert np.allclose(score.logprob.detach().numpy(), made.logprob, atol=1e-3)


@pytest.mark.parametrize("ask", [tokenizer_of, policy_of])
def test_a_family_that_reads_one_screenshot_is_refused_where_more_are_asked_for(
    bytes_base: PolicySettings, ask: Callable[[PolicySettings], object]
) -> None:
    for chosen in (PolicySettings(history_screens=2), bytes_base.model_copy(update={"history_screens": 2})):
        with pytest.raises(PolicyError, match=r"policy\.history_screens: is 2, and .* reads one") as refused:
            ask(chosen)
        assert "vision-language model" in refused.value.hint


def test_a_format_that_nobody_reads_is_refused_with_those_that_are(bytes_base: PolicySettings, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "nonesuch"}))
    with pytest.raises(PolicyError, match="'nonesuch', which no policy reads") as refused:
        policy_of(PolicySettings(base_model=tmp_path))
    assert "formats: bytes/1, distrl-autoui-t5/1, distrl-autoui/1" in refused.value.hint


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b'"text"', b"{}"])
def test_a_config_that_is_none_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(PolicyError, match=r"config\.json"):
        tokenizer_of(PolicySettings(base_model=tmp_path))


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(PolicyError, match="cannot be read"):
        base_sha256(PolicySettings(base_model=tmp_path / "nowhere"))


def test_an_entry_point_that_is_no_family_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = byte_policy.install(tmp_path / "site")
    points = next(site.glob("*/entry_points.txt"))
    points.write_text(points.read_text().replace(":FAMILY", ":FORMAT"))
    monkeypatch.syspath_prepend(str(site))
    with pytest.raises(PolicyError, match="is no distrl"):
        policy_of(PolicySettings(base_model=byte_policy.save(tmp_path / "base")))


def test_a_family_whose_package_cannot_be_loaded_is_named_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, base = byte_policy.install(tmp_path / "site"), byte_policy.save(tmp_path / "base")
    (site / "lacking.py").write_text("import nonesuch_of_all\n")
    points = next(site.glob("*/entry_points.txt"))
    monkeypatch.syspath_prepend(str(site))
    for value, why in (
        ("lacking:FAMILY", "ModuleNotFoundError: No module named 'nonesuch_of_all'"),
        ("byte_policy:FAMILYY", "AttributeError"),
    ):
        points.write_text(f"[distrl.policies]\n{byte_policy.FORMAT} = {value}\n")
        with pytest.raises(PolicyError, match=f"entry point bytes/1: {value} cannot be loaded: {why}"):
            policy_of(PolicySettings(base_model=base))


def test_a_format_of_two_packages_is_refused(
    bytes_base: PolicySettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "other" / "other-1.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[distrl.policies]\nbytes/1 = other:FAMILY\n")
    monkeypatch.syspath_prepend(str(about.parent))
    with pytest.raises(PolicyError, match="two packages have it: byte_policy:FAMILY and other:FAMILY"):
        policy_of(bytes_base)


def test_the_package_whose_code_reads_a_base_model_is_known(bytes_base: PolicySettings) -> None:
    assert package_of(bytes_base) == "byte_policy"
    assert package_of(PolicySettings()) == "distrl"


@pytest.mark.parametrize(
    ("name", "lacks"),
    [
        ("earlier_screens", "does not say how many earlier screenshots"),
        ("looks_beside", "does not say whether it may look at a screenshot"),
    ],
)
def test_a_policy_of_before_something_was_asked_is_refused_with_what_it_lacks(
    bytes_base: PolicySettings, monkeypatch: pytest.MonkeyPatch, name: str, lacks: str
) -> None:
    monkeypatch.delattr(type(policy_of(bytes_base)), name)
    with pytest.raises(PolicyError, match=lacks) as refused:
        policy_of(bytes_base)
    assert "distrl.policy.protocol" in refused.value.hint


@pytest.mark.parametrize(
    ("owner", "name", "lacks"),
    [
        (byte_policy.BytePolicy, "embed_actions", r"lacks Policy\.embed_actions"),
        (byte_policy.ByteTokenizer, "accepts", r"lacks Tokenizer\.accepts"),
    ],
)
def test_a_policy_that_lacks_a_method_is_refused_by_its_name(
    bytes_base: PolicySettings, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, lacks: str
) -> None:
    monkeypatch.delattr(owner, name)
    with pytest.raises(PolicyError, match=lacks) as refused:
        policy_of(bytes_base)
    assert "distrl.policy.protocol" in refused.value.hint


def test_a_tokenizer_alone_that_lacks_a_method_is_refused_too(
    bytes_base: PolicySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(byte_policy.ByteTokenizer, "accepts")
    with pytest.raises(PolicyError, match=r"lacks Tokenizer\.accepts"):
        tokenizer_of(bytes_base)


def test_weights_that_no_checkpoint_can_hold_are_refused(
    bytes_base: PolicySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first checkpoint failed, and each after it."""
    half = {"lora": nn.Parameter(torch.zeros(2, dtype=torch.bfloat16))}
    monkeypatch.setattr(byte_policy.BytePolicy, "parameters", lambda self: half)
    with pytest.raises(PolicyError, match=r"trains lora in torch\.bfloat16"):
        policy_of(bytes_base)


def test_a_policy_that_calls_its_base_model_otherwise_than_its_family_is_refused(
    bytes_base: PolicySettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it records would be refused at the next start, which asks the family."""
    monkeypatch.setattr(
        type(policy_of(bytes_base)), "base_sha256", property(lambda self: "f" * 64, lambda *_: None), raising=False
    )
    with pytest.raises(PolicyError, match="and what was loaded ffffffffffff"):
        policy_of(bytes_base)
