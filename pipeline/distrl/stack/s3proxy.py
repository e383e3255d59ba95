"""S3Proxy, the S3 endpoint of the local stack where there is no MinIO: one jar on the Java that Kafka runs on.

Objects are files below `data`. It knows no lifecycle rules, so nothing of it expires.
"""

from __future__ import annotations

from pathlib import Path
from string import Template

from distrl.errors import StackError
from distrl.stack import jars, processes
from distrl.stack.infra_files import declared
from distrl.stack.java import find_java
from distrl.stack.part import Site, UnavailableError
from distrl.stack.ports import HOST
from distrl.stack.private_file import write_private
from distrl.stack.processes import Child

NAME = "s3"
READY_S = 90.0
"""1.4 s on two idle cores; a busy machine needs a multiple."""
HEAP_MB = 256
SETTINGS = "s3proxy.properties"


def start(site: Site, data: Path, port: int, user: str, password: str) -> tuple[Child, float]:
    """Start S3Proxy on loopback, fetched first. Returns its process and how long it may take to answer, seconds.

    data: the folder of its objects. Raises UnavailableError where there is no Java, or the jar cannot be had.
    """
    try:
        java, _ = find_java()
        if not jars.S3PROXY.present(site.cache):
            site.report(f"fetching {jars.S3PROXY.name} ({jars.S3PROXY.megabytes} MB, once)")
        (jar,) = jars.S3PROXY.class_path(site.cache)
    except StackError as error:
        raise UnavailableError(error.where, error.what, error.hint) from None
    home = data.parent
    write_settings(home / SETTINGS, port, data, user, password)
    line = [str(java), f"-Xmx{HEAP_MB}m", "-XX:+ExitOnOutOfMemoryError", "-jar", str(jar), "--properties", SETTINGS]
    return processes.start(NAME, line, site.directory, {"LOG_LEVEL": "warn"}, cwd=home), READY_S


def write_settings(file: Path, port: int, data: Path, user: str, password: str) -> None:
    """Only their owner can read them, as they hold the password."""
    write_private(file, properties(port, data, user, password), encoding="latin-1")


def properties(port: int, data: Path, user: str, password: str) -> str:
    """infra/minio/s3proxy.properties filled in. data: absolute; below a relative folder it lists no object."""
    return Template(declared(f"minio/{SETTINGS}")).substitute(
        host=HOST, port=port, data=escaped(str(data)), user=user, password=password
    )


def escaped(value: str) -> str:
    """`value` as a Java properties file writes it: ASCII without backslashes of its own."""
    return "".join(
        "\\\\" if letter == "\\" else letter if " " < letter < "\x7f" else "".join(_units(letter)) for letter in value
    )


def _units(letter: str) -> list[str]:
    """The UTF-16 code units of a letter, escaped."""
    raw = letter.encode("utf-16-be")
    return [f"\\u{raw[i]:02x}{raw[i + 1]:02x}" for i in range(0, len(raw), 2)]
