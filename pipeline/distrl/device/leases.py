"""Which process of this machine has which phone: one lock file each, which the system releases when its holder ends.

Processes that share a directory and name the same adb server never hold one phone at the same time, however they end.
A lock file is removed by its holder, and by nobody else: what a killed process leaves behind is taken over.
"""

from __future__ import annotations

import fcntl
import logging
import os
import re
import secrets
import time
import weakref
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from distrl import config
from distrl.errors import DeviceError

log = logging.getLogger(__name__)

LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})
_ADDRESS = re.compile(r"\[?(?P<host>[^\]]+)\]?:(?P<port>[0-9]{1,5})")
_EMULATOR = re.compile(r"emulator-(?P<console>[0-9]{1,5})")
SUFFIX = ".lock"
DOMAIN = "domain"
WORDS_SHOWN = 100
"""How much of a lock file is shown: anybody who may write to the directory may have written it."""
LOOKS = 10
LOOK_S = 0.005
"""How often, and how far apart, a phone that somebody only looks at is tried again: a look shares its lock."""


class Hold:
    """A phone that this process has. Let go by `release`, at the latest when it is collected or the process ends."""

    def __init__(self, file: Path, descriptor: int) -> None:
        self.release = weakref.finalize(self, _let_go, file, descriptor)


class Leases:
    """The phones of one adb server, held and free. Thread-safe: two threads of a process exclude each other as well."""

    def __init__(self, directory: Path, adb: config.Adb) -> None:
        host = "127.0.0.1" if adb.host in LOOPBACK else adb.host
        try:
            self._directory = directory.expanduser()
        except RuntimeError as error:
            raise DeviceError(
                "devices.directory",
                f"{directory} is in a home, and this user has none",
                "set devices.directory to a folder that every worker of this machine can write",
            ) from error
        self._server = f"{host}:{adb.port}"
        self._told = False

    def file(self, serial: str, suffix: str) -> Path:
        """A file about a phone of this adb server, beside its lock file."""
        return self._directory / quote(f"{self._server}-{serial}{suffix}", safe=":.")

    def lock(self, serial: str) -> Path:
        """The lock file of a phone."""
        return self.file(key_of(serial), SUFFIX)

    def domain(self) -> str:
        """A word that all who share the directory read, and nobody else. Raises DeviceError as `take` does."""
        file = self._directory / DOMAIN
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            if not file.exists():
                made = self._directory / f"{DOMAIN}-{secrets.token_hex(8)}"
                made.write_text(secrets.token_hex(16), "ascii")
                with suppress(FileExistsError):  # another process was first
                    os.link(made, file)
                made.unlink()
            return file.read_text("ascii")
        except (OSError, UnicodeError) as error:
            raise self._unwritable(file, error) from error

    def _unwritable(self, file: Path, error: Exception) -> DeviceError:
        why = error.strerror if isinstance(error, OSError) else error
        return DeviceError(
            "devices.directory",
            f"{file} cannot be written ({why})",
            "set devices.directory to a folder that every worker of this machine can write",
        )

    def take(self, serial: str) -> Hold | str:
        """The phone, for this process until it is released; or, at once, who has it ("process 123").

        One that is only looked at is tried again for LOOKS * LOOK_S. Raises DeviceError where the directory cannot be
        written, or its files cannot be locked.
        """
        file = self.lock(serial)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            while True:
                descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o644)
                kept = False
                try:
                    if not _locked_soon(descriptor):
                        return _words(descriptor)
                    # Where its holder removed it between our opening and locking it, that lock excludes nobody.
                    if kept := _is(file, descriptor):
                        self._sign(file, descriptor)
                        return Hold(file, descriptor)
                finally:
                    if not kept:
                        os.close(descriptor)
        except OSError as error:
            raise self._unwritable(file, error) from error

    def holder(self, serial: str) -> str:
        """Who has the phone; "" where nobody has.

        Asking shares the lock for a moment, which a worker that wants the phone waits for.
        """
        try:
            descriptor = os.open(self.lock(serial), os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return ""
        try:
            if _locked(descriptor, fcntl.LOCK_SH):
                return ""
            return _words(descriptor)
        finally:
            os.close(descriptor)

    def _sign(self, file: Path, descriptor: int) -> None:
        """Write who holds it. The words are for people and the lock holds without them: a full disk takes no phone."""
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()}".encode(), 0)
        except OSError as error:
            if not self._told:
                log.warning("%s is held, and does not say by whom: it cannot be written (%s)", file, error.strerror)
            self._told = True


def key_of(serial: str) -> str:
    """One name for one phone, however it is spelled: by its address on this machine where it has one."""
    if emulator := _EMULATOR.fullmatch(serial):
        return f"127.0.0.1:{int(emulator['console']) + 1}"  # its console's port is even, its adb's the next
    address = _ADDRESS.fullmatch(serial)
    if address is None:
        return serial
    host = address["host"].lower()
    return f"{'127.0.0.1' if host in LOOPBACK else host}:{int(address['port'])}"


def _words(descriptor: int) -> str:
    return os.pread(descriptor, WORDS_SHOWN, 0).decode("utf-8", "replace").strip() or "another process"


def _locked_soon(descriptor: int) -> bool:
    """Whether the lock is had for this process alone. At once if somebody holds it; a look at it is waited for."""
    for _ in range(LOOKS):
        if _locked(descriptor, fcntl.LOCK_EX):
            return True
        if not _locked(descriptor, fcntl.LOCK_SH):
            return False  # whoever has it does not share it
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        time.sleep(LOOK_S)
    return _locked(descriptor, fcntl.LOCK_EX)


def _locked(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is(file: Path, descriptor: int) -> bool:
    try:
        found = file.stat(follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(found, os.fstat(descriptor))


def _let_go(file: Path, descriptor: int) -> None:
    try:
        with suppress(OSError):  # a file that stays holds nothing
            file.unlink()  # while the lock is held, so that it is ours that goes
    finally:
        os.close(descriptor)
