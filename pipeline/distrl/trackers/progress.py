"""What a tracker has been given so far, in a file, so that a follower that starts again gives it nothing twice."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from distrl.errors import ConfigError
from distrl.files import write
from distrl.trackers.protocol import Axis, Point


@dataclass(frozen=True, slots=True)
class Progress:
    """Of one tracker and one run. Every change gives a new one."""

    run: str
    """TrackedRun.id."""
    points: int = 0
    """How many it was given in all."""
    last: Mapping[str, int] = field(default_factory=dict)
    """Source -> the last step, of sources whose steps are updates: an update that is computed again, because the log
    lost the one before it, is no second point."""
    versions: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Source -> every step, of sources whose steps are versions, which are evaluated in any order."""

    def new(self, points: Iterable[Point]) -> list[Point]:
        """Those that it was not given yet, in their order."""
        found, last, versions = list[Point](), dict(self.last), dict[str, set[int]]()
        for point in points:
            if point.axis is Axis.UPDATE:
                if point.step <= last.get(point.source, -1):
                    continue
                last[point.source] = point.step
            else:
                if point.source not in versions:
                    versions[point.source] = set(self.versions.get(point.source, ()))
                if point.step in versions[point.source]:
                    continue
                versions[point.source].add(point.step)
            found.append(point)
        return found

    def given(self, points: Sequence[Point]) -> Progress:
        """After it was given `points`, each of which is new."""
        last, added = dict(self.last), defaultdict[str, list[int]](list)
        for point in points:
            if point.axis is Axis.UPDATE:
                last[point.source] = point.step
            else:
                added[point.source].append(point.step)
        versions = {source: (*self.versions.get(source, ()), *steps) for source, steps in added.items()}
        return Progress(self.run, self.points + len(points), last, {**self.versions, **versions})

    def save(self, path: Path) -> None:
        """Raises ConfigError where it cannot be written."""
        write(path, msgspec.json.encode(self) + b"\n")


def load(path: Path, run: str) -> Progress:
    """The progress in `path`; none where there is no file. run: TrackedRun.id.

    Raises ConfigError for a file that is none, or of another run.
    """
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Progress)
    except FileNotFoundError:
        return Progress(run)
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(str(path), f"is not a tracker's progress ({error})", "name another --out") from None
    if found.run != run:
        raise ConfigError(
            str(path),
            f"is that of run {found.run!r}, and this one is {run!r}",
            "remove its folder, or name another --out",
        )
    return found
