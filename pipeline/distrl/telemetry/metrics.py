"""Every metric that a process reports, in heartbeats and on /metrics, with its meaning and, where it hurts, the setting
that helps. Dashboards and alerts take their names from here.

Processes report only names from this list, which tests of the roles hold them to.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

PREFIX: Final = "distrl_"


class Kind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"
    """Only grows while its process lives."""


class Unit(StrEnum):
    NONE = ""
    SECONDS = "seconds"
    MILLISECONDS = "ms"
    """On /metrics in seconds: Prometheus has base units."""
    RATIO = "ratio"
    """A share of 1."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. Its name in heartbeats is its key in METRICS."""

    help: str
    roles: tuple[str, ...]
    """Who reports it."""
    kind: Kind = Kind.GAUGE
    unit: Unit = Unit.NONE
    labels: tuple[str, ...] = ()
    """Heartbeats have no labels: a metric with some is on /metrics alone."""


WORKER: Final = ("worker",)
LEARNER: Final = ("learner",)
FEEDER: Final = ("feeder",)
EVALUATOR: Final = ("evaluator",)
DEMONSTRATOR: Final = ("demonstrator",)
PHONES: Final = (*WORKER, *EVALUATOR, *DEMONSTRATOR)
"""The roles that drive phones."""
ALL: Final = (*PHONES, *LEARNER, *FEEDER)

COUNTER, SECONDS, MILLISECONDS, RATIO = Kind.COUNTER, Unit.SECONDS, Unit.MILLISECONDS, Unit.RATIO

METRICS: Final[dict[str, Metric]] = {
    # every role
    "ready": Metric("1 once the process can do its work: what /readyz says", ALL),
    "progress_age_seconds": Metric("since the main loop made progress; see monitoring.stuck_s", ALL, unit=SECONDS),
    "version": Metric(
        "the version that a worker has loaded, a learner has published, a feeder feeds under, an evaluator has "
        "evaluated; -1: none",
        (*WORKER, *EVALUATOR, *LEARNER, *FEEDER),
    ),
    "stalled": Metric(
        "calls to Kafka or the store that wait for an answer: of the learner's update, of a worker's phones",
        (*WORKER, *LEARNER),
    ),
    "dead_letters": Metric(
        "records that could not be decoded, sent to trajectories.dlq", (*WORKER, *LEARNER), kind=COUNTER
    ),
    "devices": Metric("phones by state; idle and leased ones answer", PHONES, labels=("state",)),
    "device_events": Metric(
        "events of the phones since the process started: leases, retries, …", PHONES, kind=COUNTER, labels=("event",)
    ),
    # worker
    "episodes": Metric("episodes finished since the process started", WORKER, kind=COUNTER),
    "outcomes": Metric(
        "how episodes ended since the process started", WORKER, kind=COUNTER, labels=("suite", "outcome")
    ),
    "steps": Metric("steps taken since the process started", WORKER, kind=COUNTER),
    "reloads": Metric("policy versions loaded since the process started", WORKER, kind=COUNTER),
    "reload_alerts": Metric(
        "versions refused: wrong hash or other base model; the old weights stay", WORKER, kind=COUNTER
    ),
    "reload_seconds": Metric(
        "from the version's publication to its first use here (last reload)", WORKER, unit=SECONDS
    ),
    "busy_devices": Metric("devices in an episode now", WORKER),
    "partitions": Metric("partitions of the tasks topic that the worker owns; see kafka.task_partitions", WORKER),
    "queue": Metric(
        "tasks received and not started: two or so for each phone unless feeder.outstanding is set", WORKER
    ),
    "running": Metric("tasks started and not committed: in an episode, with the judge, or being published", WORKER),
    "publish_stalls": Metric(
        "times no episode was started because Kafka or the store did not answer", WORKER, kind=COUNTER
    ),
    "phone_ms": Metric("mean time of one step inside the phone's action command", WORKER, unit=MILLISECONDS),
    "adb_ms": Metric(
        "mean time of one step in screenshots and settling; see devices.settle_poll_s", WORKER, unit=MILLISECONDS
    ),
    "policy_ms": Metric(
        "mean time of one step in the policy, its wait for a batch included; see worker.batch_wait_ms",
        WORKER,
        unit=MILLISECONDS,
    ),
    "publish_ms": Metric("mean time of one step in putting its screenshot", WORKER, unit=MILLISECONDS),
    "judge_requests": Metric(
        "requests to the judge since the process started; see judge.requests_per_minute", WORKER, kind=COUNTER
    ),
    "judge_retries": Metric(
        "requests to the judge that were repeated: it was busy, or its answer was no verdict", WORKER, kind=COUNTER
    ),
    "judge_seconds": Metric("mean time of one request to the judge", WORKER, unit=SECONDS),
    "judge_slowest_seconds": Metric("the longest request to the judge; see judge.timeout_s", WORKER, unit=SECONDS),
    "judge_tokens": Metric("tokens that the judge read and wrote since the process started", WORKER, kind=COUNTER),
    "judge_cost": Metric("cost of the judge's tokens, by judge.price_in and judge.price_out", WORKER, kind=COUNTER),
    "judge_queue": Metric(
        "episodes that wait for the judge of their actions; those that find no room are published unjudged", WORKER
    ),
    "actions_judged": Metric(
        "actions that the judge called valid or invalid since the process started", WORKER, kind=COUNTER
    ),
    "actions_invalid": Metric("actions that the judge called invalid since the process started", WORKER, kind=COUNTER),
    "actions_unjudged": Metric(
        "actions that were to be judged and were not; see judge.validity_actions", WORKER, kind=COUNTER
    ),
    # learner
    "update": Metric("updates folded", LEARNER),
    "pending": Metric("trajectories read and not yet folded", LEARNER),
    "duplicates": Metric("records of a task id that the log already held, skipped", LEARNER, kind=COUNTER),
    "buffer": Metric("transitions in the replay buffer", LEARNER),
    "trajectories": Metric("trajectories in the last update's window", LEARNER),
    "skipped": Metric(
        "trajectories of the last window that are not learned from: interrupted, unjudged, empty, malformed or refused "
        "by the algorithm",
        LEARNER,
    ),
    "window_lag_mean": Metric(
        "versions that trajectories of the last window were behind when their update was journalled, mean", LEARNER
    ),
    "window_lag_max": Metric(
        "versions that the oldest trajectory of the last window was behind; see feeder.max_lag", LEARNER
    ),
    "window_age_seconds": Metric(
        "from the end of an episode to the update that folds it, mean of the last window", LEARNER, unit=SECONDS
    ),
    "policy_loss": Metric("loss of the policy where advantages weigh its actions, mean of the last update", LEARNER),
    "clone_loss": Metric(
        "loss of what is imitated, in the warm-up and after it, mean of the last update; DigiRL's is over all steps "
        "drawn, 0 for those that it does not imitate",
        LEARNER,
    ),
    "value_loss": Metric("binary cross-entropy of V(s)", LEARNER),
    "trajectory_value_loss": Metric("binary cross-entropy of V_traj", LEARNER),
    "instruction_value_loss": Metric("binary cross-entropy of DigiRL's value of an instruction", LEARNER),
    "imitated": Metric(
        "steps that DigiRL imitates, of those in the trajectories that it keeps; see algorithm.threshold",
        LEARNER,
        unit=RATIO,
    ),
    "entropy": Metric("mean −log π of the actions taken; watch for a collapse to 0 (algorithm.entropy)", LEARNER),
    "token_entropy": Metric("mean entropy of the policy over the tokens of the actions taken", LEARNER),
    "value_accuracy": Metric("share of sampled steps where V(s) > 1/2 is right about the outcome", LEARNER, unit=RATIO),
    "ratio": Metric("mean importance ratio ρ", LEARNER),
    "sample_share": Metric(
        "effective share of a minibatch after weighting by the clipped ρ; near 0, the data is too old",
        LEARNER,
        unit=RATIO,
    ),
    "critic_sample_share": Metric(
        "effective share of a minibatch after weighting for V(s); near 0, few transitions weigh all",
        LEARNER,
        unit=RATIO,
    ),
    "clipped": Metric(
        "share of ratios above algorithm.ratio_clip or algorithm.rho_max, or whose gradient algorithm.clip removes",
        LEARNER,
        unit=RATIO,
    ),
    "groups": Metric("groups of episodes that GRPO learns from; see algorithm.group_size", LEARNER),
    "groups_alike": Metric(
        "groups whose episodes all ended alike, so that nothing follows from them, of those that are whole",
        LEARNER,
        unit=RATIO,
    ),
    "td_error": Metric("R2D3's η max |td| + (1 − η) mean |td| of the sequences that were drawn, mean", LEARNER),
    "demonstrated": Metric(
        "sequences that R2D3 drew from demonstrations; see algorithm.demo_ratio", LEARNER, unit=RATIO
    ),
    "score_age": Metric(
        "mean updates since a transition of the buffer was scored; see algorithm.replay.refresh_share", LEARNER
    ),
    "priority_age": Metric(
        "most updates since any step of one trajectory was scored; see algorithm.replay.refresh_within", LEARNER
    ),
    "update_seconds": Metric("wall time of the last update", LEARNER, unit=SECONDS),
    "folding_seconds": Metric("time in updates since the process started", LEARNER, kind=COUNTER, unit=SECONDS),
    "waiting_seconds": Metric(
        "time without an update to make since the process started: too few trajectories came",
        LEARNER,
        kind=COUNTER,
        unit=SECONDS,
    ),
    # feeder
    "fed": Metric("tasks fed", FEEDER, kind=COUNTER),
    "outstanding": Metric("tasks fed and not finished", FEEDER),
    "outstanding_limit": Metric("most tasks fed and not finished; see feeder.outstanding", FEEDER),
    "retried": Metric("tasks fed again after an interrupted episode", FEEDER, kind=COUNTER),
    "max_lag": Metric("feeder.max_lag: versions that a trajectory may be behind when it is learned", FEEDER),
    "quiet_seconds": Metric(
        "since a trajectory came that was not interrupted, while tasks are outstanding", FEEDER, unit=SECONDS
    ),
    "unlearned_seconds": Metric(
        "since the trajectories of an update are there, while no update is made of them", FEEDER, unit=SECONDS
    ),
    "consumer_lag": Metric(
        "records of the tasks topic that the workers' group has not committed, within some ten seconds", FEEDER
    ),
    # evaluator
    "evaluated": Metric("episodes evaluated since the process started", EVALUATOR, kind=COUNTER),
    "evaluation_tasks": Metric("tasks that it evaluates each version on", EVALUATOR),
    "evaluation_success": Metric("success of the version evaluated last", EVALUATOR, unit=RATIO, labels=("suite",)),
    # demonstrator
    "demonstrations": Metric("demonstrations published since the process started", DEMONSTRATOR, kind=COUNTER),
}


def prometheus_name(name: str) -> str:
    """The name of a metric's series: with the prefix, the base unit, and `_total` where it is a counter.

    Raises KeyError for a metric that is not in METRICS.
    """
    metric = METRICS[name]
    stem, unit = name, metric.unit.value
    if metric.unit is Unit.MILLISECONDS:
        stem, unit = name.removesuffix("_ms"), Unit.SECONDS.value
    if unit and not stem.endswith(f"_{unit}"):
        stem = f"{stem}_{unit}"
    return f"{PREFIX}{stem}{'_total' if metric.kind is Kind.COUNTER else ''}"


def prometheus_value(name: str, value: float) -> float:
    """`value` in the base unit."""
    return value / 1000 if METRICS[name].unit is Unit.MILLISECONDS else value
