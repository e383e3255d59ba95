"""Directories of models that are half right: each is refused before it is used, with what fixes it, or works."""

from __future__ import annotations

import json
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import factories
import pytest
import torch
import transformers
from distrl.config import PolicySettings
from distrl.errors import PolicyError
from distrl.policy import files
from distrl.policy.dialects.plain_json import PlainJson
from distrl.policy.dialects.text import no_form
from distrl.policy.protocol import Policy
from distrl.policy.registry import base_sha256, policy_of, tokenizer_of
from distrl.policy.vlm import family as family_of_models
from distrl.types import Action, ActionKind, ScreenSize
from safetensors.torch import load, load_file, save_file
from tokenizers import normalizers
from transformers import AutoModelForImageTextToText, AutoTokenizer

from policy.conftest import png
from policy.vlm.models import FAMILIES

SCREEN = ScreenSize(64, 128)
WEIGHTS = "model.safetensors"


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp(request.param)
    FAMILIES[request.param](made)
    return made


@pytest.fixture
def directory(family: Path, tmp_path: Path) -> Path:
    """A copy, to be spoilt."""
    return Path(shutil.copytree(family, tmp_path / "copy"))


def settings(directory: Path, **more: Any) -> PolicySettings:
    chosen = {"dialect": "json", "action_tokens": 24, "lora_rank": 4, "system_prompt": "Act."} | more
    return PolicySettings(base_model=directory, **chosen)


def refused(directory: Path, **more: Any) -> PolicyError:
    with pytest.raises(PolicyError) as error:
        policy_of(settings(directory, **more))
    return error.value


def logprob(policy: Policy) -> float:
    step = factories.step(prompt_ids=policy.tokenizer.encode_prompt("open it", [], SCREEN), action_ids=(7, 8, 9))
    return policy.score([step], [policy.image_features(png(0, *SCREEN))]).logprob.item()


def test_a_model_without_an_image_processor_is_refused(directory: Path) -> None:
    for name in ("preprocessor_config.json", "processor_config.json"):
        (directory / name).unlink(missing_ok=True)
    error = refused(directory)
    assert "no image processor" in error.what
    assert "vision-language model" in error.hint


def test_a_model_without_a_chat_template_is_refused(directory: Path) -> None:
    (directory / "chat_template.jinja").unlink()
    error = refused(directory)
    assert "no chat template" in error.what
    assert "follow instructions" in error.hint


def test_a_model_may_have_other_templates_beside_its_own(directory: Path) -> None:
    before = policy_of(settings(directory)).tokenizer.encode_prompt("open it", [], SCREEN)
    (directory / "additional_chat_templates").mkdir()
    (directory / "additional_chat_templates" / "tool_use.jinja").write_text("{{ tools }}")
    assert policy_of(settings(directory)).tokenizer.encode_prompt("open it", [], SCREEN) == before


def test_too_few_tokens_for_an_action_are_refused_before_anything_is_written_with_them(directory: Path) -> None:
    """Each answer would be cut off, and be INVALID."""
    with pytest.raises(PolicyError, match=r"is 4, and the action tap takes \d+ tokens") as error:
        tokenizer_of(settings(directory, action_tokens=4))
    assert error.value.where == "policy.action_tokens"
    assert "raise it" in error.value.hint


def test_a_tokenizer_that_spoils_what_is_typed_is_refused(directory: Path) -> None:
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(directory)
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.save_pretrained(directory)
    with pytest.raises(PolicyError, match=r"cannot write the action type .*red shoes") as error:
        tokenizer_of(settings(directory))
    assert "another dialect" in error.value.hint


def test_a_dialect_without_an_action_that_phones_take_is_refused(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class WithoutEnter(PlainJson):
        def write(self, action: Action, size: ScreenSize) -> str:
            if action.kind is ActionKind.ENTER:
                raise no_form(action, "without-enter")
            return super().write(action, size)

    monkeypatch.setattr(family_of_models, "DIALECTS", {"without-enter": WithoutEnter()})
    error = refused(directory, dialect="without-enter")
    assert "cannot write the action enter ('enter' has no form in without-enter)" in error.what
    assert "another dialect" in error.hint


@pytest.mark.parametrize("name", ["generation_config.json", "tokenizer.json", "preprocessor_config.json"])
def test_a_file_that_is_no_json_is_named(directory: Path, name: str) -> None:
    (directory / name).write_text('{"a":')
    error = refused(directory)
    assert error.where == str(directory / name)
    assert "is no JSON" in error.what


def test_a_model_without_a_tokenizer_is_refused_with_the_files_it_needs(directory: Path) -> None:
    for file in directory.glob("tokenizer*"):
        file.unlink()
    error = refused(directory)
    assert "no processor of images and text" in error.what
    assert "\n" not in error.what
    assert "tokenizer.json" in error.hint


def test_weights_that_are_cut_off_or_of_another_shape_are_said_to_be_that(directory: Path) -> None:
    whole = (directory / WEIGHTS).read_bytes()
    tensors = load(whole)
    (directory / WEIGHTS).write_bytes(whole[: len(whole) // 2])
    error = refused(directory)
    assert "has weights that cannot be read" in error.what
    assert "download the model again" in error.hint
    name = next(name for name in tensors if name.endswith("q_proj.weight"))
    save_file(tensors | {name: tensors[name][:-2].clone()}, directory / WEIGHTS, {"format": "pt"})
    assert "weights of other shapes" in refused(directory).what


def test_weights_that_are_not_finite_are_said_to_be_damaged(directory: Path) -> None:
    tensors = load_file(directory / WEIGHTS)
    spoilt = {name: value * float("nan") if "norm" in name else value for name, value in tensors.items()}
    save_file(spoilt, directory / WEIGHTS, {"format": "pt"})
    error = refused(directory)
    assert "not finite" in error.what
    assert "download the model again" in error.hint


def test_an_adapter_of_another_model_is_refused(family: Path, directory: Path) -> None:
    """Of one architecture: every shape fits."""
    tensors = load_file(directory / WEIGHTS)
    save_file({name: value + 1e-3 for name, value in tensors.items()}, directory / WEIGHTS, {"format": "pt"})
    for trains in ("lora", "all"):
        policy = policy_of(settings(family, trains=trains))
        before, other = policy.adapter(), policy_of(settings(directory, trains=trains)).adapter()
        with pytest.raises(PolicyError, match="adapter") as error:
            policy.load(other)
        assert base_sha256(settings(directory)) in error.value.what
        assert "another base model" in error.value.hint
        assert policy.adapter() == before


def test_a_tokenizer_that_grew_is_refused(directory: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(directory)
    tokenizer.add_tokens([f"<more-{number}>" for number in range(64)])
    tokenizer.save_pretrained(directory)
    error = refused(directory)
    assert "embeddings" in error.what
    assert "resize" in error.hint


def test_weights_without_some_parameters_are_refused(directory: Path) -> None:
    """The library would fill in random ones, others in each process."""
    tensors = load_file(directory / WEIGHTS)
    name = next(name for name in sorted(tensors) if name.endswith("up_proj.weight"))
    del tensors[name]
    save_file(tensors, directory / WEIGHTS, {"format": "pt"})
    error = refused(directory)
    assert "lack 1 of its parameters" in error.what
    assert "download the model again" in error.hint


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("qwen25", {"patch_size": 16}),
        ("smolvlm", {"image_seq_len": 9}),
        ("gemma3", {"image_seq_length": 9}),
        ("internvl", {"image_seq_length": 9}),
    ],
)
def test_a_processor_of_another_model_is_refused(tmp_path: Path, name: str, values: dict[str, int]) -> None:
    """Of the same architecture in another size: each file is whole."""
    FAMILIES[name](tmp_path)
    file = tmp_path / ("preprocessor_config.json" if name == "qwen25" else "processor_config.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
    error = refused(tmp_path)
    assert "cannot take what the processor makes" in error.what
    assert "of this very model" in error.hint


def test_a_link_to_no_file_is_refused_and_other_links_are_followed(family: Path, tmp_path: Path) -> None:
    """A cache of the hub is links to files that are named by their hashes."""
    (blobs := tmp_path / "blobs").mkdir()
    (snapshot := tmp_path / "snapshot").mkdir()
    for number, file in enumerate(sorted(family.iterdir())):
        shutil.copy(file, blobs / str(number))
        (snapshot / file.name).symlink_to(blobs / str(number))
    assert base_sha256(settings(snapshot)) == base_sha256(settings(family))
    assert logprob(policy_of(settings(snapshot))) == logprob(policy_of(settings(family)))
    (snapshot / WEIGHTS).readlink().unlink()
    with pytest.raises(PolicyError, match="link to no file") as error:
        base_sha256(settings(snapshot))
    assert WEIGHTS in error.value.where
    assert "download" in error.value.hint


def test_a_missing_shard_is_refused(directory: Path) -> None:
    AutoModelForImageTextToText.from_pretrained(directory).save_pretrained(directory, max_shard_size="60KB")
    (directory / WEIGHTS).unlink(missing_ok=True)
    policy_of(settings(directory))
    shards = sorted(directory.glob("model-*.safetensors"))
    assert len(shards) > 1
    shards[0].unlink()
    assert "do not lie beside it" in refused(directory).what


def test_weights_in_half_precision_are_read_in_single(directory: Path) -> None:
    AutoModelForImageTextToText.from_pretrained(directory).to(torch.float16).save_pretrained(directory)
    policy = policy_of(settings(directory, trains="all"))
    assert {each.dtype for each in policy.parameters().values()} == {torch.float32}
    assert logprob(policy) < 0


def test_ends_are_read_from_the_language_parts_settings_too(directory: Path) -> None:
    """As save_pretrained leaves a model that has no generation_config.json."""
    (directory / "generation_config.json").unlink()
    config = transformers.AutoConfig.from_pretrained(directory)
    config.eos_token_id, config.text_config.eos_token_id = None, 2
    config.save_pretrained(directory)
    tokenizer = tokenizer_of(settings(directory))
    assert tokenizer.encode_action(Action(ActionKind.BACK), SCREEN)[-1] == 2


def test_nothing_is_written_into_a_models_directory(directory: Path) -> None:
    before = {file.name: file.stat().st_mtime_ns for file in directory.iterdir()}
    directory.chmod(0o500)
    try:
        logprob(policy_of(settings(directory)))
    finally:
        directory.chmod(0o700)
    assert {file.name: file.stat().st_mtime_ns for file in directory.iterdir()} == before


def test_that_a_large_model_is_read_is_said(
    directory: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(files, "LARGE", 1000)
    os.utime(directory / WEIGHTS)
    with caplog.at_level(logging.INFO):
        base_sha256(settings(directory))
        base_sha256(settings(directory))
    assert sum("GB of the base model" in record.getMessage() for record in caplog.records) == 1
