"""The agent: a vision-language model that acts by writing text, and is scored on the very tokens that it wrote."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

import numpy as np
import torch
from torch import Tensor, nn
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from distrl.config import PolicySettings
from distrl.policy.actions import to_text
from distrl.policy.adapters import LoraAdapter
from distrl.policy.frugal import recompute_layers
from distrl.policy.full_weights import FullWeights, refuse_half_precision
from distrl.policy.protocol import ImageFeatures, SampledAction, Score
from distrl.policy.sampling import FULL, Choose, Sampling, drawing, drawn_from, entropies, repeating, scores
from distrl.policy.screen_cache import ScreenCache
from distrl.policy.screenshot import decoded
from distrl.policy.vlm.model import VisionLanguageModel
from distrl.policy.vlm.targets import lora_targets
from distrl.policy.vlm.tokenizer import VlmTokenizer
from distrl.policy.writing import Written
from distrl.types import ScreenSize, Step

CACHED_SCREENS: Final = 16
"""Screenshots whose tokens are kept, for each of a decision: a phone often shows the same screen twice in a row, and
those before the present one have been read before."""
CACHED_BYTES: Final = 1 << 30
"""Most bytes of them: a phone's screenshot takes over 200 MB where a large model looks closely, in float32."""


class VlmPolicy:
    """`distrl.policy.protocol.Policy`. Its critics read one state: that of the prompt's last token, the only one that
    has read all of it."""

    def __init__(
        self, model: VisionLanguageModel, tokenizer: VlmTokenizer, settings: PolicySettings, base_sha256: str, seed: int
    ) -> None:
        """Takes `model` over: it is given the adapter."""
        self.tokenizer = tokenizer
        self.base_sha256 = base_sha256
        self._model = model
        self._precision = torch.float16 if settings.image_precision == "float16" else torch.float32
        self._screens = ScreenCache(CACHED_SCREENS * (1 + self.earlier_screens), CACHED_BYTES)
        refuse_half_precision(settings)
        self._adapter = self._trained(settings, seed)
        if settings.precision == "bfloat16":
            model.compute_in(torch.bfloat16)

    @property
    def width(self) -> int:
        return self._model.width

    @property
    def device(self) -> torch.device:
        return self._model.device

    @property
    def earlier_screens(self) -> int:
        return self.tokenizer.earlier_screens

    @property
    def looks_beside(self) -> bool:
        """Not on a GPU, whose stream and memory the threads would share."""
        return self.device.type == "cpu" and self._model.sees_apart

    def place(self, device: torch.device) -> None:
        self._model.place(device)

    def save_memory(self) -> bool:
        return recompute_layers(self._model.whole.get_decoder())

    def image_features(self, png: bytes) -> ImageFeatures:
        return self._screens.get(png, self._look)

    def _look(self, png: bytes) -> ImageFeatures:
        picture = decoded(png)
        tokens = self._model.image_tokens(self.tokenizer.processor.images(picture)).cpu()
        return ImageFeatures(tokens.to(self._precision), ScreenSize(*picture.size))

    def decide(
        self,
        pngs: Sequence[bytes],
        prompts: Sequence[tuple[int, ...]],
        sampling: Sampling | None,
        seeds: Sequence[int],
        earlier: Sequence[Sequence[bytes]] = (),
    ) -> list[SampledAction]:
        if not len(pngs) == len(prompts) == len(seeds) == len(earlier or pngs):
            raise ValueError(f"{len(pngs)} screens, {len(prompts)} prompts, {len(seeds)} seeds, {len(earlier)} earlier")
        if not pngs:
            return []
        features = [
            self.image_features(png)._replace(earlier=tuple(map(self.image_features, before)))
            for png, before in zip(pngs, earlier or [()] * len(pngs), strict=True)
        ]
        written = self._written(features, prompts, sampling, drawing(sampling, seeds))
        return [self._sampled(row, screen.size) for row, screen in zip(written.rows(), features, strict=True)]

    def repeat(self, steps: Sequence[Step], features: Sequence[ImageFeatures], sampling: Sampling) -> list[float]:
        choices = repeating([step.action_ids for step in steps])
        prompts = [step.prompt_ids for step in steps]
        logprobs: list[float] = self._written(features, prompts, sampling, choices).logprobs.tolist()
        return logprobs

    def score(self, steps: Sequence[Step], features: Sequence[ImageFeatures], sampling: Sampling = FULL) -> Score:
        lengths = torch.tensor([len(step.action_ids) for step in steps])
        actions = torch.zeros((len(steps), int(lengths.max())), dtype=torch.long)
        for place, step in enumerate(steps):
            actions[place, : len(step.action_ids)] = torch.tensor(step.action_ids)
        lengths, actions = lengths.to(self.device), actions.to(self.device)
        given = self._inputs([step.prompt_ids for step in steps], features)
        logits, states = self._model.scored(given, actions, lengths)
        drawn = (torch.arange(actions.shape[1], device=self.device) < lengths[:, None]).float()
        drawn[:, self.tokenizer.action_length - 1 :] = 0.0  # the end of an action that is cut off is not drawn
        return Score(
            *scores(logits, actions, drawn, sampling),
            states[:, None],
            torch.ones((len(steps), 1), dtype=torch.long, device=self.device),
        )

    def embed_actions(self, actions: Sequence[tuple[int, ...]]) -> Tensor:
        """(B, d) the mean of each action's token embeddings, which are frozen."""
        embeddings = self._model.embeddings.weight.detach()
        return torch.stack([embeddings[list(ids)].float().mean(0) for ids in actions])

    def parameters(self) -> dict[str, nn.Parameter]:
        return self._adapter.parameters()

    @contextmanager
    def dropout(self) -> Iterator[None]:
        with self._model.dropout():
            yield

    def adapter(self) -> bytes:
        return self._adapter.to_bytes()

    def load(self, adapter: bytes) -> None:
        self._adapter.load(adapter)

    def _trained(self, settings: PolicySettings, seed: int) -> LoraAdapter | FullWeights:
        if settings.trains == "all":
            return FullWeights(self._model.whole, self._model.language_parameters(), self.base_sha256)
        targets = lora_targets(self._model.whole, settings.lora_targets)
        return LoraAdapter(self._model.whole, targets, settings, self.base_sha256, seed)

    def _inputs(self, prompts: Sequence[tuple[int, ...]], features: Sequence[ImageFeatures]) -> dict[str, object]:
        shown = [(*each.earlier, each) for each in features]
        layouts = [[self.tokenizer.processor.layout(each.size) for each in some] for some in shown]
        return self._model.inputs(prompts, [each.tokens for some in shown for each in some], layouts)

    def _written(
        self,
        features: Sequence[ImageFeatures],
        prompts: Sequence[tuple[int, ...]],
        sampling: Sampling | None,
        choices: Sequence[Choose],
    ) -> _Writing:
        writing = _Writing(self._model, self.tokenizer.ends, sampling, choices)
        with torch.no_grad():
            self._model.whole.generate(
                **self._inputs(prompts, features),
                generation_config=cast(Any, GenerationConfig)(
                    do_sample=False,
                    use_cache=True,
                    max_new_tokens=self.tokenizer.action_length - 1,
                    eos_token_id=list(self.tokenizer.ends),
                    pad_token_id=self.tokenizer.ends[0],
                ),
                logits_processor=LogitsProcessorList([writing]),
            )
        return writing

    def _sampled(self, row: Written, screen: ScreenSize) -> SampledAction:
        ends, ids = self.tokenizer.ends, row.ids
        whole = ids if ids[-1] in ends else (*ids, ends[0])
        assert len(whole) == self.tokenizer.action_length or ids[-1] in ends, "only the limit cuts an answer off"
        action = self.tokenizer.decode_action(whole, screen)
        return SampledAction(whole, action, to_text(action), row.logprob, row.entropy)


class _Writing(LogitsProcessor):
    """Draws each row's token, and rules out every other one, so that the library takes it.

    So the draws of a row depend on its choice alone, and their probabilities are known in float64.
    """

    def __init__(
        self, model: VisionLanguageModel, ends: Sequence[int], sampling: Sampling | None, choices: Sequence[Choose]
    ) -> None:
        self._model, self._ends, self._sampling = model, frozenset(ends), sampling
        self._choices = choices
        self.ids: list[list[int]] = [[] for _ in choices]
        self.logprobs = np.zeros(len(choices))
        self._entropy_sums = np.zeros(len(choices))

    def rows(self) -> list[Written]:
        """What was written, once the library has returned."""
        found = zip(self.ids, self.logprobs.tolist(), self._entropy_sums.tolist(), strict=True)
        return [Written(tuple(ids), logprob, total / len(ids)) for ids, logprob, total in found]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        logp = drawn_from(self._model.allowed(scores.float()), self._sampling)
        entropy = entropies(logp)
        chosen = torch.full_like(scores, float("-inf"))
        for row, (ids, choose) in enumerate(zip(self.ids, self._choices, strict=True)):
            token = next(iter(self._ends))
            if not ids or ids[-1] not in self._ends:
                token = choose(logp[row])
                ids.append(token)
                self.logprobs[row] += logp[row, token]
                self._entropy_sums[row] += entropy[row]
            chosen[row, token] = 0.0
        return chosen
