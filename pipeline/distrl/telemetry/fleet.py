"""Whether a run's fleet makes progress, for `distrl status` and `distrl doctor`: stalls and limits, with hints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from distrl.broker.connect import admin
from distrl.broker.open_transactions import lasting_transactions
from distrl.broker.topic_admin import partition_count
from distrl.broker.topics import topic_name
from distrl.config import Config
from distrl.telemetry.feed import CLOCK_OFF_S, RunFeed, RunProgress
from distrl.telemetry.stalls import STALLED_HINT, limits, phones_answering, stalled
from distrl.types import Heartbeat

MOST_TASKS: Final = 2**31
"""A reported limit of so many or more, or of less than 0, counts as none: a heartbeat may hold any number."""


@dataclass(frozen=True, slots=True)
class FleetFinding:
    """One finding about the fleet: whether it is ok, what was found, and a hint if it is not."""

    what: str
    ok: bool
    detail: str
    hint: str


def fleet_findings(config: Config, feed: RunFeed) -> list[FleetFinding]:
    """Only what `clock_findings` and `transaction_findings` have if no worker or feeder has sent a heartbeat lately.
    Raises BrokerError."""
    progress, always = feed.progress(), clock_findings(feed.ahead_s) + transaction_findings(config)
    if not any(beat.role in ("worker", "feeder") for beat in progress.beats):
        return always
    partitions = partition_count(admin(config.kafka), config, topic_name(config.run, "tasks"), "see its partitions")
    return always + findings_of(config, progress, partitions)


def clock_findings(ahead_s: float) -> list[FleetFinding]:
    """Empty where this machine's clock agrees with the broker's. ahead_s: as RunFeed has it."""
    if abs(ahead_s) < CLOCK_OFF_S:
        return []
    where = "ahead of" if ahead_s > 0 else "behind"
    detail = f"this machine's is at least {abs(ahead_s):.0f} s {where} the broker's"
    hint = "set both by NTP: without new records it is not known which processes are silent"
    return [FleetFinding("clock", False, detail, hint)]


def transaction_findings(config: Config) -> list[FleetFinding]:
    """Empty where no transaction hides lines of the journal or versions for good. Raises BrokerError."""
    found = lasting_transactions(config)
    return [FleetFinding("transactions", False, str(each), each.how_to_end(config.kafka)) for each in found]


def findings_of(config: Config, progress: RunProgress, partitions: int) -> list[FleetFinding]:
    """Pure. partitions: of the tasks topic."""
    said = stalled(progress.quiet_s, progress.loads, progress.beats)
    outstanding, phones = sum(progress.loads.values()), phones_answering(progress.beats)
    well = f"{outstanding} tasks outstanding, and trajectories come" if outstanding else "no task is outstanding"
    found = [FleetFinding("progress", said is None, said or well, STALLED_HINT)]
    most = _limit(progress.beats, config.feeder.outstanding_for(phones))
    rows = limits(config.feeder.outstanding, most, outstanding, phones, partitions, progress.beats)
    return [*found, *(FleetFinding(*each) for each in rows), _lag(config, phones)]


def _lag(config: Config, phones: int) -> FleetFinding:
    """Whether the bound on the lag (distrl.feeder.admission) leaves a task for each phone."""
    version = config.learner.trajectories_per_update * config.learner.publish_every
    versions = config.feeder.max_lag + 1
    room = versions * version
    return FleetFinding(
        "feeder.max_lag",
        room >= phones,
        f"at most {room} tasks are fed and not learned ({versions} versions of {version} trajectories), "
        f"{phones} phones answer",
        f"raise feeder.max_lag to {-(-2 * phones // version) - 1} or more, or begin a run with a larger "
        "learner.trajectories_per_update (docs/scale.md)",
    )


def _limit(beats: Sequence[Heartbeat], otherwise: int) -> int:
    """The feeder's reported limit, as its settings may differ from the caller's; `otherwise` where none is usable."""
    reported = (beat.metrics.get("outstanding_limit", -1.0) for beat in beats if beat.role == "feeder")
    return next((int(most) for most in reported if 0 <= most < MOST_TASKS), otherwise)
