"""Objects in a bucket of any S3 endpoint (MinIO, Ceph, AWS, …), using only common features."""

from __future__ import annotations

import ssl
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from threading import Lock
from typing import Any
from urllib.parse import urlsplit
from xml.etree.ElementTree import ParseError

import urllib3
from minio import Minio
from minio.error import InvalidResponseError, MinioException, S3Error, ServerError

from distrl import config
from distrl.errors import StoreError
from distrl.store.connections import Connections
from distrl.store.credentials import provider_of
from distrl.store.objects import check_round_trip, checked_key, checked_prefix, corrupt, missing, reference, verified
from distrl.types import ObjectRef

CONNECTIONS = 32
"""Connections kept open to the endpoint: with fewer than a worker has phones, screenshots would open new ones."""

KNOWN_KEYS = 8192
"""Size of the cache of stored keys, so that repeated screens are not uploaded again."""

ASK_FIRST_BYTES = 256 * 1024
"""Before uploading a larger object, a stat request checks whether it is stored; for a smaller one that costs as much as
the upload. It compares only the size, so an object that was seen to be corrupt is uploaded without the check."""

_CREDENTIALS = {
    "AccessDenied", "AccountProblem", "InvalidAccessKeyId", "InvalidToken", "SignatureDoesNotMatch",
}  # fmt: skip
_MISSING = {"NoSuchKey", "NoSuchObject"}
_FIXES = {
    "RequestTimeTooSkewed": "set this machine's clock, or the endpoint's: they are minutes apart",
    "ExpiredToken": "give this process a token that has not expired (docs/security.md)",
}


class S3Store:
    """An ObjectStore in one bucket, which exists already. Safe to use from several threads."""

    def __init__(self, client: Any, address: str, bucket: str) -> None:
        """client: a `minio.Minio`. address: the endpoint's name in messages."""
        self._client = client
        self._address = address
        self._bucket = bucket
        self._known = _Keys(KNOWN_KEYS)
        self._corrupt = _Keys(KNOWN_KEYS)

    @classmethod
    def from_config(cls, settings: config.StoreSettings) -> S3Store:
        """Raises StoreError if the settings name no bucket; does not connect."""
        provider, connections = provider_of(settings), _connections(settings)
        try:
            parts = urlsplit(settings.url)
            client: Any = Minio(
                parts.netloc,
                credentials=provider,
                secure=parts.scheme == "s3s",
                region=settings.region,
                http_client=connections,
            )
        except ValueError as error:
            raise StoreError("store.url", f"{settings.url} names no endpoint ({error})", _HINT_URL) from None
        if settings.addressing == "virtual":
            client.enable_virtual_style_endpoint()
        elif settings.addressing == "path":
            client.disable_virtual_style_endpoint()
        return cls(client, f"{parts.scheme}://{parts.netloc}", parts.path.strip("/"))

    def put(self, kind: str, data: bytes, suffix: str, day: str | None = None) -> ObjectRef:
        ref = reference(kind, data, suffix, day)
        if not self._known.has(ref.key):
            unasked = len(data) < ASK_FIRST_BYTES or self._corrupt.has(ref.key)
            if unasked or self._size(ref.key) != len(data):
                self._upload(ref.key, data)
            self._corrupt.forget(ref.key)
            self._known.add(ref.key)
        return ref

    def get(self, ref: ObjectRef) -> bytes:
        if ref.size < 0:
            raise corrupt(ref, "cannot have a negative size", str(self))
        data = self._download(checked_key(ref.key), ref.size)
        if data is None:
            self._known.forget(ref.key)
            raise missing(ref.key, str(self))
        try:
            return verified(ref, data, str(self))
        except StoreError:
            self._known.forget(ref.key)
            self._corrupt.add(ref.key)
            raise

    def put_named(self, key: str, data: bytes) -> None:
        self._upload(checked_key(key), data)

    def get_named(self, key: str) -> bytes | None:
        return self._download(checked_key(key))

    def list(self, prefix: str) -> Iterator[str]:
        with self._explained(f"prefix {prefix}"):
            for item in self._listed(prefix):
                yield item.object_name

    def usage(self, prefix: str) -> tuple[int, int]:
        count = size = 0
        with self._explained(f"prefix {prefix}"):
            for item in self._listed(prefix):
                count, size = count + 1, size + (item.size or 0)
        return count, size

    def delete(self, key: str) -> None:
        self._known.forget(checked_key(key))
        with self._explained(f"object {key}"):
            self._client.remove_object(self._bucket, key)

    def check(self) -> None:
        check_round_trip(self, str(self))

    def __str__(self) -> str:
        return f"{self._address}/{self._bucket}"

    def _listed(self, prefix: str) -> Iterator[Any]:
        """minio's description of each object whose key starts with `prefix`."""
        # The older listing: every endpoint has it, and S3Proxy refuses the second page of the newer one.
        return self._client.list_objects(  # type: ignore[no-any-return]
            self._bucket, prefix=checked_prefix(prefix), recursive=True, use_api_v1=True
        )

    def _upload(self, key: str, data: bytes) -> None:
        with self._explained(f"object {key}"):
            made = self._client.put_object(self._bucket, key, BytesIO(data), len(data))
        # S3 may answer the end of an upload in parts with 200 and an error, which minio lets pass.
        if made.etag is None:
            raise StoreError(
                "store.url",
                f"{self._address} has not taken object {key} (it answered 200 with an error in it)",
                "see the endpoint's log; what was not taken is uploaded again",
            )

    def _download(self, key: str, size: int | None = None) -> bytes | None:
        """An object's bytes, or None if it does not exist. size: the expected one; at most one byte more is read."""
        with self._explained(f"object {key}", absent_ok=True):
            response = self._client.get_object(self._bucket, key)
            # A bounded read copies the data twice, so it is only used if the length is missing or differs.
            most = None if size is None or response.length_remaining == size else size + 1
            try:
                data: bytes = response.read(most)
            finally:
                # A body read to its end has returned its connection to the pool; any other must not be reused.
                response.close()
            return data
        return None

    def _size(self, key: str) -> int | None:
        with self._explained(f"object {key}", absent_ok=True):
            size: int = self._client.stat_object(self._bucket, key).size
            return size
        return None

    @contextmanager
    def _explained(self, where: str, *, absent_ok: bool = False) -> Iterator[None]:
        """Raise the client's errors as StoreError; with `absent_ok`, a missing object raises nothing."""
        try:
            yield
        except S3Error as error:
            if absent_ok and error.code in _MISSING:
                return
            raise _from_s3(error, where, self._address, self._bucket) from None
        except (urllib3.exceptions.HTTPError, OSError) as error:
            reason = getattr(error, "reason", None) or error
            if isinstance(reason, urllib3.exceptions.SSLError):
                raise StoreError("store.ca", f"TLS with {self._address} fails ({reason})", _HINT_TLS) from None
            if _took_too_long(reason):
                what = f"{self._address} did not finish with {where} in time ({reason})"
                raise StoreError("store.timeout_s", what, _HINT_SLOW) from None
            raise StoreError("store.url", f"no S3 endpoint answers at {self._address} ({reason})", _HINT_URL) from None
        except ServerError as error:
            raise StoreError(
                "store.url",
                f"{self._address} cannot serve now, {where} (HTTP {error.status_code})",
                "see the endpoint's log; a full disk is the usual cause",
            ) from None
        except (InvalidResponseError, ParseError, MinioException) as error:
            what = " ".join(str(error).split())[:300]
            raise StoreError("store.url", f"{self._address} does not answer as S3 does ({what})", _HINT_URL) from None
        except ValueError as error:
            raise StoreError("store.url", f"bucket {self._bucket} at {self._address}: {error}", _HINT_URL) from None


_HINT_URL = "start the endpoint (`distrl up` starts a local one), or set store.url to s3://HOST:PORT/BUCKET"
_HINT_SLOW = (
    "check whether the endpoint hangs; if the network to it is slow, raise store.timeout_s: within it three parts of "
    "up to 5 MiB each are sent at once"
)
_HINT_TLS = "set store.ca to the PEM file of the authority that issued the endpoint's certificate; s3:// uses no TLS"


def _took_too_long(reason: object) -> bool:
    """Whether an endpoint that was reached was too slow to take a request, or to answer it."""
    if isinstance(reason, urllib3.exceptions.ReadTimeoutError):
        return True
    cut = reason.args if isinstance(reason, urllib3.exceptions.ProtocolError) else (reason,)
    return any(isinstance(each, TimeoutError) for each in cut)


def _from_s3(error: S3Error, where: str, address: str, bucket: str) -> StoreError:
    """An S3 error for people, with the setting that fixes it."""
    reason = f"{error.code}: {error.message}"
    if error.code in _CREDENTIALS:
        return StoreError(
            "store.access_key",
            f"{address} refuses {where} in bucket {bucket} ({reason})",
            "set store.access_key and store.secret_key to a pair that may read and write the bucket; unset, they are "
            "the environment's",
        )
    if error.code == "NoSuchBucket":
        return StoreError(
            "store.url",
            f"{address} has no bucket {bucket}",
            "create the bucket, or set store.url to s3://HOST:PORT/BUCKET with one that exists",
        )
    hint = _FIXES.get(error.code or "", "see the endpoint's log")
    return StoreError("store.url", f"{address} refuses {where} in bucket {bucket} ({reason})", hint)


def _connections(settings: config.StoreSettings) -> urllib3.PoolManager:
    """Persistent connections with a deadline. Three attempts bridge a restart of the endpoint; the caller waits longer.

    A connect is tried once: a retry would start at once, and take as long again.
    Raises StoreError if store.ca is not a file of certificates.
    """
    try:
        trusted = ssl.create_default_context(cafile=settings.ca)  # the system's CAs, unless one is configured
    except OSError as error:
        what = f"{settings.ca} holds no certificates that can be read ({error.strerror or error})"
        raise StoreError("store.ca", what, "name the PEM file of the endpoint's authority") from None
    return Connections(
        maxsize=CONNECTIONS,
        timeout=urllib3.Timeout(total=settings.timeout_s),
        retries=urllib3.Retry(
            total=2,
            connect=0,
            redirect=0,
            backoff_factor=0.2,
            status_forcelist=(500, 502, 503, 504),
            raise_on_status=False,
            respect_retry_after_header=False,
        ),
        ssl_context=trusted,
    )


class _Keys:
    """The most recently added keys, at most `capacity`. Safe to use from several threads."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._keys: OrderedDict[str, None] = OrderedDict()
        self._lock = Lock()

    def has(self, key: str) -> bool:
        with self._lock:
            if key not in self._keys:
                return False
            self._keys.move_to_end(key)
            return True

    def add(self, key: str) -> None:
        with self._lock:
            self._keys[key] = None
            self._keys.move_to_end(key)
            if len(self._keys) > self._capacity:
                self._keys.popitem(last=False)

    def forget(self, key: str) -> None:
        with self._lock:
            self._keys.pop(key, None)
