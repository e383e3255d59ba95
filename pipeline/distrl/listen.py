"""Listening for connections."""

from __future__ import annotations

import socket


def listen(host: str, port: int) -> socket.socket:
    """A listening socket at an address of either family; :: is every address of both. Raises OSError, and OverflowError
    for no port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, dualstack_ipv6=host == "::")
