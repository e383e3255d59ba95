"""Settings of a stack of an adb server alone, the one part that starts in no time; all else is configured elsewhere."""

from __future__ import annotations

from pathlib import Path


def adb_alone(folder: Path) -> list[str]:
    return [
        f"stack.directory={folder / 'stack'}",
        f"stack.cache={folder / 'cache'}",
        f"store.url=file://{folder}",
        "kafka.bootstrap=127.0.0.1:1",
        "phones.count=0",
        "phones.evaluation_count=0",
    ]
