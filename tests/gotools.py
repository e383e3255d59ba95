"""Programs that tests run and that are built from Go modules: helm, helm-unittest and others under tests/tools.

A folder there is a Go module: its go.mod names a program by a `tool` line, or it holds mains of its own, and go.sum
pins all that goes into it. A file `ldflags` has more words for the linker, as a version that a program is to say. A
script `edit.py FOLDER` writes a go.mod and a go.sum there, with which a module is built from an edited copy. Each is
built once for a user, into the cache that jars are in.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from fetching import Say, cache
from filelock import FileLock

TOOLS = Path(__file__).parent / "tools"
NO_GO = "Go (1.26 or newer, https://go.dev/dl) is not on the PATH"
JOBS = "2"
"""Packages that are compiled at a time: each takes up to a gigabyte, and other tests run meanwhile."""


class ToolError(Exception):
    """A program could not be built; says why and what to do."""


def wanted(fixtures: Iterable[str]) -> list[str]:
    """The modules among `fixtures`: a test asks for a program by a fixture of its module's name, with `_` for `-`."""
    modules = {path.parent.name for path in TOOLS.glob("*/go.mod")}
    return sorted(modules & {name.replace("_", "-") for name in fixtures})


def go() -> str | None:
    """The go command, if there is one."""
    return shutil.which("go")


def left_out(kubernetes: int, rights: int) -> str:
    """What a session says that has skipped so many tests for want of Go. Those of rights in the object store are
    skipped only where there is no other way to a MinIO."""
    sides = {"the Kubernetes side": kubernetes, "rights in the object store": rights}
    what = " and ".join(f"of {side}" for side, count in sides.items() if count)
    return f"LEFT OUT: {kubernetes + rights} tests {what}, because {NO_GO}"


def tool(name: str, program: str | None = None, *, tools: Path = TOOLS, say: Say | None = None) -> Path:
    """The program of the module tests/tools/`name`, built unless the cache has it. Safe in several processes at once.

    program: which one, where the module has several or it is not named like the module.
    say: takes a line before and after a build, which may take minutes; standard error unless given.
    Raises ToolError where Go is missing or the build fails.
    """
    built = folder(name, tools)
    if not built.is_dir():
        built.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{built}.lock"):
            if not built.is_dir():  # no other process has built it meanwhile
                _build(name, tools / name, built, say or _to_standard_error)
    return built / (program or name)


def folder(name: str, tools: Path = TOOLS) -> Path:
    """Where the programs of a module are cached. The folder's name changes with every pin and every line of source."""
    pins = hashlib.sha256()
    for file in sorted(path for path in (tools / name).rglob("*") if path.is_file()):
        pins.update(f"{file.relative_to(tools).as_posix()}\0".encode() + file.read_bytes() + b"\0")
    return cache() / "tools" / f"{name}-{pins.hexdigest()[:16]}"


def source(name: str, module: str, *, tools: Path = TOOLS) -> Path:
    """The folder with the published source of a Go module that tests/tools/`name` pins; nobody may write there.

    Raises ToolError where Go is missing, or the module can neither be found nor fetched.
    """
    command = [_go(name), "mod", "download", "-json", module]
    done = subprocess.run(command, cwd=tools / name, capture_output=True, text=True, check=False)
    found: dict[str, str] = json.loads(done.stdout or "{}")
    if "Dir" not in found:
        raise ToolError(f"no source of {module}: {found.get('Error') or done.stderr.strip()}")
    return Path(found["Dir"])


def _go(name: str) -> str:
    found = go()
    if found is None:
        raise ToolError(f"{name} is built with Go, and {NO_GO}")
    return found


def _build(name: str, module: Path, target: Path, say: Say) -> None:
    found = _go(name)
    say(f"building {name} with Go (minutes, once)")
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"{target.name}.", dir=target.parent) as scratch:
        made = Path(scratch) / "bin"
        made.mkdir()
        words = module / "ldflags"
        command = [
            found,
            "build",
            "-p",
            JOBS,
            "-trimpath",
            "-buildvcs=false",
            f"-ldflags=-s -w {words.read_text() if words.exists() else ''}",
            "-o",
            f"{made}{os.sep}",
        ]
        if (module / "edit.py").exists():
            command.append(f"-modfile={_edited(name, module / 'edit.py', Path(scratch))}")
        done = subprocess.run(
            [*command, "tool", "./..."],
            cwd=module,
            env=os.environ | {"CGO_ENABLED": "0", "GOWORK": "off"},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ToolError(f"{name} could not be built in {module}:\n{done.stderr.strip()}")
        made.rename(target)  # whole or not at all
    say(f"built {name} in {time.monotonic() - began:.0f} s")


def _edited(name: str, script: Path, scratch: Path) -> Path:
    done = subprocess.run([sys.executable, script, scratch], capture_output=True, text=True, check=False)
    if done.returncode:
        raise ToolError(f"{name} could not be built, since {script} failed:\n{done.stderr.strip()}")
    return scratch / "go.mod"


def _to_standard_error(text: str) -> None:
    print(text, file=sys.__stderr__, flush=True)
