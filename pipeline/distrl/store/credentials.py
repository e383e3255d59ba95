"""Credentials for an S3 endpoint: the settings' pair, none (anonymous), or those of the process's environment.

The environment is searched in the order of AWS' own tools, with minio-py's providers: the variables, the credentials
file, the role of the machine or pod (web identity, ECS, EC2). A role's credentials expire and are fetched again.
"""

from __future__ import annotations

import configparser
import os
from collections.abc import Callable
from threading import Lock

import urllib3
from minio.credentials.credentials import Credentials
from minio.credentials.providers import (
    AWSConfigProvider,
    EnvAWSProvider,
    EnvMinioProvider,
    IamAwsProvider,
    Provider,
    StaticProvider,
)

from distrl import config
from distrl.errors import StoreError

ROLE_TIMEOUT_S = 1.0
"""Deadline of a request to the metadata service, as in AWS' own tools: most machines have none, and its packets are
dropped."""


def provider_of(settings: config.StoreSettings) -> Provider | None:
    """None: anonymous. Raises StoreError for half a pair; credentials of the environment are searched on first use.

    Anonymous requests need store.anonymous: otherwise a forgotten key would be reported as access denied.
    """
    secret = settings.secret_key.get_secret_value() if settings.secret_key is not None else None
    if settings.access_key is not None and secret is not None:
        return StaticProvider(settings.access_key, secret)
    if settings.access_key is not None or secret is not None:
        lacking = "store.access_key" if settings.access_key is None else "store.secret_key"
        raise StoreError(lacking, "is not set, and its other half is", "set both, or neither to use the environment's")
    return None if settings.anonymous else EnvironmentChain()


class EnvironmentChain(Provider):
    """The first credentials found in the environment. Safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._found: Provider | None = None

    def retrieve(self) -> Credentials:
        """Raises StoreError, with the places searched, if there are none."""
        with self._lock:
            if self._found is not None:
                return self._renewed(self._found)
            reasons = []
            for name, make in _SOURCES:
                try:
                    provider = make()
                    found = provider.retrieve()
                except _ABSENT as error:
                    reasons.append(f"{name}: {_short(error)}")
                    continue
                self._found = provider
                return found
        what = f"no credentials are set, nor in the environment ({'; '.join(reasons)})"
        raise StoreError("store.access_key", what, _FIX)

    def _renewed(self, provider: Provider) -> Credentials:
        try:
            return provider.retrieve()
        except _ABSENT as error:
            raise StoreError("store.access_key", f"the credentials cannot be renewed: {_short(error)}", _FIX) from None


_FIX = (
    "set store.access_key and store.secret_key, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; store.anonymous=true "
    "is for an open bucket"
)
_ABSENT = (ValueError, KeyError, OSError, urllib3.exceptions.HTTPError, configparser.Error)


def _role() -> Provider:
    web_identity = bool(os.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"))
    container = any(os.environ.get(f"AWS_CONTAINER_CREDENTIALS_{kind}_URI") for kind in ("RELATIVE", "FULL"))
    if not (web_identity or container) and os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        raise ValueError("AWS_EC2_METADATA_DISABLED is true")
    elsewhere = None
    if web_identity:
        elsewhere = os.environ.get("AWS_ENDPOINT_URL_STS")
    elif not container:
        elsewhere = (os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or "").rstrip("/")
    timeout_s = 10 * ROLE_TIMEOUT_S if web_identity else ROLE_TIMEOUT_S  # a service on the network, not a local one
    client = urllib3.PoolManager(timeout=urllib3.Timeout(total=timeout_s), retries=urllib3.Retry(total=1, redirect=0))
    return IamAwsProvider(custom_endpoint=elsewhere or None, http_client=client)


_SOURCES: tuple[tuple[str, Callable[[], Provider]], ...] = (
    ("AWS_ACCESS_KEY_ID", EnvAWSProvider),
    ("MINIO_ACCESS_KEY", EnvMinioProvider),
    ("file of credentials", AWSConfigProvider),
    ("role", _role),
)


def _short(error: Exception) -> str:
    """For a web identity, minio-py puts the token into the URL, and the URL into the message."""
    text = str(getattr(error, "reason", None) or error) or type(error).__name__
    return " ".join(text.partition("?")[0].split())[:200]
