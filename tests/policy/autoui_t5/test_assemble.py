"""A base model from published parts: what is taken, what is refused, and what the error names."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path

import pytest
import torch
from distrl.cli.main import app
from distrl.config import PolicySettings
from distrl.errors import PolicyError
from distrl.policy.autoui.policy import AutoUIPolicy
from distrl.policy.autoui_t5.assemble import assemble
from distrl.policy.autoui_t5.model import AutoUIT5
from distrl.policy.registry import policy_of
from distrl.types import ScreenSize
from safetensors.torch import load_file, save_file
from transformers import GPT2Model, T5ForConditionalGeneration
from typer.testing import CliRunner

from policy.autoui_t5.parts import base_model, blip2, checkpoint, gpt2, t5_settings, t5_tensors
from policy.conftest import png


@pytest.fixture(scope="module")
def sight(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return blip2(tmp_path_factory.mktemp("parts") / "blip2")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return base_model(tmp_path)


def test_every_published_parameter_is_loaded_by_its_name(sight: Path, tmp_path: Path) -> None:
    assemble(checkpoint(tmp_path / "t5"), sight, tmp_path / "base", None, 0)
    policy = policy_of(PolicySettings(base_model=tmp_path / "base"))
    assert isinstance(policy, AutoUIPolicy)
    published = t5_tensors(t5_settings())
    inside = {
        name.replace(".base_layer", "").removeprefix("t5.").removeprefix("fusion."): value
        for name, value in policy.model.named_parameters(remove_duplicate=False)
        if ".lora_" not in name and not name.startswith("vision.")
    }
    assert inside.keys() == published.keys()
    assert all(torch.equal(inside[name], published[name]) for name in published)


def test_a_pickled_checkpoint_makes_the_same_base_model(sight: Path, tmp_path: Path) -> None:
    safe = assemble(checkpoint(tmp_path / "safe"), sight, tmp_path / "one", None, 0)
    pickled = assemble(checkpoint(tmp_path / "pickled", pickled=True), sight, tmp_path / "two", None, 0)
    assert safe.base_sha256 == pickled.base_sha256
    assert not safe.drawn


class Code:
    def __reduce__(self) -> tuple[object, ...]:
        return (Path("it ran").touch, ())


def test_no_code_of_a_pickle_is_run(sight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made = checkpoint(tmp_path / "t5", pickled=True)
    for content in (pickle.dumps({"shared.weight": Code()}), b"no pickle at all"):
        (made / "pytorch_model.bin").write_bytes(content)
        with pytest.raises(PolicyError, match=r"pytorch_model\.bin"):
            assemble(made, sight, tmp_path / "base", None, 0)
    torch.save({"shared.weight": Code()}, made / "pytorch_model.bin")
    with pytest.raises(PolicyError, match="more than tensors"):
        assemble(made, sight, tmp_path / "base", None, 0)
    assert not (tmp_path / "it ran").exists()


def test_a_plain_t5_gets_a_fusion_of_its_seed(sight: Path, tmp_path: Path) -> None:
    plain = checkpoint(tmp_path / "t5", fused=False)
    made = [assemble(plain, sight, tmp_path / str(n), None, seed) for n, seed in enumerate((1, 1, 2))]
    assert all(each.drawn for each in made)
    assert made[0].base_sha256 == made[1].base_sha256 != made[2].base_sha256


def test_a_t5_whose_head_is_its_embeddings(sight: Path, tmp_path: Path) -> None:
    assemble(checkpoint(tmp_path / "t5", tie_word_embeddings=True), sight, tmp_path / "base", None, 0)
    policy = policy_of(PolicySettings(base_model=tmp_path / "base"))
    assert isinstance(policy, AutoUIPolicy)
    assert policy.model.t5.lm_head.weight is policy.model.t5.shared.weight


def resaved(directory: Path, *, own_head: bool) -> Path:
    """A T5 of the kind of FLAN-T5 as the library of today saves it, which calls every head the embeddings."""
    made = checkpoint(directory, fused=False)
    model = T5ForConditionalGeneration.from_pretrained(made)
    model.lm_head.weight = model.shared.weight
    if own_head:
        torch.manual_seed(7)
        model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.shared.weight) * 0.3)
    model.save_pretrained(made)
    said = json.loads((made / "config.json").read_text())
    assert (said["tie_word_embeddings"], said["scale_decoder_outputs"]) == (True, False)
    return made


@pytest.mark.parametrize("own_head", [True, False])
def test_a_t5_that_the_library_has_saved_again_answers_by_the_head_that_it_has(
    sight: Path, tmp_path: Path, own_head: bool
) -> None:
    made = resaved(tmp_path / "t5", own_head=own_head)
    assert ("lm_head.weight" in load_file(made / "model.safetensors")) == own_head
    assemble(made, sight, tmp_path / "base", None, 0)
    policy = policy_of(PolicySettings(base_model=tmp_path / "base"))
    assert isinstance(policy, AutoUIPolicy)
    t5 = policy.model.t5
    assert not t5.config.scale_decoder_outputs
    assert (t5.lm_head.weight is t5.shared.weight) != own_head
    head = load_file(made / "model.safetensors")["lm_head.weight" if own_head else "shared.weight"]
    assert torch.equal(t5.lm_head.weight, head)
    prompt = policy.tokenizer.encode_prompt("open the settings", (), ScreenSize(64, 128))
    first, second = (policy.decide([png(3)], [prompt], None, [7]) for _ in range(2))
    assert first == second


def test_a_network_that_was_left_without_numbers_is_refused(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def untied(self: AutoUIT5, *given: object) -> None:
        made(self, *given)
        self.register_buffer("more", torch.zeros(3))

    made = AutoUIT5.__init__
    monkeypatch.setattr(AutoUIT5, "__init__", untied)
    with pytest.raises(PolicyError, match="leaves more without numbers"):
        policy_of(PolicySettings(base_model=copy))


def test_what_does_not_fit_is_named(sight: Path, tmp_path: Path) -> None:
    made = checkpoint(tmp_path / "t5")
    tensors = load_file(made / "model.safetensors")
    tensors["gate_dense.weight"] = torch.zeros(32, 32)
    tensors["surplus.weight"] = tensors.pop("image_dense.weight")
    save_file(tensors, made / "model.safetensors")
    with pytest.raises(PolicyError) as refused:
        assemble(made, sight, tmp_path / "base", None, 0)
    for said in (
        "lacks image_dense.weight",
        "no use for surplus.weight",
        "gate_dense.weight is (32, 32), not (32, 64)",
    ):
        assert said in str(refused.value)
    assert not (tmp_path / "base").exists()


def test_other_sizes_than_the_config_says_are_refused(copy: Path) -> None:
    config = json.loads((copy / "config.json").read_text())
    for part, size, named in (
        ("t5", {"d_ff": 47}, "wi_0"),
        ("vision", {"num_hidden_layers": 2}, r"encoder\.layers\.1"),
    ):
        (copy / "config.json").write_text(json.dumps(config | {part: config[part] | size}))
        with pytest.raises(PolicyError, match=named):
            policy_of(PolicySettings(base_model=copy))
    (copy / "config.json").write_text(json.dumps(config | {"vision": {"hidden_size": "wide"}}))
    with pytest.raises(PolicyError, match="image encoder"):
        policy_of(PolicySettings(base_model=copy))


@pytest.mark.parametrize("name", ["vision.safetensors", "preprocessor_config.json"])
def test_a_missing_image_encoder_is_refused_with_the_command_that_adds_one(copy: Path, name: str) -> None:
    (copy / name).unlink()
    with pytest.raises(PolicyError, match="no image encoder") as refused:
        policy_of(PolicySettings(base_model=copy))
    assert "distrl base-model autoui" in str(refused.value.hint)


def test_an_image_processor_of_another_size_is_refused(copy: Path) -> None:
    file = copy / "preprocessor_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"size": {"height": 56, "width": 56}}))
    with pytest.raises(PolicyError, match="the encoder takes 28"):
        policy_of(PolicySettings(base_model=copy))


def test_a_tokenizer_with_more_tokens_than_embeddings_is_refused(sight: Path, tmp_path: Path) -> None:
    assemble(checkpoint(tmp_path / "t5", vocab_size=100), sight, tmp_path / "base", None, 0)
    with pytest.raises(PolicyError, match="100 embeddings"):
        policy_of(PolicySettings(base_model=tmp_path / "base"))


def test_a_checkpoint_without_its_tokenizer_is_refused(sight: Path, tmp_path: Path) -> None:
    made = checkpoint(tmp_path / "t5")
    (made / "tokenizer.json").unlink()
    with pytest.raises(PolicyError, match=r"no tokenizer\.json"):
        assemble(made, sight, tmp_path / "base", None, 0)


def test_nothing_is_written_where_the_image_encoder_has_no_processor(sight: Path, tmp_path: Path) -> None:
    """Else the same command is refused once the file is there: its directory holds files."""
    made = Path(shutil.copytree(sight, tmp_path / "blip2"))
    (made / "preprocessor_config.json").unlink()
    with pytest.raises(PolicyError, match="cannot be read"):
        assemble(checkpoint(tmp_path / "t5"), made, tmp_path / "base", None, 0)
    assert not (tmp_path / "base").exists()


def test_other_models_are_refused(sight: Path, tmp_path: Path) -> None:
    t5 = checkpoint(tmp_path / "t5")
    with pytest.raises(PolicyError, match="not of a T5"):
        assemble(sight, sight, tmp_path / "base", None, 0)
    with pytest.raises(PolicyError, match="--vision"):
        assemble(t5, t5, tmp_path / "base", None, 0)
    with pytest.raises(PolicyError, match="--decoder"):
        assemble(t5, sight, tmp_path / "base", t5, 0)
    with pytest.raises(PolicyError, match="--decoder"):
        assemble(t5, sight, tmp_path / "base", gpt2(tmp_path / "deep", n_layer=3), 0)


def test_a_gpt2_that_lacks_a_weight_is_refused(sight: Path, tmp_path: Path) -> None:
    source = gpt2(tmp_path / "gpt2")
    weights = load_file(source / "model.safetensors")
    save_file({n: v for n, v in weights.items() if "h.1.ln_2" not in n}, source / "model.safetensors")
    with pytest.raises(PolicyError, match=r"has no h\.1\.ln_2\.weight"):
        assemble(checkpoint(tmp_path / "t5"), sight, tmp_path / "base", source, 0)


def test_the_decoder_begins_from_gpt2(sight: Path, tmp_path: Path) -> None:
    """Queries, keys and values are GPT-2's: scores of attention are equal, where T5 divides by nothing."""
    source = gpt2(tmp_path / "gpt2")
    t5 = checkpoint(tmp_path / "t5", feed_forward_proj="gelu", d_ff=128)
    made = assemble(t5, sight, tmp_path / "base", source, 0)
    assert made.decoder is not None
    theirs, ours = GPT2Model.from_pretrained(source).h[1], load_file(tmp_path / "base/model.safetensors")
    states = torch.randn(3, 32)
    q, k, v = (states @ theirs.attn.c_attn.weight).chunk(3, -1)
    layer = "decoder.block.1.layer"
    mine = {n: states @ ours[f"{layer}.0.SelfAttention.{n}.weight"].T for n in "qkv"}
    assert torch.allclose(mine["q"][:, :8] @ mine["k"][:, :8].T, q[:, :8] @ k[:, :8].T / 8**0.5, atol=1e-5)
    assert torch.allclose(mine["v"], v, atol=1e-6)
    assert torch.equal(ours[f"{layer}.2.DenseReluDense.wi.weight"], theirs.mlp.c_fc.weight.T)
    untouched = load_file(t5 / "model.safetensors")
    assert all(torch.equal(ours[name], untouched[name]) for name in made.decoder.kept)
    assert f"{layer}.1.EncDecAttention.q.weight" in made.decoder.kept
    assert not [name for name in made.decoder.kept if "SelfAttention.q" in name or "layer.2" in name]


def test_a_gated_feed_forward_part_stays_the_t5s_own(sight: Path, tmp_path: Path) -> None:
    made = assemble(checkpoint(tmp_path / "t5"), sight, tmp_path / "base", gpt2(tmp_path / "gpt2"), 0)
    assert made.decoder is not None
    assert "decoder.block.0.layer.2.DenseReluDense.wi_0.weight" in made.decoder.kept
    assert "decoder.block.0.layer.0.SelfAttention.q.weight" in made.decoder.tensors


def test_a_directory_with_files_is_not_written_over(copy: Path) -> None:
    parts = copy.parent / "parts"
    with pytest.raises(PolicyError, match="--out"):
        assemble(parts / "t5", parts / "blip2", copy, None, 0)


def test_an_index_cannot_name_a_file_elsewhere(sight: Path, tmp_path: Path) -> None:
    spoilt = Path(shutil.copytree(sight, tmp_path / "blip2"))
    (spoilt / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": {"a": "../t5/model.safetensors"}}))
    with pytest.raises(PolicyError, match="beside it"):
        assemble(checkpoint(tmp_path / "t5"), spoilt, tmp_path / "base", None, 0)


def test_the_command_says_what_was_made_and_what_stays(sight: Path, tmp_path: Path) -> None:
    t5, out, source = checkpoint(tmp_path / "t5", fused=False), tmp_path / "base", gpt2(tmp_path / "gpt2")
    given = {"--checkpoint": t5, "--vision": sight, "--out": out, "--decoder": source}
    ended = CliRunner().invoke(app, ["base-model", "autoui", *(str(each) for pair in given.items() for each in pair)])
    assert ended.exit_code == 0, ended.output
    assert policy_of(PolicySettings(base_model=out)).base_sha256 in ended.output
    assert "drawn with seed 0" in ended.output
    assert "decoder.block.1.layer.1.EncDecAttention.o.weight" in ended.output
