"""A model hub on loopback that answers `huggingface_hub` as the real one does, from directories."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

from distrl.stack import ports


@dataclass
class Hub:
    """revisions: the directory of each (model, revision); a directory is a commit."""

    revisions: dict[tuple[str, str], Path]
    refuses: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Model -> status and the hub's error code."""
    breaks_off: set[str] = field(default_factory=set)
    """Names of files that are cut in half, once each."""
    asked: list[str] = field(default_factory=list)
    url: str = ""

    def directory(self, model: str, revision: str) -> Path | None:
        commits = {commit_of(path): path for (name, _), path in self.revisions.items() if name == model}
        return self.revisions.get((model, revision)) or commits.get(revision)


def commit_of(directory: Path) -> str:
    """40 hex digits."""
    return hashlib.sha1(str(directory).encode()).hexdigest()


@contextmanager
def served(hub: Hub) -> Iterator[Hub]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(hub)

        def do_HEAD(self) -> None:
            self._answer(hub)

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self, hub: Hub) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.asked.append(f"{self.command} {path}")
            api, parts = path.startswith("/api/models/"), path.removeprefix("/api/models").strip("/").split("/")
            model, what, revision, *rest = "/".join(parts[:2]), *parts[2:]
            if model in hub.refuses:
                status, code = hub.refuses[model]
                return self._send(status, b"{}", {"X-Error-Code": code})
            if not any(name == model for name, _ in hub.revisions):
                return self._send(404, b"{}", {"X-Error-Code": "RepoNotFound"})
            directory = hub.directory(model, revision)
            if directory is None:
                return self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
            if api and what == "revision":
                return self._json({"id": model, "sha": commit_of(directory), "siblings": []})
            if api and what == "tree":
                return self._json([entry(directory, file) for file in files(directory)])
            return self._file(directory, directory / "/".join(rest), hub)

        def _file(self, directory: Path, file: Path, hub: Hub) -> None:
            content = file.read_bytes()
            headers = {"X-Repo-Commit": commit_of(directory), "ETag": f'"{blob_of(content)}"'}
            if self.command == "GET" and file.name in hub.breaks_off:
                hub.breaks_off.discard(file.name)
                self._send(200, content[: len(content) // 2], {**headers, "Content-Length": str(len(content))})
                self.close_connection = True
                return None
            begin = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").split("-")[0])
            if begin:
                headers["Content-Range"] = f"bytes {begin}-{len(content) - 1}/{len(content)}"
            return self._send(206 if begin else 200, content[begin:], headers)

        def _json(self, value: object) -> None:
            self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | dict(headers)).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    with ThreadingHTTPServer(("127.0.0.1", ports.draw("hub")), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        hub.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield hub
        finally:
            server.shutdown()


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def entry(directory: Path, file: Path) -> dict[str, object]:
    content = file.read_bytes()
    return {
        "type": "file",
        "path": file.relative_to(directory).as_posix(),
        "size": len(content),
        "oid": blob_of(content),
    }


def blob_of(content: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()
