"""Opens listening TCP sockets."""

from __future__ import annotations

import socket


def listen(host: str, port: int) -> socket.socket:
    """A listening socket at an IPv4 or IPv6 address; `::` is every address of both. Raises OSError, and OverflowError
    for a number that is no port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, dualstack_ipv6=host == "::")
