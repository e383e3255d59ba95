"""An overview of a run: its settings, the sizes of its topics and objects, its success rate, its running processes.

Sizes of topics and screenshots are estimated from the last records, so that the cost does not grow with the log.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from distrl.broker.connect import UnknownTopicError
from distrl.broker.reader import LogReader, RawRecord, decoded, retained
from distrl.broker.snapshots import TOPIC as SNAPSHOTS
from distrl.broker.times import offsets_at
from distrl.broker.topics import TOPICS
from distrl.broker.versions import lineage
from distrl.clock import SYSTEM_CLOCK
from distrl.config import Config, StoreSettings
from distrl.errors import StoreError, WireError
from distrl.runs.named_objects import read, screens_of
from distrl.runs.recorded import RecordedSettings, recorded
from distrl.runs.settings import STORE
from distrl.store.adapters import adapters_bytes
from distrl.store.folders import RUNS
from distrl.store.objects import ObjectStore, open_store
from distrl.telemetry.view import HEARTBEAT_STALE_MS, SUCCESS_WINDOW
from distrl.types import Heartbeat, Outcome, Trajectory, Version

POLL_S = 0.5

SAMPLE = 200
"""Records at the end of a topic that its size is estimated from; at least SUCCESS_WINDOW."""

HEARTBEATS = "heartbeats"

MOST_BEATS = 20_000
"""Most heartbeats that are read: enough for those of 5,000 processes at 5 s each within HEARTBEAT_STALE_MS. Without the
bound, those of a whole day would be read if this machine's clock is slow."""

LISTEN_S = 10.0
"""Time within which every process of a run sends a heartbeat: twice the longest `worker.heartbeat_s`."""

SKEW_MS = 3_600_000
"""Two clocks are assumed to differ by no more than this."""


@dataclass(frozen=True, slots=True)
class TopicUsage:
    """One topic of a run. about_bytes: keys and values before compression, estimated."""

    name: str
    records: int
    about_bytes: int


@dataclass(frozen=True, slots=True)
class ObjectUsage:
    """The objects of a run."""

    own: int
    """Bytes of checkpoints and other objects under runs/<run>/."""
    adapters: int
    """Bytes of the published adapters."""
    about_screenshots: int
    """Bytes of the screenshots, estimated; equal ones, which are stored once, are counted each."""

    @property
    def total(self) -> int:
        return self.own + self.adapters + self.about_screenshots


@dataclass(frozen=True, slots=True)
class RunOverview:
    run: str
    settings: RecordedSettings | None
    """None where its log has none yet, or none that can be read."""
    unreadable: str | None
    """Why its settings cannot be read: another version of DistRL, or another program, wrote them."""
    topics: tuple[TopicUsage, ...]
    objects: ObjectUsage | None
    """None where the store cannot be opened or does not answer."""
    version: int | None
    """The newest one."""
    success: float | None
    """Of the last SUCCESS_WINDOW trajectories whose outcome is known, in [0, 1]."""
    alive: tuple[str, ...]
    """Processes that sent a heartbeat within HEARTBEAT_STALE_MS, by name."""
    last_heartbeat: int
    """ms since the epoch, by the broker's clock; 0 for none."""

    @property
    def trajectories(self) -> int:
        return next((each.records for each in self.topics if each.name == "trajectories"), 0)

    @property
    def begun_at(self) -> int | None:
        """ms since the epoch, by the clock of the process that recorded the settings; None if nobody did."""
        return self.settings.history[0].at if self.settings is not None and self.settings.history else None


def overview(config: Config, store: ObjectStore | None = None) -> RunOverview:
    """The overview of `config.run`. store: of its objects; None: the one that its log names, else that of `config`.
    Raises BrokerError."""
    last = {name: _last(config, name) for name in TOPICS}
    topics = tuple(TopicUsage(name, count, _scaled(map(_size, raws), count)) for name, (count, raws) in last.items())
    trajectories, demonstrations = (
        [each for raw in last[name][1] if isinstance(each := read(name, raw), Trajectory)]
        for name in ("trajectories", "demonstrations")
    )
    shots = sum(
        _scaled(map(_screens, found), last[name][0])
        for name, found in (("trajectories", trajectories), ("demonstrations", demonstrations))
    )
    versions = lineage(config) if last["versions"][0] else []
    settings, unreadable = _settings(config)
    return RunOverview(
        config.run,
        settings,
        unreadable,
        topics,
        _objects(config.run, store or store_named(settings, config.store), versions, shots),
        versions[-1].version if versions else None,
        success_of(trajectories),
        alive(last[HEARTBEATS][1], SYSTEM_CLOCK.now_ms()),
        max((raw.timestamp for raw in last[HEARTBEATS][1]), default=0),
    )


def heard(config: Config, found: RunOverview) -> tuple[str, ...]:
    """The running processes of the run, by name, even if the clocks of this machine and the broker differ.

    If `found` has none alive and the last heartbeat is not older than SKEW_MS, it waits up to LISTEN_S for the next
    ones. Raises BrokerError.
    """
    if found.alive or found.last_heartbeat < SYSTEM_CLOCK.now_ms() - SKEW_MS:
        return found.alive
    ends = {partition: end for partition, (_, end) in retained(config, HEARTBEATS).items()}
    deadline = time.monotonic() + LISTEN_S
    with LogReader(config, HEARTBEATS, ends) as reader:
        while time.monotonic() < deadline:
            if names := alive(reader.read(POLL_S), now_ms=0):
                return names
    return ()


def success_of(trajectories: Iterable[Trajectory]) -> float | None:
    """Share of successes among the last SUCCESS_WINDOW with a known outcome; None if there are none. Pure."""
    known = [each.outcome is Outcome.SUCCESS for each in trajectories if each.outcome.is_known]
    recent = known[-SUCCESS_WINDOW:]
    return sum(recent) / len(recent) if recent else None


def alive(raws: Iterable[RawRecord], now_ms: int) -> tuple[str, ...]:
    """The processes whose last heartbeat is younger than HEARTBEAT_STALE_MS by the broker's clock, by name. Pure."""
    found: set[str] = set()
    for raw in raws:
        try:
            process = decoded(raw, Heartbeat).process
        except WireError:
            continue
        if raw.timestamp >= now_ms - HEARTBEAT_STALE_MS:
            found.add(process)
    return tuple(sorted(found))


def _settings(config: Config) -> tuple[RecordedSettings | None, str | None]:
    """The settings, and why they cannot be read: one such run must not hide the others of the broker."""
    try:
        return recorded(config), None
    except WireError as error:
        return None, str(error)


def store_named(found: RecordedSettings | None, here: StoreSettings) -> StoreSettings:
    """The store that the run's log names; `here` where it names none. Pure."""
    values = {} if found is None else found.values
    named = {name: values.get(f"store.{name}") for name in STORE}
    return here.model_copy(update={name: each for name, each in named.items() if isinstance(each, str)})


def _objects(
    run: str, found: ObjectStore | StoreSettings, versions: Iterable[Version], shots: int
) -> ObjectUsage | None:
    try:
        store = open_store(found) if isinstance(found, StoreSettings) else found
        _, own = store.usage(f"{RUNS.of(run)}/")
        adapters = adapters_bytes(store, run, versions)
    except StoreError:
        return None
    return ObjectUsage(own, adapters, shots)


def _last(config: Config, topic: str) -> tuple[int, list[RawRecord]]:
    """(how many records a topic holds, its last records). The number is an upper bound where the topic is compacted or
    transactional. The records are the last SAMPLE of each partition, of heartbeats also all that `alive` counts.
    (0, []) where the topic is missing.
    """
    try:
        kept = retained(config, topic)
    except UnknownTopicError:
        return 0, []
    if all(first == end for first, end in kept.values()):  # a reader takes longer than this, and most topics are empty
        return 0, []
    if topic == SNAPSHOTS:  # compaction will delete all but the newest
        kept = {partition: (max(first, end - 1), end) for partition, (first, end) in kept.items()}
    start = {partition: max(first, end - SAMPLE) for partition, (first, end) in kept.items()}
    if topic == HEARTBEATS:  # SAMPLE of a large fleet may be the last few seconds
        since = offsets_at(config, topic, kept, SYSTEM_CLOCK.now_ms() - HEARTBEAT_STALE_MS)
        for partition, offset in since.items():
            if offset is not None:
                start[partition] = min(start[partition], max(offset, kept[partition][1] - MOST_BEATS))
    with LogReader(config, topic, start) as reader:
        raws = [raw for batch in reader.to_end() for raw in batch]
    return sum(end - first for first, end in kept.values()), raws


def _size(raw: RawRecord) -> int:
    return len(raw.key or b"") + len(raw.value or b"")


def _screens(trajectory: Trajectory) -> int:
    return sum(screen.size for screen in screens_of(trajectory))


def _scaled(sizes: Iterable[int], count: int) -> int:
    """The sum of `count` values of which `sizes` is a sample."""
    known = list(sizes)
    return round(sum(known) / len(known) * count) if known else 0
