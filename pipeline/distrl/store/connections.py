"""urllib3's pool of connections, with connects that end by their deadline (dial.py)."""

from __future__ import annotations

import socket
from typing import Any

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError

from distrl.dial import dial


def _dialed(connection: HTTPConnection, host: str) -> socket.socket:
    """As `HTTPConnection._new_conn`; the timeout is for connecting."""
    timeout_s = connection.timeout
    assert isinstance(timeout_s, int | float), "the pool resolves it to a number of seconds"
    try:
        sock = dial(host, connection.port, timeout_s)
    except socket.gaierror as error:
        raise NameResolutionError(connection.host, connection, error) from error
    except TimeoutError as error:
        raise ConnectTimeoutError(connection, str(error)) from error
    except OSError as error:
        raise NewConnectionError(connection, f"no connection: {error}") from error
    for option in connection.socket_options or ():
        sock.setsockopt(*option)
    return sock


class _Http(HTTPConnection):
    def __repr__(self) -> str:  # urllib3's errors begin with it
        return f"{self.host}:{self.port}"

    def _new_conn(self) -> socket.socket:
        return _dialed(self, self._dns_host)


class _Https(_Http, HTTPSConnection):
    """Both of these, and TLS."""


class _HttpPool(HTTPConnectionPool):
    ConnectionCls = _Http


class _HttpsPool(HTTPSConnectionPool):
    ConnectionCls = _Https


class Connections(PoolManager):
    """A PoolManager, whose settings it takes."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}
