"""The acting and scoring side of a policy: what the worker decides with and what the learner differentiates.

Behaviour distribution. Each token is drawn from softmax(logits / temperature) and `logprob` is log μ of exactly that
distribution, summed over the tokens that were drawn. The last place of an action (`Codec.action_length`) is not drawn:
it is always </s>, has probability 1, and counts neither in the log-probability nor in the entropy, here and in `score`.
So at equal weights and equal temperature exp(score − logprob) = 1 up to rounding.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from distrl.config import Policy
from distrl.errors import PolicyError
from distrl.images import ImageError, opened
from distrl.policy.actions import to_text
from distrl.policy.base import Base, load_base
from distrl.policy.lora import adapter_bytes, attach, load_adapter, lora_parameters
from distrl.policy.model import AutoUIModel
from distrl.policy.vocabulary import END, PAD, Codec
from distrl.types import Action

CACHED_SCREENS: Final = 256
"""Image tokens kept per agent (12 kB each): a phone that waits shows the same screen for many steps."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the policy wrote. logprob: log μ(action | screen, prompt) in nats, see the module's first lines."""

    action_ids: tuple[int, ...]
    action: Action
    action_text: str
    logprob: float


class Score(NamedTuple):
    """`score` of B actions. S = N + L encoder positions.

    logprob: (B,) summed over tokens. entropy: (B,) mean over the action's tokens, in nats. states: (B, S, d) encoder
    states, mask: (B, S) of 0 and 1.
    """

    logprob: Tensor
    entropy: Tensor
    states: Tensor
    mask: Tensor


class Agent:
    """A base model with an adapter. Owned by one thread at a time: callers that share it take turns.

    settings: rank, alpha and targets of the adapter. `model` is in evaluation mode: no dropout when acting.
    """

    def __init__(self, base: Base, settings: Policy, seed: int = 0) -> None:
        self.codec = base.codec
        self.base_sha256 = base.sha256
        self.model = attach(base.model, settings, seed).eval()
        self._screens: OrderedDict[bytes, Tensor] = OrderedDict()

    @classmethod
    def open(cls, settings: Policy, seed: int = 0) -> Agent:
        """The agent of `settings`: its base model, or the shipped one, with an adapter that changes nothing yet."""
        return cls(load_base(settings.base_model), settings, seed)

    def load(self, adapter: bytes) -> None:
        """Take the weights of a version. Raises PolicyError, and keeps the old ones, where they do not belong here."""
        load_adapter(self.model, adapter)

    def adapter(self) -> bytes:
        """The weights as a version ships them."""
        return adapter_bytes(self.model)

    def parameters(self) -> dict[str, nn.Parameter]:
        """What a learner trains, by name."""
        return lora_parameters(self.model)

    @property
    def width(self) -> int:
        """d of the encoder states."""
        return self.model.shape.d_model

    @contextmanager
    def dropout(self) -> Iterator[None]:
        """Within, `score` drops units at random: a learner seeds torch itself."""
        self.model.train()
        try:
            yield
        finally:
            self.model.eval()

    def encode_prompt(self, instruction: str, earlier: Sequence[Action]) -> tuple[int, ...]:
        """The token ids that are read beside a screen."""
        return self.codec.encode_prompt(instruction, earlier)

    def embed_actions(self, actions: Sequence[tuple[int, ...]]) -> Tensor:
        """(B, d) the mean of each action's token embeddings, which are frozen."""
        embed = self.model.t5.shared.weight.detach()
        return torch.stack([embed[list(ids)].mean(0) for ids in actions])

    def image_features(self, png: bytes) -> Tensor:
        """Tokens (N, d) of one screenshot, whatever its size: a pure function of its bytes, one image at a time.

        Raises PolicyError for bytes that are no PNG.
        """
        name = hashlib.sha256(png).digest()
        known = self._screens.get(name)
        if known is None:
            shape = self.model.shape
            known = self.model.features(pixels(png, shape.image_width, shape.image_height))[0]
            self._screens[name] = known
            while len(self._screens) > CACHED_SCREENS:
                self._screens.popitem(last=False)
        else:
            self._screens.move_to_end(name)
        return known

    def decide(
        self,
        pngs: Sequence[bytes],
        prompts: Sequence[tuple[int, ...]],
        temperature: float | None,
        seeds: Sequence[int],
    ) -> list[Decision]:
        """One action per screen and prompt, in one batch.

        temperature: of the behaviour policy; None is greedy, and then `logprob` is that of temperature 1. seeds: one
        per row; a row's draws depend on its own seed alone, never on the rows beside it.
        """
        if not len(pngs) == len(prompts) == len(seeds):
            raise ValueError(f"{len(pngs)} screens, {len(prompts)} prompts, {len(seeds)} seeds")
        if not pngs:
            return []
        features = torch.stack([self.image_features(png) for png in pngs])
        return [
            self._decision(ids, logprob)
            for ids, logprob in write(self.model, self.codec, features, prompts, temperature, seeds)
        ]

    def score(
        self,
        features: Tensor,
        prompts: Sequence[tuple[int, ...]],
        actions: Sequence[tuple[int, ...]],
        temperature: float = 1.0,
    ) -> Score:
        """log π of recorded actions under the present weights, differentiable in the adapter.

        features: (B, N, d) from `image_features`. prompts, actions: the recorded token ids of each row.
        """
        targets = pad(actions)
        states, mask = self.model.encode(features, pad(prompts))
        logp = F.log_softmax(self.model.logits(states, mask, targets) / temperature, dim=-1)
        drawn = (targets != PAD).float()
        drawn[:, self.codec.action_length - 1 :] = 0.0
        entropy = -(logp.exp() * logp).sum(-1)
        chosen = logp.gather(-1, targets[..., None]).squeeze(-1)
        return Score((chosen * drawn).sum(1), (entropy * drawn).sum(1) / drawn.sum(1), states, mask)

    def _decision(self, ids: tuple[int, ...], logprob: float) -> Decision:
        action = self.codec.decode_action(ids)
        return Decision(ids, action, to_text(action), logprob)


def write(
    model: AutoUIModel,
    codec: Codec,
    features: Tensor,
    prompts: Sequence[tuple[int, ...]],
    temperature: float | None,
    seeds: Sequence[int],
) -> list[tuple[tuple[int, ...], float]]:
    """One action per row, token by token: (ids that end with </s>, log-probability). See `Agent.decide`.

    features: (B, N, d). The decoder is run over the whole beginning at each token: at six tokens or fewer that is
    faster than keeping its keys and values.
    """
    rules = [np.random.default_rng(seed) for seed in seeds]
    logprobs, ended = np.zeros(len(rules)), np.zeros(len(rules), dtype=bool)
    with torch.no_grad():
        states, mask = model.encode(features, pad(prompts))
        written = torch.empty((len(rules), 0), dtype=torch.long)
        while written.shape[1] < codec.action_length - 1 and not ended.all():
            logits = model.next_logits(states, mask, written).double().numpy() / (temperature or 1.0)
            logp = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
            tokens = [
                PAD if done else _draw(row, rule, greedy=temperature is None)
                for done, row, rule in zip(ended, logp, rules, strict=True)
            ]
            logprobs += np.where(ended, 0.0, logp[np.arange(len(rules)), tokens])
            written = torch.cat([written, torch.tensor(tokens)[:, None]], dim=1)
            ended |= np.array(tokens) == END
    rows = [[token for token in row if token not in (PAD, END)] for row in written.tolist()]
    return [((*row, END), float(logprob)) for row, logprob in zip(rows, logprobs, strict=True)]


def pixels(png: bytes, width: int, height: int) -> Tensor:
    """A PNG as uint8 (3, height, width), resized where it has another size. Raises PolicyError for anything else."""
    try:
        colour = opened(png)
    except ImageError as error:
        raise PolicyError("screenshot", str(error), "check the device and its screen size") from None
    if colour.size != (width, height):
        colour = colour.resize((width, height), Image.Resampling.BOX)
    return torch.from_numpy(np.array(colour)).permute(2, 0, 1).contiguous()


def _draw(logp: npt.NDArray[np.float64], rule: np.random.Generator, *, greedy: bool) -> int:
    """A token by inverse distribution function in float64, or the likeliest one."""
    if greedy:
        return int(logp.argmax())
    ladder = np.cumsum(np.exp(logp))
    return min(int(np.searchsorted(ladder, rule.random() * ladder[-1], side="right")), len(ladder) - 1)


def pad(rows: Sequence[Sequence[int]]) -> Tensor:
    """(B, longest) ids, filled behind with PAD."""
    longest = max(map(len, rows), default=0)
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows], dtype=torch.long)
