"""Who may ask, and what an answer may do in a browser: over HTTP, without a run."""

from __future__ import annotations

import io
import logging
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from distrl.config import Config
from distrl.errors import ConfigError
from distrl.view import app
from distrl.view.guard import FORWARDED, HEADERS, PROBES, is_loopback, own_hosts
from distrl.view.runs import Runs
from distrl.view.server import ViewServer
from starlette.datastructures import URL
from starlette.requests import HTTPConnection
from starlette.responses import Response

from .asking import ask

TOKEN = "0123456789abcdef-secret"
Start = Callable[..., ViewServer]


@pytest.fixture
def start() -> Iterator[Start]:
    with ExitStack() as opened:

        def started(token: str | None = None, host: str = "127.0.0.1") -> ViewServer:
            runs = opened.enter_context(Runs(list, lambda name: Config(run=name)))
            return opened.enter_context(ViewServer(runs, host, 0, token))

        yield started


@pytest.mark.parametrize("path", ["/api/runs", "/api/runs/none", "/nothing", "/api/runs?limit=1", "/../secret"])
def test_every_answer_keeps_the_browser_from_loading_anything_else(start: Start, path: str) -> None:
    found = ask(start().port, path)
    assert {name: found.headers.get(name.lower()) for name in HEADERS} == HEADERS
    policy = found.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "server" not in found.headers


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this system has no IPv6")
def test_every_address_of_both_families_is_listened_on_where_that_is_asked(start: Start) -> None:
    port = start(TOKEN, host="::").port
    for host in ("127.0.0.1", "::1"):
        with socket.create_connection((host, port), timeout=10) as client:
            client.sendall(b"GET /livez HTTP/1.1\r\nHost: pages\r\nConnection: close\r\n\r\n")
            assert client.recv(64).startswith(b"HTTP/1.1 200"), host


def test_the_pages_are_served_with_their_types(start: Start) -> None:
    port = start().port
    page = ask(port, "/")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.headers["cache-control"] == "no-cache"
    for name in re.findall(rb'(?:src|href)="([^":#]+)"', page.body):
        found = ask(port, f"/{name.decode()}")
        assert found.status == 200, name
        assert found.headers["content-type"].split(";")[0] in {"text/javascript", "text/css", "image/svg+xml"}, name


@pytest.mark.parametrize("path", PROBES)
def test_a_probe_needs_no_thread_of_those_that_may_all_wait_for_a_broker(
    start: Start, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = start().port
    answered: list[str] = []
    answer = app.answer

    def noted(content: object) -> Response:
        answered.append(threading.current_thread().name)
        return answer(content)

    monkeypatch.setattr(app, "answer", noted)
    assert (ask(port, path).status, ask(port, "/api/runs").status) == (200, 200)
    probe, runs = answered
    assert "AnyIO" in runs
    assert "AnyIO" not in probe


@pytest.mark.parametrize("path", ["/../app.py", "/%2e%2e/app.py", "/..%2fapp.py", "/vendor/../../app.py", "/%00"])
def test_nothing_beside_the_pages_is_served(start: Start, path: str) -> None:
    assert ask(start().port, path).status == 404


def test_a_server_without_runs_lists_none(start: Start) -> None:
    found = ask(start().port, "/api/runs")
    assert (found.status, found.json) == (200, {"runs": [], "problems": []})
    assert found.headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "", "localhost.:{port}"]
)
def test_another_host_is_refused(start: Start, host: str) -> None:
    port = start().port
    found = ask(port, "/api/runs", Host=host.format(port=port))
    assert found.status == 421
    assert f"http://127.0.0.1:{port}/" in found.json["fix"]


def test_the_answer_to_another_host_has_the_address_that_was_asked_for(start: Start) -> None:
    server = start(host="localhost")
    assert f"http://localhost:{server.port}/" in ask(server.port, "/api/runs", Host="evil.example").json["fix"]


@pytest.mark.parametrize(("port", "bare"), [(80, True), (8080, False)])
def test_browsers_leave_the_port_of_http_out(port: int, bare: bool) -> None:
    hosts = own_hosts("127.0.0.2", port)
    assert f"127.0.0.2:{port}" in hosts
    assert ({"127.0.0.2", "localhost"} <= hosts) is bare


@pytest.mark.parametrize(("token", "status"), [(TOKEN, 401), (None, 421)])
def test_a_host_header_decides_no_path(
    start: Start, monkeypatch: pytest.MonkeyPatch, token: str | None, status: int
) -> None:
    """Starlette before 1.0.1 makes the URL of a request from it, so that `Host: x/livez?` looks like a probe."""
    monkeypatch.setattr(HTTPConnection, "url", URL("http://x/livez?/api/runs"))
    assert ask(start(token).port, "/api/runs", Host="x/livez?").status == status


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])
def test_its_own_names_are_answered(start: Start, host: str) -> None:
    port = start().port
    assert ask(port, "/api/runs", Host=f"{host}:{port}").status == 200


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_a_probe_needs_no_token_and_opens_nothing_else(start: Start, path: str) -> None:
    port = start(TOKEN).port
    found = ask(port, path, Host="10.1.2.3:8080")
    assert (found.status, found.json) == (200, {"ok": True})
    assert ask(port, f"{path}/../api/runs").status == 401
    assert ask(start().port, path, Host="10.1.2.3:8080").status == 200


@pytest.mark.parametrize("name", FORWARDED)
def test_a_request_through_a_proxy_needs_a_token(start: Start, name: str) -> None:
    found = ask(start().port, "/api/runs", **{name: "10.0.0.1"})
    assert found.status == 403
    assert "--token-file" in found.json["fix"]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_changed(start: Start, method: str) -> None:
    assert ask(start().port, "/api/runs", method).status == 405


def test_another_address_needs_a_token() -> None:
    with pytest.raises(ConfigError, match="--token-file"):
        ViewServer(Runs(list, lambda name: Config(run=name)), "0.0.0.0", 0, None)


@pytest.mark.parametrize("given", ["", "Bearer", f"Bearer {TOKEN}x", f"Basic {TOKEN}", "Bearer é"])
def test_a_request_without_the_token_gets_nothing(start: Start, given: str) -> None:
    found = ask(start(TOKEN).port, "/api/runs", Authorization=given)
    assert (found.status, set(found.json)) == (401, {"error", "fix"})


def test_the_token_opens_whatever_the_host_and_through_a_proxy(start: Start) -> None:
    port = start(TOKEN).port
    asked = ask(port, "/api/runs", Host="runs.example", Authorization=f"Bearer {TOKEN}", X_Forwarded_For="10.0.0.1")
    assert asked.status == 200


def test_a_browser_logs_in_once_and_shows_a_cookie_that_is_not_the_token(start: Start) -> None:
    port = start(TOKEN).port
    form = ask(port, "/", Accept="text/html")
    assert (form.status, form.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert b"<form" in form.body
    wrong = ask(port, "/", "POST", b"token=guess", Content_Type="application/x-www-form-urlencoded")
    assert (wrong.status, "set-cookie" in wrong.headers) == (401, False)
    right = ask(port, "/", "POST", f"token={TOKEN}".encode())
    assert (right.status, right.headers["location"]) == (303, ".")
    cookie = right.headers["set-cookie"]
    assert TOKEN not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie
    shown = cookie.partition(";")[0]
    assert ask(port, "/api/runs", Cookie=shown).status == 200
    assert ask(port, "/api/runs", Cookie=f"{shown.partition('=')[0]}=é").status == 401
    assert ask(port, "/", "POST", b"x" * 10_000).status == 413
    assert ask(port, "/api/runs", "PUT", Cookie=shown).status == 405


def test_servers_at_other_ports_of_a_host_keep_their_own_cookies(start: Start) -> None:
    """A browser has one jar of cookies for a host, whatever the port, with one cookie of a name."""
    ports = {token: start(token).port for token in (TOKEN, f"another-{TOKEN}")}
    jar: dict[str, str] = {}
    for token, port in ports.items():
        cookie = ask(port, "/", "POST", f"token={token}".encode()).headers["set-cookie"].partition(";")[0]
        jar |= [cookie.split("=")]
        assert cookie.split("=")[1][:8] not in cookie.split("=")[0], "the name says nothing of the value"
    sent = "; ".join(f"{name}={value}" for name, value in jar.items())
    assert [ask(port, "/api/runs", Cookie=sent).status for port in ports.values()] == [200, 200]


def test_the_token_is_in_no_log(start: Start) -> None:
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        port = start(TOKEN).port
        ask(port, "/api/runs", Authorization=f"Bearer {TOKEN}")
        ask(port, "/", "POST", f"token={TOKEN}".encode())
        ask(port, f"/?token={TOKEN}")
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
    assert TOKEN not in written.getvalue()


@pytest.mark.parametrize(
    ("host", "is_it"),
    [("127.0.0.1", True), ("127.8.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False),
     ("10.0.0.1", False), ("localhost.evil.example", False)],
)  # fmt: skip
def test_loopback(host: str, is_it: bool) -> None:
    assert is_loopback(host) is is_it
