"""The recording rules and alerts for Prometheus. `make chart` writes them into the chart.

There are few alerts. Each is for a problem that no process fixes by itself, and docs/runbooks.md says what to do. A
process that hangs or ends is left to its supervisor (the probes of endpoint.py, `distrl train`).
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
    """How long the expression must hold before the alert fires."""
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
    """How much a counter has grown. `increase` leaves out the value with which a counter is first scraped, so that
    value is added: a process may count something before its first scrape. A counter that was scraped within the hour
    before is not new; else each gap in the scrapes would fire the alert."""
    known = f"last_over_time({counter}[1h] offset {within})"
    return f"increase({counter}[{within}]) > 0 or ({counter} unless {known})"


ALERTS: Final = (
    Alert(
        "DistrlNoTrajectories",
        f"max by (run) ({name('quiet_seconds')}) > 600",
        "5m",
        "critical",
        "run {{ $labels.run }}: for {{ $value | humanizeDuration }} no trajectory, or only interrupted ones, though "
        "tasks are outstanding",
    ),
    Alert(
        "DistrlNoOutcomes",
        f'sum by (run) (rate({name("outcomes")}{{outcome="{Outcome.UNKNOWN.value}"}}[30m])) > 0'
        f' unless on (run) sum by (run) (rate({name("outcomes")}{{outcome=~"{JUDGED}"}}[30m])) > 0',
        "15m",
        "critical",
        "run {{ $labels.run }}: the outcome of every episode is unknown, so nothing is learned from them",
    ),
    Alert(
        "DistrlNoLearner",
        f'count by (run) ({name("ready")}{{role="feeder"}})'
        # not the ranks that compute with it, which are ready while it recovers
        f' unless on (run) count by (run) ({name("ready")}{{role="learner", process="learner"}} == 1)',
        "15m",
        "critical",
        "run {{ $labels.run }} has a feeder, and no learner that is ready",
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
        "run {{ $labels.run }} has a learner or workers, and no feeder that is ready",
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
