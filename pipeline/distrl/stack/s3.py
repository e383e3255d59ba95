"""The object store of the stack: MinIO where it is at hand, else S3Proxy, else a directory, which is reported.

A stack stays with the kind of store that it started with, since its log names objects that are only there.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import urllib3
from minio import Minio
from minio.commonconfig import Filter
from minio.error import MinioException, S3Error
from minio.lifecycleconfig import Expiration, LifecycleConfig, NoncurrentVersionExpiration, Rule
from minio.versioningconfig import VersioningConfig
from pydantic import SecretStr

from distrl.config import Config
from distrl.errors import StackError
from distrl.stack import minio, s3proxy
from distrl.stack.infra_files import declared
from distrl.stack.part import Part, Site, UnavailableError
from distrl.stack.ports import HOST, listens
from distrl.stack.private_file import write_private
from distrl.stack.serving import serve
from distrl.store.directory import sync

NAME = "s3"
STOP_S = 20.0
HINT = "read its log; `distrl down` and `distrl up` restart it; or set stack.object_store=directory"


def start_s3(site: Site, settings: Mapping[str, Any], port: int) -> Part:
    """Start the store and wait until its bucket is there. settings: object_store (StackSettings.object_store).

    Raises StackError if the store that is asked for is not available, or does not start.
    """
    home = site.directory / NAME
    home.mkdir(parents=True, exist_ok=True)
    kind = wanted = wanted_kind(home, str(settings["object_store"]))
    if kind == "auto":
        kind = "minio" if minio.way(site.cache).runs else "s3proxy"
    if kind == "directory":
        return _directory(home, settings)
    try:
        part = _endpoint(kind, site, settings, home, port)
    except UnavailableError as error:
        if wanted != "auto" or site.cancelled.is_set():
            raise
        site.report(f"no S3 endpoint: {error.what}. Objects go to a directory instead, which only this machine can use")
        return _directory(home, settings)
    _store_kind(home, kind)
    return part


def _endpoint(kind: str, site: Site, settings: Mapping[str, Any], home: Path, port: int) -> Part:
    """Start MinIO or S3Proxy. Raises UnavailableError where this machine has no way to it."""
    data = home / "data"
    data.mkdir(exist_ok=True)
    user, password = credentials(home)
    start = minio.start if kind == "minio" else s3proxy.start
    child, limit = start(site, data, port, user, password)
    client = Minio(
        f"{HOST}:{port}",
        access_key=user,
        secret_key=password,
        secure=False,
        region="us-east-1",
        http_client=urllib3.PoolManager(timeout=urllib3.Timeout(total=5.0), retries=False),
    )
    ready = lambda: listens(port) and _has_bucket(client)  # noqa: E731 - by keys that no other store takes
    serve(child, (port,), ready, site, ready_s=limit, stop_s=STOP_S, hint=HINT)
    return Part(NAME, f"s3://{HOST}:{port}/{bucket_name()}", settings, child)


def fill(config: Config, part: Part, directory: Path) -> Config:
    """`config` with the store's URL and, for S3, the credentials stored in `directory`."""
    update: dict[str, Any] = {"url": part.where}
    if part.where.startswith("s3"):
        user, password = credentials(directory / NAME)
        update |= {"access_key": user, "secret_key": SecretStr(password)}
    return config.model_copy(update={"store": config.store.model_copy(update=update)})


def credentials(home: Path) -> tuple[str, str]:
    """Access and secret key of this stack: random, made once, in a file that only its owner can read."""
    file = home / "credentials.json"
    if not file.exists():
        made = {"access_key": secrets.token_hex(10), "secret_key": secrets.token_hex(20)}
        write_private(file, json.dumps(made))  # the caller holds the stack's lock
    try:
        kept = json.loads(file.read_text())
        return str(kept["access_key"]), str(kept["secret_key"])
    except (ValueError, KeyError, TypeError):
        raise StackError(str(file), "holds no credentials", "delete it; `distrl up` makes new ones") from None


def bucket_name() -> str:
    return str(json.loads(declared("minio/bucket.json"))["bucket"])


def ensure_bucket(client: Minio) -> None:
    """Make the bucket that infra/minio/bucket.json declares, if it is not there; set its versioning and lifecycle."""
    bucket = json.loads(declared("minio/bucket.json"))
    name = bucket["bucket"]
    if not client.bucket_exists(name):
        client.make_bucket(name)
    rules = LifecycleConfig([_rule(each) for each in bucket["lifecycle"]["Rules"]])
    try:
        client.set_bucket_versioning(name, VersioningConfig(bucket["versioning"]["Status"]))
        client.set_bucket_lifecycle(name, rules)
    except S3Error as error:
        if error.code != "NotImplemented":  # of S3Proxy: what is deleted is gone, and what would expire stays
            raise


def _rule(rule: Mapping[str, Any]) -> Rule:
    """A rule as S3's own JSON has it."""
    expiration, replaced = rule.get("Expiration"), rule["NoncurrentVersionExpiration"]
    return Rule(
        rule["Status"],
        Filter(prefix=rule["Filter"]["Prefix"]),
        rule["ID"],
        expiration=None
        if expiration is None
        else Expiration(
            days=expiration.get("Days"), expired_object_delete_marker=expiration.get("ExpiredObjectDeleteMarker")
        ),
        noncurrent_version_expiration=NoncurrentVersionExpiration(noncurrent_days=replaced["NoncurrentDays"]),
    )


def _has_bucket(client: Minio) -> bool:
    """Make the bucket; False while the endpoint is not ready."""
    try:
        ensure_bucket(client)
    except (MinioException, urllib3.exceptions.HTTPError, OSError):
        return False
    return True


def _directory(home: Path, settings: Mapping[str, Any]) -> Part:
    objects = home / "objects"
    objects.mkdir(exist_ok=True)
    _store_kind(home, "directory")
    return Part(NAME, f"file://{objects}", settings)


def wanted_kind(home: Path, asked: str) -> str:
    """The store that a stack goes on with: the one that it began with, else `asked` (stack.object_store), which may be
    auto. Raises StackError where another one is asked for: its objects would not be there."""
    began_as = _stored_kind(home)
    if began_as and asked not in ("auto", began_as):
        raise StackError(
            "stack.object_store",
            f"is {asked}, but the objects of this stack are in its {began_as} store",
            f"set stack.object_store={began_as}, or start a new stack with another stack.directory",
        )
    return began_as or asked


def _stored_kind(home: Path) -> str | None:
    try:
        kind = (home / "kind").read_text().strip()
    except FileNotFoundError:
        return None
    return kind if kind in ("minio", "s3proxy", "directory") else None


def _store_kind(home: Path, kind: str) -> None:
    """Whole or not at all: another kind would be a store without the objects of this one."""
    if _stored_kind(home) == kind:
        return
    fresh = home / "kind.new"
    fresh.write_text(kind + "\n")
    sync(fresh)
    fresh.replace(home / "kind")
    sync(home)
