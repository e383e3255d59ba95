"""The data types of the system: what is done, seen, recorded and published. Frozen, without torch or I/O.

A record says what happened (observations, actions, behaviour log-probabilities, versions, outcomes). Rewards,
penalties, returns, advantages and priorities are computed by the learner and appear in no record.
Times are milliseconds since the epoch (UTC); log-probabilities are in nats; screen points are in [0, 1].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, NamedTuple

SCRIPTED = -1
"""Version of steps that a script or a person chose."""
PROMPTED = -2
"""Version of steps that a prompted model chose, which has no weights here; `version_sha256` is that of the agent's
description (docs/wire.md). Published versions are never below 0."""


class ActionKind(StrEnum):
    """The action space of AutoUI: a gesture, typed text, a system key, or the end of the episode."""

    TAP = "tap"
    SWIPE = "swipe"
    TYPE = "type"
    BACK = "back"
    HOME = "home"
    ENTER = "enter"
    COMPLETE = "complete"
    INVALID = "invalid"
    """The policy wrote no valid action; nothing is sent to the device, and the step counts."""


class Split(StrEnum):
    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


class Outcome(StrEnum):
    SUCCESS = "success"
    FAILURE = "failure"
    UNKNOWN = "unknown"
    """The judge could not tell; never trained on as a failure."""
    INTERRUPTED = "interrupted"
    """The device failed; never trained on as a failure, and its task is fed again."""

    @property
    def is_known(self) -> bool:
        """Whether it says that the task was done or was not: what success is a share of."""
        return self in (Outcome.SUCCESS, Outcome.FAILURE)


class HeldBack(StrEnum):
    """Whether and why an action was held back: by `devices.allowed_packages`, or by a phone that cannot do it."""

    NO = "no"
    UNSENT = "unsent"
    """An app that is not allowed had come to the front; the action was meant for another screen and was dropped."""
    UNDONE = "undone"
    """It was sent and brought an app to the front that is not allowed; the app was left again."""
    REFUSED = "refused"
    """The phone cannot do it, like text that it cannot type. Nothing was sent; for the learner it is invalid."""


@dataclass(frozen=True, slots=True)
class Point:
    """A place on the screen: x from the left, y from the top, each in [0, 1]."""

    x: float
    y: float


class ScreenSize(NamedTuple):
    """Of an image of the screen, in pixels."""

    width: int
    height: int


TAP_DISTANCE: Final = 0.04
"""A finger that lifts no farther than this from where it touched has tapped; in fractions of the screen, as
`_SWIPE_DISTANCE_THRESHOLD` of Android in the Wild's action matching."""


@dataclass(frozen=True, slots=True)
class Action:
    """One action."""

    kind: ActionKind
    touch: Point | None = None
    """Of a tap or swipe."""
    lift: Point | None = None
    """Of a swipe."""
    text: str = ""
    """What is typed; of an invalid action, what the policy wrote."""


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """An immutable object in the store."""

    key: str
    sha256: str
    """Hex digest of its bytes."""
    size: int
    """In bytes."""


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to do on one phone, once."""

    task_id: str
    suite: str
    family: str
    split: Split
    instruction: str
    max_steps: int
    phone_seed: int
    params: Mapping[str, str] = field(default_factory=dict)
    setup: str = "{}"
    """JSON for the phone's reset."""
    fed_at: int = 0
    fed_version: int = -1
    """The newest version when the task was fed. A worker begins only once it has loaded it, so that the feeder's bound
    on the lag holds however long a reload takes. -1: none."""


@dataclass(frozen=True, slots=True)
class Step:
    """One decision: what was seen, what was written, by which weights, and its probability."""

    screenshot: ObjectRef
    prompt_ids: tuple[int, ...]
    """The exact token ids read."""
    action_ids: tuple[int, ...]
    """The exact token ids written, with the end token."""
    action: Action
    action_text: str
    logprob: float
    """log μ(action | screen, prompt) under `version`, summed over the action's tokens."""
    version: int
    version_sha256: str
    at: int
    phone_ms: float = 0.0
    adb_ms: float = 0.0
    policy_ms: float = 0.0
    publish_ms: float = 0.0
    valid: bool | None = None
    """Whether a judge said that the action can be done on that screen; None where no judge was asked or could tell. The
    learner derives P_invalid from it (DistRL, equation 1)."""
    held_back: HeldBack = HeldBack.NO
    restless: bool = False
    """The screen never came to rest; `screenshot` is its last whole frame at the deadline."""
    entropy: float | None = None
    """Mean entropy in nats of the distributions that the action's tokens were drawn from (`SampledAction`); None where
    nobody knows it. For people: nothing is learned from it."""


@dataclass(frozen=True, slots=True)
class Unmet:
    """A condition of a task's check that the phone's final state does not meet. For people: nothing is learned from it.
    All texts are bounded (`distrl.tasks.conditions`) and untrusted, as they hold what a policy typed."""

    path: str
    """What of the state: `screen`, `dialog`, `loading`, or `app.value`."""
    rule: str
    """`equals`, `contains`, `lacks`, `has words`, `direction`, or `unchanged`: a value that the task leaves alone."""
    wanted: str
    """JSON."""
    found: str
    """JSON."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One attempt at one task. The first record of a task id in the log counts."""

    task: Task
    attempt_id: str
    worker: str
    device: str
    steps: tuple[Step, ...]
    final_screenshot: ObjectRef | None
    outcome: Outcome
    outcome_source: str
    note: str
    is_expert: bool
    started_at: int
    finished_at: int
    validity_source: str = ""
    """The judge of the steps' `valid`; empty where none was asked."""
    final_restless: bool = False
    """As a step's `restless`, of `final_screenshot`."""
    unmet: tuple[Unmet, ...] = ()
    """Why ground truth calls it a failure; empty otherwise, and in records before version 4."""
    final_state: str = ""
    """Of a phone that offers its state: JSON of what differs from its start (`distrl.tasks.final_state`)."""
    reason: str = ""
    """Of a judge that gives one: in its own words, so untrusted."""

    @property
    def task_id(self) -> str:
        return self.task.task_id


@dataclass(frozen=True, slots=True)
class Version:
    """A published policy: immutable weights named by sha256, and where they come from."""

    version: int
    parent: int | None
    update: int
    base_model_sha256: str
    adapter: ObjectRef
    config_fingerprint: str
    published_at: int
    supersedes: tuple[int, ...] = ()
    """Versions whose updates became void, ascending. Their numbers are never used again."""


@dataclass(frozen=True, slots=True)
class Watermark:
    """Says that the records [0, offset) of one partition are folded."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class PutAside:
    """Skipped records of one partition, which could not be decoded. (The name is that of the landed schema.)"""

    topic: str
    partition: int
    offsets: tuple[int, ...]
    """Ascending."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that is never folded, by `distrl skip`."""

    topic: str
    partition: int
    offset: int
    sha256: str
    """Of its value, as offsets may be used again."""
    reason: str


@dataclass(frozen=True, slots=True)
class Update:
    """A line of the learner's journal: update `u` folds the log up to `watermarks` under this config."""

    u: int
    watermarks: tuple[Watermark, ...]
    config_fingerprint: str
    journalled_at: int
    put_aside: tuple[PutAside, ...] = ()
    """Undecodable records between the previous watermarks and these. They are never folded, not even by a newer reader
    that can decode them: the same log gives the same weights whatever code reads it."""
    window_sha256: str = ""
    """Over the records between the previous watermarks and these (`PendingLog.window_sha256`); empty: unknown."""
    log_id: str = ""
    """Ids of the folded topics at the broker; empty: unknown."""
    version: int = -1
    """The highest version number reserved so far; -1 for none."""
    void: str = ""
    """Why the earlier lines from update `u` on are void; empty for an update. A line with a reason folds nothing, and
    its watermarks are those of update u - 1 (docs/adr/0010)."""
    skipped: tuple[Skipped, ...] = ()
    """Records left out by `distrl skip`; they count for the whole journal, whatever becomes void later."""
    device: str = ""
    """The kind of processor that computes the update (`accelerator.kind_of`); empty: unknown."""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One evaluated task: the trajectory that greedy decoding under `version` produced."""

    version: int
    version_sha256: str
    evaluation_id: str
    trajectory: Trajectory


@dataclass(frozen=True, slots=True)
class DeviceHealth:
    serial: str
    state: str
    counters: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A process's report on itself, for people. Weights, outcomes and scores do not depend on it. The feeder paces
    itself by the phones that workers report (docs/adr/0011)."""

    process: str
    role: str
    at: int
    version: int | None
    version_sha256: str | None
    metrics: Mapping[str, float] = field(default_factory=dict)
    devices: tuple[DeviceHealth, ...] = ()
    partitions: tuple[int, ...] | None = None
    """Partitions of the tasks topic that a worker owns; None where the process takes no tasks, or an old one."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a run: all that belong to it, or a change of some. No address, credential or place of a machine."""

    at: int
    role: str
    """Of the process that recorded them, like learner."""
    process: str
    """Which process that was, for people."""
    sources: tuple[str, ...]
    """Where its own settings came from: names of files, variables and flags, without values."""
    software: str
    """Version of DistRL."""
    fingerprint: str
    """Of the learning settings in force with this record (hex)."""
    is_change: bool
    """Whether `settings` holds changes of earlier records; else all, and only the first such record counts."""
    settings: Mapping[str, str]
    """Path, like learner.seed -> value as JSON."""


@dataclass(frozen=True, slots=True)
class Covered:
    """The records of a partition up to offset `last`; that one is known by the sha256 (hex) of its key and value."""

    topic: str
    partition: int
    last: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What follows from the beginning of a run's log, so that a start need not read it (docs/adr/0018)."""

    at: int
    format: int
    covered: tuple[Covered, ...]
    feeder: bytes
    view: bytes


@dataclass(frozen=True, slots=True)
class DrawnStep:
    """A step that an update drew, and what the learner held of it then; None: the algorithm has no such thing, or it
    was no finite number. Numbers have the precision of a float32."""

    step: int
    """Its number in the trajectory, from 0."""
    times: int
    """How often this update drew it."""
    value: float | None = None
    """V(s), in [0, 1]."""
    advantage: float | None = None
    """Before it is normalised for a loss."""
    td_error: float | None = None
    ratio: float | None = None
    """ρ = π/μ of the whole action, not clipped as a loss may clip it."""
    priority: float | None = None
    """Of its trajectory, or of its sequence in R2D3."""


@dataclass(frozen=True, slots=True)
class DrawnTrajectory:
    """The drawn steps of one trajectory, in order. topic: its name without `distrl.<run>.`."""

    topic: str
    partition: int
    offset: int
    steps: tuple[DrawnStep, ...]


@dataclass(frozen=True, slots=True)
class Draws:
    """What one update drew from its memory. Derived: folding the same log gives it again. No fold reads it."""

    u: int
    phase: str
    """What the update did, like critics or a-ride."""
    journalled_at: int
    """That of the update; a void one of the same number has another."""
    trajectories: tuple[DrawnTrajectory, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """What the learner reported after one update: losses, entropies, its window. For people; no fold reads it."""

    u: int
    journalled_at: int
    """That of the update; a void one of the same number has another."""
    at: int
    """When it was reported."""
    metrics: Mapping[str, float]
    """Named as in telemetry.metrics."""


Record = Task | Trajectory | Version | Update | Evaluation | Heartbeat | Settings | Snapshot | Draws | Figures


@dataclass(frozen=True, slots=True)
class LogPosition:
    """The position of a record in the log. A sample is (position, step)."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class LoggedTrajectory:
    """A trajectory with its position in the log: what the fold reads."""

    position: LogPosition
    trajectory: Trajectory
