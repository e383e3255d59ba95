"""A server that resizes pictures by another library sees what the learner sees."""

from __future__ import annotations

import base64
import io
from pathlib import Path

import pytest
import torch
from PIL import Image
from policy.conftest import png
from transformers import AutoImageProcessor

from rollout.served.world import form_of, settings


@pytest.mark.parametrize("size", [(64, 128), (300, 150), (56, 112), (31, 29), (140, 1000)])
def test_a_picture_that_is_sent_has_the_values_of_the_learners_own(base: Path, size: tuple[int, int]) -> None:
    """vLLM's processor is torchvision's, a worker's and a learner's is Pillow's. Too large, too small, and as it is."""
    form = form_of(settings(base, base, "http://127.0.0.1:1/v1"))
    data = png(1, *size)
    content = form.question(data, "open the settings", ()).messages[-1]["content"]
    (url,) = (part["image_url"]["url"] for part in content if part["type"] == "image_url")
    sent = Image.open(io.BytesIO(base64.b64decode(url.removeprefix("data:image/png;base64,"))))
    own = form.tokenizer.processor.images(Image.open(io.BytesIO(data)))
    theirs = AutoImageProcessor.from_pretrained(base, backend="torchvision")(images=[sent], return_tensors="pt")
    assert torch.equal(theirs["image_grid_thw"], own["image_grid_thw"])
    assert (theirs["pixel_values"] - own["pixel_values"]).abs().max() < 1e-5
