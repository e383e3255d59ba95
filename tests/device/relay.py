"""A TCP relay on loopback that can stop hearing, or let one byte a second through; connections stand meanwhile."""

from __future__ import annotations

import contextlib
import socket
import threading
from enum import Enum
from types import TracebackType

HOST = "127.0.0.1"
DRIP_S = 1.0


class Mode(Enum):
    PASS = "pass"
    HALF_OPEN = "half-open"
    """What either side sends is lost, as by a peer that has vanished without a word."""
    DRIP = "drip"
    """What the target answers comes a byte at a time."""


class Relay:
    """Forwards to `target`, a port. A context manager; left, no thread and no connection remains."""

    def __init__(self, target: int) -> None:
        self.mode = Mode.PASS
        self._target = target
        self._closed = threading.Event()
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server((HOST, 0))
        self.port = int(self._listener.getsockname()[1])

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def __enter__(self) -> Relay:
        self._run(self._accept)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._closed.set()
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in list(self._threads):
            thread.join()

    def _run(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((HOST, self._target))
                self._sockets += [client, server]
                self._run(self._pump, client, server, False)
                self._run(self._pump, server, client, True)

    def _pump(self, source: socket.socket, sink: socket.socket, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self.mode is Mode.HALF_OPEN:
                    continue
                if self.mode is Mode.DRIP and answers:
                    for byte in data:
                        sink.sendall(bytes([byte]))
                        if self._closed.wait(DRIP_S):
                            return
                    continue
                sink.sendall(data)
            if self.mode is Mode.PASS:
                sink.shutdown(socket.SHUT_RDWR)
