"""What Prometheus computes of the figures of a run, and what it calls a person for. `make chart` writes them as rules.

Few alerts: each is of something that no process puts right by itself, and docs/runbooks.md has what to do. A process
that hangs or ends is its supervisor's matter (the probes of endpoint.py, `distrl train`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from distrl.telemetry.metrics import prometheus_name as name
from distrl.telemetry.stalls import ANSWERING
from distrl.types import Outcome

RUNBOOKS: Final = "docs/runbooks.md"
ANSWER: Final = "|".join(sorted(ANSWERING))
JUDGED: Final = f"{Outcome.SUCCESS.value}|{Outcome.FAILURE.value}"


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recording rule, named level:metric:operations."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class Alert:
    name: str
    expression: str
    lasting: str
    """How long the expression holds before a person is called."""
    severity: Literal["critical", "warning"]
    """critical: nothing is learned until somebody acts."""
    summary: str
    """With {{ $labels.… }} of the expression."""

    @property
    def runbook(self) -> str:
        """Path and heading in the repository."""
        return f"{RUNBOOKS}#{self.name.lower()}"


EPISODE_RATE: Final = "run:distrl_episodes:rate5m"
SUCCESS: Final = "run_suite:distrl_success:ratio_rate30m"
ANSWERING_SHARE: Final = "run:distrl_devices_answering:ratio"
FOLDING_SHARE: Final = "run:distrl_folding:ratio_rate15m"
WAITING_SHARE: Final = "run:distrl_waiting:ratio_rate15m"

RECORDED: Final = (
    Recorded(EPISODE_RATE, f"sum by (run) (rate({name('episodes')}[5m]))"),
    Recorded(
        SUCCESS,
        f'sum by (run, suite) (rate({name("outcomes")}{{outcome="{Outcome.SUCCESS.value}"}}[30m]))'
        f' / sum by (run, suite) (rate({name("outcomes")}{{outcome=~"{JUDGED}"}}[30m]))',
    ),
    Recorded(
        ANSWERING_SHARE,
        f'sum by (run) ({name("devices")}{{role="worker", state=~"{ANSWER}"}})'
        f' / sum by (run) ({name("devices")}{{role="worker"}})',
    ),
    # Both grow when what they count ends, so that a long update is all counted at its end.
    Recorded(FOLDING_SHARE, f"clamp_max(sum by (run) (rate({name('folding_seconds')}[15m])), 1)"),
    Recorded(WAITING_SHARE, f"clamp_max(sum by (run) (rate({name('waiting_seconds')}[15m])), 1)"),
)


def _grown(counter: str, within: str) -> str:
    """How much a counter has grown. One that is first seen with a value has grown by it, which `increase` leaves out:
    a process may meet what it counts before it is looked at. What was seen in the hour before is not first seen: else
    each gap in the scrapes would call a person."""
    known = f"last_over_time({counter}[1h] offset {within})"
    return f"increase({counter}[{within}]) > 0 or ({counter} unless {known})"


ALERTS: Final = (
    Alert(
        "DistrlNoTrajectories",
        f"max by (run) ({name('quiet_seconds')}) > 600",
        "5m",
        "critical",
        "run {{ $labels.run }}: no trajectory for {{ $value | humanizeDuration }}, or interrupted ones alone, though "
        "tasks are outstanding",
    ),
    Alert(
        "DistrlNoOutcomes",
        f'sum by (run) (rate({name("outcomes")}{{outcome="{Outcome.UNKNOWN.value}"}}[30m])) > 0'
        f' unless on (run) sum by (run) (rate({name("outcomes")}{{outcome=~"{JUDGED}"}}[30m])) > 0',
        "15m",
        "critical",
        "run {{ $labels.run }}: of its episodes nobody can say how they ended, so nothing is learned from them",
    ),
    Alert(
        "DistrlNoLearner",
        f'count by (run) ({name("ready")}{{role="feeder"}})'
        # not the ranks that compute with it, which are ready while it recovers
        f' unless on (run) count by (run) ({name("ready")}{{role="learner", process="learner"}} == 1)',
        "15m",
        "critical",
        "run {{ $labels.run }} is fed, and no learner of it is ready",
    ),
    Alert(
        "DistrlNotLearning",
        f"max by (run) ({name('unlearned_seconds')}) > 3600",
        "5m",
        "critical",
        "run {{ $labels.run }}: trajectories for an update have waited for {{ $value | humanizeDuration }}, and no "
        "update was made",
    ),
    Alert(
        "DistrlNoFeeder",
        f'count by (run) ({name("ready")}{{role=~"learner|worker"}})'
        f' unless on (run) count by (run) ({name("ready")}{{role="feeder"}} == 1)',
        "15m",
        "critical",
        "run {{ $labels.run }} has a learner or workers, and no feeder of it is ready",
    ),
    Alert(
        "DistrlStalled",
        f"max by (run, role) (min_over_time({name('stalled')}[10m])) > 0",
        "5m",
        "critical",
        "run {{ $labels.run }}: a {{ $labels.role }} waits for Kafka or the object store",
    ),
    Alert(
        "DistrlVersionRefused",
        f"sum by (run, process) ({_grown(name('reload_alerts'), '30m')}) > 0",
        "0m",
        "warning",
        "run {{ $labels.run }}: {{ $labels.process }} has refused the weights of a version and acts with older ones",
    ),
    Alert(
        "DistrlPolicyLag",
        f"max by (run) ({name('window_lag_max')}) > on (run) max by (run) ({name('max_lag')})",
        "30m",
        "warning",
        "run {{ $labels.run }} learns from trajectories that are {{ $value }} versions old, more than feeder.max_lag",
    ),
    Alert(
        "DistrlPhonesDown",
        f"{ANSWERING_SHARE} < 0.5",
        "15m",
        "warning",
        "run {{ $labels.run }}: {{ $value | humanizePercentage }} of the workers' phones answer",
    ),
    Alert(
        "DistrlDeadLetters",
        f"sum by (run, role) ({_grown(name('dead_letters'), '1h')}) > 0",
        "0m",
        "warning",
        "run {{ $labels.run }}: a {{ $labels.role }} met records that it could not read",
    ),
)
