"""What worker, demonstrations and evaluators are wired with."""

from __future__ import annotations

import threading
from pathlib import Path

from distrl.rollout.back_pressure import Retry
from distrl.rollout.wiring import screenshot_store
from distrl.store.directory import DirectoryStore
from distrl.store.objects import utc_day


class Noon:
    """Always the same time."""

    def now_ms(self) -> int:
        return 1_738_324_800_000

    def ticks(self) -> float:
        return 0.0


def test_a_screenshot_lies_in_its_runs_own_folder_under_its_day(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    ref = screenshot_store(store, "mine", Retry(threading.Event()), Noon())(b"png")
    assert ref.key == f"screenshots/mine/{utc_day(Noon().now_ms())}/{ref.sha256}.png"
    assert store.get(ref) == b"png"
