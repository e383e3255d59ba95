"""How to get MinIO, the S3 endpoint of the local stack, on this machine.

In this order: a `minio` on the PATH, one that was built before, a Docker daemon with compose; and, where MinIO is asked
for by name, a build with Go (minutes, once). Its project is archived, so the version is fixed; we depend on nothing of
it but S3.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from distrl.errors import StackError
from distrl.stack import processes
from distrl.stack.infra_files import infra_folder
from distrl.stack.locks import held, workplace
from distrl.stack.part import Site, UnavailableError
from distrl.stack.ports import HOST
from distrl.stack.processes import CancelledError, Child, last_lines
from distrl.store.directory import sync

NAME = "s3"
MODULE = "github.com/minio/minio"
VERSION = "v0.0.0-20260212201848-7aac2a2c5b7c"
"""The last published commit, which is `@latest`."""
BUILD_LIMIT_S = 1800.0
REPORT_EVERY_S = 20.0
POLL_S = 0.2
ASK_S = 10.0
"""A Docker daemon that does not answer within this is not used."""
READY_S = 60.0
PULL_S = 600.0
"""Docker may have to fetch the image first."""
HINT = "put a `minio` on the PATH, start Docker or install Go; or set stack.object_store=s3proxy"


class Kind(Enum):
    PROGRAM = "program"
    DOCKER = "docker"
    BUILD = "build"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Way:
    """How to get MinIO."""

    kind: Kind
    program: Path | None
    """What runs it; for BUILD, the file that the build makes."""
    why: str
    """For people."""

    @property
    def runs(self) -> bool:
        """It can be started now."""
        return self.kind in (Kind.PROGRAM, Kind.DOCKER)


def way(cache: Path) -> Way:
    """The first way that works on this machine. Starts and builds nothing."""
    on_path = shutil.which("minio")
    if on_path:
        return Way(Kind.PROGRAM, Path(on_path), f"{on_path} is on the PATH")
    built = built_program(cache)
    if os.access(built, os.X_OK):
        return Way(Kind.PROGRAM, built, "it was built before")
    docker = shutil.which("docker")
    if docker and _runs([docker, "info"]) and _runs([docker, "compose", "version"]):
        return Way(Kind.DOCKER, Path(docker), "a Docker daemon runs")
    if shutil.which("go"):
        return Way(Kind.BUILD, built, "Go can build it, in some minutes, once")
    return Way(Kind.NONE, None, "there is no `minio` on the PATH, no Docker daemon with compose and no Go")


def start(site: Site, data: Path, port: int, user: str, password: str) -> tuple[Child, float]:
    """Start MinIO on loopback, built first where it has to be. Returns its process and how long it may take, seconds.

    data: the folder of its objects. Raises UnavailableError.
    """
    found = way(site.cache)
    if found.kind is Kind.NONE:
        raise UnavailableError("stack.object_store", found.why, HINT)
    if found.kind is Kind.BUILD:
        try:
            found = Way(Kind.PROGRAM, build(site.cache, site.report, site.cancelled), found.why)
        except StackError as error:
            raise UnavailableError(error.where, error.what, error.hint) from None
    assert found.program is not None
    env = {"MINIO_ROOT_USER": user, "MINIO_ROOT_PASSWORD": password}
    if found.kind is Kind.DOCKER:
        return _in_docker(found.program, site, data, port, env), PULL_S
    return _as_program(found.program, site, data, port, env), READY_S


def _as_program(program: Path, site: Site, data: Path, port: int, env: Mapping[str, str]) -> Child:
    line = [str(program), "server", str(data), "--address", f"{HOST}:{port}", "--certs-dir", str(data.parent / "certs")]
    quiet = {"MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}
    return processes.start(NAME, line, site.directory, {**env, **quiet})


def _in_docker(docker: Path, site: Site, data: Path, port: int, env: Mapping[str, str]) -> Child:
    """In the foreground, so that ending `docker compose up` ends the container."""
    file = infra_folder() / "minio" / "compose.yaml"
    project = "distrl-" + hashlib.sha256(str(data).encode()).hexdigest()[:12]
    line = [str(docker), "compose", "--project-name", project, "--file", str(file), "up", "--force-recreate"]
    owner = {"MINIO_UID": str(os.getuid()), "MINIO_GID": str(os.getgid())}
    return processes.start(
        NAME, line, site.directory, {**env, **owner, "MINIO_PORT": str(port), "MINIO_DATA": str(data)}
    )


def built_program(cache: Path) -> Path:
    """The file of a build; its name has the version, so that a newer one is built beside it."""
    return cache / "bin" / f"minio-{VERSION}"


def build(cache: Path, report: Callable[[str], None], cancelled: threading.Event) -> Path:
    """Build MinIO with Go, or wait for another process that does. Returns the program.

    Raises StackError with the end of Go's output, CancelledError. An interrupted build leaves nothing behind.
    """
    program = built_program(cache)

    def wait() -> None:
        if cancelled.wait(POLL_S):
            raise CancelledError("MinIO", "its build was cancelled", "fix what failed first")

    with held(cache / "bin" / "build.lock", "building MinIO", wait):
        if os.access(program, os.X_OK):
            return program
        with workplace(program.parent) as work:
            log = program.parent / "build.log"
            _go_install(work, log, report, wait)
            sync(work / "minio")  # else a power cut may leave an empty program under the name
            (work / "minio").rename(program)
    return program


def _go_install(work: Path, log: Path, report: Callable[[str], None], wait: Callable[[], None]) -> None:
    """wait: pauses for a moment, or raises to give up."""
    env = {**os.environ, "GOBIN": str(work), "CGO_ENABLED": "0"}
    began = said = time.monotonic()
    report("building MinIO with Go (3 to 10 minutes, once; stack.object_store=s3proxy avoids it)")
    with log.open("wb") as out:
        go = subprocess.Popen(
            ["go", "install", "-trimpath", "-ldflags=-s -w", f"{MODULE}@{VERSION}"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=work,
            start_new_session=True,
        )
    try:
        while go.poll() is None:
            wait()
            now = time.monotonic()
            if now - began > BUILD_LIMIT_S:
                raise StackError("MinIO", f"its build took longer than {BUILD_LIMIT_S / 60:.0f} minutes", HINT)
            if now - said > REPORT_EVERY_S:
                said = now
                report(f"building MinIO with Go: {now - began:.0f} s so far")
    finally:
        if go.poll() is None:
            go.terminate()  # it ends its compilers
            go.wait()
    if go.returncode != 0:
        raise StackError("MinIO", f"cannot be built with Go; the last lines:\n{last_lines(log)}", HINT)


def _runs(line: list[str]) -> bool:
    try:
        done = subprocess.run(line, capture_output=True, stdin=subprocess.DEVNULL, timeout=ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
