"""What is computed from shapes, against small models that were loaded and run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import factories
import pytest
import torch
from distrl.cli.main import app
from distrl.config import PolicySettings
from distrl.errors import PolicyError
from distrl.policy.autoui.policy import AutoUIPolicy
from distrl.policy.recurrent_q.directory import Described, make
from distrl.policy.registry import SHIPPED, policy_of
from distrl.policy.sizing import Sizes, sizes_of
from distrl.policy.vlm.policy import VlmPolicy
from distrl.types import Step
from typer.testing import CliRunner

from policy.autoui_t5.parts import base_model
from policy.conftest import png
from policy.vlm.models import FAMILIES

ROOT = Path(__file__).parents[2]
MODELS = ("smolvlm-500m", "autoui-base", "qwen2.5-vl-3b", "qwen2.5-vl-7b")


def kept(policy: Any, model: torch.nn.Module, step: Step) -> int:
    """Bytes that autograd keeps of scoring a step, on this machine's processor, without the masks of attention: in a
    model of width 32 they are a third of it, in one of 2,048 nothing."""
    constant = {each.untyped_storage()._cdata for each in model.parameters()}
    found: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        mask = tensor.dim() == 4 and min(tensor.shape[2:]) >= 6 and tensor.shape[3] > 24
        if tensor.untyped_storage()._cdata not in constant and not mask:
            found[tensor.untyped_storage()._cdata] = tensor
        return tensor

    features = [policy.image_features(png(1))]
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        score = policy.score([step], features)
        scored = score.logprob.sum() + score.entropy.sum()
    assert scored.requires_grad
    return sum(tensor.untyped_storage().nbytes() for tensor in found.values())


def held(sizes: Sizes, policy: Any, model: torch.nn.Module, step: Step) -> None:
    trained = sum(each.numel() for each in policy.parameters().values())
    assert sizes.trained == trained
    assert sizes.parameters == sum(each.numel() for each in model.parameters()) - trained
    assert sizes.reload == len(policy.adapter())
    assert sizes.activations == pytest.approx(kept(policy, model, step), rel=0.25)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_vision_language_model_takes_what_its_shapes_say(family: str, tmp_path: Path) -> None:
    FAMILIES[family](tmp_path)
    told = {"dialect": "json", "system_prompt": "Act. " * 40, "action_tokens": 24, "lora_rank": 4}
    settings = PolicySettings(base_model=tmp_path, **told)
    policy = policy_of(settings)
    assert isinstance(policy, VlmPolicy)
    screen = policy.image_features(png(1))
    prompt = policy.tokenizer.encode_prompt("open the settings " * 20, [], screen.size)
    step = factories.step(prompt_ids=prompt, action_ids=(*[7] * 23, policy.tokenizer.ends[0]))
    length = policy._inputs([prompt], [screen])["input_ids"].shape[1]
    held(sizes_of(tmp_path, settings, length, 24), policy, policy._model.whole, step)


def test_the_papers_model_takes_what_its_shapes_say(tmp_path: Path) -> None:
    made = base_model(tmp_path)
    settings = PolicySettings(base_model=made, lora_rank=4)
    policy = policy_of(settings)
    assert isinstance(policy, AutoUIPolicy)
    prompt = policy.tokenizer.encode_prompt("open the settings " * 25, [], None)
    step = factories.step(prompt_ids=prompt, action_ids=(*[7] * 23, 1))
    sizes = sizes_of(made, settings, len(prompt), 24)
    held(sizes, policy, policy.model, step)
    assert sizes.cache == 4 * 2 * 2 * 32 * (len(prompt) + 24), "two layers, keys and values of 32 numbers"
    assert sizes_of(made, settings, 9999, 24) == sizes_of(made, settings, 512, 24)


def test_the_whole_t5_of_the_papers_model_takes_what_its_shapes_say(tmp_path: Path) -> None:
    made = base_model(tmp_path)
    settings = PolicySettings(base_model=made, trains="all")
    policy = policy_of(settings)
    sizes = sizes_of(made, settings, 100, 8)
    assert sizes.trained == sum(each.numel() for each in policy.parameters().values())
    assert sizes.reload <= len(policy.adapter()), "the names of its tensors come on top"


def test_the_shipped_model_takes_what_its_shapes_say() -> None:
    policy = policy_of(PolicySettings())
    assert isinstance(policy, AutoUIPolicy)
    step = factories.step(prompt_ids=(*[40] * (policy.tokenizer.prompt_length - 1), 1), action_ids=(*[40] * 5, 1))
    held(sizes_of(SHIPPED, PolicySettings(), 1, 1), policy, policy.model, step)


def test_a_whole_language_part_is_all_that_is_spoken_but_the_embeddings(tmp_path: Path) -> None:
    FAMILIES["qwen25"](tmp_path)
    settings = PolicySettings(base_model=tmp_path, trains="all", dialect="json")
    policy = policy_of(settings)
    sizes = sizes_of(tmp_path, settings, 100, 8)
    assert sizes.trained == sum(each.numel() for each in policy.parameters().values())
    assert sizes.reload <= len(policy.adapter()), "the names of its tensors come on top"
    assert sizes.step(2) == 4 * sizes.parameters + 12 * sizes.trained + 2 * sizes.activations


def test_the_table_of_the_document_is_what_the_command_prints() -> None:
    files = [str(ROOT / f"docs/sizing/{name}.json") for name in MODELS]
    ended = CliRunner().invoke(app, ["policy", "size", *files], env={"COLUMNS": "400"})
    assert ended.exit_code == 0, ended.output
    page = (ROOT / "docs/sizing.md").read_text()
    assert ended.output.strip() in page
    assert " ".join(f"docs/sizing/{name}.json" for name in MODELS) in page


def test_models_of_one_file_name_are_named_by_their_paths(tmp_path: Path) -> None:
    files = []
    for name in ("qwen25", "smolvlm"):
        FAMILIES[name](tmp_path / name)
        files.append(str(tmp_path / name / "config.json"))
    ended = CliRunner().invoke(app, ["policy", "size", *files], env={"COLUMNS": "400"})
    assert ended.exit_code == 0, ended.output
    assert ended.output.splitlines()[0] == f"| | {' | '.join(files)} |"


def test_a_format_without_sizes_is_refused_by_its_name(tmp_path: Path) -> None:
    made = tmp_path / "q"
    make(made, SHIPPED, Described())
    with pytest.raises(PolicyError, match=r"format 'distrl-recurrent-q/1', whose sizes are not computed") as error:
        sizes_of(made, PolicySettings(), 10, 4)
    assert "`autoui`" in error.value.hint
    assert sizes_of(made / "autoui", PolicySettings(), 10, 4) == sizes_of(SHIPPED, PolicySettings(), 10, 4)


@pytest.mark.parametrize(
    "config",
    [{"model_type": "nonesuch"}, {"format": "distrl-autoui/1", "shape": 3}, {"format": "distrl-autoui-t5/1", "t5": 3}],
)
def test_what_describes_no_model_is_refused(config: dict[str, object], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(PolicyError, match=r"config\.json"):
        sizes_of(tmp_path, PolicySettings(), 10, 4)
