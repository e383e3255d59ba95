"""A recurrent Q as a policy: what the worker decides with, and the network that R2D3 trains.

    screens and prompt of an episode ──▶ frozen AutoUI ──▶ inputs (T, F + A) ──▶ GridQ ──▶ Q of the last step
    Q ──▶ π(a) = (1 − ε) softmax(Q / SHARPNESS)(a) + ε / n        n actions are possible; ε: the sampling's, or its own

A decision runs the network over its whole episode, from the first screen on: nobody holds a state that a kill could
lose, and a recorded step is scored by what it was decided with. π is ε-greedy with its corner rounded off: where two
actions are worth the same, the last bits of Q would else decide nearly all of the probability. `Sampling` then acts on
log π, as on any policy's logits. Symbols: T steps, N image tokens, L words, d AutoUI's width, A actions, F inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from distrl.config import PolicySettings
from distrl.errors import PolicyError
from distrl.policy.actions import to_text
from distrl.policy.autoui.encoder_decoder import IMPOSSIBLE
from distrl.policy.autoui.model import AutoUIModel
from distrl.policy.autoui.policy import AutoUIPolicy
from distrl.policy.autoui.tokenizer import PAD
from distrl.policy.full_weights import FullWeights
from distrl.policy.protocol import ImageFeatures, SampledAction, Score
from distrl.policy.recurrent_q.directory import EYES, described, identity, tokenizer
from distrl.policy.recurrent_q.network import GridQ
from distrl.policy.recurrent_q.tokenizer import Read, parts
from distrl.policy.sampling import FULL, Ladder, Sampling, drawing, drawn_from, entropies, scores
from distrl.types import Step

ALL_SCREENS: Final = 1 << 30
"""More than any episode has."""
SHARPNESS: Final = 0.01
"""Of the softmax: an action ahead by this, half of what one step less is worth at γ = 0.97, is e times as likely."""
VIEW: Final = (4, 2)
"""Rows and columns that the screen's tokens are averaged to."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the frozen part makes of an episode up to one of its steps.

    inputs: (T, F + A). states: (N + L, d) and mask: (N + L,) of the last step, as AutoUI's critics would read.
    """

    inputs: Tensor
    states: Tensor
    mask: Tensor


class RecurrentQPolicy:
    """A base model of this kind with a Q of its own weights (`distrl.policy.protocol.Policy`)."""

    def __init__(self, directory: Path, settings: PolicySettings, seed: int = 0) -> None:
        """Raises PolicyError for a spoilt directory, and for settings that it has no use for."""
        if settings.trains != "lora":
            raise PolicyError("policy.trains", "does not apply: a recurrent Q is trained whole", "leave it unset")
        about = described(directory)
        self.tokenizer = tokenizer(directory)
        self.base_sha256 = identity(directory)
        self._eyes = AutoUIPolicy.open(directory / EYES, settings, seed)
        """Its adapter stays fresh, and changes nothing."""
        assert isinstance(self._eyes.model, AutoUIModel)
        self._grid = self._eyes.model.shape.grid
        self._epsilon = about.epsilon
        self._length = self.tokenizer.words.prompt_length
        actions = self.tokenizer.grid.count
        inputs = (self._length + math.prod(VIEW)) * self._eyes.width + actions
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.network = GridQ(inputs, actions, about.width, recurrent=about.recurrent).eval()
        self._weights = FullWeights(self.network, dict(self.network.named_parameters()), self.base_sha256)

    @property
    def width(self) -> int:
        return self._eyes.width

    @property
    def device(self) -> torch.device:
        return self._eyes.device

    @property
    def earlier_screens(self) -> int:
        return ALL_SCREENS

    @property
    def looks_beside(self) -> bool:
        return self._eyes.looks_beside

    def place(self, device: torch.device) -> None:
        self._eyes.place(device)
        self.network.to(device)

    def save_memory(self) -> bool:
        return False

    def image_features(self, png: bytes) -> ImageFeatures:
        return self._eyes.image_features(png)

    def embed_actions(self, actions: Sequence[tuple[int, ...]]) -> Tensor:
        return self._eyes.embed_actions(actions)

    def parameters(self) -> dict[str, nn.Parameter]:
        return self._weights.parameters()

    def adapter(self) -> bytes:
        return self._weights.to_bytes()

    def load(self, adapter: bytes) -> None:
        self._weights.load(adapter)

    @contextmanager
    def dropout(self) -> Iterator[None]:
        """It has none."""
        yield

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
        found = []
        for row, choose in enumerate(drawing(sampling, seeds)):
            screen = self.image_features(pngs[row])
            before = tuple(map(self.image_features, earlier[row])) if earlier else ()
            (logp,) = self._log_probabilities(prompts[row], screen._replace(earlier=before), sampling)
            number = choose(logp)
            ids = self.tokenizer.grid.written(read_of(prompts[row]).goal, number)
            action = self.tokenizer.decode_action(ids, screen.size)
            found.append(
                SampledAction(ids, action, to_text(action), float(logp[number]), float(entropies(logp[None])[0]))
            )
        return found

    def repeat(self, steps: Sequence[Step], features: Sequence[ImageFeatures], sampling: Sampling) -> list[float]:
        return [
            float(self._log_probabilities(step.prompt_ids, screen, sampling)[0][self.number(step)])
            for step, screen in zip(steps, features, strict=True)
        ]

    def score(self, steps: Sequence[Step], features: Sequence[ImageFeatures], sampling: Sampling = FULL) -> Score:
        seen = [self.seen(step.prompt_ids, screen) for step, screen in zip(steps, features, strict=True)]
        logits = torch.stack([self._logits(each, sampling) for each in seen])
        numbers = torch.tensor([[self.number(step)] for step in steps], device=self.device)
        found = scores(logits[:, None], numbers, torch.ones_like(numbers).float(), sampling)
        return Score(*found, torch.stack([each.states for each in seen]), torch.stack([each.mask for each in seen]))

    def number(self, step: Step) -> int:
        """Which action of the grid a step took. The tokenizer must accept the step."""
        found = self.tokenizer.grid.number(read_of(step.prompt_ids).goal, step.action_ids)
        if found is None:
            raise ValueError(f"{self.tokenizer.text(step.action_ids)} is no action of the grid")
        return found

    def seen(self, prompt: Sequence[int], screen: ImageFeatures) -> Seen:
        """All that the network reads to act on `screen`, with those before it; no gradient."""
        read, screens = read_of(prompt), [*screen.earlier, screen]
        if len(read.actions) + 1 != len(screens):
            raise ValueError(f"{len(screens)} screens of an episode with {len(read.actions)} earlier actions")
        device, grid = self.device, self.tokenizer.grid
        words = [self.tokenizer.read_at(read, step) for step in range(len(screens))]
        prompts = torch.tensor([[*ids, *[PAD] * (self._length - len(ids))] for ids in words], device=device)
        tokens = torch.stack([each.tokens for each in screens]).to(device).float()
        with torch.no_grad():
            states, mask = self._eyes.model.encode(tokens, prompts)
        states = states.float() * mask[..., None]
        before = states.new_zeros(len(screens), grid.count)
        for step, action in enumerate(read.actions, start=1):
            if (number := grid.number(read.goal, action)) is not None:
                before[step, number] = 1.0
        possible = torch.from_numpy(grid.possible(read.goal)).to(states).expand_as(before)
        inputs = torch.cat([self._view(states, tokens.shape[1]), before, possible], 1)
        return Seen(inputs, states[-1], mask[-1])

    def q(self, seen: Seen) -> Tensor:
        """(A,) Q of the last step, rescaled by h; network.NEVER for what is not possible."""
        present = torch.ones(1, len(seen.inputs), dtype=torch.bool, device=self.device)
        found, _ = self.network(seen.inputs[None], self.network.start(1), present)
        return cast(Tensor, found[0, -1])

    def _view(self, states: Tensor, image: int) -> Tensor:
        """(T, F - A) of states (T, N + L, d): each word, and the screen in parts. image: N."""
        pictures = states[:, :image].reshape(len(states), *self._grid, -1).permute(0, 3, 1, 2)
        return torch.cat([states[:, image:].flatten(1), F.adaptive_avg_pool2d(pictures, VIEW).flatten(1)], 1)

    def _logits(self, seen: Seen, sampling: Sampling) -> Tensor:
        """(A,) log π with the sampling's ε, before the rest of it; IMPOSSIBLE for what is not possible."""
        epsilon = self._epsilon if sampling.epsilon is None else sampling.epsilon
        if isinstance(epsilon, Ladder):
            raise ValueError("a ladder has no ε but that of an episode")
        possible = seen.inputs[-1, -self.network.actions :] > 0
        best = (self.q(seen) / SHARPNESS).log_softmax(-1) + math.log1p(-epsilon)
        any_one = math.log(epsilon) - possible.sum().log()
        return torch.logaddexp(best, any_one).masked_fill(~possible, IMPOSSIBLE)

    def _log_probabilities(
        self, prompt: Sequence[int], screen: ImageFeatures, sampling: Sampling | None
    ) -> npt.NDArray[np.float64]:
        """(1, A) in float64."""
        with torch.no_grad():
            return drawn_from(self._logits(self.seen(prompt, screen), sampling or FULL)[None], sampling)


def read_of(prompt: Sequence[int]) -> Read:
    """Raises ValueError for what is no prompt of this kind."""
    found = parts(prompt)
    if found is None:
        raise ValueError("no prompt of a recurrent Q")
    return found
