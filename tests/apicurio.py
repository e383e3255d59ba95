"""Apicurio Registry, a schema registry of its own with Confluent's REST interface beside its native one, as its authors
publish it on Maven Central. It is fetched once for a user, and runs in a directory of a test, in memory.

To raise VERSION, put the sha256 of the new `-all.tar.gz` into SHA256.
"""

from __future__ import annotations

import hashlib
import shutil
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.error import URLError
from urllib.request import urlopen

from distrl.errors import StackError
from distrl.stack import jars, ports
from distrl.stack.java import find_java
from distrl.stack.processes import last_lines, start, stop_all
from fetching import Say, cache
from filelock import FileLock

VERSION: Final = "3.3.3"
SHA256: Final = "8bc6751c76d963734224b01d5e7f84ccb3cb61c87d3bd77c36c35f10a5cbed63"
START_S: Final = 180.0
STOP_S: Final = 30.0
ASK_S: Final = 5.0
POLL_S: Final = 0.1


def build(say: Say) -> Path:
    """Its folder in the user's cache, fetched unless it is there. Safe in several processes at once. Raises StackError
    where it cannot be fetched or is not the locked one."""
    folder = cache() / "apicurio" / VERSION
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if not folder.is_dir():  # no other process has fetched it meanwhile
                say(f"fetching Apicurio Registry {VERSION} (159 MB, once)")
                _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="new-") as work:
        try:
            component = jars.maven(Path(work)).project("io.apicurio", "apicurio-registry-app").at_version(VERSION)
            archive = Path(component.artifact(classifier="all", packaging="tar.gz").resolve())
        except (OSError, RuntimeError, ValueError) as error:
            raise StackError("Apicurio Registry", f"cannot be fetched ({error!r:.300})", jars.NETWORK_HINT) from None
        if (found := hashlib.sha256(archive.read_bytes()).hexdigest()) != SHA256:
            raise StackError("Apicurio Registry", f"has the sha256 {found}, not the locked one", "do not use it")
        with tarfile.open(archive) as packed:
            packed.extractall(Path(work) / "app", filter="data")
        shutil.move(Path(work) / "app", folder)


@contextmanager
def running(directory: Path) -> Iterator[str]:
    """The address of its Confluent interface, while the block runs. directory: of its log."""
    app, port = build(lambda text: None), ports.draw("the tests")
    java, _ = find_java()
    listens = [f"-Dquarkus.http.host={ports.HOST}", f"-Dquarkus.http.port={port}"]
    line = [str(java), "-Xmx256m", *listens, "-jar", str(app / "quarkus-run.jar")]
    child = start("apicurio", line, directory, cwd=app)
    url = f"http://{ports.HOST}:{port}/apis/ccompat/v7"
    try:
        deadline = time.monotonic() + START_S
        while not _answers(url):
            words = last_lines(directory / "apicurio.log")
            assert child.lives(), words
            assert time.monotonic() < deadline, words
            time.sleep(POLL_S)
        yield url
    finally:
        stop_all([child], STOP_S)


def _answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/subjects", timeout=ASK_S) as answer:
            return bool(answer.status == 200)
    except (URLError, OSError):
        return False
