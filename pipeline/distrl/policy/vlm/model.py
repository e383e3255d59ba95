"""A vision-language model of the library: a frozen part that sees, and a language part that reads and writes.

Image tokens are computed once for each screenshot and handed to the model as `mm_encoder_outputs`, the library's own
way in for them, so that no architecture needs code here. Symbols: B rows, T action tokens, V vocabulary, d width.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import torch
from PIL import Image
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoModelForImageTextToText, GenerationConfig
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils import logging

from distrl.errors import PolicyError
from distrl.policy.files import CONFIG, HINT
from distrl.policy.frugal import cast_frozen
from distrl.policy.vlm.processor import PROBE, Layout, Processor
from distrl.types import ScreenSize

IMPOSSIBLE: Final = -1e9
"""Logit of tokens that stand for pictures: one in an action would be taken for a second screenshot. Also of ids that
the tokenizer does not have, which models have to fill up their embeddings."""
UNREADABLE: Final = (
    *(OSError, ValueError, ImportError, RuntimeError, AttributeError, TypeError, LookupError),
    SafetensorError,
)
"""What the library raises for a directory that holds something else."""
INCOMPLETE: Final = "download the model again, all of its files, or save it again with `save_pretrained`"
PHONE: Final = ScreenSize(1080, 2400)
"""Larger than what processors leave whole: one that cuts or merges patches does so here."""
PROBE_TEXT: Final = '{"action": "tap"}'
PROBE_TOKENS: Final = 3
"""Of that text, written and scored at the start."""
MOST_DIFFERENCE: Final = 1e-2
"""Nats between a token's log-probability as it is written and as it is scored, in float32, which the start-up check
computes in whatever policy.precision is. Rounding made up to 2e-6 in random models of ten kinds, 2e-5 in Qwen3.5's
linear attention."""
TYPES: Final = ("mm_token_type_ids", "token_type_ids")
"""Names under which models ask which tokens are an image's."""


def _not_loaded(directory: Path, error: Exception) -> PolicyError:
    """What is wrong with a directory for which the library raised `error`."""
    if isinstance(error, SafetensorError):
        return PolicyError(str(directory), f"has weights that cannot be read ({error!s:.200})", INCOMPLETE)
    if isinstance(error, OSError):
        return PolicyError(str(directory), f"lacks a file, or one cannot be read ({error!s:.200})", INCOMPLETE)
    if isinstance(error, RuntimeError) and "mismatched" in str(error):
        what = f"has weights of other shapes than a model of its {CONFIG}"
        return PolicyError(str(directory), what, f"put the {CONFIG} of this very model beside its weights")
    return PolicyError(str(directory), f"is no vision-language model ({error!r:.200})", HINT)


class VisionLanguageModel:
    """Frozen but for what an adapter trains. Raises PolicyError where the directory has no such model."""

    def __init__(self, directory: Path, processor: Processor) -> None:
        self._where = str(directory)
        cast(Any, logging).disable_progress_bar()  # a bar in the log of a pod is noise
        try:
            library: Any = AutoModelForImageTextToText
            self.whole, found = library.from_pretrained(
                directory,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=True,
                dtype=torch.float32,
                output_loading_info=True,
            )
        except UNREADABLE as error:
            raise _not_loaded(directory, error) from None
        if absent := sorted(found["missing_keys"]):
            # the library would draw them at random, in each process others
            raise PolicyError(
                str(directory), f"its weights lack {len(absent)} of its parameters ({absent[0]:.100})", INCOMPLETE
            )
        _copy_weights(self.whole)
        # What is drawn is ours to say: a penalty of the model's own would make it another distribution than is scored
        self.whole.generation_config = cast(Any, GenerationConfig)()
        self.whole.requires_grad_(False)
        self.whole.eval()
        self._processor = processor
        self._takes = frozenset(inspect.signature(self.whole.forward).parameters)
        if "mm_encoder_outputs" not in self._takes:
            raise PolicyError(
                str(directory),
                f"{type(self.whole).__name__} cannot be given image tokens that are computed once",
                "name a model of another kind, or install a newer version of transformers",
            )
        if self.embeddings.num_embeddings < processor.size:
            raise PolicyError(
                str(directory),
                f"its tokenizer has {processor.size} tokens, and the model {self.embeddings.num_embeddings} embeddings",
                "resize the model's embeddings and save it again",
            )
        self._forbidden = torch.tensor(processor.undrawn(self.whole.get_output_embeddings().weight.shape[0]))
        self.dtype = torch.float32
        """What it computes in."""
        self._multimodal_places = hasattr(self.whole.model, "get_rope_index")
        """Whether places in a prompt are the model's own affair; others are counted from the first real token."""
        self._in_parts = False
        """Whether it takes the tokens of several images as several tensors."""
        self._sight: frozenset[nn.Module] = frozenset()
        """The modules that see, where none of them reads."""
        try:
            self._probe()
        except UNREADABLE as error:
            raise PolicyError(
                str(directory),
                f"{type(self.whole).__name__} cannot take what the processor makes of a screenshot ({error!r:.200})",
                "put the processor's files of this very model beside its weights",
            ) from None

    @property
    def embeddings(self) -> nn.Embedding:
        return cast(nn.Embedding, self.whole.get_input_embeddings())

    @property
    def sees_apart(self) -> bool:
        """Whether what looks at images takes no part in reading and writing, so that both may run side by side."""
        return bool(self._sight)

    @contextmanager
    def dropout(self) -> Iterator[None]:
        """Dropout in all but what sees, which stays as it is: another thread may be looking at an image."""
        for module in self.whole.modules():
            if module not in self._sight:
                module.training = True
        try:
            yield
        finally:
            self.whole.eval()

    @property
    def width(self) -> int:
        return self.embeddings.embedding_dim

    @property
    def device(self) -> torch.device:
        return self.embeddings.weight.device

    def place(self, device: torch.device) -> None:
        self.whole.to(device)
        self._forbidden = self._forbidden.to(device)

    def compute_in(self, dtype: torch.dtype) -> None:
        """From now on with frozen weights of that type."""
        cast_frozen(self.whole, dtype)
        self.dtype = dtype

    def language_parameters(self) -> dict[str, nn.Parameter]:
        return language_parameters(self.whole)

    def image_tokens(self, images: Mapping[str, Tensor]) -> Tensor:
        """(levels or tiles, N, d) of one image. images: as `Processor.images`."""
        found = self._look(images)
        if not self._in_parts:
            return cast(Tensor, found.pooler_output)
        deeper = getattr(found, "deepstack_features", None) or ()
        return torch.stack([torch.cat(list(each)) for each in (found.pooler_output, *deeper)])

    def inputs(
        self, rows: Sequence[Sequence[int]], tokens: Sequence[Tensor], layouts: Sequence[Sequence[Layout]]
    ) -> dict[str, Any]:
        """What `forward` and `generate` take for prompts, filled before to one length.

        tokens: of every image, row after row. layouts: of the images of each row. Raises PolicyError for another number
        of images than the prompts have placeholders.
        """
        expanded = [self._processor.filled(row, some) for row, some in zip(rows, layouts, strict=True)]
        longest = max(map(len, expanded))
        ids = torch.zeros((len(expanded), longest), dtype=torch.long)
        mask = torch.zeros_like(ids)
        for place, row in enumerate(expanded):
            ids[place, longest - len(row) :] = torch.tensor(row)
            mask[place, longest - len(row) :] = 1
        shown = [layout for some in layouts for layout in some]
        given: dict[str, Any] = {name: torch.cat([each.inputs[name] for each in shown]) for name in shown[0].inputs}
        given |= {name: self._types(ids) for name in TYPES if name in self._takes} | {
            "input_ids": ids,
            "attention_mask": mask,
        }
        placed = {name: value.to(self.device) for name, value in given.items()}
        return placed | {"mm_encoder_outputs": {"image": self._seen(tokens)}}

    def scored(self, given: Mapping[str, Any], actions: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, V) the logits of each action token given those before it, and (B, d) the state at the prompt's end.

        given: `inputs`. actions: (B, T) ids, of which the first `lengths` of each row count.
        """
        length, prompt = actions.shape[1], given["input_ids"].shape[1]
        ids = torch.cat([given["input_ids"], actions], dim=1)
        counted = (torch.arange(length, device=lengths.device) < lengths[:, None]).long()
        mask = torch.cat([given["attention_mask"], counted], dim=1)
        more = {name: self._types(ids) for name in TYPES if name in given}
        if not self._multimodal_places:
            more["position_ids"] = (mask.cumsum(-1) - 1).clamp(min=0)
        states: list[Tensor] = []
        # not by output_hidden_states, which would hold what every layer made
        hook = self.whole.get_decoder().register_forward_hook(lambda *call: states.append(call[2].last_hidden_state))
        try:
            found = self.whole(
                **{**given, **more, "input_ids": ids, "attention_mask": mask},
                logits_to_keep=length + 1,
                use_cache=False,
            )
        finally:
            hook.remove()
        return self.allowed(found.logits[:, :-1].float()), states[0][:, prompt - 1].float()

    def allowed(self, logits: Tensor) -> Tensor:
        """(…, V) logits, of which those of pictures and of no token are never drawn."""
        return logits.index_fill(-1, self._forbidden, IMPOSSIBLE)

    def _probe(self) -> None:
        """Read a blank screenshot and write after it, as for each decision: a directory with files of two models fails
        here, and not during a run."""
        images = self._processor.images(Image.new("RGB", PROBE))
        with _running(self.whole) as seeing:
            self._in_parts = not isinstance(self._look(images).pooler_output, Tensor)
        layout, tokens = self._processor.layout(PROBE), self.image_tokens(images)
        given = self.inputs([self._processor.prompt("Act.", "Go on.")], [tokens], [[layout]])
        with torch.no_grad(), _running(self.whole) as reading:
            self.scored(given, torch.zeros((1, 1), dtype=torch.long), torch.ones(1, dtype=torch.long))
        sight = frozenset(part for module in seeing for part in module.modules())
        self._sight = frozenset() if sight & reading else sight
        self._refuse_other_counts()
        self._refuse_other_scores(given)

    def _refuse_other_counts(self) -> None:
        """Raises ValueError where a phone's screenshot has another number of tokens than its prompt has places: some
        processors count by one rule and cut an image by another, which agree for small images."""
        made = self.image_tokens(self._processor.images(Image.new("RGB", PHONE)))
        count = made.shape[1] if self._in_parts else made.numel() // made.shape[-1]
        places = self._processor.layout(PHONE).ids.count(self._processor.soft_id)
        if count != places:
            raise ValueError(f"{count} tokens of a screenshot of {PHONE.width}x{PHONE.height} for {places} places")

    def _refuse_other_scores(self, given: Mapping[str, Any]) -> None:
        """Raises PolicyError where tokens have another probability when they are scored than when they are written.

        A model may let each token of a prompt see the later ones, and take an action for a part of the prompt: every
        ratio would be wrong. (PaliGemma does, for which token type 0 is a prompt's and 1 is an answer's.)
        """
        ids = list(self._processor.ids(PROBE_TEXT)[:PROBE_TOKENS])
        length, prompt = len(ids), given["input_ids"].shape[1]
        with torch.no_grad():
            written = self.whole.generate(
                **given,
                generation_config=cast(Any, GenerationConfig)(
                    do_sample=False,
                    max_new_tokens=length,
                    use_cache=True,
                    output_logits=True,
                    return_dict_in_generate=True,
                ),
                prefix_allowed_tokens_fn=lambda _, read: [ids[len(read) - prompt]],
            )
            actions = torch.tensor([ids])
            scored, _ = self.scored(given, actions, torch.tensor([length]))
        logits = self.allowed(torch.stack(written.logits, dim=1).float())
        both = (each.log_softmax(-1).gather(-1, actions[..., None]) for each in (logits, scored))
        difference = float(torch.sub(*both).abs().max())
        if not math.isfinite(difference):
            raise PolicyError(self._where, "computes numbers that are not finite: its weights are damaged", INCOMPLETE)
        if difference > MOST_DIFFERENCE:
            raise PolicyError(
                self._where,
                f"{type(self.whole).__name__} gives a token another probability when it is scored with those after it "
                f"than when it is written (log-probabilities differ by {difference:.3g} nats): ratios would be wrong",
                "name a model in which no token of an answer reads later ones (docs/policies.md)",
            )

    def _look(self, images: Mapping[str, Tensor]) -> Any:
        see = self.whole.model.get_image_features
        known = inspect.signature(see).parameters
        with torch.no_grad():
            return see(
                **{name: self._given(value) for name, value in images.items() if name in known}, return_dict=True
            )

    def _given(self, value: Any) -> Any:
        """On the model's device, and in its type where it is a picture."""
        if not isinstance(value, Tensor):
            return value
        return value.to(self.device, self.dtype) if value.is_floating_point() else value.to(self.device)

    def _types(self, ids: Tensor) -> Tensor:
        """1 at an image's tokens."""
        return (ids == self._processor.soft_id).long()

    def _seen(self, tokens: Sequence[Tensor]) -> Any:
        floats, output = [each.to(self.device, self.dtype) for each in tokens], cast(Any, BaseModelOutputWithPooling)
        if not self._in_parts:
            return output(pooler_output=torch.cat(floats))
        found = output(pooler_output=tuple(each[0] for each in floats))
        if floats[0].shape[0] > 1:
            levels = range(1, floats[0].shape[0])
            found["deepstack_features"] = [[each[level] for each in floats] for level in levels]
        return found


def _copy_weights(module: nn.Module) -> None:
    """Into memory of this process alone: the library maps the file of weights that need no conversion, so that who
    writes to it would change those of a running policy."""
    for each in (*module.parameters(), *module.buffers()):
        each.data = each.data.clone()


@contextmanager
def _running(whole: nn.Module) -> Iterator[set[nn.Module]]:
    """The modules of `whole` that run within."""
    found: set[nn.Module] = set()
    hooks = [module.register_forward_pre_hook(lambda module, _: found.add(module)) for module in whole.modules()]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def language_layers(whole: Any) -> dict[str, nn.Linear]:
    """The linear layers of a model's language part by their names in the whole model, without the head."""
    inside = {id(module) for module in whole.get_decoder().modules()}
    return {
        name: module for name, module in whole.named_modules() if isinstance(module, nn.Linear) and id(module) in inside
    }


def language_parameters(whole: Any) -> dict[str, nn.Parameter]:
    """All of a model's language part and its head, but the token embeddings, by their names in the whole model."""
    mine = {id(each) for part in (whole.get_decoder(), whole.get_output_embeddings()) for each in part.parameters()}
    mine.discard(id(whole.get_input_embeddings().weight))
    return {name: each for name, each in whole.named_parameters() if id(each) in mine}
