"""The server of the pages, on a thread of its own."""

from __future__ import annotations

import socket
from types import TracebackType
from typing import Final

import uvicorn

from distrl.errors import ConfigError
from distrl.listen import listen
from distrl.supervised import SupervisedThread
from distrl.view.app import NO_REPORTS, application
from distrl.view.guard import Guard, is_loopback, own_hosts
from distrl.view.reports import Reports
from distrl.view.runs import Runs

MOST_CONNECTIONS: Final = 256
"""Connections at a time; further ones are told that the server is busy."""
IDLE_S: Final = 30
END_S: Final = 3
"""How long answers that are on their way may take at the end."""


class ViewServer:
    """A context manager: the constructor takes the port, entering starts the thread, leaving ends it.

    token: what every request must show; None: no token is asked for, which is allowed on loopback only. Raises
    ConfigError where it cannot listen.
    """

    def __init__(self, runs: Runs, host: str, port: int, token: str | None, reports: Reports = NO_REPORTS) -> None:
        if token is None and not is_loopback(host):
            raise ConfigError(
                "--host",
                f"everybody who reaches {host} could read the runs",
                "name a file with a secret: `openssl rand -hex 32 > token`, then add `--token-file token`",
            )
        self._socket = _listening(host, port)
        self.port: int = self._socket.getsockname()[1]
        host = f"[{host}]" if ":" in host else host
        self.address = f"http://{host}:{self.port}/"
        self._server: uvicorn.Server
        guarded = Guard(
            application(runs, lambda: self._server.should_exit, reports),
            own_hosts(host, self.port),
            self.address,
            token,
        )
        config = uvicorn.Config(
            guarded,
            access_log=False,  # paths hold task ids, and nobody reads them
            log_config=None,
            server_header=False,
            lifespan="off",
            proxy_headers=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=IDLE_S,
            timeout_graceful_shutdown=END_S,
            ws="none",
        )
        self._server = uvicorn.Server(config)

    def __enter__(self) -> ViewServer:
        self._thread = SupervisedThread(lambda: self._server.run(sockets=[self._socket]), "view")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def check(self) -> None:
        """Raise what ended the server, if it has failed."""
        self._thread.check()


def _listening(host: str, port: int) -> socket.socket:
    try:
        return listen(host, port)
    except (OSError, OverflowError) as error:
        raise ConfigError(
            "--port", f"port {port} of {host} cannot be listened on: {error}", "leave --port out to take a free one"
        ) from error
