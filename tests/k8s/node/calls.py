"""Calls of programs that end by themselves."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence


class CallError(Exception):
    """A program failed; holds its command line and the last that it said."""


def called(command: Sequence[str], given: str | None = None, environment: Mapping[str, str] | None = None) -> str:
    """What `command` prints, without white space around it.

    given: its standard input. environment: variables beside those of this process. Raises CallError.
    """
    done = subprocess.run(
        command,
        input=given or "",
        env=os.environ | dict(environment or {}),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip())[-2000:]
        raise CallError(f"{' '.join(command)} ended with {done.returncode}: {said}")
    return done.stdout.strip()
