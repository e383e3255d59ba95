"""The S3 store where no S3 answers. What needs a real endpoint is in tests/integration/test_store_s3.py."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest
from distrl import config
from distrl.errors import StoreError
from distrl.store.objects import ObjectStore, open_store
from distrl.store.s3 import _Keys
from distrl.types import ObjectRef
from pydantic import SecretStr


def s3(port: int, **more: object) -> ObjectStore:
    return open_store(
        config.Store(
            url=f"s3://127.0.0.1:{port}/objects",
            access_key="key",
            secret_key=SecretStr("secret"),
            timeout_s=0.3,
        ).model_copy(update=more)
    )


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """A port that is taken: connections wait in the kernel's queue and nobody ever answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


class Page(BaseHTTPRequestHandler):
    """Answers everything with a page of HTML, as a proxy or another service at the address would."""

    status = 200

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        page = b"<html>welcome</html>"
        self.send_response(self.status)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    do_GET = do_PUT = do_HEAD = do_DELETE = _answer  # noqa: N815, the names that http.server looks for

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(params=[200, 302, 403, 404, 503])
def page(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port of a web server that is no S3 endpoint."""
    handler = type("Handler", (Page,), {"status": request.param})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def test_an_address_where_nothing_listens_is_an_error_that_names_the_setting(listening: socket.socket) -> None:
    port = listening.getsockname()[1]
    listening.close()
    with pytest.raises(StoreError) as caught:
        s3(port).check()
    assert caught.value.where == "store.url"
    assert f"127.0.0.1:{port}" in caught.value.what
    assert "distrl up" in caught.value.mend
    assert "secret" not in str(caught.value)


def test_an_endpoint_that_never_answers_is_an_error_after_the_deadline(listening: socket.socket) -> None:
    store = s3(listening.getsockname()[1])
    for use in (store.check, lambda: store.get(ObjectRef("x", "0" * 64, 1)), lambda: list(store.list(""))):
        begin = time.monotonic()
        with pytest.raises(StoreError, match=r"store\.url"):
            use()
        assert time.monotonic() - begin < 10


def test_a_web_server_that_is_no_s3_is_an_error_that_names_the_setting(page: int) -> None:
    store = s3(page)
    for use in (store.check, lambda: list(store.list(""))):
        with pytest.raises(StoreError) as caught:
            use()
        assert caught.value.where in ("store.url", "store.access_key")
        assert f"127.0.0.1:{page}" in str(caught.value)


@pytest.mark.parametrize("lacking", ["access_key", "secret_key"])
def test_half_a_pair_of_credentials_is_refused_at_once(lacking: str) -> None:
    with pytest.raises(StoreError, match=f"store.{lacking}: is not set"):
        s3(1, **{lacking: None})


def test_only_the_latest_keys_are_remembered() -> None:
    known = _Keys(2)
    known.add("a")
    known.add("b")
    assert known.has("a")
    known.add("c")
    assert [known.has(key) for key in "abc"] == [True, False, True]
    known.forget("a")
    known.forget("never there")
    assert not known.has("a")
