"""Vision-language models of four families: what they read, write and learn is exact."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import factories
import numpy as np
import pytest
import torch
from distrl.config import PolicySettings
from distrl.errors import PolicyError
from distrl.policy.protocol import Score
from distrl.policy.registry import base_sha256, policy_of, tokenizer_of
from distrl.policy.sampling import FULL, Sampling
from distrl.policy.screen_cache import ScreenCache
from distrl.policy.screenshot import decoded
from distrl.policy.vlm.policy import VlmPolicy
from distrl.policy.vlm.tokenizer import VlmTokenizer
from distrl.types import Action, ActionKind, Point, ScreenSize, Step
from PIL import Image
from safetensors.torch import load as load_tensors

from policy.conftest import png
from policy.vlm.models import FAMILIES

TAP = Action(ActionKind.TAP, touch=Point(0.25, 0.5))
SIZES = [(64, 128), (120, 80), (300, 150)]
"""Of the screenshots: portrait and landscape in one batch."""


@pytest.fixture(scope="module", params=FAMILIES)
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp(request.param)
    FAMILIES[request.param](made)
    return made


def settings(directory: Path, **more: Any) -> PolicySettings:
    chosen = {"dialect": "json", "action_tokens": 24, "lora_rank": 4, "system_prompt": "Act."} | more
    return PolicySettings(base_model=directory, **chosen)


@pytest.fixture(scope="module")
def policy(directory: Path) -> VlmPolicy:
    made = policy_of(settings(directory))
    assert isinstance(made, VlmPolicy)
    shake(made, 1)
    return made


def shake(policy: VlmPolicy, seed: int) -> None:
    """Weights that matter, as training would give."""
    torch.manual_seed(seed)
    with torch.no_grad():
        for parameter in policy.parameters().values():
            parameter.add_(torch.randn_like(parameter) * 0.1)


def shots(count: int) -> list[bytes]:
    return [png(place, *SIZES[place % len(SIZES)]) for place in range(count)]


def prompts(policy: VlmPolicy, count: int) -> list[tuple[int, ...]]:
    """Of several lengths."""
    return [
        policy.tokenizer.encode_prompt(
            "open the settings " * (1 + place), [TAP] * place, ScreenSize(*SIZES[place % len(SIZES)])
        )
        for place in range(count)
    ]


def steps_of(prompts: Sequence[tuple[int, ...]], actions: Sequence[tuple[int, ...]]) -> list[Step]:
    return [factories.step(prompt_ids=p, action_ids=a) for p, a in zip(prompts, actions, strict=True)]


def scored(policy: VlmPolicy, steps: Sequence[Step], sampling: Sampling = FULL) -> Score:
    return policy.score(steps, [policy.image_features(shot) for shot in shots(len(steps))], sampling)


def test_what_sees_is_never_trained_so_that_a_screen_may_be_looked_at_meanwhile(policy: VlmPolicy) -> None:
    modes: dict[torch.nn.Module, bool] = {}
    every = list(policy._model.whole.modules())
    hooks = [
        each.register_forward_pre_hook(lambda module, _: modes.update({module: module.training})) for each in every
    ]
    (prompt,), screen = prompts(policy, 1), png(77, *SIZES[0])
    alone = policy.image_features(screen)
    policy._screens = ScreenCache(1, 0)
    modes.clear()
    with policy.dropout():
        looked = policy.image_features(screen)
        seeing = dict(modes)
        modes.clear()
        policy.score(steps_of([prompt], [policy.tokenizer.encode_action(TAP, ScreenSize(*SIZES[0]))]), [looked])
    for hook in hooks:
        hook.remove()
    assert policy.looks_beside
    assert seeing
    assert not any(seeing.values())
    assert modes
    assert all(modes.values()), "what reads and writes has dropout"
    assert not any(each.training for each in every)
    assert torch.equal(looked.tokens, alone.tokens)


@pytest.mark.parametrize("sampling", [Sampling(0.7), FULL, Sampling(1.5), Sampling(0.9, 0.8, 5)])
def test_ratio_is_one_at_equal_weights_alone_and_in_a_batch(policy: VlmPolicy, sampling: Sampling) -> None:
    """ρ of what was drawn in a batch, scored in a batch of other padding and alone, is 1 within 1e-4."""
    asked = prompts(policy, 3)
    drawn = policy.decide(shots(3), asked, sampling, [3, 4, 5])
    assert len({len(each.action_ids) for each in drawn} | {len(each) for each in asked}) > 2, "rows are padded"
    steps = steps_of(asked, [each.action_ids for each in drawn])
    together = scored(policy, steps, sampling)
    for place, (step, each) in enumerate(zip(steps, drawn, strict=True)):
        alone = policy.score([step], [policy.image_features(shots(3)[place])], sampling)
        for logprob in (together.logprob[place], alone.logprob[0]):
            assert np.exp(logprob.item() - each.logprob) == pytest.approx(1.0, abs=1e-4)
        assert each.entropy == pytest.approx(together.entropy[place].item(), abs=1e-4)
        assert torch.allclose(alone.states[0], together.states[place], atol=1e-4)
    assert bool((together.entropy > 0).all())
    assert together.states.shape == (3, 1, policy.width)


def test_draws_depend_on_a_rows_own_seed_alone(policy: VlmPolicy) -> None:
    asked = prompts(policy, 3)
    together = policy.decide(shots(3), asked, FULL, [3, 4, 5])
    alone = policy.decide(shots(3)[1:2], asked[1:2], FULL, [4])
    assert alone[0].action_ids == together[1].action_ids
    assert policy.decide(shots(3)[1:2], asked[1:2], FULL, [9])[0].action_ids != alone[0].action_ids


def test_a_batch_reads_each_token_once_and_ends_with_its_longest_row(policy: VlmPolicy) -> None:
    """Keys and values are kept: after the prompt the model is given one token of each row at a time."""
    asked, (end, *_) = prompts(policy, 3), policy.tokenizer.ends
    steps = steps_of(asked, [(7, end), (7, 8, 9, 7, end), (7, 8, end)])
    features = [policy.image_features(shot) for shot in shots(3)]
    read: list[tuple[int, int]] = []
    hook = policy._model.whole.get_decoder().register_forward_hook(
        lambda decoder, given, made: read.append(tuple(made.last_hidden_state.shape[:2]))
    )
    try:
        together = policy.repeat(steps, features, FULL)
        length = policy._inputs(asked, features)["input_ids"].shape[1]
        assert read == [(3, length), *[(3, 1)] * 4]
        for step, shown, logprob in zip(steps, features, together, strict=True):
            read.clear()
            assert policy.repeat([step], [shown], FULL) == [pytest.approx(logprob, abs=1e-4)]
            assert len(read) == len(step.action_ids)
    finally:
        hook.remove()


def test_a_prompt_is_what_the_models_own_processor_makes_of_it(policy: VlmPolicy) -> None:
    """The placeholder of a recorded prompt, filled by size, gives the very ids of the library for text and picture."""
    processor = policy.tokenizer.processor
    for shot in shots(3):
        picture = decoded(shot)
        fitted = processor.fitted(ScreenSize(*picture.size))
        text = processor._rendered("Act.", "open the settings")
        theirs = processor._processor(
            text=[text], images=[picture.resize(fitted)], return_tensors="pt", add_special_tokens=False
        )
        row = processor.prompt("Act.", "open the settings")
        ours = policy._model.inputs([row], [torch.zeros(1, 1, 1)], [[processor.layout(ScreenSize(*picture.size))]])
        assert ours["input_ids"].tolist() == theirs["input_ids"].tolist()
        assert row.count(processor.marker_id) == 1


def test_cached_features_are_what_the_whole_model_would_have_seen(policy: VlmPolicy) -> None:
    """Logits with image tokens that were computed once, against the library's own pass over pixels."""
    processor, shot = policy.tokenizer.processor, shots(1)[0]
    prompt, action = prompts(policy, 1)[0], (7, 8, 9)
    layout = processor.layout(ScreenSize(*SIZES[0]))
    given = policy._model.inputs([prompt], [policy.image_features(shot).tokens], [[layout]])
    logits, _ = policy._model.scored(given, torch.tensor([action]), torch.tensor([3]))
    pixels = {name: value for name, value in processor.images(decoded(shot)).items() if name in policy._model._takes}
    whole = {name: value for name, value in given.items() if name != "mm_encoder_outputs"}
    ids = torch.cat([given["input_ids"], torch.tensor([action])], dim=1)
    types = {name: policy._model._types(ids) for name in ("mm_token_type_ids", "token_type_ids") if name in given}
    with torch.no_grad():
        theirs = policy._model.whole(
            **{**pixels, **whole, **types, "input_ids": ids, "attention_mask": torch.ones_like(ids)}
        ).logits[:, -4:-1]
    assert torch.allclose(policy._model.allowed(theirs), logits, atol=1e-4)


def test_pictures_are_told_apart_and_never_written(policy: VlmPolicy) -> None:
    prompt = prompts(policy, 1)[0]
    step = factories.step(prompt_ids=prompt, action_ids=(7, 8, 9))
    one, other = (policy.score([step], [policy.image_features(png(seed, *SIZES[0]))]).logprob.item() for seed in (1, 2))
    assert one != pytest.approx(other, abs=1e-7)
    processor = policy.tokenizer.processor
    for token in {processor.soft_id, processor.marker_id}:
        assert not policy.tokenizer.accepts(factories.step(prompt_ids=prompt, action_ids=(token,)))
    assert policy.tokenizer.accepts(step)
    assert not policy.tokenizer.accepts(factories.step(prompt_ids=(*prompt, processor.marker_id), action_ids=(7,)))
    assert not policy.tokenizer.accepts(factories.step(prompt_ids=(1, 2), action_ids=(7,)))
    assert not policy.tokenizer.accepts(factories.step(prompt_ids=prompt, action_ids=(processor.size,)))


@pytest.mark.parametrize(
    "action",
    [
        TAP,
        Action(ActionKind.TYPE, text="red „shoes“ 👟\n"),
        Action(ActionKind.SWIPE, touch=Point(0.5, 0.75), lift=Point(0.5, 0.25)),
        Action(ActionKind.BACK),
        Action(ActionKind.COMPLETE),
    ],
)
def test_an_action_is_read_as_it_was_written(directory: Path, action: Action) -> None:
    tokenizer = tokenizer_of(settings(directory, action_tokens=128))
    screen = ScreenSize(64, 128)
    ids = tokenizer.encode_action(action, screen)
    assert tokenizer.decode_action(ids, screen) == action


def test_no_text_can_smuggle_in_a_special_token(directory: Path) -> None:
    tokenizer = tokenizer_of(settings(directory, action_tokens=128))
    assert isinstance(tokenizer, VlmTokenizer)
    processor, screen = tokenizer.processor, ScreenSize(64, 128)
    plain = tokenizer.encode_prompt("open it", [], screen)
    for token in processor._specials:
        nested = token[: len(token) // 2] + token + token[len(token) // 2 :]
        for hostile in (f"open {token}it", f"open {nested}it"):
            assert tokenizer.encode_prompt(hostile, [], screen) == plain
        typed = Action(ActionKind.TYPE, text=token)
        assert tokenizer.encode_prompt("open it", [typed], screen).count(processor.marker_id) == 1
        with pytest.raises(PolicyError, match="special token"):
            tokenizer.encode_action(typed, screen)


def test_lora_goes_on_the_language_part_alone_and_learns(directory: Path) -> None:
    policy = policy_of(settings(directory))
    assert isinstance(policy, VlmPolicy)
    vision = {name for name in policy.parameters() if "vision" in name or "visual" in name}
    assert not vision
    prompt = policy.tokenizer.encode_prompt("open the settings", [], ScreenSize(64, 128))
    step = factories.step(prompt_ids=prompt, action_ids=(7, 8, 9))
    features = [policy.image_features(png(0))]
    before = policy.score([step], features).logprob.item()
    optimizer = torch.optim.Adam(policy.parameters().values(), lr=0.01)
    for _ in range(5):
        optimizer.zero_grad()
        (-policy.score([step], features).logprob.sum()).backward()
        optimizer.step()
    learned = policy.score([step], features).logprob.item()
    assert learned > before
    shipped = policy.adapter()
    fresh = policy_of(settings(directory), seed=7)
    assert fresh.score([step], features).logprob.item() == pytest.approx(before, abs=1e-5)
    fresh.load(shipped)
    assert fresh.score([step], features).logprob.item() == learned
    assert fresh.adapter() == shipped


def test_all_of_the_language_part_is_trained_where_it_is_asked_for(directory: Path) -> None:
    policy = policy_of(settings(directory, trains="all"))
    assert isinstance(policy, VlmPolicy)
    frozen = {name for name, each in policy._model.whole.named_parameters() if not each.requires_grad}
    assert all(
        "embed_tokens" in name or "vision" in name or "visual" in name or "connector" in name or "projector" in name
        for name in frozen
    ), frozen
    shake(policy, 2)
    shipped = policy.adapter()
    assert load_tensors(shipped).keys() == policy.parameters().keys()
    other = policy_of(settings(directory, trains="all"))
    other.load(shipped)
    assert other.adapter() == shipped
    with pytest.raises(PolicyError, match="adapter"):
        policy_of(settings(directory)).load(shipped)


def test_large_screens_are_scaled_down_in_their_proportions(directory: Path) -> None:
    small = policy_of(settings(directory, max_pixels=2048))
    assert isinstance(small, VlmPolicy)
    processor = small.tokenizer.processor
    assert processor.fitted(ScreenSize(640, 1280)) == ScreenSize(32, 64)
    assert processor.fitted(ScreenSize(20, 40)) == ScreenSize(20, 40)
    assert small.image_features(png(0, 640, 1280)).size == ScreenSize(640, 1280)


def test_the_identity_is_what_the_files_hold(directory: Path, tmp_path: Path) -> None:
    before = base_sha256(settings(directory))
    copied = tmp_path / "copy"
    copied.mkdir()
    for file in directory.iterdir():
        (copied / file.name).write_bytes(file.read_bytes())
    assert base_sha256(settings(copied)) == before
    (copied / "README.md").write_text("read me")
    assert base_sha256(settings(copied)) == before
    (copied / "generation_config.json").rename(copied / "generation_config_.json")
    assert base_sha256(settings(copied)) != before
    (copied / "generation_config_.json").rename(copied / "generation_config.json")
    assert base_sha256(settings(copied)) == before
    (copied / "chat_template.jinja").write_text("{{ messages }}")
    assert base_sha256(settings(copied)) != before


def test_a_screenshot_that_is_none_is_refused(policy: VlmPolicy) -> None:
    with pytest.raises(PolicyError, match="screenshot"):
        policy.image_features(b"no picture")


def test_a_strip_of_a_screen_is_refused_by_who_reads_and_who_writes(policy: VlmPolicy) -> None:
    """The learner skips it, where another error of the library would end it at every start."""
    with pytest.raises(PolicyError, match="1x300"):
        policy.image_features(png(0, 1, 300))
    with pytest.raises(PolicyError, match="300x1"):
        policy.tokenizer.encode_prompt("open it", [], ScreenSize(300, 1))
    assert policy.image_features(png(0, 1, 1)).size == (1, 1)


def test_the_prompt_is_the_same_on_another_day_and_names_what_it_is_told(directory: Path, tmp_path: Path) -> None:
    for file in directory.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    template = tmp_path / "chat_template.jinja"
    template.write_text("{{ strftime_now('%Y-%m-%d %H:%M:%S.%f') }}" + template.read_text())
    tokenizer = tokenizer_of(settings(tmp_path))
    assert "26 Jul 2024" in tokenizer.text(tokenizer.encode_prompt("open it", [], ScreenSize(64, 128)))
    quiet = template.read_text().replace("for m in messages %}", "for m in messages if m.role != 'system' %}")
    template.write_text(quiet)
    tokenizer = tokenizer_of(settings(tmp_path))
    assert "Act." in tokenizer.text(tokenizer.encode_prompt("open it", [], ScreenSize(64, 128)))


def test_text_to_type_that_holds_a_special_token_is_no_action(directory: Path) -> None:
    """No prompt could say later what was typed, and no demonstration can hold it."""
    tokenizer = tokenizer_of(settings(directory, action_tokens=128))
    screen, special = ScreenSize(64, 128), tokenizer.text([tokenizer.ends[0]])
    written = tokenizer._dialect.write(Action(ActionKind.TYPE, text="red SPECIAL shoes"), screen)
    for text, kind in ((written, ActionKind.TYPE), (written.replace("SPECIAL", special), ActionKind.INVALID)):
        ids = (*tokenizer.processor.ids(text), tokenizer.ends[0])
        assert tokenizer.decode_action(ids, screen).kind is kind


def test_added_tokens_that_are_text_are_read_and_written_as_text(directory: Path) -> None:
    """Qwen's calls stand between two of them."""
    tokenizer = tokenizer_of(settings(directory, dialect="qwen25-mobile-use", action_tokens=256, system_prompt=None))
    screen = ScreenSize(64, 128)
    prompt = tokenizer.text(tokenizer.encode_prompt("open it\n\nnow", [Action(ActionKind.BACK)], screen))
    assert prompt.count("<tool_call>") >= 2, "in the instructions, and in the action before"
    assert "open it\n\nnow" in prompt
    ids = tokenizer.encode_action(Action(ActionKind.BACK), screen)
    assert tokenizer.decode_action(ids, screen) == Action(ActionKind.BACK)


def test_an_instruction_without_an_end_is_refused(policy: VlmPolicy) -> None:
    with pytest.raises(PolicyError, match="instruction"):
        policy.tokenizer.encode_prompt("ab " * 9000, [], ScreenSize(64, 128))


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"preprocessor_config.json": None, "processor_config.json": None}, "no image processor"),
        ({"model.safetensors": None}, "no weights as safetensors"),
        ({"generation_config.json": b'{"eos_token_id": "x"}'}, "no token ids"),
        ({"generation_config.json": b'{"eos_token_id": 999999}'}, r"ends an answer \(it names 999999\)"),
        ({"model.safetensors": b"spoilt"}, "weights that cannot be read"),
        ({"adapter_config.json": b"{}"}, "is an adapter"),
        ({"model.safetensors.index.json": b'{"weight_map": {"a": "sub/b.safetensors"}}'}, "do not lie beside it"),
        ({"chat_template.jinja": b"{{ raise_exception('never') }}"}, r"chat template fails \(never\)"),
        ({"chat_template.jinja": b"{{ messages[0].content[0].text }}<image>"}, "leaves out what it is given"),
    ],
)
def test_a_directory_that_is_no_model_is_refused(
    directory: Path, tmp_path: Path, files: dict[str, bytes | None], message: str
) -> None:
    for file in directory.iterdir():
        if file.name not in files:
            (tmp_path / file.name).write_bytes(file.read_bytes())
    for name, content in files.items():
        if content is not None:
            (tmp_path / name).write_bytes(content)
    with pytest.raises(PolicyError, match=message):
        policy_of(settings(tmp_path))


def test_settings_that_name_nothing_are_refused_with_what_there_is(directory: Path) -> None:
    with pytest.raises(PolicyError, match=r"policy\.dialect") as unknown:
        policy_of(settings(directory, dialect="klingon"))
    assert "json" in unknown.value.hint
    with pytest.raises(PolicyError, match=r"policy\.lora_targets") as nowhere:
        policy_of(settings(directory, lora_targets=("nowhere",)))
    assert "q_proj" in nowhere.value.hint


def test_a_blank_screen_is_a_screen(policy: VlmPolicy, tmp_path: Path) -> None:
    """One grey picture has tiles that a model could take for padding."""
    for shade in (0, 127, 128, 255):
        file = tmp_path / "blank.png"
        Image.new("RGB", SIZES[0], (shade,) * 3).save(file)
        assert policy.decide([file.read_bytes()], prompts(policy, 1), None, [0])[0].action_ids
