"""Which process of this machine has which phone: one lock file each, which the system unlocks when its holder ends.

Processes that share a directory and use the same adb server never hold one phone at the same time, however they end.
Only its holder removes a lock file; the file of a killed process is taken over.
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
from distrl.device.names import LOOPBACK, console_port
from distrl.errors import DeviceError

log = logging.getLogger(__name__)

_ADDRESS = re.compile(r"\[?(?P<host>[^\]]+)\]?:(?P<port>[0-9]{1,5})")
SUFFIX = ".lock"
DOMAIN = "domain"
MODE = 0o644
"""Of these files, whatever the umask is: other users of this machine look at them to see who has a phone."""
UNKNOWN = "another process"
WORDS_SHOWN = 100
"""How much of a lock file is shown: its content is untrusted."""
LOCK_TRIES = 10
LOCK_RETRY_S = 0.005
"""How often, and at which interval, a shared lock is retried: `holder` of another process takes one for a moment."""


_HELD: set[Path] = set()
"""The lock files that this process holds: when it tests one, its own lock looks like another process's."""


class Hold:
    """A phone's lock that this process has, until `release`, or until it is garbage-collected or the process ends."""

    def __init__(self, file: Path, descriptor: int) -> None:
        self.release = weakref.finalize(self, _release, file, descriptor)


class Leases:
    """The locks of the phones of one adb server. Thread-safe: threads of one process exclude each other as well."""

    def __init__(self, directory: Path, adb: config.AdbSettings) -> None:
        host = "127.0.0.1" if adb.host in LOOPBACK else adb.host
        try:
            self._directory = directory.expanduser()
        except RuntimeError as error:
            raise DeviceError(
                "devices.directory",
                f"{directory} is in a home directory, and this user has none",
                "set devices.directory to a folder that every worker of this machine can write",
            ) from error
        self._server = f"{host}:{adb.port}"
        self._warned = False

    def file(self, serial: str, suffix: str) -> Path:
        """A file about a phone of this adb server, beside its lock file."""
        return self._directory / quote(f"{self._server}-{serial}{suffix}", safe=":.")

    def lock(self, serial: str) -> Path:
        """The lock file of a phone."""
        return self.file(key_of(serial), SUFFIX)

    def domain(self) -> str:
        """Identifies this directory: all who share it get the same text, and a copy of it has another one. Raises
        DeviceError as `take` does."""
        file = self._directory / DOMAIN
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            if not file.exists():
                made = self._directory / f"{DOMAIN}-{secrets.token_hex(8)}"
                try:
                    made.write_text(secrets.token_hex(16), "ascii")
                    with suppress(FileExistsError):  # another process was first
                        os.link(made, file)
                finally:  # a full disk leaves an empty one
                    made.unlink(missing_ok=True)
            with suppress(PermissionError):  # another user's
                file.chmod(MODE)
            with file.open(encoding="ascii") as opened:
                there = os.fstat(opened.fileno())  # a copy has the same text
                return f"{opened.read()} {there.st_dev} {there.st_ino}"
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
        """Take the phone's lock; or return, at once, who has it ("process 123").

        A shared lock (`holder`) is retried for LOCK_TRIES * LOCK_RETRY_S. Raises DeviceError if the directory cannot be
        written, or its files cannot be locked.
        """
        file = self.lock(serial)
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            while True:
                descriptor = _opened(file)
                kept = False
                try:
                    if not _locked_soon(descriptor):
                        return _holder_of(descriptor)
                    # If its holder removed the file between our opening and locking it, our lock excludes nobody.
                    if kept := _is(file, descriptor) and not _replaced(file, descriptor):
                        self._sign(file, descriptor)
                        _HELD.add(file)
                        return Hold(file, descriptor)
                finally:
                    if not kept:
                        os.close(descriptor)
        except OSError as error:
            raise self._unwritable(file, error) from error

    def holder(self, serial: str) -> str:
        """Who has the phone; "" if nobody has.

        Takes the lock as shared for a moment, which `take` waits for.
        """
        return _holder_by(self.lock(serial))

    def in_use(self) -> bool:
        """Whether another process has a phone of this adb server."""
        begin = quote(f"{self._server}-", safe=":.")
        try:
            files = [each for each in self._directory.glob(f"*{SUFFIX}") if each.name.startswith(begin)]
        except OSError:
            return False
        return any(each not in _HELD and _holder_by(each) for each in files)

    def _sign(self, file: Path, descriptor: int) -> None:
        """Write who holds it, for people. The lock holds without it, so a full disk costs no phone."""
        try:
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"process {os.getpid()}".encode(), 0)
        except OSError as error:
            if not self._warned:
                log.warning("cannot write the holder to %s (%s); the lock holds all the same", file, error.strerror)
            self._warned = True


def key_of(serial: str) -> str:
    """A canonical name of a phone: its address on this machine if it has one, else its serial."""
    if (console := console_port(serial)) is not None:
        return f"127.0.0.1:{console + 1}"
    address = _ADDRESS.fullmatch(serial)
    if address is None:
        return serial
    host = address["host"].lower()
    return f"{'127.0.0.1' if host in LOOPBACK else host}:{int(address['port'])}"


def _opened(file: Path) -> int:
    """Its descriptor. The file of another user, who has or had the phone, can only be read; that is enough to lock it.

    Raises OSError.
    """
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, MODE)
    except PermissionError as refused:
        try:
            return os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
        except FileNotFoundError:
            raise refused from None
    with suppress(OSError):  # of another user, who allowed everybody to write it
        os.fchmod(descriptor, MODE)
    return descriptor


def _replaced(file: Path, descriptor: int) -> bool:
    """Whether the file was another user's and is removed now: it cannot be signed, so the next try makes a new one."""
    if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
        return False
    try:
        file.unlink()
    except OSError:  # as in a folder where each may remove their own files alone: its lock holds all the same
        return False
    return True


def _holder_of(descriptor: int) -> str:
    return os.pread(descriptor, WORDS_SHOWN, 0).decode("utf-8", "replace").strip() or UNKNOWN


def _holder_by(file: Path) -> str:
    """Who has locked the file; "" if nobody has."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW)
    except PermissionError:  # another user's, of an older version
        return UNKNOWN
    except OSError:
        return ""
    try:
        return "" if _locked(descriptor, fcntl.LOCK_SH) else _holder_of(descriptor)
    finally:
        os.close(descriptor)


def _locked_soon(descriptor: int) -> bool:
    """Whether the exclusive lock was taken. Does not wait for an exclusive lock of others, only for shared ones."""
    for _ in range(LOCK_TRIES):
        if _locked(descriptor, fcntl.LOCK_EX):
            return True
        if not _locked(descriptor, fcntl.LOCK_SH):
            return False  # held exclusively
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        time.sleep(LOCK_RETRY_S)
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


def _release(file: Path, descriptor: int) -> None:
    try:
        _HELD.discard(file)
        with suppress(OSError):  # a leftover file locks nothing
            file.unlink()  # while the lock is held, so that it is surely our file
    finally:
        os.close(descriptor)
