"""Jars from Maven Central: resolved once by jgo, checked against their lock in `infra`, and cached.

A folder of jars is created atomically, so an interrupted download is never used. Later starts need no network.

    python -m distrl.stack.jars kafka > infra/kafka/jars.sha256          after raising VERSION; review the output
    python -m distrl.stack.jars s3proxy > infra/minio/s3proxy.sha256
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from distrl.errors import StackError
from distrl.stack.infra_files import declared
from distrl.stack.locks import held, workplace
from distrl.store.directory import sync_all

if TYPE_CHECKING:
    from jgo.maven import MavenContext

NETWORK_HINT = "check the network and ~/.config/jgo.conf ([repositories])"


@dataclass(frozen=True, slots=True)
class Jars:
    """The jars of one server.

    name, megabytes: for people. folder: below the cache. lock: a file of `infra`, a line "sha256  file name" for each
    jar in the order of the class path. resolve: downloads them into a folder. hint: what helps where that fails.
    """

    name: str
    version: str
    megabytes: int
    folder: str
    lock: str
    resolve: Callable[[Path], list[Path]]
    hint: str

    def locked(self) -> Mapping[str, str]:
        """File name to sha256 (hex) of every jar, in the order of the class path."""
        pairs = (line.split() for line in declared(self.lock).splitlines() if line and not line.startswith("#"))
        return {name: digest for digest, name in pairs}

    def present(self, cache: Path) -> bool:
        """Whether every jar is in `cache` (StackSettings.cache), so that no network is needed."""
        return all((self._folder(cache) / name).is_file() for name in self.locked())

    def class_path(self, cache: Path) -> list[Path]:
        """The jars, fetched first if they are missing. Safe to call from several processes at once.

        Raises StackError if they cannot be fetched, or differ from the locked ones.
        """
        if not self.present(cache):
            lock = self._folder(cache).parent / "fetch.lock"
            with held(lock, f"fetching {self.name}", wait=lambda: time.sleep(0.2)):
                if not self.present(cache):
                    self._fetch(cache)
        return [self._folder(cache) / name for name in self.locked()]

    def _folder(self, cache: Path) -> Path:
        return cache / self.folder / self.version

    def _fetch(self, cache: Path) -> None:
        folder, expected = self._folder(cache), self.locked()
        with workplace(folder.parent) as work:
            fresh = work / "jars"
            fresh.mkdir()
            for jar in self._resolved(work):
                shutil.copyfile(jar, fresh / jar.name)
            found = {jar.name: digest(jar) for jar in fresh.iterdir()}
            differing = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
            if differing:
                raise StackError(
                    f"{self.name}'s jars",
                    f"{', '.join(differing[:5])}: not as locked in infra/{self.lock}",
                    "try again; if the error stays, the Maven repository has been changed: do not use it",
                )
            shutil.rmtree(folder, ignore_errors=True)
            sync_all(fresh)  # else a power cut may leave empty jars under the name
            fresh.rename(folder)

    def _resolved(self, work: Path) -> list[Path]:
        try:
            return self.resolve(work)
        except (OSError, RuntimeError, ValueError) as error:  # OSError: also raised by jgo's HTTP client
            what = " ".join(str(error).split())[:300]
            raise StackError(f"{self.name}'s jars", f"cannot be fetched ({what})", self.hint) from None


KAFKA_VERSION: Final = "4.3.1"
KAFKA_ENDPOINT: Final = f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}+org.slf4j:slf4j-simple:2.0.17@kafka.Kafka"
S3PROXY_VERSION: Final = "2.9.0"


def _kafka(work: Path) -> list[Path]:
    from jgo.env import EnvironmentBuilder

    builder = EnvironmentBuilder(context=maven(work), cache_dir=work / "environment")
    return [Path(jar) for jar in builder.from_endpoint(KAFKA_ENDPOINT).all_jars]


def _s3proxy(work: Path) -> list[Path]:
    """One jar, with all that it depends on inside."""
    component = maven(work).project("org.gaul", "s3proxy").at_version(S3PROXY_VERSION)
    return [Path(component.artifact(classifier="jar-with-dependencies").resolve())]


def maven(work: Path) -> MavenContext:
    """Maven Central, and the repositories of the user's jgo settings."""
    from jgo.config import GlobalSettings
    from jgo.constants import MAVEN_CENTRAL_URL
    from jgo.maven import MavenContext

    remotes = {**GlobalSettings.load().repositories, "central": MAVEN_CENTRAL_URL}
    return MavenContext(repo_cache=work / "repository", remote_repos=remotes, timeout=30)


KAFKA: Final = Jars(
    "Apache Kafka",
    KAFKA_VERSION,
    45,
    "kafka",
    "kafka/jars.sha256",
    _kafka,
    f"{NETWORK_HINT}, or set kafka.bootstrap to a running broker",
)
S3PROXY: Final = Jars(
    "S3Proxy",
    S3PROXY_VERSION,
    40,
    "s3proxy",
    "minio/s3proxy.sha256",
    _s3proxy,
    f"{NETWORK_HINT}, set store.url to an S3 endpoint that runs, or stack.object_store=directory",
)


def digest(file: Path) -> str:
    """sha256 (hex) of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


if __name__ == "__main__":
    chosen = {"kafka": KAFKA, "s3proxy": S3PROXY}[sys.argv[1]]
    with tempfile.TemporaryDirectory() as scratch:
        sys.stdout.write(f"# The jars of {chosen.name} {chosen.version}, in the order of the class path.\n")
        for found in chosen.resolve(Path(scratch)):
            sys.stdout.write(f"{digest(found)}  {found.name}\n")
