"""Features of screens in a folder that outlives the process: the next start reads them instead of computing them.

    folder / run / maker / first two digits of the name / name

maker: a digest of all that decides the bits of a feature beside the image (`maker_of`). A file is the CRC-32 of what
follows (4 bytes) and a safetensors file. Only a cache: a file that is missing, truncated by a power cut or damaged is
computed again, and if the folder is full, learning goes on without it. The folder's user is trusted, so a CRC is
enough: it finds accidents. A sha256 takes three times as long, which was half of a start.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import shutil
import sys
import zlib
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Final

import safetensors.torch
import torch
from safetensors import SafetensorError

from distrl.accelerator import kind_of
from distrl.config import PolicySettings, ServerSettings
from distrl.errors import ConfigError
from distrl.plugins import OURS, named_code
from distrl.policy.protocol import ImageFeatures, Policy
from distrl.policy.registry import package_of
from distrl.types import ScreenSize

LOG = logging.getLogger("distrl.policy.feature_folder")

SETTING: Final = "learner.features_kept"
CHECK: Final = 4
"""Bytes of the CRC-32."""
NAME: Final = 2 * hashlib.sha256().digest_size
MAKER: Final = 16
FORMAT: Final = "crc32+safetensors"
"""Format of a file. With another format it is another maker."""
PACKAGES: Final = ("torch", "torchvision", "transformers", "pillow", "numpy")
"""Another version of one of them may compute other bits."""
PREPROCESSING: Final = 2
"""Raise it with a change of our own code that may give the features of some screen other bits (decoding, scaling, what
a processor is asked for, the pass of the vision part): our version stays the same between two releases."""

AHEAD: Final = 32
"""How many files the system is asked to read ahead."""

PROMPTING: Final = ("chat_template", "history_screens")
"""Settings that were added after these folders, and that change prompts but no features."""


class FeatureFolder:
    """Features by the sha256 of their image. Used by one thread; ranks of a machine may use the same folder."""

    def __init__(self, folder: Path, run: str, maker: str) -> None:
        """Raises ConfigError where the folder cannot be written. What another maker left for this run is removed, and
        nothing else: the folder may hold more, such as base models."""
        self._folder = folder.expanduser() / run / maker
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for other in self._folder.parent.iterdir():
                if other != self._folder and _is_hex(other.name, MAKER):
                    shutil.rmtree(other, ignore_errors=True)
            self._names = set[str]()
            for file in self._folder.glob("*/*"):
                if _is_hex(file.name, NAME):
                    self._names.add(file.name)
                else:  # a killed process was writing it
                    file.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(
                SETTING,
                f"{folder} cannot be written ({error.strerror})",
                f"name a folder that can be, or unset {SETTING}",
            ) from None
        self._is_full = False
        self._expected, self._coming = deque[str](), set[str]()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def expect(self, names: Iterable[str]) -> None:
        """Announces the names that `get` is called with next, roughly in this order: the disk then reads the next files
        while one is checked."""
        self._expected, self._coming = deque(name for name in names if name in self._names), set()

    def get(self, name: str) -> ImageFeatures | None:
        """The features, bit for bit; None where they are not here or spoilt."""
        if name not in self._names:
            return None
        self._coming.discard(name)
        while self._expected and len(self._coming) < AHEAD:
            self._coming.add(self._expected[0])
            _read_soon(self._file(self._expected.popleft()))
        try:
            with self._file(name).open("rb", buffering=0) as file:
                check, content = file.read(CHECK), file.readall()
            if _check(content) != check:
                raise ValueError("its checksum is another")
            found = safetensors.torch.load(content)
            return ImageFeatures(found["tokens"], ScreenSize(*found["size"].tolist()))
        except (OSError, ValueError, KeyError, SafetensorError) as error:
            LOG.warning("features of screen %s in %s are computed again: %s", name, self._folder, error)
            self._drop(name)
            return None

    def put(self, name: str, features: ImageFeatures) -> None:
        """Store features while there is room; once there is none, no further ones are stored."""
        if self._is_full:
            return
        size = torch.tensor([features.size.width, features.size.height])
        content = safetensors.torch.save({"tokens": features.tokens.contiguous(), "size": size})
        file = self._file(name)
        part = file.with_name(f"{name}.{os.getpid()}")
        try:
            file.parent.mkdir(exist_ok=True)
            part.write_bytes(_check(content) + content)
            part.replace(file)
        except FileNotFoundError:  # a rank that began beside this one took it for a leftover
            return
        except OSError as error:
            self._is_full = True
            LOG.warning(
                "features of screens are no longer kept in %s (%s); set %s to a folder with room",
                self._folder,
                error.strerror,
                SETTING,
            )
            with suppress(OSError):
                part.unlink(missing_ok=True)
            return
        self._names.add(name)

    def keep(self, names: set[str]) -> None:
        """Remove every image's features whose sha256 is not in `names`."""
        for name in self._names - names:
            self._drop(name)

    def _drop(self, name: str) -> None:
        self._names.discard(name)
        with suppress(OSError):  # a rank beside this one has removed it
            self._file(name).unlink(missing_ok=True)

    def _file(self, name: str) -> Path:
        return self._folder / name[:2] / name


def maker_of(policy: Policy, settings: PolicySettings, threads: int) -> str:
    """A digest (MAKER hex digits) of all that decides the bits of a screen's features beside its bytes. It covers some
    things that do not, too.

    threads: of torch.
    """
    settings = settings.model_copy(update={"server": ServerSettings()})  # who serves the policy says nothing of them
    made_by = [
        FORMAT,
        policy.base_sha256,
        settings.model_dump_json(exclude={"base_model", *PROMPTING}),  # its path says less than its sha256
        str(threads),
        kind_of(policy.device),
        platform.machine(),
        torch.backends.cpu.get_cpu_capability(),
        *(version(package) for package in PACKAGES),
        *code_of(policy, settings),
    ]
    return hashlib.sha256("\n".join(made_by).encode()).hexdigest()[:MAKER]


def code_of(policy: Policy, settings: PolicySettings) -> list[str]:
    """What names the code that computes a policy's features: ours, and that of other packages which bring its family
    and its class."""
    packages = {package_of(settings), type(policy).__module__.partition(".")[0]} - {OURS}
    return [f"{OURS} {PREPROCESSING}", *map(named_code, sorted(packages))]


def _read_soon(file: Path) -> None:
    """Have the system read it from the disk; only a hint, and none where the system takes no hints."""
    if sys.platform == "linux":
        with suppress(OSError), file.open("rb", buffering=0) as opened:
            os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_WILLNEED)


def _check(content: bytes) -> bytes:
    return zlib.crc32(content).to_bytes(CHECK, "little")


def _is_hex(name: str, digits: int) -> bool:
    return len(name) == digits and set(name) <= set("0123456789abcdef")
