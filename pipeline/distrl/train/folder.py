"""The files of a run on this machine: `OUT/RUN/` has all of one run, `OUT/latest` links to the newest with a report.

Before there is any report, the link points to the newest run. No heavy imports here: a second training is refused
before they are loaded.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from distrl.config import Config
from distrl.errors import ConfigError
from distrl.stack.locks import held, refuse_held

LATEST = "latest"
LOCK = "train.lock"
TRAINED = "trained"
"""Link in stack.directory to the folder of the last training on that stack."""


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files of one run. out: the folder of all runs. Nothing is on disk before `make`."""

    out: Path
    run: str

    @property
    def path(self) -> Path:
        return self.out / self.run

    @property
    def logs(self) -> Path:
        """Logs and pid files of the roles."""
        return self.path / "logs"

    @property
    def settings(self) -> Path:
        """The settings of the roles, with endpoints and secrets."""
        return self.path / "settings.yaml"

    @property
    def progress(self) -> Path:
        return self.path / "progress.json"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    def make(self) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        if not (self.out / LATEST / self.report.name).exists():
            self.link()

    def link(self) -> None:
        """Make this run the latest."""
        _link(self.out / LATEST, Path(self.run))


def folder_of(config: Config, out: Path) -> RunFolder:
    """The run's folder. Raises ConfigError if it cannot be there."""
    if config.run == LATEST:
        raise ConfigError(
            "run", f"{LATEST!r} is the name of the link to the newest run", "choose another name for the run"
        )
    if (out / LATEST).exists() and not (out / LATEST).is_symlink():
        raise ConfigError(str(out / LATEST), "is not a link, and one has to be there", "move it, or set --out")
    return RunFolder(out, config.run)


@contextmanager
def alone(config: Config, out: Path, doing: str) -> Iterator[None]:
    """Ensures that nobody else trains in `out` or on the stack within the block: two trainings would stop each other's
    roles and servers.

    doing: says what holds the locks, for people. Raises StackError, which names the process that holds them.
    """
    with ExitStack() as locks:
        for lock in _locks(config, out):
            locks.enter_context(held(lock, doing))
        yield


def refuse_second(config: Config, out: Path) -> None:
    """Raises StackError as `alone` would. Changes nothing on disk."""
    for lock in _locks(config, out):
        refuse_held(lock)


def link_to_stack(config: Config, out: Path) -> None:
    """Record in the stack's folder where the roles that use it have their files. Call it within `alone`."""
    _link(config.stack.directory.expanduser() / TRAINED, out.absolute())


def trained_on(config: Config) -> Path | None:
    """The folder of the last training on the stack, if there is one."""
    link = config.stack.directory.expanduser() / TRAINED
    return link.readlink() if link.is_symlink() and link.exists() else None


def _link(at: Path, to: Path) -> None:
    """Replace the link atomically, so that it is never absent."""
    fresh = at.with_name(f"{at.name}.new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(to)
    os.replace(fresh, at)


def _locks(config: Config, out: Path) -> list[Path]:
    """One where both folders are the same: nobody can hold a lock twice."""
    of_runs, of_stack = out / LOCK, config.stack.directory.expanduser() / LOCK
    return [of_runs] if of_runs.resolve() == of_stack.resolve() else [of_runs, of_stack]
