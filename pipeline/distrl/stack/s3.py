"""The object store of the stack: MinIO if available, else a directory, which is reported.

A stack stays with the kind of store that it started with, since its log names objects that are only there.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import urllib3
from minio import Minio
from minio.commonconfig import Filter
from minio.error import MinioException
from minio.lifecycleconfig import Expiration, LifecycleConfig, Rule
from pydantic import SecretStr

from distrl.config import Config
from distrl.errors import StackError
from distrl.stack import minio
from distrl.stack.declared import declared, infra_folder
from distrl.stack.minio import Kind
from distrl.stack.part import Part, Site
from distrl.stack.ports import HOST, listens
from distrl.stack.processes import Child, start, stop_all, wait_ready

NAME = "s3"
READY_S = 60.0
PULL_S = 600.0
"""Docker may have to fetch the image first."""
STOP_S = 20.0
HINT = "read its log; `distrl down` and `distrl up` restart it; or set stack.object_store=directory"


def start_s3(site: Site, settings: Mapping[str, Any], port: int) -> Part:
    """Start the store and wait until its bucket is there. settings: object_store (config.Stack.object_store).

    Raises StackError if MinIO is required and not available, or does not start.
    """
    home = site.directory / NAME
    home.mkdir(parents=True, exist_ok=True)
    began_as = _stored_kind(home)
    wanted = str(settings["object_store"])
    if began_as and wanted not in ("auto", began_as):
        raise StackError(
            "stack.object_store",
            f"is {wanted}, but the objects of this stack are in its {began_as} store",
            f"set stack.object_store={began_as}, or start a new stack with another stack.directory",
        )
    kind = began_as or wanted
    if kind == "directory":
        return _directory(home, settings)
    try:
        part = _start_minio(site, settings, home, port)
    except StackError as error:
        if kind == "minio" or site.cancelled.is_set() or not isinstance(error, UnavailableError):
            raise
        site.report(f"no S3 endpoint: {error.what}. Objects go to a directory instead, which only this machine can use")
        return _directory(home, settings)
    _store_kind(home, "minio")
    return part


class UnavailableError(StackError):
    """MinIO is not available on this machine."""


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
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        pass
    else:
        with os.fdopen(descriptor, "w") as out:
            json.dump({"access_key": secrets.token_hex(10), "secret_key": secrets.token_hex(20)}, out)
    try:
        kept = json.loads(file.read_text())
        return str(kept["access_key"]), str(kept["secret_key"])
    except (ValueError, KeyError, TypeError):
        raise StackError(str(file), "holds no credentials", "delete it; `distrl up` makes new ones") from None


def bucket_name() -> str:
    return str(json.loads(declared("minio/bucket.json"))["bucket"])


def ensure_bucket(client: Minio) -> None:
    """Make the bucket that infra/minio/bucket.json declares, if it is not there, and set its lifecycle."""
    bucket = json.loads(declared("minio/bucket.json"))
    if not client.bucket_exists(bucket["bucket"]):
        client.make_bucket(bucket["bucket"])
    rules = [
        Rule(
            rule["Status"],
            Filter(prefix=rule["Filter"]["Prefix"]),
            rule["ID"],
            expiration=Expiration(days=rule["Expiration"]["Days"]),
        )
        for rule in bucket["lifecycle"]["Rules"]
    ]
    client.set_bucket_lifecycle(bucket["bucket"], LifecycleConfig(rules))


def _start_minio(site: Site, settings: Mapping[str, Any], home: Path, port: int) -> Part:
    way = minio.way(site.cache)
    if way.kind is Kind.NONE:
        raise UnavailableError("stack.object_store", way.why, minio.HINT)
    if way.kind is Kind.BUILD:
        try:
            way = minio.Way(Kind.PROGRAM, minio.build(site.cache, site.report, site.cancelled), way.why)
        except StackError as error:
            raise UnavailableError(error.where, error.what, error.hint) from None
    assert way.program is not None
    data = home / "data"
    data.mkdir(exist_ok=True)
    user, password = credentials(home)
    run = _in_docker if way.kind is Kind.DOCKER else _as_program
    child = run(way.program, site, data, port, {"MINIO_ROOT_USER": user, "MINIO_ROOT_PASSWORD": password})
    client = Minio(
        f"{HOST}:{port}",
        access_key=user,
        secret_key=password,
        secure=False,
        region="us-east-1",
        http_client=urllib3.PoolManager(timeout=urllib3.Timeout(total=5.0), retries=False),
    )
    limit = PULL_S if way.kind is Kind.DOCKER else READY_S
    try:
        wait_ready(child, lambda: listens(port) and _has_bucket(client), limit, site.cancelled, HINT)
    except BaseException:
        stop_all([child], STOP_S)
        raise
    return Part(NAME, f"s3://{HOST}:{port}/{bucket_name()}", settings, child)


def _as_program(program: Path, site: Site, data: Path, port: int, env: Mapping[str, str]) -> Child:
    line = [str(program), "server", str(data), "--address", f"{HOST}:{port}", "--certs-dir", str(data.parent / "certs")]
    quiet = {"MINIO_BROWSER": "off", "MINIO_UPDATE": "off"}
    return start(NAME, line, site.directory, {**env, **quiet})


def _in_docker(docker: Path, site: Site, data: Path, port: int, env: Mapping[str, str]) -> Child:
    """In the foreground, so that ending `docker compose up` ends the container."""
    file = infra_folder() / "minio" / "compose.yaml"
    project = "distrl-" + hashlib.sha256(str(data).encode()).hexdigest()[:12]
    line = [str(docker), "compose", "--project-name", project, "--file", str(file), "up", "--force-recreate"]
    owner = {"MINIO_UID": str(os.getuid()), "MINIO_GID": str(os.getgid())}
    return start(NAME, line, site.directory, {**env, **owner, "MINIO_PORT": str(port), "MINIO_DATA": str(data)})


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


def _stored_kind(home: Path) -> str | None:
    try:
        kind = (home / "kind").read_text().strip()
    except FileNotFoundError:
        return None
    return kind if kind in ("minio", "directory") else None


def _store_kind(home: Path, kind: str) -> None:
    (home / "kind").write_text(kind + "\n")
