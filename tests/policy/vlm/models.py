"""Small random vision-language models of several families, saved as their authors save theirs: weights, tokenizer,
chat template and processor. Nothing is downloaded."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AddedToken, PreTrainedTokenizerFast
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import GotOcr2ImageProcessorPil
from transformers.models.lfm2_vl.image_processing_lfm2_vl import Lfm2VlImageProcessor
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil
from transformers.models.smolvlm.image_processing_pil_smolvlm import SmolVLMImageProcessorPil

TEXT: Final = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
}
"""The weights are spread far: the head of a tied, frozen embedding of 0.02 can make no token likely."""
SIGHT: Final = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 64,
}
SPARE: Final = 13
"""Embeddings of no token, as models have them for round numbers."""
TEXTS: Final = ("<tool_call>", "</tool_call>", "\n\n")
"""Added tokens that are text, as Qwen and Gemma have them."""
CHATML: Final = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% for c in m.content %}"
    "{% if c.type == 'image' %}IMAGE{% else %}{{ c.text }}{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def qwen25(directory: Path, head: int = 8) -> None:
    """Qwen2.5-VL: as many image tokens as the screenshot is large, and places in three dimensions.

    head: width of a head, a multiple of 8. Attention kernels of servers take some widths only.
    """
    image, video, start, end = "<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>"
    words = tokenizer(["<|endoftext|>", "<|im_start|>", "<|im_end|>", start, end, image, video], eos="<|im_end|>")
    words.chat_template = CHATML.replace("IMAGE", f"{start}{image}{end}")
    words.save_pretrained(directory)
    Qwen2VLImageProcessorPil(min_pixels=56 * 56, max_pixels=28 * 28 * 12).save_pretrained(directory)
    rope = {"type": "mrope", "mrope_section": [head // 8, head // 8, head // 4]}
    text = TEXT | {"hidden_size": head * TEXT["num_attention_heads"]}
    sight = {"depth": 1, "hidden_size": 4 * head, "intermediate_size": 64, "num_heads": 2}
    sight["out_hidden_size"] = text["hidden_size"]
    config = transformers.Qwen2_5_VLConfig(
        text_config=dict(**text, vocab_size=len(words) + SPARE, rope_scaling=rope, bos_token_id=None, eos_token_id=2),
        vision_config=dict(**sight, fullatt_block_indexes=[0]),
        **{
            f"{name}_token_id": words.convert_tokens_to_ids(token)
            for name, token in (("image", image), ("video", video))
        },
        vision_start_token_id=words.convert_tokens_to_ids(start),
        vision_end_token_id=words.convert_tokens_to_ids(end),
    )
    save(directory, transformers.Qwen2_5_VLForConditionalGeneration, config, words.eos_token_id)


def smolvlm(directory: Path) -> None:
    """SmolVLM: an image is cut into tiles, whose tokens stand between names of their places."""
    tiles = [f"<row_{row}_col_{column}>" for row in range(1, 5) for column in range(1, 5)]
    marks = {
        "fake_image_token": "<fake_token_around_image>",
        "image_token": "<image>",
        "end_of_utterance_token": "<end_of_utterance>",
        "global_image_token": "<global-img>",
    }
    words = tokenizer(["<|endoftext|>", "<|im_start|>", *marks.values(), *tiles], eos="<end_of_utterance>", named=marks)
    words.chat_template = (
        "<|im_start|>{% for m in messages %}{{ m.role | capitalize }}:{% for c in m.content %}"
        "{% if c.type == 'image' %}<image>{% else %}{{ c.text }}{% endif %}{% endfor %}<end_of_utterance>\n"
        "{% endfor %}{% if add_generation_prompt %}Assistant:{% endif %}"
    )
    words.save_pretrained(directory)
    SmolVLMImageProcessorPil(
        size={"longest_edge": 128}, max_image_size={"longest_edge": 64}, do_image_splitting=True
    ).save_pretrained(directory)
    processor_config(directory, "SmolVLMProcessor", image_seq_len=4)
    config = transformers.SmolVLMConfig(
        image_token_id=words.convert_tokens_to_ids("<image>"),
        scale_factor=2,
        vision_config=dict(**SIGHT, patch_size=16),
        text_config=dict(**TEXT, model_type="llama", vocab_size=len(words) + SPARE, pad_token_id=0),
    )
    save(directory, transformers.SmolVLMForConditionalGeneration, config, words.eos_token_id)


def gemma3(directory: Path) -> None:
    """Gemma 3: blank lines around an image, no system role, a sliding window, image tokens that see each other."""
    marks = {"image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"}
    words = tokenizer(
        ["<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>", *marks.values()], eos="<eos>", named=marks
    )
    words.chat_template = (
        "<bos>{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
        "<start_of_turn>{{ m.role }}\n{% for c in m.content %}"
        "{% if c.type == 'image' %}<start_of_image>{% else %}{{ c.text }}{% endif %}{% endfor %}<end_of_turn>\n"
        "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
    )
    words.save_pretrained(directory)
    Gemma3ImageProcessorPil(size={"height": 64, "width": 64}).save_pretrained(directory)
    processor_config(directory, "Gemma3Processor", image_seq_length=4)
    config = transformers.Gemma3Config(
        mm_tokens_per_image=4,
        image_token_index=words.convert_tokens_to_ids("<image_soft_token>"),
        boi_token_index=words.convert_tokens_to_ids("<start_of_image>"),
        eoi_token_index=words.convert_tokens_to_ids("<end_of_image>"),
        vision_config=dict(**SIGHT, patch_size=16, vision_use_head=False),
        text_config=dict(
            **TEXT,
            vocab_size=len(words) + SPARE,
            head_dim=8,
            sliding_window=64,
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=2,
        ),
    )
    ends = [words.eos_token_id, words.convert_tokens_to_ids("<end_of_turn>")]
    save(directory, transformers.Gemma3ForConditionalGeneration, config, ends)


def internvl(directory: Path) -> None:
    """InternVL: tiles in one run of tokens."""
    marks = {
        "start_image_token": "<img>",
        "end_image_token": "</img>",
        "context_image_token": "<IMG_CONTEXT>",
        "video_token": "<video>",
    }
    words = tokenizer(["<|endoftext|>", "<|im_start|>", "<|im_end|>", *marks.values()], eos="<|im_end|>", named=marks)
    words.chat_template = CHATML.replace("IMAGE", "<IMG_CONTEXT>\n")
    words.save_pretrained(directory)
    GotOcr2ImageProcessorPil(size={"height": 64, "width": 64}, crop_to_patches=True, max_patches=4).save_pretrained(
        directory
    )
    processor_config(directory, "InternVLProcessor", image_seq_length=4)
    sight = dict(SIGHT, image_size=[64, 64], patch_size=[16, 16])
    config = transformers.InternVLConfig(
        image_token_id=words.convert_tokens_to_ids("<IMG_CONTEXT>"),
        image_seq_length=4,
        vision_config=sight,
        text_config=dict(**TEXT, model_type="qwen2", vocab_size=len(words) + SPARE),
    )
    save(directory, transformers.InternVLForConditionalGeneration, config, words.eos_token_id)


def mistral3(directory: Path) -> None:
    """Mistral 3: the whole processor says by how many pixels an image is resized, and its image processor does not."""
    marks = {"image_token": "[IMG]", "image_break_token": "[IMG_BREAK]", "image_end_token": "[IMG_END]"}
    words = tokenizer(["<pad>", "<s>", "</s>", "[INST]", "[/INST]", *marks.values()], eos="</s>", named=marks)
    words.chat_template = (
        "<s>{% for m in messages %}{% if m.role == 'system' %}{{ m.content[0].text }}{% else %}[INST]"
        "{% for c in m.content %}{% if c.type == 'image' %}[IMG]{% else %}{{ c.text }}{% endif %}{% endfor %}[/INST]"
        "{% endif %}{% endfor %}"
    )
    words.save_pretrained(directory)
    PixtralImageProcessorPil(size={"longest_edge": 128}, patch_size={"height": 16, "width": 16}).save_pretrained(
        directory
    )
    processor_config(directory, "PixtralProcessor", patch_size=16, spatial_merge_size=2)
    config = transformers.Mistral3Config(
        image_token_index=words.convert_tokens_to_ids("[IMG]"),
        spatial_merge_size=2,
        vision_feature_layer=-1,
        vision_config=dict(**SIGHT | {"image_size": 128}, model_type="pixtral", patch_size=16, head_dim=16),
        text_config=dict(**TEXT, model_type="mistral", head_dim=8, vocab_size=len(words) + SPARE, sliding_window=None),
    )
    save(directory, transformers.Mistral3ForConditionalGeneration, config, words.eos_token_id)


def paligemma(directory: Path) -> None:
    """PaliGemma: the tokens of a prompt read all of it, and token types say where the answer begins."""
    words = tokenizer(["<pad>", "<eos>", "<bos>", "<image>"], eos="<eos>", named={"image_token": "<image>"})
    words.bos_token = "<bos>"
    words.chat_template = (
        "{% for m in messages %}{% for c in m.content %}{% if c.type == 'image' %}<image>{% else %}{{ c.text }}"
        "{% endif %}{% endfor %}\n{% endfor %}"
    )
    words.save_pretrained(directory)
    pictures = SiglipImageProcessorPil(size={"height": 64, "width": 64})
    pictures.image_seq_length = 16
    pictures.save_pretrained(directory)
    processor_config(directory, "PaliGemmaProcessor")
    config = transformers.PaliGemmaConfig(
        image_token_index=words.convert_tokens_to_ids("<image>"),
        projection_dim=32,
        hidden_size=32,
        vision_config=dict(
            **SIGHT, patch_size=16, model_type="siglip_vision_model", projection_dim=32, vision_use_head=False
        ),
        text_config=dict(
            **TEXT,
            model_type="gemma",
            head_dim=8,
            vocab_size=len(words) + 1300,  # the processor adds tokens of places
            pad_token_id=0,
            eos_token_id=1,
            bos_token_id=2,
        ),
    )
    save(directory, transformers.PaliGemmaForConditionalGeneration, config, words.eos_token_id)


def lfm2_vl(directory: Path) -> None:
    """LFM2-VL: an image processor that the library has for torchvision alone."""
    marks = {
        "image_token": "<image>",
        "image_start_token": "<|image_start|>",
        "image_end_token": "<|image_end|>",
        "image_thumbnail_token": "<|img_thumbnail|>",
    }
    words = tokenizer(["<|pad|>", "<|im_start|>", "<|im_end|>", *marks.values()], eos="<|im_end|>", named=marks)
    words.chat_template = CHATML.replace("IMAGE", "<image>")
    words.save_pretrained(directory)
    Lfm2VlImageProcessor(
        downsample_factor=2,
        tile_size=64,
        max_image_tokens=16,
        min_image_tokens=4,
        encoder_patch_size=16,
        max_num_patches=64,
        do_image_splitting=False,
    ).save_pretrained(directory)
    processor_config(directory, "Lfm2VlProcessor")
    config = transformers.Lfm2VlConfig(
        image_token_id=words.convert_tokens_to_ids("<image>"),
        downsample_factor=2,
        projector_hidden_size=32,
        vision_config=dict(
            **{name: value for name, value in SIGHT.items() if name != "image_size"},
            model_type="siglip2_vision_model",
            patch_size=16,
            num_patches=64,
        ),
        text_config=dict(
            **TEXT,
            model_type="lfm2",
            vocab_size=len(words) + SPARE,
            layer_types=["conv", "full_attention"],
            conv_L_cache=3,
            block_auto_adjust_ff_dim=False,
        ),
    )
    save(directory, transformers.Lfm2VlForConditionalGeneration, config, words.eos_token_id)


FAMILIES: Final[dict[str, Callable[[Path], None]]] = {
    each.__name__: each for each in (qwen25, smolvlm, gemma3, internvl)
}


def tokenizer(specials: Sequence[str], *, eos: str, named: dict[str, str] | None = None) -> PreTrainedTokenizerFast:
    """Bytes in pairs, learned from a line; specials: the first pads."""
    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    line = (
        'Instruction: open the settings\nActions so far:\n1. {"action": "tap", "point": [500, 250]}\n'
        '2. {"action": "swipe", "from": [750, 500], "to": [250, 500]}\n3. {"action": "type", "text": "red shoes"}\n'
        '4. {"action": "enter"}\n5. {"action": "back"}\n6. {"action": "home"}\n7. {"action": "complete"}\n\n'
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=list(specials), initial_alphabet=alphabet)
    found.train_from_iterator([line] * 50, trainer)
    made = PreTrainedTokenizerFast(
        tokenizer_object=found,
        eos_token=eos,
        pad_token=specials[0],
        additional_special_tokens=[each for each in specials if each != eos],
        extra_special_tokens=named or {},
    )
    made.add_tokens([AddedToken(each, special=False, normalized=False) for each in TEXTS])
    return made


def processor_config(directory: Path, name: str, **values: int) -> None:
    (directory / "processor_config.json").write_text(json.dumps({"processor_class": name, **values}))


def save(directory: Path, kind: Any, config: Any, ends: int | list[int]) -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = kind(config)
        for each in model.parameters():
            if not each.any() and each.dim() > 1:  # Gemma's projector, which would show nothing of any picture
                torch.nn.init.normal_(each, std=0.1)
    settings = {"eos_token_id": ends, "repetition_penalty": 1.3, "do_sample": True, "top_k": 3, "temperature": 0.1}
    model.generation_config = transformers.GenerationConfig(**settings)  # what models recommend for chats
    model.save_pretrained(directory)
