"""Apache Kafka's jars: resolved once from Maven by jgo, checked against `infra/kafka/jars.sha256`, and cached.

The folder of jars is created atomically, so an interrupted download is never used. Later starts need no network.

    python -m distrl.stack.jars > infra/kafka/jars.sha256      after raising VERSION; review the output
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from distrl.errors import StackError
from distrl.stack.declared import declared
from distrl.stack.locks import held

VERSION = "4.3.1"
ENDPOINT = f"org.apache.kafka:kafka_2.13:{VERSION}@kafka.Kafka+org.slf4j:slf4j-simple:2.0.17"
LOCK = "kafka/jars.sha256"
HINT = "check the network and ~/.config/jgo.conf ([repositories]), or set kafka.bootstrap to a running broker"


def locked() -> Mapping[str, str]:
    """File name to sha256 (hex) of every jar, in the order of the class path."""
    pairs = (line.split() for line in declared(LOCK).splitlines() if line and not line.startswith("#"))
    return {name: digest for digest, name in pairs}


def folder(cache: Path) -> Path:
    """The folder of the jars in `cache` (a config.Stack.cache)."""
    return cache / "kafka" / VERSION


def present(cache: Path) -> bool:
    """Whether every jar is there, so that no network is needed."""
    return all((folder(cache) / name).is_file() for name in locked())


def class_path(cache: Path) -> list[Path]:
    """The jars, fetched first (45 MB) if they are missing. Safe to call from several processes at once.

    Raises StackError if they cannot be fetched, or differ from the locked ones.
    """
    if not present(cache):
        with held(cache / "kafka" / "fetch.lock", "fetching Apache Kafka", wait=lambda: time.sleep(0.2)):
            if not present(cache):
                _fetch(cache, locked())
    return [folder(cache) / name for name in locked()]


def _fetch(cache: Path, expected: Mapping[str, str]) -> None:
    with tempfile.TemporaryDirectory(dir=cache / "kafka", prefix="new-") as work:
        fresh = Path(work) / "jars"
        fresh.mkdir()
        for jar in _resolve(Path(work)):
            shutil.copyfile(jar, fresh / jar.name)
        found = {jar.name: digest(jar) for jar in fresh.iterdir()}
        differing = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        if differing:
            raise StackError(
                "Apache Kafka's jars",
                f"{', '.join(differing[:5])}: not as locked in infra/{LOCK}",
                "try again; if the error stays, the Maven repository has been changed: do not use it",
            )
        shutil.rmtree(folder(cache), ignore_errors=True)
        fresh.rename(folder(cache))


def _resolve(work: Path) -> list[Path]:
    """The jars of ENDPOINT, downloaded into `work`. Also uses the repositories of the user's jgo settings."""
    from jgo.config import GlobalSettings
    from jgo.constants import MAVEN_CENTRAL_URL
    from jgo.env import EnvironmentBuilder
    from jgo.maven import MavenContext

    remotes = {**GlobalSettings.load().repositories, "central": MAVEN_CENTRAL_URL}
    context = MavenContext(repo_cache=work / "repository", remote_repos=remotes, timeout=30)
    builder = EnvironmentBuilder(context=context, cache_dir=work / "environment")
    try:
        return [Path(jar) for jar in builder.from_endpoint(ENDPOINT).all_jars]
    except (OSError, RuntimeError, ValueError) as error:  # OSError: also raised by its HTTP client
        what = " ".join(str(error).split())[:300]
        raise StackError("Apache Kafka's jars", f"cannot be fetched ({what})", HINT) from None


def digest(file: Path) -> str:
    """sha256 (hex) of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        sys.stdout.write(f"# The jars of {ENDPOINT}, in the order of the class path (distrl/stack/jars.py).\n")
        for found in _resolve(Path(scratch)):
            sys.stdout.write(f"{digest(found)}  {found.name}\n")
