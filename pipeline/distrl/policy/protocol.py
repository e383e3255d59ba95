"""The interface of a policy: a tokenizer that needs no weights, and a model that acts, scores and is trained.

    instruction, earlier actions ──▶ Tokenizer.encode_prompt ─┐
    screenshot ──▶ Policy.image_features ─────────────────────┴▶ Policy.decide ──▶ SampledAction  (worker)
                                                               ▶ Policy.score  ──▶ Score          (learner)

Nobody outside `distrl.policy` knows more of a model than this. Token ids are recorded, and never made again from text:
what is scored is exactly what was read and written. Symbols: B rows, S encoder positions, d the states' width.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from distrl.policy.sampling import FULL, Sampling
from distrl.types import Action, ObjectRef, ScreenSize, Step, Trajectory

if TYPE_CHECKING:  # a tokenizer's users, such as the lineage of a version, need no torch
    import torch
    from torch import Tensor, nn


@dataclass(frozen=True, slots=True)
class TrajectoryStep:
    """A recorded step with all steps of its trajectory, since a policy may also read from the earlier ones."""

    steps: Sequence[Step]
    index: int

    @property
    def step(self) -> Step:
        return self.steps[self.index]

    def earlier_screens(self, most: int) -> list[ObjectRef]:
        """The last screenshots before its own, `most` of them or as many as there are; oldest first."""
        return [step.screenshot for step in self.steps[max(0, self.index - most) : self.index]]


def trajectory_steps(trajectory: Trajectory) -> list[TrajectoryStep]:
    """Its steps, in order."""
    return [TrajectoryStep(trajectory.steps, index) for index in range(len(trajectory.steps))]


class Tokenizer(Protocol):
    """Text and actions to token ids and back, for one base model. Immutable."""

    def encode_prompt(self, instruction: str, earlier: Sequence[Action], screen: ScreenSize) -> tuple[int, ...]:
        """The ids that are read beside a screenshot of the size `screen`. earlier: the episode's actions so far, oldest
        first; each was decided on a screenshot of its own, the last of which a policy may read (`earlier_screens`)."""
        ...

    def encode_action(self, action: Action, screen: ScreenSize) -> tuple[int, ...]:
        """The ids of `action` on that screen as the policy would write it. Raises PolicyError for what it has no form
        for."""
        ...

    def decode_action(self, ids: Sequence[int], screen: ScreenSize) -> Action:
        """The action on that screen that `ids` spell; an INVALID one that carries their text where they spell none."""
        ...

    def text(self, ids: Sequence[int]) -> str:
        """What `ids` spell, special tokens too, for people."""
        ...

    def accepts(self, step: Step, index: int = 0) -> bool:
        """Whether this policy can have read the step's prompt and written its action, as step number `index` of its
        episode: records may hold any ids."""
        ...

    def unknown_words(self, texts: Iterable[str]) -> tuple[str, ...]:
        """The words of `texts` that it cannot tell apart or write, each once, in order, numbers last."""
        ...


@dataclass(frozen=True, slots=True)
class SampledAction:
    """What the policy wrote. logprob: log μ(action | screenshot, prompt) in nats, of the distribution drawn from.

    entropy: mean over the tokens that were drawn of the entropy of the distribution that each was drawn from, in nats,
    as `Score.entropy` at the same sampling; None where a model server does not tell.
    """

    action_ids: tuple[int, ...]
    action: Action
    action_text: str
    logprob: float
    entropy: float | None = None


class ImageFeatures(NamedTuple):
    """What the frozen part of a model makes of one screenshot. size: of the screenshot.

    earlier: where they are those of a decision, of the screenshots before it that the policy reads, oldest first.
    """

    tokens: Tensor
    size: ScreenSize
    earlier: tuple[ImageFeatures, ...] = ()


class Score(NamedTuple):
    """`Policy.score` of B steps.

    logprob: (B,) summed over the tokens that were drawn. entropy: (B,) mean over them, in nats. states: (B, S, d) and
    mask: (B, S) of 0 and 1, what the critics read. All but the mask in float32, whatever the policy computes in.
    """

    logprob: Tensor
    entropy: Tensor
    states: Tensor
    mask: Tensor


class Policy(Protocol):
    """A base model with trainable weights. Owned by one thread at a time: callers that share it take turns, but for
    `looks_beside`.

    At equal weights and sampling exp(score − logprob) of a decision is 1 up to rounding. Every method but `dropout`
    works without dropout.
    """

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def base_sha256(self) -> str:
        """Identity of the base model, hex; a version belongs to exactly one."""
        ...

    @property
    def width(self) -> int:
        """d of `Score.states`, and of `embed_actions`."""
        ...

    @property
    def device(self) -> torch.device:
        """Where its weights are, and what `score` and `embed_actions` give."""
        ...

    @property
    def earlier_screens(self) -> int:
        """How many screenshots before the present one a decision reads, or as many as its episode has; 0: none. All of
        them is a number that no episode reaches."""
        ...

    @property
    def looks_beside(self) -> bool:
        """Whether one thread may call `image_features` while another trains, within `dropout`, too."""
        ...

    def place(self, device: torch.device) -> None:
        """Move it to a device, before its parameters are given to an optimiser."""
        ...

    def save_memory(self) -> bool:
        """From now on compute layers again for their gradients instead of keeping what they made. Changes no bit.
        False where nothing is left to be saved so."""
        ...

    def image_features(self, png: bytes) -> ImageFeatures:
        """Of one screenshot, on the CPU: a pure function of its bytes, in policy.image_precision.

        Raises PolicyError for no PNG.
        """
        ...

    def decide(
        self,
        pngs: Sequence[bytes],
        prompts: Sequence[tuple[int, ...]],
        sampling: Sampling | None,
        seeds: Sequence[int],
        earlier: Sequence[Sequence[bytes]] = (),
    ) -> Sequence[SampledAction]:
        """One action for each row, in one batch.

        sampling: of the behaviour policy, without a ladder (`by_episode`); None is greedy, and then `logprob` and
        `entropy` are those of FULL.
        seeds: one for each row; its draws depend on its own seed alone, never on the rows beside it. earlier: the
        screenshots before each row's own that it reads, oldest first; empty: no row has any.
        """
        ...

    def repeat(self, steps: Sequence[Step], features: Sequence[ImageFeatures], sampling: Sampling) -> Sequence[float]:
        """log μ of recorded actions as `decide` would have computed it, token after token in one batch, in nats."""
        ...

    def score(self, steps: Sequence[Step], features: Sequence[ImageFeatures], sampling: Sampling = FULL) -> Score:
        """log π of B recorded actions under the present weights, differentiable in `parameters`.

        features: `image_features` of each step's screenshot, with those before it (`earlier_screens`). A learner's π is
        FULL (docs/algorithm.md); an action that `sampling` cannot draw has −∞.
        """
        ...

    def embed_actions(self, actions: Sequence[tuple[int, ...]]) -> Tensor:
        """(B, d) a frozen embedding of each action's ids, for critics of actions."""
        ...

    def parameters(self) -> Mapping[str, nn.Parameter]:
        """What a learner trains, by name, in a fixed order."""
        ...

    def dropout(self) -> AbstractContextManager[None]:
        """Within, `score` drops units at random; a learner seeds torch itself."""
        ...

    def adapter(self) -> bytes:
        """The trained weights as a version ships them (adapters.py). Equal weights give equal bytes."""
        ...

    def load(self, adapter: bytes) -> None:
        """Take the weights of a version. Raises PolicyError, and keeps the old ones, where they do not belong here."""
        ...
