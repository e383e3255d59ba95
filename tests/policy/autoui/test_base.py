from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from distrl.errors import PolicyError
from distrl.policy.autoui.base import load_base, save_base
from distrl.policy.autoui.model import AutoUIModel, Shape
from distrl.policy.autoui.tokenizer import WordTokenizer

from policy.conftest import WORDS


@pytest.fixture
def copy(base_directory: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(base_directory, tmp_path / "base"))


def edit(directory: Path, **changes: object) -> None:
    file = directory / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


def test_a_saved_base_loads_with_the_same_weights_words_and_name(base_directory: Path, tmp_path: Path) -> None:
    base = load_base(base_directory)
    assert base.tokenizer.words == WORDS
    assert not any(parameter.requires_grad for parameter in base.model.parameters())
    assert save_base(tmp_path / "again", base.model, base.tokenizer, {}) == base.sha256
    assert (tmp_path / "again/model.safetensors").read_bytes() == (base_directory / "model.safetensors").read_bytes()


def test_loading_leaves_the_callers_random_numbers_alone(base_directory: Path) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    load_base(base_directory)
    assert torch.equal(before, torch.get_rng_state())


def test_any_size_of_the_architecture_loads(tmp_path: Path) -> None:
    codec = WordTokenizer(WORDS, columns=4, rows=4, prompt_length=40, action_length=8)
    model = AutoUIModel(Shape(len(codec.tokens), 96, 96, (8,), d_model=64, d_ff=32, layers=3, heads=4))
    save_base(tmp_path, model, codec, {})
    base = load_base(tmp_path)
    assert base.model.shape.grid == (24, 24)
    assert base.tokenizer.action_length == 8


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named(copy: Path, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(PolicyError, match=name):
        load_base(copy)


def test_weights_other_than_the_named_ones_are_refused(copy: Path) -> None:
    file = copy / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"!")
    with pytest.raises(PolicyError, match="sha256"):
        load_base(copy)


def test_other_words_give_another_name(copy: Path) -> None:
    before = load_base(copy).sha256
    edit(copy, words=[*WORDS[1:], "other"])
    assert load_base(copy).sha256 != before


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"format": "other/1"}, "format"),
        ({"words": [*WORDS, "more"]}, "embeddings"),
        ({"words": 3}, "describe"),
        ({"shape": {"d_model": 1}}, "describe"),
        ({"grid": None}, "describe"),
    ],
)
def test_a_config_that_contradicts_the_weights_is_refused(
    copy: Path, changes: dict[str, object], complaint: str
) -> None:
    edit(copy, **changes)
    with pytest.raises(PolicyError, match=complaint):
        load_base(copy)


def test_a_config_of_other_sizes_than_the_weights_is_refused(copy: Path) -> None:
    shape = json.loads((copy / "config.json").read_text())["shape"]
    for wrong in ({"d_ff": 65}, {"layers": 3}):
        edit(copy, shape=shape | wrong)
        with pytest.raises(PolicyError, match=r"model\.safetensors"):
            load_base(copy)


def test_garbage_is_no_base_model(copy: Path) -> None:
    (copy / "config.json").write_bytes(b"\xff\x00")
    with pytest.raises(PolicyError, match="JSON"):
        load_base(copy)
