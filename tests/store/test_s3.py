"""The S3 store where no S3 answers. What needs a real endpoint is in tests/integration/test_store_s3.py."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from distrl import config
from distrl.errors import StoreError
from distrl.store.objects import ObjectStore, open_store
from distrl.store.s3 import _Keys
from distrl.types import ObjectRef
from pydantic import SecretStr

PATIENCE_S = 60.0
"""For a server of this process, whose thread may have to wait for its turn."""


def s3(port: int, **more: object) -> ObjectStore:
    return open_store(
        config.StoreSettings(
            url=f"s3://127.0.0.1:{port}/objects",
            access_key="key",
            secret_key=SecretStr("secret"),
            timeout_s=0.3,  # for an endpoint that is never to answer
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
    assert "distrl up" in caught.value.hint
    assert "secret" not in str(caught.value)


def test_an_endpoint_that_never_answers_is_an_error_after_the_deadline(listening: socket.socket) -> None:
    store = s3(listening.getsockname()[1])
    for use in (store.check, lambda: store.get(ObjectRef("x", "0" * 64, 1)), lambda: list(store.list(""))):
        begin = time.monotonic()
        with pytest.raises(StoreError, match=r"^store\.timeout_s: .* did not finish with ") as slow:
            use()
        assert "raise store.timeout_s" in slow.value.hint
        assert time.monotonic() - begin < 60


def test_an_endpoint_that_takes_a_body_too_slowly_is_not_said_to_be_away(listening: socket.socket) -> None:
    """It was reached: who starts it again helps nobody. A socket that nobody reads takes some of it, and no more."""
    with pytest.raises(StoreError, match=r"^store\.timeout_s: .* did not finish with object x\.bin in time"):
        s3(listening.getsockname()[1]).put_named("x.bin", bytes(30_000_000))


def test_a_web_server_that_is_no_s3_is_an_error_that_names_the_setting(page: int) -> None:
    store = s3(page, timeout_s=PATIENCE_S)
    for use in (store.check, lambda: list(store.list(""))):
        with pytest.raises(StoreError) as caught:
            use()
        assert caught.value.where in ("store.url", "store.access_key")
        assert f"127.0.0.1:{page}" in str(caught.value)


@pytest.mark.parametrize("lacking", ["access_key", "secret_key"])
def test_half_a_pair_of_credentials_is_refused_at_once(lacking: str) -> None:
    with pytest.raises(StoreError, match=f"store.{lacking}: is not set"):
        s3(1, **{lacking: None})


class Asked(Page):
    """An S3 endpoint whose bucket holds nothing; it writes down what it was asked for."""

    def _answer(self) -> None:
        self.server.asked.append((self.headers["Host"], self.path, dict(self.headers)))  # type: ignore[attr-defined]
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        page = b"<Error><Code>NoSuchKey</Code><Message>none</Message></Error>"
        self.send_response(404)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    do_GET = _answer  # noqa: N815


@pytest.fixture
def asked() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Asked) as server:
        server.asked = []  # type: ignore[attr-defined]
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def request_of(server: ThreadingHTTPServer, **more: object) -> tuple[str, str, dict[str, str]]:
    """The one request of asking for runs/x."""
    url = f"s3://localhost:{server.server_address[1]}/objects"
    assert s3(0, url=url, timeout_s=PATIENCE_S, **more).get_named("runs/x") is None
    [request] = server.asked  # type: ignore[attr-defined]
    return request


@pytest.fixture
def buckets_resolve(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names below localhost are this machine, as RFC 6761 has it and not every resolver."""
    resolve = socket.getaddrinfo

    def below(host: str, *rest: object, **more: object) -> object:
        return resolve("127.0.0.1" if str(host).endswith(".localhost") else host, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", below)


@pytest.mark.parametrize("style", ["auto", "path"])
def test_a_bucket_is_named_in_the_path(asked: ThreadingHTTPServer, style: str) -> None:
    host, path, _ = request_of(asked, addressing=style)
    assert (host, path) == (f"localhost:{asked.server_address[1]}", "/objects/runs/x")


def test_a_bucket_is_named_in_the_host_where_that_is_asked_for(
    asked: ThreadingHTTPServer, buckets_resolve: None
) -> None:
    host, path, _ = request_of(asked, addressing="virtual")
    assert (host, path) == (f"objects.localhost:{asked.server_address[1]}", "/runs/x")


def test_auto_names_the_bucket_in_the_host_at_aws() -> None:
    for style, host in (("auto", "objects.s3."), ("path", "s3.")):
        store: Any = open_store(
            config.StoreSettings.model_validate({"url": "s3s://s3.amazonaws.com/objects", "addressing": style})
        )
        url = store._client._base_url.build(method="GET", region="us-east-1", bucket_name="objects", object_name="x")
        assert url.netloc.startswith(host)


NO_KEY = {"access_key": None, "secret_key": None}


def test_requests_are_signed_with_what_the_environment_holds_in_the_order_of_aws(
    asked: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The role alone is left to tests/integration/test_store_s3.py."""
    file = tmp_path / "credentials"
    file.write_text("[team]\naws_access_key_id = of-the-file\naws_secret_access_key = hunter2\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    monkeypatch.setenv("AWS_PROFILE", "team")
    signed = {
        "of-the-file": (),
        "of-minio": ("MINIO_ACCESS_KEY", "MINIO_SECRET_KEY"),
        "of-aws": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    }
    for user, names in signed.items():
        for name in names:
            monkeypatch.setenv(name, user)
        *_, headers = request_of(asked, **NO_KEY)
        assert f"Credential={user}/" in headers["Authorization"]
        asked.asked.clear()  # type: ignore[attr-defined]
    monkeypatch.setenv("AWS_SESSION_TOKEN", "for-a-while")
    assert request_of(asked, **NO_KEY)[2]["X-Amz-Security-Token"] == "for-a-while"
    asked.asked.clear()  # type: ignore[attr-defined]
    assert "Credential=key/" in request_of(asked)[2]["Authorization"]  # the settings win


def test_no_credentials_anywhere_is_reported_with_the_places_and_nothing_is_sent_unsigned(
    asked: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    with pytest.raises(StoreError) as caught:
        request_of(asked, **NO_KEY)
    assert caught.value.where == "store.access_key"
    for place in ("AWS_ACCESS_KEY_ID", "MINIO_ACCESS_KEY", str(tmp_path / "none"), "role"):
        assert place in caught.value.what
    assert "store.anonymous=true" in caught.value.hint
    assert asked.asked == []  # type: ignore[attr-defined]


def test_an_open_bucket_is_asked_unsigned_where_that_is_set(asked: ThreadingHTTPServer) -> None:
    assert "Authorization" not in request_of(asked, **NO_KEY, anonymous=True)[2]


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_an_authority_that_is_no_file_of_certificates_is_refused(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(StoreError, match=f"^store.ca: {file} holds no certificates"):
        s3(1, ca=file)


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


class HalfTaken(BaseHTTPRequestHandler):
    """Takes the parts of an upload, and answers its end with 200 and an error, as S3 may."""

    refuses: Any
    """Called for each end of an upload."""

    def _answer(self, content: bytes = b"") -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("ETag", '"0"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_PUT(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        if "uploadId=" not in self.path:
            space = "http://s3.amazonaws.com/doc/2006-03-01/"
            self._answer(
                f'<InitiateMultipartUploadResult xmlns="{space}"><Bucket>objects</Bucket><Key>k</Key>'
                "<UploadId>1</UploadId></InitiateMultipartUploadResult>".encode()
            )
            return
        type(self).refuses()
        self._answer(b"<Error><Code>InternalError</Code><Message>try again</Message></Error>")

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_an_upload_in_parts_whose_end_is_answered_with_an_error_counts_as_none() -> None:
    ends: list[None] = []
    handler = type("Handler", (HalfTaken,), {"refuses": staticmethod(lambda: ends.append(None))})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            store, large = s3(server.server_address[1], timeout_s=PATIENCE_S, region="us-east-1"), bytes(6 << 20)
            for asked in (1, 2):  # the second time, too, it is not taken for stored
                with pytest.raises(StoreError, match=r"has not taken object .* 200 with an error"):
                    store.put_named("a/key", large)
                assert len(ends) == asked
        finally:
            server.shutdown()
            thread.join()
