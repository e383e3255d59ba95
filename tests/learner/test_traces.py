"""Headers are read beside the fold: what they hold changes neither what is folded, nor what becomes of it."""

from __future__ import annotations

from collecting import collecting
from distrl.broker.producer import Headers
from distrl.broker.reader import RawRecord
from distrl.clock import SYSTEM_CLOCK
from distrl.config import Config
from distrl.learner.fold import fold
from distrl.learner.reading import pending_log_at, take
from distrl.learner.skipped import SkippedRecords
from distrl.learner.state import LearnerState
from distrl.learner.traces import UpdateTraces
from distrl.telemetry.tracing import tracing
from distrl.types import LoggedTrajectory, Update
from distrl.wire.codec import encode

from learner.world import Screens, update_of, windows

UPDATES = 6
HEADERS: Headers = (("own", b"x"), ("traceparent", b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"))


def test_a_traced_log_gives_the_bits_of_one_that_is_not(settings: Config, screens: Screens) -> None:
    records = windows(screens, settings, UPDATES)

    def learned(updates: UpdateTraces | None, headers: Headers) -> tuple[list[str], dict[str, str]]:
        state, found = LearnerState(settings), []
        log = pending_log_at(settings, ())
        for window in records:
            update = update_of(state.u, window, state.watermarks, settings)
            for raw in (as_read(logged, headers) for logged in window):
                taken = take(raw, log, SkippedRecords([], []))
                if updates is not None and taken is not None:
                    updates.read(raw)
            found.append(log.window_sha256(update.watermarks))
            read = log.window(update.watermarks)
            traced(updates, update, read)
            fold(state, read, update, screens, settings)
            log.folded(update.watermarks)
        return found, dict(state.digests())

    with collecting() as collector:
        on = Config.model_validate({**settings.model_dump(), "tracing": {"endpoint": collector.url}})
        with tracing(on, "learner", "learner") as tracer:
            assert learned(UpdateTraces(tracer, SYSTEM_CLOCK), HEADERS) == learned(None, ())
    assert len(collector.spans) == sum(map(len, records))


def as_read(logged: LoggedTrajectory, headers: Headers) -> RawRecord:
    key = logged.trajectory.task_id.encode()
    return RawRecord(logged.position, key, encode(logged.trajectory), 0, headers)


def traced(updates: UpdateTraces | None, update: Update, window: list[LoggedTrajectory]) -> None:
    if updates is not None:
        updates.begin(update, window, redone=False)
        updates.folded()
