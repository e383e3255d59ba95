"""The memory that a base model takes, computed from shapes: nothing is loaded, and no weight has memory.

The model is made on torch's meta device, whose tensors have shapes and no numbers, and one row is run through it as
`Policy.score` runs it. What autograd then keeps for the gradients is counted, storage by storage, without parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from transformers import AutoConfig, AutoModelForImageTextToText

from distrl.config import PolicySettings
from distrl.errors import PolicyError
from distrl.policy.adapters import LoraAdapter
from distrl.policy.autoui.base import LORA_TARGETS as TINY_TARGETS
from distrl.policy.autoui.directory import FORMAT as TINY
from distrl.policy.autoui.directory import tokenizer
from distrl.policy.autoui.encoder_decoder import EncoderDecoder
from distrl.policy.autoui.model import AutoUIModel, Shape
from distrl.policy.autoui_t5.base import LORA_TARGETS as T5_TARGETS
from distrl.policy.autoui_t5.base import described_model
from distrl.policy.autoui_t5.directory import FORMAT as PAPERS
from distrl.policy.autoui_t5.model import AutoUIT5
from distrl.policy.autoui_t5.tokenizer import PROMPT_LENGTH
from distrl.policy.files import CONFIG, parsed, read
from distrl.policy.full_weights import FullWeights
from distrl.policy.vlm.model import language_layers, language_parameters
from distrl.policy.vlm.targets import lora_targets

FLOAT: Final = 4
"""Bytes of a float32, in which everything is computed."""
MOMENTS: Final = 2
"""Numbers that AdamW holds for each trained one."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of one base model. Bytes are of float32; activations and cache are of one row.

    seeing: parameters of the frozen part whose output is kept, once for a screenshot. trained: parameters of the
    adapter. reload: bytes of a published version.
    """

    parameters: int
    seeing: int
    trained: int
    reload: int
    activations: int
    cache: int

    @property
    def weights(self) -> int:
        return FLOAT * self.parameters

    @property
    def learned(self) -> int:
        """Bytes of gradients and moments."""
        return FLOAT * (1 + MOMENTS) * self.trained

    def step(self, rows: int) -> int:
        """Bytes of a gradient step on a shard of `rows` rows, without critics, buffers and what kernels take."""
        return self.weights + self.learned + rows * self.activations

    def acting(self, rows: int) -> int:
        """Bytes of deciding `rows` actions at once."""
        return self.weights + rows * self.cache


def sizes_of(model: Path, settings: PolicySettings, prompt: int, action: int) -> Sizes:
    """Of a base model's directory, or of its config.json alone.

    prompt, action: tokens of a row; those of its screenshots count in `prompt`. The paper's AutoUI reads at most
    PROMPT_LENGTH of them, and the tiny one has numbers of its own. Raises PolicyError.
    """
    file = model / CONFIG if model.is_dir() else model
    with torch.device("meta"):
        return _sizes_of(file, parsed(read(file), file), settings, prompt, action)


def _sizes_of(file: Path, found: dict[str, Any], settings: PolicySettings, prompt: int, action: int) -> Sizes:
    if found.get("format") == PAPERS:
        papers = described_model(found.get("t5") or {}, found.get("vision") or {}, str(file))
        return _encoder_decoder(papers, settings, min(prompt, PROMPT_LENGTH), action, T5_TARGETS)
    if found.get("format") == TINY:
        tiny, words = _tiny(found, file), tokenizer(found, file.parent)
        rows, columns = tiny.shape.grid
        return _encoder_decoder(tiny, settings, rows * columns + words.prompt_length, words.action_length, TINY_TARGETS)
    if "format" in found:
        raise PolicyError(
            str(file),
            f"is of format {found['format']!r:.60}, whose sizes are not computed",
            f"name a model of {TINY}, of {PAPERS} or of Hugging Face; a recurrent Q's eyes are in its `autoui`",
        )
    return _vision_language(file, settings, prompt, action)


def _tiny(config: dict[str, Any], file: Path) -> AutoUIModel:
    try:
        return AutoUIModel(Shape(**{**config["shape"], "tower": tuple(config["shape"]["tower"])}))
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise _no_model(file, error) from None


def _encoder_decoder(
    model: EncoderDecoder, settings: PolicySettings, prompt: int, action: int, usual: tuple[str, ...]
) -> Sizes:
    t5, width, whole = model.t5, model.width, _count(model.parameters())
    keys = {name: each.out_features for name, each in t5.decoder.named_modules() if _is_key_or_value(name, each)}
    cache = sum(size * (action if "SelfAttention" in name else prompt) for name, size in keys.items())
    trained: LoraAdapter | FullWeights
    if settings.trains == "all":
        trained = FullWeights(model, model.language_parameters(), "0" * 64)
    else:
        trained = LoraAdapter(t5, settings.lora_targets or usual, settings, "0" * 64, 0)
    model.requires_grad_(False)
    _train(trained.parameters().values())

    def run() -> Tensor:
        mask = torch.zeros(1, 1, prompt, prompt)
        words = torch.empty(1, prompt, width)
        states = t5.encoder(inputs_embeds=words, attention_mask=mask).last_hidden_state
        if isinstance(model, AutoUIT5):
            states = model.fusion(states, torch.empty(1, 1, model.vision.config.hidden_size))
        return _decoded(t5, states, action)

    return Sizes(
        whole,
        _count(cast(nn.Module, model.vision).parameters()),
        _count(trained.parameters().values()),
        _reload(trained),
        _activations(run, [*model.parameters()]),
        FLOAT * cache,
    )


def _decoded(t5: Any, states: Tensor, action: int) -> Tensor:
    ids = torch.zeros(1, action, dtype=torch.long)
    found = t5.decoder(
        inputs_embeds=t5.shared(ids),
        encoder_hidden_states=states,
        attention_mask=torch.zeros(1, 1, action, action),
        encoder_attention_mask=torch.zeros(1, 1, action, states.shape[1]),
        use_cache=False,
    )
    return cast(Tensor, t5.lm_head(found.last_hidden_state))


def _vision_language(file: Path, settings: PolicySettings, prompt: int, action: int) -> Sizes:
    config: Any = cast(Any, AutoConfig)
    library: Any = AutoModelForImageTextToText
    try:
        described = config.from_pretrained(file, local_files_only=True, trust_remote_code=False)
        whole = library.from_config(described, trust_remote_code=False)
    except Exception as error:  # the library checks settings with errors of its own
        raise _no_model(file, error) from None
    parameters, language = _count(whole.parameters()), language_layers(whole)
    head, inside = whole.get_output_embeddings(), whole.get_decoder()
    spoken = {id(each): each for part in (inside, head) for each in part.parameters()}
    trained: LoraAdapter | FullWeights
    if settings.trains == "all":
        trained = FullWeights(whole, language_parameters(whole), "0" * 64)
    else:
        trained = LoraAdapter(whole, lora_targets(whole, settings.lora_targets), settings, "0" * 64, 0)
    _train(trained.parameters().values())
    length = prompt + action
    keys = sum(each.out_features for name, each in language.items() if _is_key_or_value(name, each))

    def run() -> Tensor:
        places = torch.arange(length)[None]
        states = inside(
            inputs_embeds=torch.empty(1, length, inside.config.hidden_size),
            attention_mask=torch.zeros(1, 1, length, length),
            position_ids=places.expand(3, 1, length) if hasattr(whole.model, "get_rope_index") else places,
            use_cache=False,
        ).last_hidden_state
        return cast(Tensor, head(states[:, -action - 1 : -1]))

    return Sizes(
        parameters,
        parameters - _count(spoken.values()),
        _count(trained.parameters().values()),
        _reload(trained),
        _activations(run, [*whole.parameters()]),
        FLOAT * keys * length,
    )


def _activations(run: Callable[[], Tensor], parameters: Iterable[nn.Parameter]) -> int:
    """Bytes that autograd keeps for the gradients of log π and entropy of the logits (1, T, V) that `run` gives."""
    constant = {each.untyped_storage()._cdata for each in parameters}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage()._cdata not in constant:
            kept[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor), _FusedAttention():
        logp = run().log_softmax(-1)
        scored = logp[..., 0].sum() - (logp.exp() * logp).sum()
    assert scored.requires_grad, "nothing is trained"
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


class _Attention(torch.autograd.Function):
    """Keeps what a fused kernel keeps: queries, keys, values, the result, and a number for each row of scores. Masks,
    which all layers share, are left out."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        found = query.new_empty(*query.shape[:-1], value.shape[-1])
        ctx.save_for_backward(query, key, value, found, query.new_empty(query.shape[:-1]))
        return found


class _FusedAttention(TorchFunctionMode):
    """Attention as the kernels of processors and GPUs do it; on the meta device torch would keep all scores."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is torch.nn.functional.scaled_dot_product_attention:
            return cast(Any, _Attention).apply(*args[:3])
        return function(*args, **(kwargs or {}))


def _reload(trained: LoraAdapter | FullWeights) -> int:
    """Bytes of a version. Those of an adapter are written, with zeros for weights; a whole language part is not."""
    if isinstance(trained, FullWeights):
        return FLOAT * _count(trained.parameters().values())
    return trained.size()


def _train(parameters: Iterable[nn.Parameter]) -> None:
    for each in parameters:
        each.requires_grad_(True)


def _is_key_or_value(name: str, layer: nn.Module) -> bool:
    return isinstance(layer, nn.Linear) and name.rpartition(".")[2] in ("k", "v", "k_proj", "v_proj")


def _count(parameters: Iterable[nn.Parameter]) -> int:
    return sum(each.numel() for each in parameters)


def _no_model(file: Path, error: Exception) -> PolicyError:
    return PolicyError(
        str(file), f"describes no model that can be sized ({error!r:.200})", "name a base model's config.json"
    )
