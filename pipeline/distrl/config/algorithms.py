"""The settings of the algorithms, one type each; `algorithm.type` chooses. algorithms/registry.py has the code."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from pydantic import Field, model_validator

from distrl.config.effects import Effect, Section, When


class BufferSettings(Section):
    """A circular buffer of whole trajectories."""

    effect: ClassVar[Effect | None] = Effect(When.START)

    capacity: int = Field(10_000, ge=1, description="transitions; the paper's N")


class ReplaySettings(BufferSettings):
    """A buffer that may hold the demonstrations, too."""

    demonstrations: bool = Field(True, description="put the warm-up trajectories in the buffer (A.5.2)")


class RecentReplaySettings(ReplaySettings):
    """A short buffer, for an algorithm that looks at all of it in each update."""

    capacity: int = Field(2_000, ge=1, description="transitions; the networks look at all of them in each update")


class PrioritisedReplaySettings(ReplaySettings):
    """DPER, the paper's distributed prioritised experience replay (section 5.3)."""

    w1: Annotated[float, Effect(When.LATER)] = Field(1.0, ge=0, description="weight of mean |δ| (section 5.3)")
    w2: Annotated[float, Effect(When.LATER)] = Field(0.5, ge=0, description="weight of mean min(1, ρ)")
    w3: Annotated[float, Effect(When.LATER)] = Field(0.1, ge=0, description="weight of mean −log π")
    alpha: Annotated[float, Effect(When.LATER)] = Field(0.5, ge=0, le=1, description="P ∝ p^alpha (A.4.2)")
    refresh_within: Annotated[int, Effect(When.LATER)] = Field(
        4, ge=1, description="updates within which every transition is scored anew, as far as refresh_share allows"
    )
    refresh_share: Annotated[float, Effect(When.LATER)] = Field(
        0.6,
        ge=0,
        description="most transitions scored anew at an update, for each one in its minibatches; new trajectories and "
        "one step of each are scored in any case",
    )
    value_filter: Annotated[float, Effect(When.LATER)] = Field(
        0.5, ge=0, le=1, description="share of its priority that the trajectory with the lowest V_traj loses"
    )


class DescentSettings(Section):
    """Gradient steps of one update."""

    effect: ClassVar[Effect | None] = Effect(When.LATER)

    minibatches: int = Field(16, ge=1, description="gradient steps in an update")
    batch_size: int = Field(64, ge=1, description="transitions in a minibatch")
    lr: float = Field(1e-3, gt=0)
    grad_norm: float = Field(1.0, gt=0, description="gradients are scaled down to this norm")


class WarmupSettings(DescentSettings):
    """Behaviour cloning of the demonstrations, before any algorithm (A.5.2); version 0 is its result."""

    effect: ClassVar[Effect | None] = Effect(When.WARMUP)

    demonstrations: Annotated[int, Effect(When.START, windows=True)] = Field(
        128, ge=0, description="warm-up trajectories waited for before the first update"
    )
    updates: Annotated[int, Effect(When.START, windows=True)] = Field(
        12, ge=0, description="updates of behaviour cloning before version 0"
    )
    minibatches: int = Field(20, ge=1, description="gradient steps in an update")
    lr: float = Field(4e-3, gt=0)


class ArideSettings(DescentSettings):
    """A-RIDE (section 5)."""

    type: Annotated[Literal["aride"], Effect(When.START)] = "aride"
    replay: PrioritisedReplaySettings = PrioritisedReplaySettings()
    gamma: float = Field(0.97, ge=0, le=1)
    retrace_lambda: float = Field(0.95, ge=0, le=1)
    retrace: bool = True
    truncation: Literal["terminal", "bootstrap"] = Field(
        "terminal", description="value after the last allowed step of a failure: 0, or V of the last screen"
    )
    entropy: float = Field(0.002, ge=0, description="β of equation 1")
    invalid_penalty: float = Field(0.1, ge=0, description="λ of equation 1")
    # a penalty is computed as its trajectory comes into the buffer, demonstrations' before anything is learned
    repetition_penalty: Annotated[float, Effect(When.START)] = Field(
        0.05, ge=0, description="reward per further repetition; it accumulates (A.2.2)"
    )
    invalid_reward: Annotated[float, Effect(When.START)] = Field(
        0.05, ge=0, description="reward subtracted for an invalid action (A.2.2)"
    )
    advantage: Literal["paper", "retrace", "td"] = "retrace"
    ratio_clip: float = Field(1.0, gt=0, description="largest ρ in the policy loss")
    normalise_advantage: bool = True
    negative_advantage_weight: float = Field(0.3, ge=0, le=1)
    critic_lr: float = Field(1e-3, gt=0)
    critic_warmup_updates: int = Field(4, ge=0, description="first updates after warm-up that train the critics alone")


class CloningSettings(DescentSettings):
    """Behaviour cloning of the demonstrations only: the warm-up continued at one rate. The workers' trajectories are
    recorded and not learned from. This is supervised fine-tuning, like AutoUI's baseline."""

    type: Annotated[Literal["cloning"], Effect(When.START)] = "cloning"
    replay: BufferSettings = BufferSettings()


class FilteredBcSettings(DescentSettings):
    """Behaviour cloning of what succeeded."""

    type: Annotated[Literal["filtered_bc"], Effect(When.START)] = "filtered_bc"
    replay: ReplaySettings = ReplaySettings()


class VtraceSettings(DescentSettings):
    """V-trace actor-critic, IMPALA's algorithm (arXiv 1802.01561)."""

    type: Annotated[Literal["vtrace"], Effect(When.START)] = "vtrace"
    replay: RecentReplaySettings = RecentReplaySettings()
    gamma: float = Field(0.97, ge=0, le=1)
    trace_lambda: float = Field(1.0, ge=0, le=1, description="λ of the traces c (remark 2); IMPALA's is 1")
    rho_max: float = Field(1.0, gt=0, description="ρ̄, largest ratio of td errors and in the policy's loss")
    c_max: float = Field(1.0, ge=0, description="c̄, largest trace; at most rho_max")
    entropy: float = Field(0.002, ge=0, description="weight of the policy's entropy")
    normalise_advantage: bool = True
    negative_advantage_weight: float = Field(0.3, ge=0, le=1)
    lr: float = Field(3e-4, gt=0)  # at 1e-3 it unlearns the warm-up (docs/experiments.md)
    critic_lr: float = Field(1e-3, gt=0)
    critic_warmup_updates: int = Field(4, ge=0, description="first updates after warm-up that train the critic alone")

    @model_validator(mode="after")
    def _traces_are_no_longer_than_ratios(self) -> VtraceSettings:
        if self.c_max > self.rho_max:
            raise ValueError("algorithm.c_max must be at most algorithm.rho_max")
        return self


class DigiRlSettings(DescentSettings):
    """DigiRL (arXiv 2406.11896): imitates the steps that two value estimates rate as better than expected."""

    type: Annotated[Literal["digirl"], Effect(When.START)] = "digirl"
    replay: RecentReplaySettings = RecentReplaySettings()
    gamma: float = Field(0.5, ge=0, le=1, description="discount of the return that is added to a step's gain in V")
    threshold: float = Field(0.05, ge=-1, le=1, description="least gain of a step that is imitated; about 1 / H")
    kept_share: float = Field(0.1, gt=0, le=1, description="share of the trajectories whose steps may be imitated")
    critic_lr: float = Field(1e-3, gt=0)
    critic_warmup_updates: int = Field(4, ge=0, description="first updates after warm-up that train the critics alone")


class GroupReplaySettings(BufferSettings):
    """A buffer of groups of episodes."""

    capacity: int = Field(1_000, ge=1, description="transitions; a group is learned from while it is whole in there")


class GrpoSettings(DescentSettings):
    """GRPO (arXiv 2402.03300) over groups of episodes of one task, which the feeder feeds one after the other."""

    type: Annotated[Literal["grpo"], Effect(When.START)] = "grpo"
    replay: GroupReplaySettings = GroupReplaySettings()
    group_size: int = Field(
        8, ge=2, description="fewest episodes of a task that are compared; the feeder feeds each task as often"
    )
    form: Literal["grpo", "dr_grpo"] = Field(
        "grpo",
        description="dr_grpo (arXiv 2503.20783) divides neither an advantage by its group's deviation nor a step's "
        "weight by the length of its episode",
    )
    clip: float = Field(0.2, gt=0, lt=1, description="ratios beyond 1 ± this have no further gradient")
    minibatches: int = Field(4, ge=1, description="gradient steps in an update")
    lr: float = Field(3e-4, gt=0)


class R2d3Settings(DescentSettings):
    """R2D3 (arXiv 1909.01387) over a policy that is a recurrent Q (docs/policies.md). R2D2 is demo_ratio=0 without a
    warm-up; DQfD burn_in=0, length=1 and stride=1 over a Q without a memory. The warm-up is its own: updates on
    demonstrations alone, so all of its settings count from the first one on."""

    effect: ClassVar[Effect | None] = Effect(When.START)

    type: Literal["r2d3"] = "r2d3"
    replay: BufferSettings = BufferSettings()
    batch_size: int = Field(32, ge=1, description="sequences in a minibatch")
    demo_ratio: float = Field(0.25, ge=0, le=1, description="share of draws that are of demonstrations, after warm-up")
    gamma: float = Field(0.97, ge=0, le=1)
    n: int = Field(5, ge=1, description="steps until a return bootstraps")
    burn_in: int = Field(4, ge=0, description="steps before a sequence that are only read")
    length: int = Field(8, ge=1, description="steps of a sequence that are learned from")
    stride: int = Field(4, ge=1, description="steps from one sequence of an episode to the next; at most length")
    target_updates: int = Field(4, ge=1, description="updates from one copy of Q to the next, which values actions")
    rescaling: float = Field(1e-3, gt=0, description="ε of h(x) = sign(x)(√(|x| + 1) − 1) + εx")
    one_step_weight: float = Field(1.0, ge=0, description="λ₁, of the loss of one-step returns")
    margin_weight: float = Field(
        1.0, ge=0, description="λ₂, of the margin loss of demonstrations; 0: as in R2D3's paper"
    )
    margin: float = Field(0.8, ge=0, description="by how much a demonstrated action is to be ahead, in rescaled values")
    l2_weight: float = Field(1e-5, ge=0, description="λ₃, of the squared weights")
    eta: float = Field(0.9, ge=0, le=1, description="share of the largest |td| in a sequence's priority")
    alpha: float = Field(0.9, ge=0, le=1, description="P ∝ p^alpha within a buffer")
    beta: float = Field(
        0.6, ge=0, le=1, description="a drawn sequence weighs (N P)^−beta, over the largest of the minibatch"
    )
    grad_norm: float = Field(10.0, gt=0, description="gradients are scaled down to this norm")

    @model_validator(mode="after")
    def _no_step_is_left_out(self) -> R2d3Settings:
        if self.stride > self.length:
            raise ValueError("algorithm.stride must be at most algorithm.length")
        return self


class PluginSettings(DescentSettings):
    """Base of the settings of an algorithm that another package brings: docs/learning.md.

    A subclass has a `type` of the form package.name, as its entry point is called, and defaults for all that it adds.
    Its module need not import torch, and should not: every process of a run reads the settings.
    """

    effect: ClassVar[Effect | None] = Effect(When.START)
    """All settings count from the first update on, so that no two arms of an ablation share a warm-up. A subclass may
    say `Effect(When.LATER)` here or at a setting, if nothing that is done in the warm-up depends on it."""
    code: ClassVar[str]
    """module:attribute of its `distrl.algorithms.registry.Registered`, which is loaded where the algorithm is used."""

    type: str
    replay: BufferSettings = BufferSettings()


Own = (
    ArideSettings | CloningSettings | DigiRlSettings | FilteredBcSettings | GrpoSettings | R2d3Settings | VtraceSettings
)
OwnSettings = Annotated[Own, Field(discriminator="type")]
"""One of DistRL's own; `type` says which."""
AlgorithmSettings = Own | PluginSettings
"""One of DistRL's own, or that of another package (algorithm_plugins.py)."""

DEFAULT: Final = "aride"
ALGORITHMS: Final = tuple(each.model_fields["type"].default for each in get_args(Own))
"""Every algorithm.type that is DistRL's own."""


def named(value: Any) -> Any:
    """`algorithm` as written, with the default type where none is named: `algorithm.gamma` alone is enough."""
    return {"type": DEFAULT, **value} if isinstance(value, dict) else value
