"""The roles of the demo as child processes: the commands that a person would type, with the same settings file."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from distrl.config import Config
from distrl.errors import StackError
from distrl.stack.processes import Child, find_all, start, stop_all

WORKERS = 2
STOP_TIMEOUT_S = 90.0
"""A worker finishes its episodes and a learner its update; one that needs longer is killed, which loses nothing."""


class Roles:
    """Starts roles and knows which still live. Driven by the demo's main thread; `stop` may be called twice."""

    def __init__(self, config: Config, directory: Path) -> None:
        self._directory = directory
        self._children: dict[str, Child] = {}
        directory.mkdir(parents=True, exist_ok=True)
        self._settings = directory / "settings.yaml"
        write_settings(config, self._settings)

    def start(self, name: str, command: str, *arguments: str, sets: Sequence[str] = ()) -> None:
        """Start `distrl COMMAND` as process `name`, its log in `<directory>/<name>.log`."""
        flags = [flag for item in sets for flag in ("--set", item)]
        line = [sys.executable, "-m", "distrl.cli.main", command, "--config", str(self._settings), *flags, *arguments]
        self._children[name] = start(name, line, self._directory)

    def stop(self, *names: str) -> None:
        """Ask the named roles (all, if none is named) to finish, and wait until they have."""
        chosen = [self._children.pop(name) for name in names or tuple(self._children) if name in self._children]
        stop_all(chosen, timeout_s=STOP_TIMEOUT_S)

    def abandon(self, name: str) -> None:
        """Know no more of a role that somebody else has killed, so that it can be started again."""
        stop_all([self._children.pop(name)], timeout_s=STOP_TIMEOUT_S)

    def finished(self, name: str) -> bool:
        """Whether a role that ends by itself is done. Raises StackError if it failed."""
        code = self._children[name].returncode()
        if code is None:
            return False
        if code != 0:
            raise self._failure(name, code)
        return True

    def check(self) -> None:
        """Raise StackError if a role has died: the demo hides no crash."""
        for name, child in self._children.items():
            code = child.returncode()
            if code not in (None, 0):
                raise self._failure(name, code)

    def _failure(self, name: str, code: int | None) -> StackError:
        log = self._directory / f"{name}.log"
        last = "\n".join(log.read_text(errors="replace").splitlines()[-12:]) if log.exists() else "(no log)"
        return StackError(
            name, f"stopped with exit code {code}; its last lines:\n{last}", f"read {log}, then run again"
        )


def write_settings(config: Config, path: Path) -> None:
    """The settings with endpoints and secrets, for the child processes of this user alone (mode 0600)."""
    tree = config.model_dump(mode="json")
    if config.store.secret_key is not None:
        tree["store"]["secret_key"] = config.store.secret_key.get_secret_value()
    if config.kafka.sasl_password is not None:
        tree["kafka"]["sasl_password"] = config.kafka.sasl_password.get_secret_value()
    path.touch(mode=0o600)
    path.write_text(yaml.safe_dump(tree, sort_keys=False))


def worker_shares(addresses: Sequence[str], workers: int = WORKERS) -> list[tuple[str, ...]]:
    """The phones dealt out in order: worker i gets every phone whose index is i modulo `workers`."""
    return [tuple(addresses[index::workers]) for index in range(workers) if addresses[index::workers]]


@contextmanager
def running(config: Config, directory: Path) -> Iterator[Roles]:
    """Roles that are all stopped when the block is left, however it is left.

    Roles that a demo which was itself killed has left behind are stopped first: the log has all they did.
    """
    stop_all(find_all(directory), timeout_s=STOP_TIMEOUT_S)
    roles = Roles(config, directory)
    try:
        yield roles
    finally:
        roles.stop()
