"""TensorBoard's event files: `tensorboard --logdir FOLDER` shows them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.text.summary_v2 import text_pb
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from distrl.trackers.protocol import Point, TrackedRun


class TensorBoard:
    """Writes with TensorBoard's own writer of event files, which needs no TensorFlow. Each start adds a file, as is
    usual."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: EventFileWriter | None = None

    def start(self, run: TrackedRun, logged: int) -> None:
        self._writer = EventFileWriter(str(self._folder))
        if not logged:
            text = json.dumps(dict(run.settings), indent=1, sort_keys=True)
            code = "\n".join(f"    {line}" for line in text.splitlines())  # indented text is code in Markdown
            self._writer.add_event(Event(wall_time=run.began / 1000, step=0, summary=text_pb("settings", code)))
            self._writer.flush()

    def log(self, points: Sequence[Point]) -> None:
        assert self._writer is not None, "it was started"
        for point in points:
            values = [Summary.Value(tag=name, simple_value=value) for name, value in point.values.items()]
            event = Event(wall_time=point.at / 1000, step=point.step, summary=Summary(value=values))
            self._writer.add_event(event)
        self._writer.flush()

    def finish(self) -> None:
        if self._writer is not None:
            self._writer.close()
