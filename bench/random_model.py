"""Makes a base model of full size with random weights, in the shapes of a file of docs/sizing.

For bench/device.py where no weights can be downloaded: what a step takes does not depend on what they are.

    PYTHONPATH=tests python bench/random_model.py docs/sizing/qwen2.5-vl-3b.json /tmp/qwen-3b

The tokenizer is the small one of the tests, which leaves most embeddings unused. Qwen2.5-VL, in bfloat16 and with the
limits of a picture that Qwen publishes, and the paper's AutoUI.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
from distrl.policy.autoui_t5.assemble import assemble
from distrl.policy.autoui_t5.directory import FORMAT
from policy.autoui_t5.parts import checkpoint
from policy.vlm.models import qwen25
from transformers import AutoConfig, AutoModelForImageTextToText, Blip2VisionConfig, Blip2VisionModel, GenerationConfig
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

PATCH = 28
"""Pixels of the side of what one image token of Qwen2.5-VL shows."""
FEWEST, MOST = 4, 16_384
"""Image tokens of a screenshot, by Qwen's published processor."""
TOKENS = ("image_token_id", "video_token_id", "vision_start_token_id", "vision_end_token_id")


def qwen(file: Path, out: Path, device: str) -> None:
    """The small model of the tests, of which the weights and their shapes are replaced."""
    qwen25(out)
    small: Any = AutoConfig.from_pretrained(out)
    wanted: Any = AutoConfig.from_pretrained(file)
    for name in TOKENS:
        setattr(wanted, name, getattr(small, name))
    for weights in out.glob("*.safetensors*"):
        weights.unlink()
    torch.manual_seed(0)
    with torch.device(device):
        model: Any = AutoModelForImageTextToText.from_config(wanted, dtype=torch.bfloat16)
    model.generation_config = GenerationConfig.from_pretrained(out)
    model.save_pretrained(out)
    Qwen2VLImageProcessorPil(min_pixels=FEWEST * PATCH**2, max_pixels=MOST * PATCH**2).save_pretrained(out)


def autoui(found: dict[str, Any], out: Path, device: str) -> None:
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as scratch:
        parts = Path(scratch)
        with torch.device(device):
            sees = Blip2VisionModel(Blip2VisionConfig(**found["vision"]))
        sees.save_pretrained(parts / "vision")
        side = sees.config.image_size
        BlipImageProcessorPil(size={"height": side, "width": side}).save_pretrained(parts / "vision")
        assemble(checkpoint(parts / "t5", fused=False, **found["t5"]), parts / "vision", out, None, 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", type=Path, help="a file of docs/sizing")
    parser.add_argument("out", type=Path, help="a new directory")
    parser.add_argument("--device", default="cpu", help="where weights are drawn")
    options = parser.parse_args()
    found = json.loads(options.sizes.read_text())
    if found.get("format") == FORMAT:
        autoui(found, options.out, options.device)
    elif found.get("model_type") == "qwen2_5_vl":
        qwen(options.sizes, options.out, options.device)
    else:
        raise SystemExit(f"{options.sizes}: only Qwen2.5-VL and the paper's AutoUI are made")


if __name__ == "__main__":
    main()
