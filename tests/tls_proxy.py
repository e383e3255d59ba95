"""TLS in front of a server that speaks none: what comes in is passed on as it is."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress
from types import TracebackType

from certificates import Pair


class TlsProxy:
    """Listens on a port of its own for as long as the block lasts; `with` gives host:port."""

    def __init__(self, behind: str, pair: Pair) -> None:
        """behind: host:port."""
        host, _, port = behind.rpartition(":")
        self._behind = (host, int(port))
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(pair.certificate, pair.key)
        self._listener = socket.create_server(("127.0.0.1", 0))

    def __enter__(self) -> str:
        threading.Thread(target=self._accept, daemon=True).start()
        return f"127.0.0.1:{self._listener.getsockname()[1]}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                raw, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(raw,), daemon=True).start()

    def _serve(self, raw: socket.socket) -> None:
        """One request and its answer after the other, so that no TLS connection is used by two threads."""
        with suppress(OSError), self._context.wrap_socket(raw, server_side=True) as client:
            client.setblocking(False)
            with socket.create_connection(self._behind) as server:
                server.setblocking(False)
                while self._pump(client, server) and self._pump(server, client):
                    pass

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket) -> bool:
        """Pass on what is there, if anything. False: the source has ended."""
        try:
            data = source.recv(65_536)
        except (BlockingIOError, ssl.SSLWantReadError):
            threading.Event().wait(0.002)
            return True
        sink.setblocking(True)
        sink.sendall(data)
        sink.setblocking(False)
        return bool(data)
