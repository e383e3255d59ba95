"""What a pod reaches over its network."""

from __future__ import annotations

TRY = """
import socket, sys
from concurrent.futures import ThreadPoolExecutor

def reached(target):
    host, _, port = target.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=3).close()
        return target
    except TimeoutError:  # a policy drops what it does not allow
        return ""

with ThreadPoolExecutor() as pool:
    print(*pool.map(reached, sys.argv[1:]))
"""


def asks(*targets: str) -> tuple[str, ...]:
    """The command of a pod that prints those of the targets, HOST:PORT, that it reaches.

    It fails where one refuses a connection or has no name, as no policy does.
    """
    return ("python", "-c", TRY, *targets)
