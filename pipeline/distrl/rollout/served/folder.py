"""The folder from which a model server reads adapters, with locks that show which adapters are still needed.

    <folder>/<name>/adapter_model.safetensors, adapter_config.json     as PEFT reads them; appears and vanishes whole
    <folder>/<name>.lock                                               locked, shared, by each process that uses it
    <folder>/.<name>-<hex>/                                            being written or deleted, under that lock

All processes that use one server share the folder. The operating system releases a lock when its holder ends in any
way, so another worker can unload what a killed one has used.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import secrets
import shutil
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from distrl.errors import ConfigError, PolicyError
from distrl.policy.adapters import WEIGHTS, write_peft
from distrl.rollout.served.names import is_of
from distrl.rollout.served.server import SETTING, ServerError

LOCK: Final = ".lock"
WAIT_S: Final = 60.0
"""Longest wait for a lock that another process holds while it unloads."""
RETRY_S: Final = 0.05


class Hold:
    """Shows other processes that this one needs an adapter, until `release` or until the process ends."""

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self.release = weakref.finalize(self, os.close, descriptor)


class AdapterFolder:
    """The adapters of one run in `directory`. Methods raise ConfigError where it cannot be used."""

    def __init__(self, directory: Path, run: str) -> None:
        self._directory, self._run = directory.expanduser(), run

    def place(self, name: str, adapter: bytes, go_on: Callable[[], object] = lambda: None) -> Hold:
        """Put `adapter` into the folder as `name`, and hold it. Raises PolicyError for bytes that are no adapter and
        for a name that other bytes have, ServerError where another process does not finish unloading it.

        go_on: called every RETRY_S while it waits for that process; what it raises ends the wait.
        """
        with self._usable():
            self._directory.mkdir(parents=True, exist_ok=True)
            hold = self._held(name, go_on)
            try:
                self._write(name, adapter)
            except BaseException:
                hold.release()
                raise
            return hold

    def names(self) -> list[str]:
        """The adapters of the run in the folder, including those of which a killed process has left only parts."""
        with self._usable():
            if not self._directory.is_dir():
                return []
            found = {each.name.removesuffix(LOCK) for each in self._directory.iterdir()}
            return sorted(name for name in found if is_of(self._run, name))

    @contextmanager
    def alone(self, name: str) -> Iterator[bool]:
        """Yields whether nobody holds `name`. If so, nobody can while the block runs, which must unload the adapter
        from the server. After the block the adapter's files are deleted."""
        with self._usable():
            descriptor = self._locked(name, fcntl.LOCK_EX)
        if descriptor is None:
            yield False
            return
        try:
            yield True
            with self._usable():
                with suppress(FileNotFoundError):  # another process has unloaded it since it was listed
                    (self._directory / name).rename(self._hidden(name))  # first vanish whole: a kill may interrupt this
                for made in self._directory.glob(f".{name}-*"):
                    shutil.rmtree(made)
                self._lock(name).unlink()
        finally:
            os.close(descriptor)

    def _write(self, name: str, adapter: bytes) -> None:
        there = self._directory / name
        made = self._hidden(name)
        if not there.exists():
            try:
                write_peft(adapter, made)
                with suppress(OSError):  # another process was first: its bytes are compared below
                    made.rename(there)
            finally:
                shutil.rmtree(made, ignore_errors=True)
        with (there / WEIGHTS).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != hashlib.sha256(adapter).hexdigest():
            raise PolicyError(
                str(there), "holds other bytes than the version of its name", "delete it, and unload it from the server"
            )

    def _held(self, name: str, go_on: Callable[[], object]) -> Hold:
        until = time.monotonic() + WAIT_S
        while (descriptor := self._locked(name, fcntl.LOCK_SH)) is None:
            if time.monotonic() > until:
                raise ServerError(SETTING, f"another process has been unloading {name} for {WAIT_S:g} s", "wait for it")
            go_on()
            time.sleep(RETRY_S)
        return Hold(name, descriptor)

    def _locked(self, name: str, kind: int) -> int | None:
        """A descriptor that holds the lock; None where another process holds it."""
        while True:
            descriptor = os.open(self._lock(name), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
                # whoever unloaded it before may have removed the file between our opening and locking it
                if _is(self._lock(name), descriptor):
                    return descriptor
            except BlockingIOError:
                os.close(descriptor)
                return None
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)

    def _hidden(self, name: str) -> Path:
        return self._directory / f".{name}-{secrets.token_hex(4)}"

    def _lock(self, name: str) -> Path:
        return self._directory / f"{name}{LOCK}"

    @contextmanager
    def _usable(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise ConfigError(
                "policy.server.adapters",
                f"{self._directory} cannot be used ({error.strerror})",
                "set it to a folder that every worker can write and the server can read",
            ) from error


def _is(file: Path, descriptor: int) -> bool:
    try:
        return os.path.samestat(file.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
