"""One phone in a browser, for a person: its screen, and taps, swipes, text and keys. On loopback only.

The page has an unguessable path and checks the Host header: any other page open in the same browser could otherwise
reach the port. Nothing is recorded, unless the server has a recorder and the person starts a task there.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from types import TracebackType
from typing import Any, Final, Protocol

from distrl.device.errors import DeviceRefused
from distrl.device.leases import Hold, Leases
from distrl.device.session import AdbSession
from distrl.errors import BrokerError, ConfigError, DeviceError, DistrlError, StoreError
from distrl.supervised import SupervisedThread
from distrl.types import Action, ActionKind, Point

log = logging.getLogger(__name__)

HOST: Final = "127.0.0.1"
MOST_BODY: Final = 16 * 1024
"""Bytes of an action: the longest text that can be typed, with every letter escaped."""
TIMEOUT_S: Final = 10.0
"""For a browser that connects and sends nothing: each connection holds a thread."""
POLL_S: Final = 0.05
"""How soon the server notices that it is to stop."""
PLACES: Final = {ActionKind.TAP: ("touch",), ActionKind.SWIPE: ("touch", "lift")}
PLAYED: Final = frozenset({*PLACES, ActionKind.TYPE, ActionKind.BACK, ActionKind.HOME, ActionKind.ENTER})
RECORDED: Final = ("record", "done", "discard")
"""The requests of the page to the recorder."""


@contextmanager
def held(leases: Leases, serials: Sequence[str]) -> Iterator[str]:
    """Locks the first free one of these phones within the block; yields its serial.

    Raises DeviceError, with who has each, if none is free.
    """
    holders = []
    for serial in serials:
        found = leases.take(serial)
        if isinstance(found, Hold):
            try:
                yield serial
            finally:
                found.release()
            return
        holders.append(f"{serial} is held by {found}")
    raise DeviceError(
        "phones play", "; ".join(holders), "stop the process that drives it, or choose another phone with --serial"
    )


class ActionRecorder(Protocol):
    """Makes demonstrations of the actions done here. Every method raises DistrlError if it refuses."""

    @property
    def recording(self) -> bool:
        """Whether actions belong to a demonstration now."""

    def state(self) -> Mapping[str, Any]: ...
    def begin(self, asked: Mapping[str, Any]) -> None: ...
    def act(self, action: Action) -> None: ...
    def finish(self, *, well: bool) -> Mapping[str, Any]: ...
    def discard(self) -> None: ...


class NoActionError(ValueError):
    """A request that is not an action; the message has the reason."""


def action_of(body: bytes) -> Action:
    """The action that a page requests: {"kind": "tap", "touch": [x, y]}, with coordinates as fractions of the screen.

    Raises NoActionError.
    """
    try:
        asked = json.loads(body)
        kind = ActionKind(asked["kind"])
        if kind not in PLAYED:
            raise NoActionError(f"{kind} cannot be done here")
        text = asked["text"] if kind is ActionKind.TYPE else ""
        places = {name: _point(asked[name]) for name in PLACES.get(kind, ())}
    except NoActionError:
        raise
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise NoActionError(f"not an action: {error}") from error
    if not isinstance(text, str):
        raise NoActionError("the text to type is not a string")
    return Action(kind, text=text, **places)


def object_of(body: bytes) -> Mapping[str, Any]:
    """The JSON object that a page sends. Raises NoActionError."""
    try:
        asked = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise NoActionError(f"not JSON: {error}") from error
    if not isinstance(asked, dict):
        raise NoActionError("not a JSON object")
    return asked


def _point(place: Any) -> Point:
    x, y = place
    if not all(type(part) in (int, float) and 0 <= part <= 1 for part in (x, y)):
        raise NoActionError(f"{place!r} is not a point on the screen")
    return Point(float(x), float(y))


class PlayServer:
    """The page of one phone. A context manager: entering starts the server's threads, leaving stops them.

    port: 0 takes a free one. Raises ConfigError if it cannot be opened. recorder: of the actions on the same phone.
    """

    def __init__(self, session: AdbSession, port: int = 0, recorder: ActionRecorder | None = None) -> None:
        self._session = session
        self._recorder = recorder
        self._lock = threading.Lock()  # a session belongs to one thread at a time
        self._secret = secrets.token_urlsafe(16)
        self._page = files("distrl.device").joinpath("play.html").read_text(encoding="utf-8")
        try:
            self._server = _Server((HOST, port), lambda *args: _Handler(self, *args))
        except (OSError, OverflowError) as error:
            raise ConfigError(
                "--port",
                f"port {port} of {HOST} cannot be opened: {error}",
                "leave --port out to take a free one",
            ) from error
        self._thread: SupervisedThread | None = None

    @property
    def address(self) -> str:
        """The URL of the page."""
        return f"http://{HOST}:{self._server.server_port}/{self._secret}/"

    def __enter__(self) -> PlayServer:
        self._thread = SupervisedThread(lambda: self._server.serve_forever(POLL_S), "play")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._thread is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def named(self, host: str) -> bool:
        """Whether a Host header names this server (against DNS rebinding)."""
        return host in {f"{name}:{self._server.server_port}" for name in (HOST, "localhost")}

    def within(self, path: str) -> str | None:
        """The part of a path behind the secret; None without it."""
        _, secret, rest = [*path.split("/", 2), "", ""][:3]
        return rest if secrets.compare_digest(secret.encode(), self._secret.encode()) else None

    def page(self) -> tuple[bytes, str]:
        """The page, and its Content-Security-Policy, which keeps it from loading anything else."""
        nonce = secrets.token_urlsafe(16)
        policy = (
            f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; img-src blob:; "
            "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        return self._page.replace("{nonce}", nonce).encode(), policy

    def screen(self) -> bytes:
        """PNG. Raises DeviceError."""
        with self._lock:
            return self._session.screenshot().png

    def act(self, body: bytes) -> None:
        """Raises NoActionError, DeviceError, and what the recorder raises."""
        action = action_of(body)
        with self._lock:
            if self._recorder is not None and self._recorder.recording:
                self._recorder.act(action)
            else:
                self._session.perform(action)

    def recording(self) -> Mapping[str, Any] | None:
        """The recorder's state; None without one."""
        with self._lock:
            return None if self._recorder is None else self._recorder.state()

    def record(self, what: str, body: bytes) -> Mapping[str, Any]:
        """Have the recorder do one of RECORDED; its result, or its state afterwards. Raises what that raises."""
        asked = object_of(body)
        with self._lock:
            if self._recorder is None:
                raise NoActionError("no recorder: start with `distrl phones play --record`")
            if what == "done":
                return self._recorder.finish(well=asked.get("well") is True)
            if what == "record":
                self._recorder.begin(asked)
            else:
                self._recorder.discard()
            return self._recorder.state()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """The browser has closed the connection within an answer."""
        log.debug("the answer to %s was cut off", client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = TIMEOUT_S
    server_version, sys_version = "distrl", ""

    def __init__(self, served: PlayServer, *args: Any) -> None:
        self._served = served
        super().__init__(*args)

    def do_GET(self) -> None:
        asked = self._asked()
        if asked == "":
            page, policy = self._served.page()
            self._answer(HTTPStatus.OK, page, "text/html; charset=utf-8", policy)
        elif asked == "screen.png":
            self._guarded(lambda: self._answer(HTTPStatus.OK, self._served.screen(), "image/png"))
        elif asked == "recording":
            state = self._served.recording()
            self._answer(HTTPStatus.NO_CONTENT) if state is None else self._answer_json(state)
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "not found")

    def do_POST(self) -> None:
        length, asked = self.headers.get("Content-Length", ""), self._asked()
        if asked is None or asked not in ("act", *RECORDED):
            self._refuse(HTTPStatus.NOT_FOUND, "not found")
        elif self.headers.get_content_type() != "application/json":
            self._refuse(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "an action must be application/json")
        elif not (length.isascii() and length.isdecimal() and len(length) < 10) or int(length) > MOST_BODY:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"an action is at most {MOST_BODY} bytes")
        else:
            self._guarded(lambda: self._do(asked, self.rfile.read(int(length))))

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: the page polls twice a second."""

    def _do(self, what: str, body: bytes) -> None:
        if what == "act":
            self._served.act(body)
            self._answer(HTTPStatus.NO_CONTENT)
        else:
            self._answer_json(self._served.record(what, body))

    def _answer_json(self, value: Mapping[str, Any]) -> None:
        self._answer(HTTPStatus.OK, json.dumps(value).encode(), "application/json")

    def _asked(self) -> str | None:
        if not self._served.named(self.headers.get("Host", "")):
            return None
        return self._served.within(self.path.partition("?")[0])

    def _guarded(self, do: Callable[[], None]) -> None:
        try:
            do()
        except NoActionError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, str(error))
        except (DeviceError, BrokerError, StoreError) as error:
            refused = isinstance(error, DeviceRefused)
            self._refuse(HTTPStatus.CONFLICT if refused else HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except DistrlError as error:
            self._refuse(HTTPStatus.CONFLICT, str(error))

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._answer(status, why.encode("utf-8", "replace"), "text/plain; charset=utf-8")

    def _answer(self, status: HTTPStatus, body: bytes = b"", kind: str = "", policy: str = "") -> None:
        self.send_response(status)
        named = {
            "Content-Type": kind,
            "Content-Security-Policy": policy,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
        }
        for name, value in named.items():
            if value:
                self.send_header(name, value)
        if status is not HTTPStatus.NO_CONTENT:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
