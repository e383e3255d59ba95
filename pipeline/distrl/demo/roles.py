"""The demo's roles as child processes: the same commands that a person would type, with one settings file."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from distrl.config import Config
from distrl.errors import StackError
from distrl.stack.exported_settings import portable
from distrl.stack.processes import Child, find_all, start, stop_all

WORKERS = 2
STOP_TIMEOUT_S = 90.0
"""A worker finishes its episodes and a learner its update; one that needs longer is killed, which loses nothing."""
KILLED_S = 5.0
"""A killed process ends at once; the system may report it a moment later."""


class Roles:
    """Starts and stops roles. Driven by the demo's main thread; `stop` may be called twice.

    directory: of their logs. servers: raises StackError if a server that the roles need has ended. settings: the file
    that they read, default `directory`/settings.yaml.
    """

    def __init__(
        self, config: Config, directory: Path, servers: Callable[[], None] = lambda: None, settings: Path | None = None
    ) -> None:
        self._directory = directory
        self._servers = servers
        self._children: dict[str, Child] = {}
        directory.mkdir(parents=True, exist_ok=True)
        self._settings = settings or directory / "settings.yaml"
        write_settings(config, self._settings)

    def start(self, name: str, command: str, *arguments: str, sets: Sequence[str] = ()) -> None:
        """Start `distrl COMMAND` as process `name`, its log in `<directory>/<name>.log`."""
        flags = [flag for item in sets for flag in ("--set", item)]
        line = [sys.executable, "-m", "distrl.cli.main", command, "--config", str(self._settings), *flags, *arguments]
        self._children[name] = start(name, line, self._directory)

    def stop(self, *names: str) -> None:
        """Ask the named roles (default: all) to finish, and wait until they have."""
        chosen = {name: self._children[name] for name in names or tuple(self._children) if name in self._children}
        stop_all(chosen.values(), timeout_s=STOP_TIMEOUT_S)
        for name in chosen:  # after waiting: on Ctrl-C the next `stop` still has them
            del self._children[name]

    def kill(self) -> None:
        """End every role at once."""
        for child in self._children.values():
            child.kill()
        stop_all(self._children.values(), timeout_s=KILLED_S)

    def abandon(self, name: str) -> None:
        """Forget a role that somebody else has killed, so that it can be started again."""
        stop_all([self._children.pop(name)], timeout_s=STOP_TIMEOUT_S)

    def finished(self, name: str) -> bool:
        """Whether a role that ends by itself has ended. Raises as `check` does."""
        self.check()
        return self._children[name].returncode() is not None

    def check(self) -> None:
        """Raise StackError if a server or a role has died, so that the demo hides no crash."""
        self._servers()
        for name, child in self._children.items():
            code = child.returncode()
            if code not in (None, 0):
                raise self._failure(name, code)

    def _failure(self, name: str, code: int | None) -> StackError:
        child = self._children[name]
        return StackError(
            name,
            f"stopped with exit code {code}; {child.ending()}",
            f"read {child.log}, then run again",
        )


def write_settings(config: Config, path: Path) -> None:
    """Write the settings with secrets, for the child processes of this user only (mode 0600).

    The endpoints of a local stack are left out: the children find it, and so do commands after the next `distrl up`.

    Written to a new file and renamed, so the secrets are never in an old file with wider permissions.
    """
    tree = portable(config)
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        yaml.safe_dump(tree, file, sort_keys=False)
    os.replace(fresh, path)


def worker_shares(addresses: Sequence[str], workers: int = WORKERS) -> list[tuple[str, ...]]:
    """The phones by worker: worker i gets every phone whose index is i modulo `workers`."""
    return [tuple(addresses[index::workers]) for index in range(workers) if addresses[index::workers]]


@contextmanager
def running(
    config: Config, directory: Path, servers: Callable[[], None] = lambda: None, settings: Path | None = None
) -> Iterator[Roles]:
    """Roles that are all stopped when the block is left, in any way.

    Roles left by a killed demo are stopped first: all they did is in the log. Ctrl-C while stopping kills them, which
    loses nothing.
    """
    stop_all(find_all(directory), timeout_s=STOP_TIMEOUT_S)
    roles = Roles(config, directory, servers, settings)
    try:
        yield roles
    finally:
        try:
            roles.stop()
        except KeyboardInterrupt:
            roles.kill()
            raise
