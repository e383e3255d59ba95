"""The AutoUI family as a policy: what the worker decides with and what the learner differentiates.

Behaviour distribution. Each token is drawn from the distribution of `Sampling` and `logprob` is log μ of exactly that
distribution, summed over the tokens that were drawn. The last place of an action (`AutoUITokenizer.action_length`) is
not drawn: it is always </s>, has probability 1, and counts neither in the log-probability nor in the entropy, here and
in `score`. So at equal weights and equal sampling exp(score − logprob) = 1 up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from distrl.config import PolicySettings
from distrl.errors import PolicyError
from distrl.policy import writing
from distrl.policy.actions import to_text
from distrl.policy.adapters import LoraAdapter
from distrl.policy.autoui.base import Base, load_base
from distrl.policy.autoui.encoder_decoder import EncoderDecoder
from distrl.policy.autoui.t5 import ActingT5
from distrl.policy.autoui.tokenizer import END, PAD, AutoUITokenizer
from distrl.policy.frugal import cast_frozen, recompute_layers
from distrl.policy.full_weights import FullWeights, refuse_half_precision
from distrl.policy.protocol import ImageFeatures, SampledAction, Score
from distrl.policy.sampling import FULL, Choose, Sampling, drawing, repeating, scores
from distrl.policy.screen_cache import ScreenCache
from distrl.policy.screenshot import decoded
from distrl.policy.stacking import stacked, stacked_frames
from distrl.policy.writing import Written
from distrl.types import ScreenSize, Step

CACHED_SCREENS: Final = 256
"""Screens whose image tokens an agent caches: a phone that waits shows the same screen for many steps."""
CACHED_BYTES: Final = 128 << 20
"""Most bytes of them, 12 kB a screen of the shipped model."""


class AutoUIPolicy:
    """A base model of which LoRA on its T5, or all of its T5 but the token embeddings, is trained
    (`distrl.policy.protocol.Policy`). No dropout but within `dropout`."""

    def __init__(self, base: Base, settings: PolicySettings, seed: int = 0) -> None:
        """Takes `base` over: its model is given the adapter. Raises PolicyError for settings that it has no use for."""
        for name in ("dialect", "system_prompt", "chat_template"):
            if getattr(settings, name) is not None:
                raise PolicyError(
                    f"policy.{name}",
                    "is a setting of vision-language models; AutoUI has one prompt and one way to write an action",
                    "leave it unset, or name a vision-language model in policy.base_model",
                )
        self.tokenizer = base.tokenizer
        self.base_sha256 = base.sha256
        self.model = base.model.eval()
        self._earlier_screens = settings.history_screens
        self._precision = torch.float16 if settings.image_precision == "float16" else torch.float32
        refuse_half_precision(settings)
        self._adapter: LoraAdapter | FullWeights
        if settings.trains == "all":
            self._adapter = FullWeights(self.model, self.model.language_parameters(), base.sha256)
        else:
            targets = settings.lora_targets or base.lora_targets
            self._adapter = LoraAdapter(self.model.t5, targets, settings, base.sha256, seed)
        if settings.precision == "bfloat16":
            cast_frozen(self.model.t5, torch.bfloat16)
        self._screens = ScreenCache(CACHED_SCREENS, CACHED_BYTES)
        self._trained = [*self._adapter.parameters().values()]
        self._acting: tuple[tuple[tuple[int, int], ...], ActingT5] | None = None

    @classmethod
    def open(cls, directory: Path, settings: PolicySettings, seed: int = 0) -> AutoUIPolicy:
        """The base model in `directory` with a fresh adapter. Raises PolicyError."""
        return cls(load_base(directory), settings, seed)

    @property
    def width(self) -> int:
        return self.model.width

    @property
    def device(self) -> torch.device:
        return self.model.device

    @property
    def earlier_screens(self) -> int:
        return self._earlier_screens

    @property
    def looks_beside(self) -> bool:
        """Not on a GPU, whose stream and memory the threads would share."""
        return self.device.type == "cpu"

    def place(self, device: torch.device) -> None:
        self.model.to(device)
        self._trained = [*self._adapter.parameters().values()]  # on some devices `to` replaces them

    def save_memory(self) -> bool:
        return recompute_layers(self.model.t5)

    def parameters(self) -> dict[str, nn.Parameter]:
        return self._adapter.parameters()

    def adapter(self) -> bytes:
        return self._adapter.to_bytes()

    def load(self, adapter: bytes) -> None:
        self._adapter.load(adapter)

    @contextmanager
    def dropout(self) -> Iterator[None]:
        self.model.train()
        try:
            yield
        finally:
            self.model.eval()

    def embed_actions(self, actions: Sequence[tuple[int, ...]]) -> Tensor:
        """(B, d) the mean of each action's token embeddings, which are frozen."""
        embed = self.model.t5.shared.weight.detach()
        return torch.stack([embed[list(ids)].float().mean(0) for ids in actions])

    def image_features(self, png: bytes) -> ImageFeatures:
        """Tokens (N, w) of one screenshot, whatever its size, in the precision of the settings."""
        return self._screens.get(png, self._look)

    def _look(self, png: bytes) -> ImageFeatures:
        picture = decoded(png)
        return ImageFeatures(self.model.look(picture).to(self._precision).cpu(), ScreenSize(*picture.size))

    def decide(
        self,
        pngs: Sequence[bytes],
        prompts: Sequence[tuple[int, ...]],
        sampling: Sampling | None,
        seeds: Sequence[int],
        earlier: Sequence[Sequence[bytes]] = (),
    ) -> list[SampledAction]:
        if not len(pngs) == len(prompts) == len(seeds):
            raise ValueError(f"{len(pngs)} screens, {len(prompts)} prompts, {len(seeds)} seeds")
        if not pngs:
            return []
        screens = [
            self.image_features(png)._replace(earlier=tuple(map(self.image_features, before)))
            for png, before in zip(pngs, earlier or [()] * len(pngs), strict=True)
        ]
        written = self._written(screens, prompts, sampling, drawing(sampling, seeds))
        return [self._sampled(row, screen.size) for screen, row in zip(screens, written, strict=True)]

    def repeat(self, steps: Sequence[Step], features: Sequence[ImageFeatures], sampling: Sampling) -> list[float]:
        choices = repeating([step.action_ids for step in steps])
        return [row.logprob for row in self._written(features, [each.prompt_ids for each in steps], sampling, choices)]

    def score(self, steps: Sequence[Step], features: Sequence[ImageFeatures], sampling: Sampling = FULL) -> Score:
        targets = pad([step.action_ids for step in steps]).to(self.device)
        tokens, shown = self._frames(features)
        prompts = pad([step.prompt_ids for step in steps]).to(self.device)
        states, mask = self.model.encode(tokens, prompts, shown=shown)
        drawn = (targets != PAD).float()
        drawn[:, self.tokenizer.action_length - 1 :] = 0.0
        logits = self.model.logits(states, mask, targets)
        return Score(*scores(logits, targets, drawn, sampling), states.float(), mask)

    def _written(
        self,
        screens: Sequence[ImageFeatures],
        prompts: Sequence[tuple[int, ...]],
        sampling: Sampling | None,
        choices: Sequence[Choose],
    ) -> list[Written]:
        tokens, shown = self._frames(screens)
        return write(self.model, self._acting_t5(), self.tokenizer, tokens, prompts, sampling, choices, shown)

    def _frames(self, features: Sequence[ImageFeatures]) -> tuple[Tensor, Tensor | None]:
        """Image tokens and which of them there are, as `EncoderDecoder.encode` takes them."""
        if self._earlier_screens == 0:
            return stacked(features).to(self.device).float(), None
        tokens, shown = stacked_frames(features, self._earlier_screens)
        return tokens.to(self.device).float(), shown.to(self.device)

    def _acting_t5(self) -> ActingT5:
        """Of the weights as they are now: a learner's optimiser changes them in place, `load` and `place`, too."""
        weights = tuple((each.data_ptr(), each._version) for each in self._trained)
        if self._acting is None or self._acting[0] != weights:
            with torch.no_grad():
                self._acting = weights, ActingT5(self.model.t5)
        return self._acting[1]

    def _sampled(self, row: Written, screen: ScreenSize) -> SampledAction:
        action = self.tokenizer.decode_action(row.ids, screen)
        return SampledAction(row.ids, action, to_text(action), row.logprob, row.entropy)


def write(
    model: EncoderDecoder,
    acting: ActingT5,
    tokenizer: AutoUITokenizer,
    features: Tensor,
    prompts: Sequence[tuple[int, ...]],
    sampling: Sampling | None,
    choices: Sequence[Choose],
    shown: Tensor | None = None,
) -> list[Written]:
    """One action for each row (`Policy.decide`), with </s> at its end. acting: of `model`. features: (B, N, w). shown:
    (B, N) of bool, as `EncoderDecoder.encode` takes it."""
    most = tokenizer.action_length - 1
    with torch.no_grad():
        read = model.encode(features, pad(prompts).to(features.device), acting, shown)
        decoder = model.decoder(acting, *read, most)
    rows = writing.write(decoder, ends=(END,), most=most, sampling=sampling, choices=choices)
    return [row if row.ids[-1] == END else row._replace(ids=(*row.ids, END)) for row in rows]


def pad(rows: Sequence[Sequence[int]]) -> Tensor:
    """(B, longest) ids, filled behind with PAD."""
    longest = max(map(len, rows), default=0)
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows], dtype=torch.long)
