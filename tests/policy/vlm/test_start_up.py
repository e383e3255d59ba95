"""What a model is asked before it is used: as many image tokens as its prompts have places for, and the same
probabilities whether it writes or is scored."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from distrl.errors import PolicyError
from distrl.policy.registry import policy_of
from distrl.policy.sampling import FULL
from distrl.policy.screen_cache import ScreenCache
from distrl.policy.vlm import model as model_module
from distrl.policy.vlm.model import VisionLanguageModel
from distrl.policy.vlm.policy import VlmPolicy
from distrl.policy.vlm.processor import Processor
from PIL import Image

from policy.conftest import png
from policy.vlm.models import FAMILIES, internvl, lfm2_vl, mistral3, paligemma
from policy.vlm.test_policy import SIZES, prompts, scored, settings, shake, shots, steps_of


def whole_screens(directory: Path) -> None:
    """InternVL as it is published: it is the whole processor that cuts images, not the image processor's file."""
    internvl(directory)
    file = directory / "preprocessor_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"crop_to_patches": False}))


@pytest.mark.parametrize("family", [whole_screens, mistral3])
def test_a_screenshot_is_processed_by_the_settings_that_count_its_tokens(
    family: Callable[[Path], None], tmp_path: Path
) -> None:
    family(tmp_path)
    policy = policy_of(settings(tmp_path, action_tokens=48))
    assert isinstance(policy, VlmPolicy)
    shake(policy, 1)
    asked = prompts(policy, 3)
    drawn = policy.decide(shots(3), asked, FULL, [3, 4, 5])
    together = scored(policy, steps_of(asked, [each.action_ids for each in drawn]))
    for logprob, each in zip(together.logprob.tolist(), drawn, strict=True):
        assert np.exp(logprob - each.logprob) == pytest.approx(1.0, abs=1e-4)
    processor = policy.tokenizer.processor
    for place, size in enumerate([*SIZES, (1080, 2400), (1440, 3120)]):
        shown = policy.image_features(png(place, *size))
        count = shown.tokens.numel() // shown.tokens.shape[-1]
        assert processor.layout(shown.size).ids.count(processor.soft_id) == count


def test_a_processor_that_miscounts_the_tokens_of_a_phones_screen_alone_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the size of a small probe both rules agree."""
    FAMILIES["qwen25"](tmp_path)
    images = Processor.images

    def smaller(self: Processor, picture: Image.Image) -> object:
        return images(self, picture.resize((140, 140)) if picture.width > 1000 else picture)

    monkeypatch.setattr(Processor, "images", smaller)
    with pytest.raises(PolicyError, match=r"cannot take what the processor makes .*of 1080x2400 for \d+ places"):
        policy_of(settings(tmp_path))


def test_a_model_whose_answers_are_read_from_both_sides_is_refused(tmp_path: Path) -> None:
    """Its learner would see later tokens of an action, and every ratio would be wrong."""
    paligemma(tmp_path)
    with pytest.raises(PolicyError, match="another probability when it is scored") as error:
        policy_of(settings(tmp_path))
    assert "policies.md" in error.value.hint


def test_an_image_processor_that_pillow_has_no_part_in_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (other := tmp_path / "other").mkdir()
    lfm2_vl(tmp_path)
    with caplog.at_level(logging.WARNING, "distrl"):
        policy_of(settings(tmp_path))
    assert "Lfm2VlImageProcessor has no version for Pillow" in caplog.text
    caplog.clear()
    mistral3(other)
    with caplog.at_level(logging.WARNING, "distrl"):
        policy_of(settings(other))
    assert "Pillow" not in caplog.text


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_no_model_is_refused_for_rounding(
    family: str, precision: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check computes in float32, whatever the policy does."""
    monkeypatch.setattr("distrl.policy.vlm.model.MOST_DIFFERENCE", 1e-4)
    FAMILIES[family](tmp_path)
    policy_of(settings(tmp_path, precision=precision, image_precision="float16"))


@pytest.mark.parametrize("family", [FAMILIES["qwen25"], FAMILIES["smolvlm"]])
def test_a_running_policy_keeps_its_weights_whatever_becomes_of_their_file(
    family: Callable[[Path], None], tmp_path: Path
) -> None:
    """Written to in place, as by a copy of another model over it: a new file would leave the old one mapped."""
    family(tmp_path)
    policy = policy_of(settings(tmp_path))
    assert isinstance(policy, VlmPolicy)
    looked = policy.image_features(png(1, *SIZES[0])).tokens.clone()
    adapter = policy.adapter()
    file = tmp_path / "model.safetensors"
    with file.open("r+b") as written:
        written.seek(file.stat().st_size // 4)
        written.write(bytes(file.stat().st_size // 2))
    policy._screens = ScreenCache(1, 0)
    assert torch.equal(policy.image_features(png(1, *SIZES[0])).tokens, looked)
    assert policy.adapter() == adapter


def test_a_model_that_changes_while_it_is_loaded_has_no_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FAMILIES["qwen25"](tmp_path)

    class ChangesMeanwhile(VisionLanguageModel):
        def __init__(self, directory: Path, processor: Processor) -> None:
            super().__init__(directory, processor)
            file = directory / "config.json"
            file.write_text(file.read_text() + " ")

    monkeypatch.setattr(model_module, "VisionLanguageModel", ChangesMeanwhile)
    with pytest.raises(PolicyError, match="has changed while it was loaded"):
        policy_of(settings(tmp_path))


def test_a_system_prompt_that_says_where_a_screenshot_is_is_refused(tmp_path: Path) -> None:
    FAMILIES["smolvlm"](tmp_path)
    with pytest.raises(PolicyError) as refused:
        policy_of(settings(tmp_path, system_prompt="Look at <image> and act."))
    assert refused.value.where == "policy.system_prompt"
    assert "'<image>'" in refused.value.what
