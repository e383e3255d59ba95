"""A base model of random weights: small, and it writes all sorts of nonsense, which is what the tests need."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from distrl.config import PolicySettings
from distrl.policy.autoui.base import load_base, save_base
from distrl.policy.autoui.model import AutoUIModel, Shape
from distrl.policy.autoui.policy import AutoUIPolicy
from distrl.policy.autoui.tokenizer import WordTokenizer
from PIL import Image

WORDS = ("red", "shoes", "blue", "lamp", "7", "search", "for", "touch")


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def base_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    codec = WordTokenizer(WORDS)
    torch.manual_seed(3)
    model = AutoUIModel(Shape(len(codec.tokens), 64, 128, (8, 8, 16), d_model=32, d_ff=64, heads=2))
    directory = tmp_path_factory.mktemp("base")
    save_base(directory, model, codec, {"how": "random"})
    return directory


@pytest.fixture
def agent(base_directory: Path) -> AutoUIPolicy:
    return AutoUIPolicy(load_base(base_directory), PolicySettings(lora_rank=4, lora_alpha=8))


@pytest.fixture
def replaced_parameters() -> Iterator[None]:
    """`Module.to` makes other parameters, as it does for some devices."""
    torch.__future__.set_overwrite_module_params_on_conversion(True)
    yield
    torch.__future__.set_overwrite_module_params_on_conversion(False)


@pytest.fixture
def settings() -> PolicySettings:
    return PolicySettings(lora_rank=4, lora_alpha=8)


def png(seed: int, width: int = 64, height: int = 128) -> bytes:
    """A noisy screenshot."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "PNG")
    return out.getvalue()


def shake(agent: AutoUIPolicy, seed: int) -> None:
    """Give the adapter weights that matter, as training would."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, parameter in agent.model.named_parameters():
            if ".lora_B." in name:
                parameter.normal_(std=0.3)
