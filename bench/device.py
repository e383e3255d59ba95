"""What a base model takes on a device: a gradient step, decisions, an adapter from the optimiser to the first action.

    python bench/device.py --set policy.base_model=/models/Qwen2.5-VL-3B-Instruct --device cuda:0 --rows 1,4,8

Of a vision-language model the library's own way stands beside it on the same device: PEFT's LoRA on the same layers, a
forward pass over pixels for each step, `generate` over pixels for each decision. Ours computes what it sees once for a
screenshot, as in a run, where it is looked at before the step; the time of that is a row of its own. Screens are
random, of one size; rows are equally long. Medians over `--times`, after one that is not counted.
"""

from __future__ import annotations

import argparse
import io
import math
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from distrl.accelerator import device_of, kind_of
from distrl.config import PolicySettings, load
from distrl.errors import DistrlError
from distrl.policy.protocol import Policy
from distrl.policy.registry import policy_of
from distrl.policy.sampling import FULL
from distrl.policy.sizing import sizes_of
from distrl.policy.vlm.model import TYPES
from distrl.policy.vlm.policy import VlmPolicy
from distrl.policy.vlm.targets import lora_targets
from distrl.types import Action, ActionKind, ObjectRef, ScreenSize, Step
from peft import LoraConfig, get_peft_model
from PIL import Image
from rich.console import Console
from rich.progress import track
from rich.table import Table
from transformers import AutoModelForImageTextToText

SCREEN = ScreenSize(540, 1200)
INSTRUCTION = "open the settings and turn the wifi off"
console = Console()
Measured = dict[str, float]


def screenshots(count: int) -> list[bytes]:
    """PNGs of blocks of random colours, each another one."""
    found = []
    for seed in range(count):
        blocks = np.random.default_rng(seed).integers(0, 256, (20, 9, 3), dtype=np.uint8)
        out = io.BytesIO()
        Image.fromarray(blocks).resize(SCREEN, Image.Resampling.NEAREST).save(out, "PNG")
        found.append(out.getvalue())
    return found


def seconds(device: torch.device, times: int, act: Callable[[], object]) -> float:
    """Median of `act`, whose kernels have ended."""
    took = []
    for _ in range(1 + times):
        began = time.perf_counter()
        act()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        took.append(time.perf_counter() - began)
    return statistics.median(took[1:])


def peak(device: torch.device, act: Callable[[], float]) -> tuple[float, float]:
    """What `act` returns, and GB of the device's memory at most meanwhile; NaN on a CPU."""
    if device.type != "cuda":
        return act(), float("nan")
    torch.cuda.reset_peak_memory_stats(device)
    return act(), torch.cuda.max_memory_allocated(device) / 1e9


def steps_of(policy: Policy, pngs: Sequence[bytes], length: int) -> list[Step]:
    """Steps whose actions have `length` tokens, made of the prompt's own."""
    prompt = policy.tokenizer.encode_prompt(INSTRUCTION, [Action(ActionKind.BACK)], SCREEN)
    shot = ObjectRef("screenshot", "0" * 64, 1)
    ids = tuple((prompt * (1 + length // len(prompt)))[-length:])
    action = Action(ActionKind.BACK)
    return [Step(shot, prompt, ids, action, "", -1.0, 0, "0" * 64, 0, 0.0, 0.0, 0.0, 1.0) for _ in pngs]


def ours(settings: PolicySettings, device: torch.device, rows: int, length: int, times: int) -> Measured:
    """Of `rows` rows at once."""
    policy, pngs = policy_of(settings, 0, device), screenshots(rows)
    optimizer = torch.optim.AdamW(policy.parameters().values(), lr=1e-4)
    fresh = iter(screenshots(rows * (times + 1)))
    found = {"look at a screenshot, s": seconds(device, times, lambda: policy.image_features(next(fresh)))}
    features = [policy.image_features(png) for png in pngs]
    steps = steps_of(policy, pngs, min(length, policy.tokenizer.action_length))

    def descend() -> None:
        optimizer.zero_grad()
        (-policy.score(steps, features).logprob.mean()).backward()
        optimizer.step()

    prompts = [step.prompt_ids for step in steps]
    found["tokens of a prompt"] = len(prompts[0])
    found["gradient step, s"], found["its memory, GB"] = peak(device, lambda: seconds(device, times, descend))
    if settings.base_model is not None and settings.precision == "float32":
        computed = sizes_of(settings.base_model, settings, len(prompts[0]), len(steps[0].action_ids))
        found["its memory by `distrl policy size`, GB"] = computed.step(rows) / 1e9
    act = peak(device, lambda: seconds(device, times, lambda: policy.decide(pngs, prompts, FULL, range(rows))))
    found["decisions a second"], found["their memory, GB"] = rows / act[0], act[1]
    reads = policy_of(settings, 1, device)
    reads.image_features(pngs[0])

    def reload() -> None:
        reads.load(policy.adapter())
        reads.decide(pngs[:1], prompts[:1], FULL, [0])

    found["adapter from the optimiser to the first action, s"] = seconds(device, times, reload)
    return found


def the_librarys(settings: PolicySettings, device: torch.device, rows: int, length: int, times: int) -> Measured:
    """The same model without this project: pixels in, and PEFT's layers. Its prompt is the one that ours reads."""
    policy, pngs = policy_of(settings), screenshots(rows)
    assert isinstance(policy, VlmPolicy)
    steps = steps_of(policy, pngs, length)
    given = policy._inputs([step.prompt_ids for step in steps], [policy.image_features(png) for png in pngs])
    given.pop("mm_encoder_outputs")
    seen = [policy.tokenizer.processor.images(Image.open(io.BytesIO(png)).convert("RGB")) for png in pngs]
    given |= {name: torch.cat([each[name] for each in seen]) for name in seen[0]}
    read: dict[str, Any] = {name: value.to(device) for name, value in given.items()}
    actions = torch.tensor([step.action_ids for step in steps], device=device)
    whole = dict(read)
    for name, more in (("input_ids", actions), ("attention_mask", torch.ones_like(actions))):
        whole[name] = torch.cat([read[name], more], dim=1)
    for name in TYPES:
        if name in read:
            whole[name] = torch.cat([read[name], torch.zeros_like(actions)], dim=1)
    labels = whole["input_ids"].clone()
    labels[:, : read["input_ids"].shape[1]] = -100
    library: Any = AutoModelForImageTextToText.from_pretrained(str(settings.base_model), dtype=torch.float32)
    targets = lora_targets(library, settings.lora_targets)
    lora = LoraConfig(r=settings.lora_rank, lora_alpha=settings.lora_alpha, target_modules=targets)
    model: Any = get_peft_model(library, lora).to(device)
    optimizer = torch.optim.AdamW([each for each in model.parameters() if each.requires_grad], lr=1e-4)

    def descend() -> None:
        optimizer.zero_grad()
        model(**whole, labels=labels).loss.backward()
        optimizer.step()

    def act() -> None:
        with torch.no_grad():
            model.generate(**read, do_sample=True, max_new_tokens=length - 1)

    found = dict[str, float]()
    found["gradient step, s"], found["its memory, GB"] = peak(device, lambda: seconds(device, times, descend))
    acted = peak(device, lambda: seconds(device, times, act))
    found["decisions a second"], found["their memory, GB"] = rows / acted[0], acted[1]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, help="settings of a run")
    parser.add_argument("--set", action="append", default=[], help="one setting as path.to.it=value")
    parser.add_argument("--device", default="auto", help="as learner.device")
    parser.add_argument("--rows", default="1,8", help="of a batch")
    parser.add_argument("--tokens", type=int, default=32, help="of an action")
    parser.add_argument("--times", type=int, default=5)
    options = parser.parse_args()
    settings = load(options.config, options.set).policy
    device = device_of(options.device, "--device")
    ways = {"ours": ours}
    if isinstance(policy_of(settings), VlmPolicy):
        ways["the library's"] = the_librarys
    counts = [int(each) for each in options.rows.split(",")]
    cells = {
        (rows, name): way(settings, device, rows, options.tokens, options.times)
        for rows in track(counts, "rows", console=console, transient=True)
        for name, way in ways.items()
    }
    table = Table("measured", "rows", *ways, *(["ratio"] if len(ways) > 1 else []), title=f"on {kind_of(device)}")
    for rows in counts:
        for row in cells[rows, "ours"]:
            values = [cells[rows, name].get(row, float("nan")) for name in ways]
            if all(map(math.isnan, values)):
                continue  # a CPU counts no memory
            ratio = [f"{values[0] / values[1]:.2f}"] if len(ways) > 1 else []
            table.add_row(row, str(rows), *(f"{value:.4g}" for value in values), *ratio)
    console.print(table)


if __name__ == "__main__":
    try:
        main()
    except DistrlError as error:
        raise SystemExit(str(error)) from None
