"""The nouns of the system: what is done, seen, recorded and published. Frozen, and free of torch and I/O.

A record says what happened (observations, actions, behaviour log-probabilities, versions, outcomes). Rewards,
penalties, returns, advantages and priorities are computed by the learner and appear in no record.
Times are milliseconds since the epoch (UTC); log-probabilities are in nats; screen points are in [0, 1].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

SCRIPTED = -1
"""The version of steps that a script chose, or a person by hand."""
PROMPTED = -2
"""The version of steps that a prompted model chose, which has no weights here; `version_sha256` names what it was told
(docs/wire.md). Numbers below 0 are of no published version."""


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
    """What the policy wrote is no action; nothing is sent to the device and the step counts."""


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


class HeldBack(StrEnum):
    """What kept an action from being done: `devices.allowed_packages`, or a phone that cannot do it."""

    NO = "no"
    UNSENT = "unsent"
    """An app that is not allowed had come to the front, and the action was dropped: it was meant for another screen."""
    UNDONE = "undone"
    """It was sent, an app that is not allowed was in front afterwards, and was left again."""
    REFUSED = "refused"
    """The phone cannot do it, as with text that it cannot type. Nothing was sent; the learner takes it for invalid."""


@dataclass(frozen=True, slots=True)
class Point:
    """A place on the screen: x from the left, y from the top, each in [0, 1]."""

    x: float
    y: float


@dataclass(frozen=True, slots=True)
class Action:
    """One action. `touch` for tap and swipe, `lift` for swipe, `text` for type (or the raw text of an invalid one)."""

    kind: ActionKind
    touch: Point | None = None
    lift: Point | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class ObjectRef:
    """An immutable object in the store. `sha256` is the hex digest of its bytes, `size` their number."""

    key: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Task:
    """One thing to do on one phone, once. `setup` is the JSON that the phone's reset takes.

    fed_version: the newest version when the task was fed. A worker begins only once it has loaded that version, so
    that the feeder's bound on the lag holds whatever a reload takes; -1 asks for none.
    """

    task_id: str
    suite: str
    family: str
    split: Split
    instruction: str
    max_steps: int
    phone_seed: int
    params: Mapping[str, str] = field(default_factory=dict)
    setup: str = "{}"
    fed_at: int = 0
    fed_version: int = -1


@dataclass(frozen=True, slots=True)
class Step:
    """One decision: what was seen, what was written, with which weights, and how likely they made it.

    prompt_ids, action_ids: the exact token ids read and written (action_ids end with the end token).
    logprob: log μ(action | screen, prompt), summed over the action's tokens, under `version`.
    valid: whether a judge called the action one that can be done on that screen; None where nobody was asked, or could
    tell. The learner takes it for P_invalid (DistRL, equation 1); no penalty is in a record.
    restless: the screen never rested; `screenshot` is its last whole frame at the deadline for settling.
    """

    screenshot: ObjectRef
    prompt_ids: tuple[int, ...]
    action_ids: tuple[int, ...]
    action: Action
    action_text: str
    logprob: float
    version: int
    version_sha256: str
    at: int
    phone_ms: float = 0.0
    adb_ms: float = 0.0
    policy_ms: float = 0.0
    publish_ms: float = 0.0
    valid: bool | None = None
    held_back: HeldBack = HeldBack.NO
    restless: bool = False


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One attempt at one task, in order. A trajectory is its task id: the first record in the log wins.

    validity_source: who says whether the steps' actions were valid; empty where nobody was asked.
    final_restless: as a step's `restless`, of `final_screenshot`.
    """

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
    final_restless: bool = False

    @property
    def task_id(self) -> str:
        return self.task.task_id


@dataclass(frozen=True, slots=True)
class Version:
    """A published policy: immutable weights named by sha256, and where they come from.

    supersedes: versions whose updates became void, ascending. Their numbers keep their meaning and are not used again.
    """

    version: int
    parent: int | None
    update: int
    base_model_sha256: str
    adapter: ObjectRef
    config_fingerprint: str
    published_at: int
    supersedes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Watermark:
    """The records [0, offset) of one partition are folded."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class PutAside:
    """Records of one partition that could not be read, ascending."""

    topic: str
    partition: int
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that nobody folds because a person said so. sha256: of its value, as offsets may be used again."""

    topic: str
    partition: int
    offset: int
    sha256: str
    reason: str


@dataclass(frozen=True, slots=True)
class Update:
    """A line of the learner's journal: update `u` folds the log up to `watermarks` under this config.

    put_aside: what lies before these watermarks, not before those of an earlier update, and is folded by nobody, also
    not by a later reader who can read it: the same log gives the same weights whatever code reads it.
    window_sha256: over the records between the watermarks before and these (`PendingLog.window_sha256`); empty: not
    known.
    log_id: ids of the folded topics at the broker; empty: unknown. version: the highest version number given out so
    far, -1 for none.
    void: why the lines before this one, from update `u` on, no longer count; empty for an update. A line with a reason
    folds nothing, and its watermarks are those of update u - 1 (docs/adr/0010).
    skipped: what a person asked to leave out; it counts for the whole journal, whatever becomes void later.
    """

    u: int
    watermarks: tuple[Watermark, ...]
    config_fingerprint: str
    journalled_at: int
    put_aside: tuple[PutAside, ...] = ()
    window_sha256: str = ""
    log_id: str = ""
    version: int = -1
    void: str = ""
    skipped: tuple[Skipped, ...] = ()


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
    """What a process says of itself, for people to look at. No result is computed from it: weights, outcomes and scores
    are the same without it. The feeder paces itself by the phones that workers report (docs/adr/0011)."""

    process: str
    role: str
    at: int
    version: int | None
    version_sha256: str | None
    metrics: Mapping[str, float] = field(default_factory=dict)
    devices: tuple[DeviceHealth, ...] = ()
    partitions: tuple[int, ...] | None = None
    """Of the tasks topic, which a worker owns; None where the process takes no tasks, or did not say."""


Record = Task | Trajectory | Version | Update | Evaluation | Heartbeat


@dataclass(frozen=True, slots=True)
class LogPosition:
    """Where a record stands in the log. A sample is (position, step)."""

    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class LoggedTrajectory:
    """A trajectory with its place in the log: what the fold reads."""

    position: LogPosition
    trajectory: Trajectory
