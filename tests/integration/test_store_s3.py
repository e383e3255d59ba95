"""The S3 store on a real endpoint: the contract, and what only an endpoint can refuse."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from certificates import Authority
from distrl import config
from distrl.errors import StoreError
from distrl.stack import minio
from distrl.stack import s3 as endpoints
from distrl.stack.part import Site
from distrl.stack.processes import stop_all
from distrl.store.objects import MissingObjectError, ObjectStore, open_store
from fetching import cache
from integration.conftest import STOP_S, draw_ports
from minio import Minio
from minio.credentials.providers import AssumeRoleProvider, StaticProvider
from minio.deleteobjects import DeleteObject
from pydantic import SecretStr
from tls_proxy import TlsProxy

from tests.store.contract import PNG, Spoil, StoreContract

pytestmark = pytest.mark.integration


ENDPOINTS = ["s3proxy", *(["minio"] if minio.way(cache()).runs else [])]
"""Those that this machine has; what is printed after the collection says which."""


@pytest.fixture(scope="module", params=ENDPOINTS)
def endpoint_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def s3(endpoint_kind: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[config.StoreSettings]:
    """A real endpoint of each kind, in place of the session's."""
    directory = tmp_path_factory.mktemp(f"{endpoint_kind} ünï")  # a path that a properties file has to escape
    site = Site(directory, cache(), threading.Event(), lambda text: None)
    part = endpoints.start_s3(site, {"object_store": endpoint_kind}, draw_ports(1)[0])
    patient = {"timeout_s": 120.0}  # what is tested here is no deadline, and the machine may be busy
    yield endpoints.fill(config.Config(), part, directory).store.model_copy(update=patient)
    assert part.child is not None
    stop_all([part.child], STOP_S)


@pytest.fixture
def client(s3: config.StoreSettings) -> Minio:
    """A client of our own, to look and to meddle behind the store's back."""
    parts = urlsplit(s3.url)
    secret = s3.secret_key.get_secret_value() if s3.secret_key else None
    return Minio(
        parts.netloc, access_key=s3.access_key, secret_key=secret, secure=parts.scheme == "s3s", region=s3.region
    )


@pytest.fixture
def settings(s3: config.StoreSettings, client: Minio) -> Iterator[config.StoreSettings]:
    """The endpoint, with a bucket of the test's own that goes with it."""
    bucket = f"test-{uuid4().hex}"
    client.make_bucket(bucket)
    yield s3.model_copy(update={"url": s3.url.rpartition("/")[0] + f"/{bucket}"})
    left = [
        DeleteObject(item.object_name or "") for item in client.list_objects(bucket, recursive=True, use_api_v1=True)
    ]
    assert list(client.remove_objects(bucket, left)) == []
    client.remove_bucket(bucket)


@pytest.fixture
def bucket(settings: config.StoreSettings) -> str:
    return settings.url.rpartition("/")[2]


@pytest.fixture
def store(settings: config.StoreSettings) -> ObjectStore:
    return open_store(settings)


@pytest.fixture
def spoil(client: Minio, bucket: str) -> Spoil:
    def write(key: str, data: bytes) -> None:
        client.put_object(bucket, key, BytesIO(data), len(data))

    return write


class TestS3(StoreContract):
    pass


def test_a_screen_that_comes_again_is_not_uploaded_again(
    settings: config.StoreSettings, store: ObjectStore, client: Minio, bucket: str
) -> None:
    ref = store.put("screenshots", PNG, "png", "2025-01-31")
    client.remove_object(bucket, ref.key)
    store.put("screenshots", PNG, "png", "2025-01-31")
    with pytest.raises(MissingObjectError):
        store.get(ref)
    assert store.get(store.put("screenshots", PNG, "png", "2025-01-31")) == PNG  # it was found missing, so forgotten
    client.remove_object(bucket, ref.key)
    other_process = open_store(settings)
    assert other_process.get(other_process.put("screenshots", PNG, "png", "2025-01-31")) == PNG


def test_a_listing_goes_past_one_page(store: ObjectStore) -> None:
    keys = [f"many/{i:04d}" for i in range(1010)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put_named(key, b""), keys))
    assert list(store.list("many/")) == keys


def test_a_bucket_that_is_not_there_is_an_error_that_names_the_setting(settings: config.StoreSettings) -> None:
    absent = open_store(settings.model_copy(update={"url": settings.url + "-not"}))
    for use in (absent.check, lambda: absent.put("x", PNG, "png"), lambda: list(absent.list(""))):
        with pytest.raises(StoreError, match=r"store\.url: .* has no bucket test-.*-not"):
            use()
    with pytest.raises(StoreError, match="has no bucket"):
        absent.get_named("runs/x")


@pytest.mark.parametrize(
    "wrong",
    [
        {"secret_key": SecretStr("not-the-secret")},
        {"access_key": "nobody"},
        {"access_key": None, "secret_key": None, "anonymous": True},
    ],
)
def test_wrong_credentials_are_an_error_that_names_the_setting(
    settings: config.StoreSettings, wrong: dict[str, object]
) -> None:
    open_store(settings).put_named("runs/x", b"{}")
    refused = open_store(settings.model_copy(update=wrong))
    for use in (refused.check, lambda: refused.get_named("runs/x"), lambda: list(refused.list(""))):
        with pytest.raises(StoreError) as caught:
            use()
        assert caught.value.where == "store.access_key"
        assert "store.secret_key" in caught.value.hint
        assert "not-the-secret" not in str(caught.value)


# A private authority, and credentials of the environment


@pytest.fixture
def tls(settings: config.StoreSettings, tmp_path: Path) -> Iterator[config.StoreSettings]:
    """The endpoint behind TLS, with a certificate of an authority that nobody knows."""
    authority = Authority(tmp_path / "tls")
    pair = authority.issue("endpoint")
    with TlsProxy(urlsplit(settings.url).netloc, pair) as address:
        bucket = settings.url.rpartition("/")[2]
        yield settings.model_copy(update={"url": f"s3s://{address}/{bucket}", "ca": authority.certificate})


def test_an_endpoint_of_a_private_authority_is_used(tls: config.StoreSettings) -> None:
    store = open_store(tls)
    store.check()
    assert store.get(store.put("screenshots", PNG, "png")) == PNG


@pytest.mark.parametrize("authority", ["the system's", "another"])
def test_an_endpoint_of_an_unknown_authority_is_refused_and_the_setting_named(
    tls: config.StoreSettings, tmp_path: Path, authority: str
) -> None:
    other = None if authority == "the system's" else Authority(tmp_path / "other").certificate
    with pytest.raises(StoreError, match="TLS with") as caught:
        open_store(tls.model_copy(update={"ca": other})).check()
    assert caught.value.where == "store.ca"
    assert "store.ca" in caught.value.hint


class Metadata(BaseHTTPRequestHandler):
    """The metadata service of an EC2 machine: a token, the name of its role, credentials that expire at once."""

    def do_PUT(self) -> None:
        self._answer("a-token")

    def do_GET(self) -> None:
        server: Any = self.server
        assert self.headers["X-aws-ec2-metadata-token"] == "a-token"
        if self.path.endswith("/security-credentials/"):
            return self._answer("a-role")
        assert self.path.endswith("/security-credentials/a-role")
        made = server.role.retrieve()
        server.given.append(made.access_key)
        soon = datetime.now(UTC) + timedelta(seconds=5)  # less than minio-py holds to be safe, so it asks every time
        return self._answer(
            json.dumps(
                {
                    "Code": "Success",
                    "AccessKeyId": made.access_key,
                    "SecretAccessKey": made.secret_key,
                    "Token": made.session_token,
                    "Expiration": soon.strftime("%Y-%m-%dT%H:%M:%SZ"),
                }
            )
        )

    def _answer(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def role(settings: config.StoreSettings, endpoint_kind: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A machine whose role may use the endpoint: the access keys that were given out, temporary ones of its STS."""
    assert settings.access_key is not None
    assert settings.secret_key is not None
    password = settings.secret_key.get_secret_value()
    endpoint = f"http://{urlsplit(settings.url).netloc}"
    temporary = AssumeRoleProvider(
        sts_endpoint=endpoint, access_key=settings.access_key, secret_key=password, region=settings.region
    )
    with ThreadingHTTPServer(("127.0.0.1", 0), Metadata) as server:
        given: list[str] = []
        server.given = given  # type: ignore[attr-defined]
        # S3Proxy gives out no temporary keys: its own ones come from the metadata service then
        server.role = StaticProvider(settings.access_key, password) if endpoint_kind == "s3proxy" else temporary  # type: ignore[attr-defined]
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        for name in ("AWS_ACCESS_KEY_ID", "MINIO_ACCESS_KEY", "AWS_EC2_METADATA_DISABLED"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/none")
        monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}/")
        yield given
        server.shutdown()


def test_the_role_of_the_machine_is_used_and_renewed_when_it_expires(
    settings: config.StoreSettings, endpoint_kind: str, role: list[str]
) -> None:
    store = open_store(settings.model_copy(update={"access_key": None, "secret_key": None}))
    ref = store.put("screenshots", PNG, "png")
    asked = len(role)
    assert store.get(ref) == PNG
    assert len(role) > asked >= 1
    assert (settings.access_key in role) == (endpoint_kind == "s3proxy")


def test_credentials_of_the_environment_are_used_and_wrong_ones_reported(
    settings: config.StoreSettings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert settings.access_key is not None
    assert settings.secret_key is not None
    file = tmp_path / "credentials"
    file.write_text(
        f"[default]\naws_access_key_id={settings.access_key}\n"
        f"aws_secret_access_key={settings.secret_key.get_secret_value()}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    without = settings.model_copy(update={"access_key": None, "secret_key": None})
    open_store(without).check()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2-wrong")
    with pytest.raises(StoreError, match=r"^store\.access_key: .*InvalidAccessKeyId") as caught:
        open_store(without).check()
    assert "hunter2" not in str(caught.value)
