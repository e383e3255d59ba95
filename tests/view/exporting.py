"""Exports a run of a test, and serves folders as any server of files does."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from distrl.config import Config
from distrl.view.export import Exported, export
from distrl.view.reports import Reports
from distrl.view.runs import Runs

MADE_AT = 1_761_000_000_000
MOST_S = 60.0


def exported(
    config: Config,
    place: Path,
    most: int | None = None,
    force: bool = False,
    at: int = MADE_AT,
    reports: Sequence[Path] = (),
) -> Exported:
    """As the command does, once the run's index is at the end of its log.

    On a thread of its own, as a browser that is driven has its event loop on the test's.
    """

    def made() -> Exported:
        with Runs(lambda: [config.run], lambda name: config) as runs:
            assert runs.get(config.run).follower.caught_up.wait(MOST_S)
            return export(runs, place, most, force, at, reports=Reports(reports))

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(made).result()


def contents(folder: Path) -> dict[str, bytes]:
    """Path in the folder -> bytes."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def served_files(folder: Path) -> Iterator[str]:
    """Python's own server of files. Gives its address."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()
