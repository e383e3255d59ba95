"""The paper's policy: its numbers are those of the published code, and what it reads, writes and learns is exact."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import factories
import numpy as np
import pytest
import torch
from distrl.config import PolicySettings
from distrl.errors import PolicyError
from distrl.policy.autoui.policy import AutoUIPolicy, pad
from distrl.policy.autoui.t5 import ActingT5
from distrl.policy.autoui.tokenizer import END, PAD
from distrl.policy.autoui_t5.base import described_model
from distrl.policy.protocol import Score
from distrl.policy.registry import base_sha256, policy_of, tokenizer_of
from distrl.policy.sampling import FULL, Sampling
from distrl.policy.screenshot import decoded
from distrl.types import Action, ActionKind, Point, ScreenSize, Step
from transformers import Blip2VisionConfig, Blip2VisionModel, T5Config, T5ForConditionalGeneration
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil

from policy.autoui_t5.parts import SIGHT, base_model, t5_settings, t5_tensors, words
from policy.conftest import png

TAP = Action(ActionKind.TAP, touch=Point(0.25, 0.5))
SCREEN = ScreenSize(64, 128)
FLAN_BASE = {
    "d_model": 768,
    "d_kv": 64,
    "d_ff": 2048,
    "num_layers": 12,
    "num_decoder_layers": 12,
    "num_heads": 12,
    "vocab_size": 32128,
    "feed_forward_proj": "gated-gelu",
    "tie_word_embeddings": False,
}
FLAN_LARGE = FLAN_BASE | {"d_model": 1024, "d_ff": 2816, "num_layers": 24, "num_decoder_layers": 24, "num_heads": 16}
"""config.json of google/flan-t5-base (and declare-lab/flan-alpaca-base, from which AutoUI was trained) and -large."""


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return base_model(tmp_path_factory.mktemp("autoui"))


def settings(directory: Path, **more: Any) -> PolicySettings:
    return PolicySettings(base_model=directory, **({"action_tokens": 12, "lora_rank": 4} | more))


def opened(directory: Path, **more: Any) -> AutoUIPolicy:
    made = policy_of(settings(directory, **more))
    assert isinstance(made, AutoUIPolicy)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in made.parameters().values():
            parameter.add_(torch.randn_like(parameter) * 0.1)  # weights that matter, as training would give
    return made


@pytest.fixture(scope="module")
def policy(directory: Path) -> AutoUIPolicy:
    return opened(directory)


def test_the_image_encoder_drops_nothing_while_the_rest_does(directory: Path) -> None:
    """It may be looking at the next screenshots on another thread then."""
    policy = opened(directory)
    switches = [module for module in policy.model.vision.modules() if hasattr(module, "attention_dropout")]
    switches += [module for module in policy.model.vision.modules() if isinstance(module, torch.nn.Dropout)]
    assert switches
    for each in switches:
        setattr(each, "p" if isinstance(each, torch.nn.Dropout) else "attention_dropout", 0.5)
    expected = policy.model.look(decoded(png(1)))
    with policy.dropout():
        drawn = torch.get_rng_state()
        assert torch.equal(policy.model.look(decoded(png(1))), expected)
        assert torch.equal(torch.get_rng_state(), drawn)
        assert policy.model.t5.training
    assert not policy.model.t5.training


def prompts(policy: AutoUIPolicy, count: int) -> list[tuple[int, ...]]:
    """Of several lengths."""
    goals = ("open the settings", "open", "type red shoes and press enter")
    return [policy.tokenizer.encode_prompt(goals[n % 3], [TAP] * (n % 3), SCREEN) for n in range(count)]


def shots(count: int) -> list[bytes]:
    return [png(n, *[(64, 128), (120, 80), (28, 28)][n % 3]) for n in range(count)]


def steps_of(prompts: Sequence[tuple[int, ...]], actions: Sequence[tuple[int, ...]]) -> list[Step]:
    return [factories.step(prompt_ids=p, action_ids=a) for p, a in zip(prompts, actions, strict=True)]


def scored(policy: AutoUIPolicy, steps: Sequence[Step], sampling: Sampling = FULL) -> Score:
    return policy.score(steps, [policy.image_features(shot) for shot in shots(len(steps))], sampling)


@pytest.mark.parametrize("sampling", [Sampling(0.7), Sampling(1.5), Sampling(0.9, 0.8, 5)])
@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_ratio_is_one_at_equal_weights_alone_and_in_a_batch(
    directory: Path, sampling: Sampling, precision: str
) -> None:
    """ρ of what was drawn in a batch, scored in a batch of other padding and alone, is 1 within 1e-4."""
    policy = opened(directory, image_precision=precision)
    asked = prompts(policy, 3)
    assert len({len(each) for each in asked}) == 3, "rows are padded"
    drawn = policy.decide(shots(3), asked, sampling, [3, 4, 5])
    steps = steps_of(asked, [each.action_ids for each in drawn])
    together = scored(policy, steps, sampling)
    for place, (step, each) in enumerate(zip(steps, drawn, strict=True)):
        alone = policy.score([step], [policy.image_features(shots(3)[place])], sampling)
        for logprob in (together.logprob[place], alone.logprob[0]):
            assert np.exp(logprob.item() - each.logprob) == pytest.approx(1.0, abs=1e-4)
        assert each.entropy == pytest.approx(together.entropy[place].item(), abs=1e-4)
        length = len(asked[place])
        assert torch.allclose(alone.states[0], together.states[place, :length], atol=1e-4)
        assert together.mask[place].sum() == length
    assert together.states.shape == (3, max(map(len, asked)), policy.width)
    assert bool((together.entropy > 0).all())


def test_draws_depend_on_a_rows_own_seed_alone(policy: AutoUIPolicy) -> None:
    asked = prompts(policy, 3)
    together = policy.decide(shots(3), asked, FULL, [3, 4, 5])
    (alone,) = policy.decide(shots(3)[1:2], asked[1:2], FULL, [4])
    assert alone.action_ids == together[1].action_ids
    assert policy.decide(shots(3)[1:2], asked[1:2], FULL, [9])[0].action_ids != alone.action_ids
    assert PAD not in alone.action_ids
    assert alone.action_ids[-1] == END


def test_embeddings_of_no_token_are_never_written(policy: AutoUIPolicy) -> None:
    """A T5 has more embeddings than its tokenizer has tokens."""
    count, vocabulary = len(words()), policy.model.t5.config.vocab_size
    assert vocabulary > count
    with torch.no_grad():
        acting = ActingT5(policy.model.t5)
        states, mask = policy.model.encode(policy.image_features(png(0)).tokens[None], pad(prompts(policy, 1)), acting)
        found = policy.model.decoder(acting, states, mask, 1).first()[0]
    assert set((found < -1e8).nonzero().flatten().tolist()) == {PAD, *range(count, vocabulary)}


def test_logits_are_those_of_the_published_network(directory: Path) -> None:
    """By another path: the library's own encoder and decoder, and AutoUI's fusion written out, from its tensors."""
    chosen = t5_settings()
    tensors = t5_tensors(chosen)
    policy = policy_of(settings(directory))
    assert isinstance(policy, AutoUIPolicy)
    asked, actions = prompts(policy, 2), [(7, 8, 9, END), (4, END)]
    t5 = T5ForConditionalGeneration(T5Config(**chosen)).eval()
    t5.lm_head.weight = torch.nn.Parameter(tensors["lm_head.weight"])  # its own, which the library would tie
    t5.load_state_dict({n: v for n, v in tensors.items() if n in t5.state_dict() and "lm_head" not in n}, strict=False)
    processor = BlipImageProcessorPil(size={"height": 28, "width": 28})
    count = len(words())
    for place, (prompt, action) in enumerate(zip(asked, actions, strict=True)):
        ids, targets = torch.tensor([prompt]), torch.tensor([action])
        pixels = processor(images=[decoded(shots(2)[place])], return_tensors="pt")["pixel_values"]
        frame = blip2_of(directory)(pixel_values=pixels).pooler_output
        with torch.no_grad():
            read = t5.encoder(input_ids=ids).last_hidden_state
            image = frame @ tensors["image_dense.weight"].T + tensors["image_dense.bias"]
            q, k, v = tensors["mha_layer.in_proj_weight"].chunk(3)
            q_bias, k_bias, v_bias = tensors["mha_layer.in_proj_bias"].chunk(3)
            scores = (read @ q.T + q_bias) @ (image @ k.T + k_bias).T / math.sqrt(32)
            found = scores.softmax(-1) @ (image @ v.T + v_bias)
            found = found @ tensors["mha_layer.out_proj.weight"].T + tensors["mha_layer.out_proj.bias"]
            both = torch.cat([read, found], -1)
            gate = (both @ tensors["gate_dense.weight"].T + tensors["gate_dense.bias"]).sigmoid()
            fused = (1 - gate) * read + gate * found
            shifted = t5._shift_right(targets)
            theirs = t5(encoder_outputs=BaseModelOutput(last_hidden_state=fused), decoder_input_ids=shifted).logits
            theirs[..., PAD] = theirs[..., count:] = -1e9
            expected = theirs.log_softmax(-1).gather(-1, targets[..., None]).sum()
        ours = policy.score(steps_of([prompt], [action]), [policy.image_features(shots(2)[place])])
        assert ours.logprob.item() == pytest.approx(expected.item(), abs=1e-3)
        assert torch.allclose(ours.states[0], fused[0], atol=1e-5)
        assert gate.std() > 0.05, "the gate matters"


def blip2_of(directory: Path) -> Blip2VisionModel:
    """BLIP-2's own class, from the part that was published."""
    model = Blip2VisionModel(Blip2VisionConfig(**SIGHT)).eval()
    found = torch.load(directory.parent / "parts/blip2/pytorch_model-00001-of-00002.bin", weights_only=True)
    model.load_state_dict({name.removeprefix("vision_model."): value for name, value in found.items()})
    return model.requires_grad_(False)


def test_a_screen_is_seen_once_and_its_picture_matters(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, seen = opened(directory), []
    look = policy.model.look
    monkeypatch.setattr(policy.model, "look", lambda picture: seen.append(1) or look(picture))
    first = policy.image_features(png(1))
    assert torch.equal(policy.image_features(png(1)).tokens, first.tokens)
    assert len(seen) == 1
    assert first.tokens.shape == (1, SIGHT["hidden_size"])
    assert first.size == SCREEN
    step = steps_of(prompts(policy, 1), [(7, END)])
    other = policy.image_features(png(2))
    assert policy.score(step, [first]).logprob != policy.score(step, [other]).logprob


def test_lora_is_on_q_k_v_o_of_both_stacks_and_nothing_else_is_trained(policy: AutoUIPolicy) -> None:
    names = {name.partition(".lora_")[0].rpartition(".")[2] for name in policy.parameters()}
    assert names == {"q", "k", "v", "o"}
    assert {name.partition(".")[0] for name in policy.parameters()} == {"encoder", "decoder"}
    assert len(policy.parameters()) == 2 * 4 * (2 + 2 * 2), "two matrices, four layers, self- and cross-attention"
    scored(policy, steps_of(prompts(policy, 2), [(7, END)] * 2)).logprob.sum().backward()
    trained = {id(each) for each in policy.parameters().values()}
    assert all((each.grad is not None) == (id(each) in trained) for each in policy.model.parameters())


def test_an_adapter_goes_to_its_own_base_alone(policy: AutoUIPolicy, directory: Path, tmp_path: Path) -> None:
    fresh = policy_of(settings(directory))
    fresh.load(policy.adapter())
    steps = steps_of(prompts(policy, 2), [(7, 8, END)] * 2)
    features = [policy.image_features(shot) for shot in shots(2)]
    assert torch.equal(fresh.score(steps, features).logprob, policy.score(steps, features).logprob)
    other = policy_of(settings(base_model(tmp_path, d_ff=40)))
    with pytest.raises(PolicyError, match="base_model_name_or_path"):
        other.load(policy.adapter())


def test_actions_are_written_as_autoui_writes_them(directory: Path) -> None:
    codec = tokenizer_of(settings(directory, action_tokens=128))
    for action in (TAP, Action(ActionKind.TYPE, text="red shoes"), Action(ActionKind.BACK)):
        ids = codec.encode_action(action, SCREEN)
        assert codec.text(ids).startswith('Action Decision: "action_type": "')
        assert codec.decode_action(ids, SCREEN) == action
        assert codec.accepts(factories.step(prompt_ids=(5,), action_ids=ids))
    whole = codec.encode_action(TAP, SCREEN)
    half = whole[: len(whole) // 2]
    assert codec.decode_action((*half, END), SCREEN).kind is ActionKind.INVALID


def test_a_plan_before_the_decision_is_read_over(directory: Path) -> None:
    codec = tokenizer_of(settings(directory, action_tokens=128))
    plan = words()("Action Plan: [TYPE,PRESS_HOME] ; ", add_special_tokens=False)["input_ids"]
    assert codec.decode_action((*plan, *codec.encode_action(TAP, SCREEN)), SCREEN) == TAP


def test_what_cannot_be_written_is_refused(directory: Path) -> None:
    codec = tokenizer_of(settings(directory, action_tokens=128))
    for text in ("señor ☃", "two  spaces", "a</s>b"):
        with pytest.raises(PolicyError, match="spelled"):
            codec.encode_action(Action(ActionKind.TYPE, text=text), SCREEN)
    short = tokenizer_of(settings(directory))
    with pytest.raises(PolicyError, match="action_tokens"):
        short.encode_action(TAP, SCREEN)


def test_a_prompt_is_autouis_and_holds_no_special_token_of_others(directory: Path) -> None:
    codec = tokenizer_of(settings(directory, history=1))
    ids = codec.encode_prompt("open </s></</s>s> the <extra_id_0>\nsettings", [TAP, Action(ActionKind.BACK)], SCREEN)
    assert codec.text(ids) == (
        'Previous Actions: "action_type": "PRESS_BACK", "touch_point": "[-1.0, -1.0]", "lift_point": "[-1.0, -1.0]", '
        '"typed_text": "" Goal: open the settings</s>'
    )
    assert ids.count(END) == 1


def test_a_prompt_has_as_many_actions_as_there_is_room_for(directory: Path) -> None:
    codec = tokenizer_of(settings(directory, history=100))
    ids = codec.encode_prompt("open the settings", [TAP] * 100, SCREEN)
    assert 400 < len(ids) <= 512
    assert codec.text(ids).count("DUAL_POINT") < 20
    assert codec.text(ids).endswith("Goal: open the settings</s>")
    with pytest.raises(PolicyError, match="shorten"):
        codec.encode_prompt("settings " * 512, (), SCREEN)


@pytest.mark.parametrize("tied", [False, True])
def test_all_of_its_t5_is_trained_where_it_is_asked_for(tmp_path: Path, tied: bool) -> None:
    directory = base_model(tmp_path, tie_word_embeddings=tied)
    policy = opened(directory, trains="all")
    frozen = {name for name, each in policy.model.named_parameters() if not each.requires_grad}
    assert {name for name in frozen if not name.startswith(("vision.", "fusion."))} == {"t5.shared.weight"}
    assert ("t5.lm_head.weight" in policy.parameters()) == (not tied)
    shipped = policy.adapter()
    other = policy_of(settings(directory, trains="all"))
    assert other.adapter() != shipped
    other.load(shipped)
    assert other.adapter() == shipped
    with pytest.raises(PolicyError, match="adapter"):
        policy_of(settings(directory)).load(shipped)


def test_what_its_whole_t5_has_learned_acts_at_once(tmp_path: Path) -> None:
    """ρ = 1 after a step of an optimiser and after a version was loaded, whose weights are changed in place."""
    directory = base_model(tmp_path)
    policy = opened(directory, trains="all")
    other = policy_of(settings(directory, trains="all"))
    screen, prompt = png(3), policy.tokenizer.encode_prompt("open the settings", (), SCREEN)
    for _ in range(2):
        (acted,) = policy.decide([screen], [prompt], FULL, [1])
        step = factories.step(prompt_ids=prompt, action_ids=acted.action_ids)
        scored = policy.score([step], [policy.image_features(screen)])
        assert scored.logprob.item() == pytest.approx(acted.logprob, abs=1e-4)
        other.load(policy.adapter())
        assert other.decide([screen], [prompt], FULL, [1]) == [acted]
        scored.logprob.sum().backward()
        torch.optim.SGD(policy.parameters().values(), lr=0.05).step()


def test_its_whole_t5_is_not_trained_in_half_precision(directory: Path) -> None:
    with pytest.raises(PolicyError, match="bfloat16"):
        policy_of(settings(directory, trains="all", precision="bfloat16"))


@pytest.mark.parametrize("setting", [{"dialect": "json"}, {"system_prompt": "Act."}, {"chat_template": "{{ 1 }}"}])
def test_settings_that_it_has_no_use_for_are_refused(directory: Path, setting: dict[str, str]) -> None:
    with pytest.raises(PolicyError, match=f"policy.{next(iter(setting))}"):
        policy_of(settings(directory, **setting))


def test_the_identity_is_that_of_the_files_wherever_they_lie(directory: Path, tmp_path: Path) -> None:
    again = base_model(tmp_path)
    assert base_sha256(settings(again)) == base_sha256(settings(directory))
    assert policy_of(settings(directory)).base_sha256 == base_sha256(settings(directory))
    with (again / "vision.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"!")
    assert base_sha256(settings(again)) != base_sha256(settings(directory))


def test_loading_leaves_the_callers_random_numbers_alone(directory: Path) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    policy_of(settings(directory))
    assert torch.equal(before, torch.get_rng_state())


def test_the_full_size_has_about_1_3_billion_parameters() -> None:
    """The paper says 1.3 B (A.5.1): 1.24 B here. Its code also keeps BLIP-2's Q-Former, 0.11 B that nothing reads."""

    def counted(t5: dict[str, Any]) -> dict[str, int]:
        with torch.device("meta"):
            model = described_model(t5, {}, "here")
        assert {each.device.type for each in model.parameters()} == {"meta"}
        parts = {name: sum(each.numel() for each in part.parameters()) for name, part in model.named_children()}
        return parts | {"all": sum(each.numel() for each in model.parameters())}

    base, large = counted(FLAN_BASE), counted(FLAN_LARGE)
    assert base == {"vision": 985_952_256, "fusion": 4_624_896, "t5": 247_577_856, "all": 1_238_155_008}
    assert large["t5"] == 783_150_080
    assert large["all"] == 1_776_841_728


def test_with_an_earlier_frame_ratio_is_one_and_the_words_look_at_both(directory: Path) -> None:
    """Of rows with none, one and two frames before the present one, alone and in a batch."""
    policy, count = opened(directory, history_screens=2), 3
    assert policy.earlier_screens == 2
    asked, seen = prompts(policy, count), shots(count)
    before = [[], [png(7)], [png(8, 120, 80), png(9)]]
    drawn = policy.decide(seen, asked, FULL, range(count), before)
    features = [
        policy.image_features(shot)._replace(earlier=tuple(map(policy.image_features, earlier)))
        for shot, earlier in zip(seen, before, strict=True)
    ]
    steps = steps_of(asked, [each.action_ids for each in drawn])
    together, repeated = policy.score(steps, features), policy.repeat(steps, features, FULL)
    for place, (step, each) in enumerate(zip(steps, drawn, strict=True)):
        (alone,) = policy.decide([seen[place]], [asked[place]], FULL, [place], [before[place]])
        assert alone.action_ids == each.action_ids
        scored_alone = policy.score([step], [features[place]])
        for logprob in (together.logprob[place].item(), scored_alone.logprob.item(), repeated[place]):
            assert np.exp(logprob - each.logprob) == pytest.approx(1.0, abs=1e-4)
    one_frame = opened(directory).score(steps, [each._replace(earlier=()) for each in features])
    apart = (together.logprob - one_frame.logprob).abs()
    assert apart[0] < 1e-5, "a row without earlier frames reads what it would without the setting"
    assert apart[1:].min() > 1e-4
    with pytest.raises(ValueError, match="2 earlier screenshots, 1 are read"):
        opened(directory, history_screens=1).score(steps, features)


def test_two_frames_are_read_as_the_published_attention_reads_them(directory: Path) -> None:
    """The definition, written out for one head: softmax(q k^T / sqrt(d)) over both frames, which have no places."""
    policy = opened(directory)
    fusion = policy.model.get_submodule("fusion")
    torch.manual_seed(4)
    words, frames = torch.randn(2, 5, policy.width), torch.randn(2, 2, SIGHT["hidden_size"])
    shown = torch.tensor([[True, True], [False, True]])
    with torch.no_grad():
        found = fusion(words, frames, shown)
        images = fusion.image_dense(frames)
        weights, biases = (getattr(fusion.mha_layer, f"in_proj_{name}").chunk(3) for name in ("weight", "bias"))
        q, k, v = (x @ w.T + b for x, w, b in zip((words, images, images), weights, biases, strict=True))
        scores = (q @ k.transpose(1, 2) / math.sqrt(policy.width)).masked_fill(~shown[:, None], -math.inf)
        seen = fusion.mha_layer.out_proj(scores.softmax(-1) @ v)
        gate = torch.sigmoid(fusion.gate_dense(torch.cat([words, seen], -1)))
    assert torch.allclose(found, (1 - gate) * words + gate * seen, atol=1e-5)
    assert torch.allclose(fusion(words, frames.flip(1)), fusion(words, frames), atol=1e-5), "in either order"
