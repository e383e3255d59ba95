"""The S3 store on a real endpoint: the contract, and what only an endpoint can refuse."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from distrl import config
from distrl.errors import StoreError
from distrl.store.objects import MissingObjectError, ObjectStore, open_store
from minio import Minio
from minio.deleteobjects import DeleteObject
from pydantic import SecretStr

from tests.store.contract import PNG, Spoil, StoreContract

pytestmark = pytest.mark.integration


@pytest.fixture
def client(s3: config.Store) -> Minio:
    """A client of our own, to look and to meddle behind the store's back."""
    if s3.url.startswith("file://"):
        pytest.skip("no S3 endpoint could be started here: the directory store passes the same contract in tests/store")
    parts = urlsplit(s3.url)
    secret = s3.secret_key.get_secret_value() if s3.secret_key else None
    return Minio(
        parts.netloc, access_key=s3.access_key, secret_key=secret, secure=parts.scheme == "s3s", region=s3.region
    )


@pytest.fixture
def settings(s3: config.Store, client: Minio) -> Iterator[config.Store]:
    """The endpoint, with a bucket of the test's own that goes with it."""
    bucket = f"test-{uuid4().hex}"
    client.make_bucket(bucket)
    yield s3.model_copy(update={"url": s3.url.rpartition("/")[0] + f"/{bucket}"})
    left = [DeleteObject(item.object_name or "") for item in client.list_objects(bucket, recursive=True)]
    assert list(client.remove_objects(bucket, left)) == []
    client.remove_bucket(bucket)


@pytest.fixture
def bucket(settings: config.Store) -> str:
    return settings.url.rpartition("/")[2]


@pytest.fixture
def store(settings: config.Store) -> ObjectStore:
    return open_store(settings)


@pytest.fixture
def spoil(client: Minio, bucket: str) -> Spoil:
    def write(key: str, data: bytes) -> None:
        client.put_object(bucket, key, BytesIO(data), len(data))

    return write


class TestS3(StoreContract):
    pass


def test_a_screen_that_comes_again_is_not_uploaded_again(
    settings: config.Store, store: ObjectStore, client: Minio, bucket: str
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


def test_a_bucket_that_is_not_there_is_an_error_that_names_the_setting(settings: config.Store) -> None:
    absent = open_store(settings.model_copy(update={"url": settings.url + "-not"}))
    for use in (absent.check, lambda: absent.put("x", PNG, "png"), lambda: list(absent.list(""))):
        with pytest.raises(StoreError, match=r"store\.url: .* has no bucket test-.*-not"):
            use()
    with pytest.raises(StoreError, match="has no bucket"):
        absent.get_named("runs/x")


@pytest.mark.parametrize(
    "wrong",
    [{"secret_key": SecretStr("not-the-secret")}, {"access_key": "nobody"}, {"access_key": None, "secret_key": None}],
)
def test_wrong_credentials_are_an_error_that_names_the_setting(
    settings: config.Store, wrong: dict[str, object]
) -> None:
    refused = open_store(settings.model_copy(update=wrong))
    for use in (refused.check, lambda: refused.get_named("runs/x"), lambda: list(refused.list(""))):
        with pytest.raises(StoreError) as caught:
            use()
        assert caught.value.where == "store.access_key"
        assert "store.secret_key" in caught.value.mend
        assert "not-the-secret" not in str(caught.value)
