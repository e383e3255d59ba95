"""TCP connections with one total deadline for name resolution and all addresses of the name.

`socket.create_connection` gives each address the whole timeout, and the resolver none.
"""

from __future__ import annotations

import ipaddress
import socket
import threading
import time
from concurrent.futures import Future
from typing import Any, Final

LEAST_TIMEOUT_S: Final = 1e-3
"""For a socket 0 means non-blocking."""

_Addresses = list[tuple[Any, ...]]
_resolving: dict[tuple[str, int], Future[_Addresses]] = {}
_lock = threading.Lock()


def dial(host: str, port: int, timeout_s: float) -> socket.socket:
    """A connected TCP socket, whose timeout is `timeout_s`.

    Tries the addresses in the resolver's order; each gets an equal share of the remaining time, so that a dead one
    leaves time for the next. Raises TimeoutError at the deadline, else the OSError of the last address tried
    (socket.gaierror where the name has none).
    """
    deadline = time.monotonic() + timeout_s
    found = _resolved(host, port, timeout_s)
    failure: OSError = OSError(f"{host} has no address")
    for place, (family, kind, protocol, _, address) in enumerate(found):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        sock = None
        try:
            sock = socket.socket(family, kind, protocol)
            sock.settimeout(max(LEAST_TIMEOUT_S, left / (len(found) - place)))
            sock.connect(address)
            sock.settimeout(timeout_s)
        except OSError as error:
            failure = error
            if sock is not None:
                sock.close()
        else:
            return sock
    if isinstance(failure, TimeoutError) or (found and deadline <= time.monotonic()):
        raise TimeoutError(f"no connection to {host}:{port} within {timeout_s:.3g} s") from failure
    raise failure


def _resolved(host: str, port: int, timeout_s: float) -> _Addresses:
    """The addresses of a host. Raises TimeoutError where the resolver takes longer, socket.gaierror where it has none.

    The system's resolver cannot be interrupted, so it runs in a thread; a numeric address needs none. Concurrent calls
    for a name share a thread, so that a hanging resolver holds one thread per name.
    """
    if _is_numeric(host):
        return socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
    with _lock:
        answer = _resolving.get((host, port))
        if answer is None:
            answer = Future()
            try:
                threading.Thread(target=_resolve, args=(host, port, answer), name="resolver", daemon=True).start()
            except RuntimeError as error:  # a limit of threads or processes, which may be reached for a moment
                raise OSError(f"no thread to resolve {host}: {error}") from None
            _resolving[host, port] = answer
    try:
        return answer.result(max(LEAST_TIMEOUT_S, timeout_s))
    except TimeoutError:
        if answer.done():  # the resolver's own
            raise
        raise TimeoutError(f"the name {host} was not resolved within {timeout_s:.3g} s") from None


def _resolve(host: str, port: int, answer: Future[_Addresses]) -> None:
    try:
        found = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM)
    except UnicodeError:  # Python's, before anybody is asked: a label without a character, or with too many
        _forget(host, port)
        answer.set_exception(socket.gaierror(socket.EAI_NONAME, f"{host!r} is no name of a host"))
    except BaseException as error:
        _forget(host, port)
        answer.set_exception(error)
    else:
        _forget(host, port)
        answer.set_result(found)


def _forget(host: str, port: int) -> None:
    """Let the next call resolve again."""
    with _lock:
        _resolving.pop((host, port), None)


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
