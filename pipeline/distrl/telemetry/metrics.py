"""Every metric name a heartbeat carries, with its meaning and, where it hurts, the setting that helps.

Processes publish only names from this list, which tests of the roles hold them to.
"""

from __future__ import annotations

from typing import Final

METRICS: Final[dict[str, str]] = {
    # worker
    "episodes": "episodes finished since the process started",
    "steps": "steps taken since the process started",
    "reloads": "policy versions loaded since the process started",
    "reload_alerts": "versions refused: wrong hash or other base model; the old weights stay",
    "reload_seconds": "from the version's publication to its first use here (last reload)",
    "busy_devices": "devices in an episode now",
    "queue": "tasks received and not started; lower feeder.outstanding if it stays high",
    "running": "tasks started and not committed: in an episode, with the judge, or being published",
    "publish_stalls": "times no episode was started because Kafka or the store did not answer",
    "phone_ms": "mean time of one step inside the phone's action command",
    "adb_ms": "mean time of one step in screenshots and settling; see devices.settle_poll_s",
    "policy_ms": "mean time of one step in the policy, its wait for a batch included; see worker.batch_wait_ms",
    "publish_ms": "mean time of one step in putting its screenshot",
    "judge_requests": "requests to the judge since the process started; see judge.requests_per_minute",
    "judge_retries": "requests to the judge that were repeated: it was busy, or its answer was none",
    "judge_seconds": "mean time of one request to the judge",
    "judge_slowest_seconds": "the longest request to the judge; see judge.timeout_s",
    "judge_tokens": "tokens that the judge read and wrote since the process started",
    "judge_cost": "what they cost, by judge.price_in and judge.price_out",
    "judge_queue": "episodes that wait for the judge of their actions; those that find no room are published unjudged",
    "actions_judged": "actions that the judge called valid or invalid since the process started",
    "actions_invalid": "of those, called invalid",
    "actions_unjudged": "actions that it was to judge and nobody did; see judge.validity_actions",
    # learner
    "update": "updates folded",
    "version": "newest version published",
    "pending": "trajectories read and not yet folded",
    "duplicates": "records of a task id that the log already held, skipped",
    "dead_letters": "records that could not be decoded, sent to trajectories.dlq",
    "buffer": "transitions in the replay buffer",
    "trajectories": "trajectories in the last update's window",
    "skipped": "of those, not learned from: interrupted, unjudged, empty or unreadable",
    "policy_loss": "A-RIDE policy loss, mean of the last update",
    "clone_loss": "behaviour-cloning loss of the warm-up, mean of the last update",
    "value_loss": "binary cross-entropy of V(s)",
    "trajectory_value_loss": "binary cross-entropy of V_traj",
    "entropy": "mean −log π of the actions taken; watch for a collapse to 0 (algorithm.entropy)",
    "token_entropy": "mean entropy of the policy over the tokens of the actions taken",
    "value_accuracy": "share of sampled steps where V(s) > 1/2 is right about the outcome",
    "ratio": "mean importance ratio ρ",
    "sample_share": "effective share of a minibatch after weighting by the clipped ρ; near 0, the data is too old",
    "critic_sample_share": "effective share of a minibatch after weighting for V(s); near 0, few transitions weigh all",
    "clipped": "share of ratios above algorithm.ratio_clip",
    "score_age": "mean updates since a transition of the buffer was scored; see algorithm.replay.refresh_share",
    "priority_age": "most updates since any step of one trajectory was scored; see algorithm.replay.refresh_within",
    "update_seconds": "wall time of the last update",
    # feeder
    "fed": "tasks fed",
    "outstanding": "tasks fed and not finished",
    "outstanding_limit": "most tasks fed and not finished; see feeder.outstanding",
    "retried": "tasks fed again after an interrupted episode",
    # evaluator
    "evaluated": "episodes evaluated since the process started",
}
