"""Parses addresses of phones, brokers and servers. Of phones: one host:port, or a range of hosts, of ports, or of both.

10.0.0.1-10.0.0.20:5555 are twenty hosts, 127.0.0.1:5555-5562 eight ports. IPv6 is written in brackets, one host at a
time: [fe80::1]:5555.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Address
from urllib.parse import urlsplit

MOST = 1024
"""Most addresses in one list; a larger range is a typing error."""
HIGHEST_PORT = 65_535
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?|\[[0-9A-Fa-f:.%]{2,60}\]")
_NUMBER = re.compile(r"[0-9]{1,5}")
_QUAD = r"\d{1,3}(?:\.\d{1,3}){3}"
_HOSTS = re.compile(rf"({_QUAD})-(.+)|(.+)-({_QUAD})", re.ASCII)
_BROKERS = "write HOST:PORT, several with commas between them, IPv6 in brackets"
_SHAPE = "write host:port, 10.0.0.1-10.0.0.20:5555 or 127.0.0.1:5555-5562"


def expanded(written: Iterable[str]) -> tuple[str, ...]:
    """Every address as host:port, each once, in the order written.

    Raises ValueError, which names what is malformed, also for more than MOST addresses.
    """
    found: dict[str, None] = {}
    for item in written:
        host, colon, port = item.rpartition(":")
        if not colon:
            raise ValueError(f"{item!r} names no port; {_SHAPE}")
        hosts, ports = _hosts(item, host), _ports(item, port)
        if len(found) + len(hosts) * len(ports) > MOST:
            raise ValueError(f"with {item!r} they are more than {MOST} addresses; name fewer")
        found |= dict.fromkeys(f"{_dotted(each)}:{number}" for each in hosts for number in ports)
    return tuple(found)


def brokers(written: str) -> str:
    """`written` unchanged, if it is one host:port or several joined by commas, without ranges. Else raises
    ValueError."""
    for item in written.split(","):
        host, colon, port = item.strip().rpartition(":")
        if not colon:
            raise ValueError(f"{item.strip()!r} names no port; {_BROKERS}")
        if not _HOST.fullmatch(host):
            raise ValueError(f"{item.strip()!r} names no host; {_BROKERS}")
        if not (_NUMBER.fullmatch(port) and 1 <= int(port) <= HIGHEST_PORT):
            raise ValueError(f"{item.strip()!r} names no port from 1 to {HIGHEST_PORT}; {_BROKERS}")
    return written


def server_url(written: str | None) -> str | None:
    """`written` unchanged, if it is None or a client can parse it. Else raises ValueError."""
    try:
        if written is not None:
            urlsplit(written).port  # noqa: B018 - parsed when it is asked for
    except ValueError as error:
        raise ValueError(f"{written} is no address of a server: {error}") from None
    return written


def _hosts(item: str, written: str) -> range | tuple[str]:
    """A range of IPv4 addresses as numbers, or one host as written."""
    ends = _HOSTS.fullmatch(written)
    if ends is None:
        if not _HOST.fullmatch(written):
            raise ValueError(f"{item!r} names no host; {_SHAPE}")
        return (written,)
    first, last = ends.group(1, 2) if ends.group(1) else ends.group(3, 4)
    try:
        low, high = int(IPv4Address(first)), int(IPv4Address(last))
    except ValueError as error:
        raise ValueError(f"{item!r} is no range of IPv4 addresses ({error}); {_SHAPE}") from None
    return _upwards(item, low, high)


def _ports(item: str, written: str) -> range:
    first, dash, last = written.partition("-")
    ends = (first, last if dash else first)
    if not all(_NUMBER.fullmatch(end) and 1 <= int(end) <= HIGHEST_PORT for end in ends):
        raise ValueError(f"{item!r} names no ports from 1 to {HIGHEST_PORT}; {_SHAPE}")
    return _upwards(item, int(ends[0]), int(ends[1]))


def _upwards(item: str, low: int, high: int) -> range:
    if high < low:
        raise ValueError(f"{item!r} ends before it begins")
    return range(low, high + 1)


def _dotted(host: int | str) -> str:
    return host if isinstance(host, str) else str(IPv4Address(host))
