"""Which port a server of the stack gets: the configured one, else a free one."""

from __future__ import annotations

import random
import socket
from collections import deque
from collections.abc import Collection
from typing import Final, NamedTuple

import psutil

from distrl.dial import dial
from distrl.errors import StackError

HOST = "127.0.0.1"
LOWEST = 20_000
HIGHEST = 32_000
"""Below Linux's range of ephemeral ports, so that no outgoing connection is in the way."""
TRIES = 200
DRAWN: Final[deque[int]] = deque(maxlen=256)
"""The last ports that this process drew. Who asked for one may not listen there yet, so it is not drawn again."""


def is_free(port: int, host: str = HOST) -> bool:
    """Whether a server could listen there now; connections in TIME_WAIT do not count."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))  # no more: who connects would take it for the server, and a server be refused
        except OSError:
            return False
    return True


def listens(port: int, host: str = HOST, timeout_s: float = 0.5) -> bool:
    """Whether something accepts a connection there, by the deadline."""
    try:
        dial(host, port, timeout_s).close()
    except OSError:
        return False
    return True


def listens_at(address: str, usual: int | None = None) -> bool:
    """`listens`, at host:port; IPv6 in brackets. usual: the port where the address names none."""
    host, colon, number = address.rpartition(":")
    if usual is not None and not (colon and number.isdigit()):
        host, number = address, str(usual)
    is_port = number.isdecimal() and len(number) < 6
    return bool(host) and is_port and listens(int(number), host.strip("[]"))


def choose(wanted: int, explicit: bool, setting: str, taken: Collection[int] = (), count: int = 1) -> int:
    """The first of `count` free ports in a row: from `wanted` on, or elsewhere unless `explicit`.

    explicit: a person has set `setting`, so no other port is taken.
    taken: ports of other parts. Raises StackError, which names the process that uses the port.
    """
    busy = [port for port in range(wanted, wanted + count) if port in taken or not is_free(port)]
    if not busy:
        return wanted
    if explicit:
        raise StackError(
            setting,
            f"port {busy[0]} of {HOST} is in use{holder(busy[0])}",
            f"stop what listens there, or set {setting} to a free port",
        )
    return draw(setting, taken, count)


def draw(setting: str, taken: Collection[int] = (), count: int = 1) -> int:
    """The first of `count` free ports in a row, at random. Raises StackError, which names `setting`, without any."""
    for _ in range(TRIES):
        first = random.randrange(LOWEST, HIGHEST - count)
        row = range(first, first + count)
        if all(port not in taken and port not in DRAWN and is_free(port) for port in row):
            DRAWN.extend(row)
            return first
    raise StackError(setting, f"no {count} free ports in a row from {LOWEST} to {HIGHEST}", f"set {setting}")


def holder(port: int) -> str:
    """ " by NAME (process PID)" if the system reports who listens on `port`; else empty."""
    found = listener(port)
    return "" if found is None else f" by {found.name} (process {found.pid})"


class Listener(NamedTuple):
    """The process that listens at a port."""

    pid: int
    name: str


def listener(port: int) -> Listener | None:
    """None where nobody does, or the system does not report who."""
    try:
        for connection in psutil.net_connections("tcp"):
            if (
                connection.status == psutil.CONN_LISTEN
                and connection.laddr
                and connection.laddr.port == port
                and connection.pid
            ):
                return Listener(connection.pid, psutil.Process(connection.pid).name())
    except psutil.Error:
        pass
    return None
