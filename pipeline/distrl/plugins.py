"""What other packages bring: it is found by entry points, and its code is named by versions and a digest, so that an
edit of it is noticed.

The digest covers all files of the package's distributions; for an editable install, which does not list its files,
those of the package. It does not cover other distributions that the package imports.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from importlib.metadata import Distribution, EntryPoint, distribution, entry_points, packages_distributions
from pathlib import Path, PurePath
from typing import Any, Final, TypeVar

from distrl.errors import DistrlError

T = TypeVar("T")

POLICIES: Final = "distrl.policies"
ALGORITHMS: Final = "distrl.algorithms"
GROUPS: Final = (POLICIES, ALGORITHMS)
"""The groups of entry points."""
OURS: Final = __name__.partition(".")[0]
SHOWN: Final = 12
"""Hex digits of a digest in what names a package."""
SOURCES: Final = " (sources "
"""Precedes the digest in names that earlier versions recorded. That digest covered Python sources alone, so it cannot
be compared with today's."""
METADATA: Final = (".dist-info", ".egg-info")
ALL_FILES: Final = (
    "every file of the package counts, data too; in the folder of an editable install, every file that is neither "
    "hidden nor in __pycache__"
)
"""For hints. Which of them the code reads cannot be known."""
EDITABLE: Final = ("__editable__", "_editable_impl_")
"""Prefixes of the files that point to the sources of an editable install. They hold paths of one machine."""


def names(group: str) -> list[str]:
    """The names that other packages have in `group`, sorted. Nothing is imported."""
    return sorted({each.name for each in entry_points(group=group)})


def entry(group: str, name: str, error: type[DistrlError]) -> EntryPoint | None:
    """The entry point of this name; None where there is none. Raises `error` where two packages have one."""
    found = list({each.value: each for each in entry_points(group=group, name=name)}.values())
    if len(found) > 1:
        raise error(
            f"entry point {name}",
            f"two packages have it: {' and '.join(sorted(each.value for each in found))}",
            "uninstall all but one",
        )
    return found[0] if found else None


def loaded(entry: EntryPoint, error: type[DistrlError]) -> Any:
    """What the entry point names. Raises `error` where it cannot be loaded."""
    try:
        return entry.load()
    except Exception as raised:  # whatever importing another package raises
        raise error(
            f"entry point {entry.name}",
            f"{entry.value} cannot be loaded: {type(raised).__name__}: {raised}",
            "correct its package, or install what it needs",
        ) from raised


def instance(entry: EntryPoint, kind: type[T], error: type[DistrlError]) -> T:
    """As `loaded`. Raises `error` also where that is no `kind`."""
    found = loaded(entry, error)
    if not isinstance(found, kind):
        what = f"{entry.value} is no {kind.__module__}.{kind.__qualname__}"
        raise error(f"entry point {entry.name}", what, "correct its package")
    return found


def refuse_lacking(found: object, protocol: type, error: type[DistrlError]) -> None:
    """Raises `error` where another package's object lacks members of `protocol`, which only a learner would ask it for,
    servers running."""
    lacking = [each for each in vars(protocol) if not each.startswith("_") and not hasattr(found, each)]
    if lacking:
        raise error(
            f"{type(found).__module__}.{type(found).__name__}",
            f"lacks {', '.join(f'{protocol.__name__}.{each}' for each in lacking)}",
            f"add what is lacking: {protocol.__module__} says what each does",
        )


def package_of(entry: EntryPoint) -> str:
    """The package, by its name at import, that an entry point leads to."""
    return entry.module.partition(".")[0]


def named_code(package: str) -> str:
    """The distributions of a package with their versions, and a digest of their files."""
    versions = [f"{each.name} {each.version}" for each in _distributions(package)]
    return f"{', '.join(versions or [package])} (files {files_sha256(package)[:SHOWN]})"


def sha256_by_file(package: str) -> dict[str, str]:
    """The files behind `named_code` by their names, each with its sha256 (hex). They are read now."""
    return {name: _content_sha256(file).hex() for name, file in _files(package).items()}


@cache
def files_sha256(package: str) -> str:
    """sha256 (hex) over the files of a package's distributions, the same wherever they are installed. They are read
    once: a process goes on with what it imported, whatever becomes of the files."""
    total = hashlib.sha256()
    for name, file in sorted(_files(package).items()):
        total.update(f"{name}\n".encode())
        total.update(_content_sha256(file))
    return total.hexdigest()


@cache
def sources_sha256(*packages: str) -> str:
    """sha256 (hex) over the Python sources of these packages, read once."""
    total = hashlib.sha256()
    for package in packages:
        for root in _roots(package):
            for file in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
                total.update(f"{root.name}/{file.relative_to(root)}\n".encode())
                total.update(_content_sha256(file))
    return total.hexdigest()


def _distributions(package: str) -> Sequence[Distribution]:
    """Those that a package belongs to, by name."""
    # both, as the list of a distribution that is installed as editable has no packages
    brought = [each for group in GROUPS for each in entry_points(group=group) if package_of(each) == package]
    found = {each.dist.name for each in brought if each.dist}
    found.update(packages_distributions().get(package, ()))
    return [distribution(name) for name in sorted(found)]


def _files(package: str) -> dict[str, Path]:
    """Name -> place. Those that the distributions list, and the package's own where it is imported from elsewhere."""
    found = {
        file.as_posix(): place
        for each in _distributions(package)
        for file in each.files or ()
        if _counts(file) and (place := Path(str(file.locate()))).is_file()
    }
    listed = tuple(found.values())
    for root in _roots(package):
        if not any(file.is_relative_to(root) for file in listed):
            for file in root.rglob("*") if root.is_dir() else [root]:
                name = file.relative_to(root.parent)
                if _counts(name) and file.is_file():
                    found[name.as_posix()] = file
    return found


def _counts(file: PurePath) -> bool:
    """Whether the digest covers a file. Not covered are caches, metadata of the installation, and scripts outside of
    the packages, which name the interpreter of their machine. file: its path relative to the packages."""
    first = file.parts[0]
    points = len(file.parts) == 1 and (file.suffix == ".pth" or first.startswith(EDITABLE))
    hidden = any(part.startswith(".") or part == "__pycache__" for part in file.parts)
    return not (points or hidden or file.is_absolute() or first.endswith(METADATA) or file.suffix == ".pyc")


def _roots(package: str) -> list[Path]:
    module = import_module(package)
    return [Path(each) for each in getattr(module, "__path__", [module.__file__])]


def _content_sha256(file: Path) -> bytes:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").digest()
