"""A MinIO whose users have the policies of the roles: S3Proxy, which the other tests use, knows no policies."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import urllib3
from distrl.config import StoreSettings
from distrl.rights.objects import policy
from distrl.rights.roles import ROLES
from distrl.stack import minio
from distrl.stack.part import Site
from distrl.stack.ports import HOST, draw
from distrl.stack.processes import stop_all, wait_ready
from distrl.stack.s3 import bucket_name, ensure_bucket
from fetching import Say, cache
from minio import Minio, MinioAdmin
from minio.credentials import StaticProvider

ROOT = "administrator"
REGION = "us-east-1"
READY_S = 120.0
STOP_S = 30.0


def site(directory: Path, say: Say) -> Site:
    """Its MinIO is beside the tests' other programs: one in the stack's own cache would become everybody's store."""
    return Site(directory, cache() / "tools", threading.Event(), say)


def can_run() -> bool:
    """Whether this machine has a MinIO or can build one."""
    return minio.way(cache() / "tools").kind is not minio.Kind.NONE


def build(say: Say) -> None:
    """Have the program, where there is none. Raises StackError."""
    if minio.way(cache() / "tools").kind is minio.Kind.BUILD:
        made = site(Path(), say)
        minio.build(made.cache, made.report, made.cancelled)


@dataclass(frozen=True, slots=True)
class Policed:
    """The store. Its users' names are their roles; `administrator` may do everything."""

    address: str
    password: str

    def client(self, user: str) -> Minio:
        return Minio(
            self.address,
            access_key=user,
            secret_key=self.password,
            secure=False,
            region=REGION,
            http_client=urllib3.PoolManager(timeout=urllib3.Timeout(total=30.0), retries=False),
        )

    def settings(self, user: str) -> StoreSettings:
        """Of a role's process."""
        tree = {"url": f"s3://{self.address}/{bucket_name()}", "access_key": user, "secret_key": self.password}
        return StoreSettings.model_validate(tree)

    def grant(self, run: str) -> None:
        """Give every role, and no other user, the rights that are declared, in this run."""
        admin = MinioAdmin(
            endpoint=self.address,
            credentials=StaticProvider(ROOT, self.password),
            region=REGION,
            secure=False,
            cert_check=False,
        )
        for role in ROLES.values():
            admin.user_add(role.name, self.password)
            made = policy(role, bucket_name(), run)
            if made is not None:
                admin.policy_add(f"{run}-{role.name}", policy=made)
                admin.attach_policy([f"{run}-{role.name}"], user=role.name)


@contextmanager
def policed_store(directory: Path, say: Say) -> Iterator[Policed]:
    made, password, port = site(directory, say), secrets.token_hex(20), draw("a test")
    data = directory / "data"
    data.mkdir()
    child, _ = minio.start(made, data, port, ROOT, password)
    found = Policed(f"{HOST}:{port}", password)

    def ready() -> bool:
        try:
            ensure_bucket(found.client(ROOT))
        except Exception:  # whatever a server says that is still starting
            return False
        return True

    try:
        wait_ready(child, ready, READY_S, made.cancelled, minio.HINT)
        yield found
    finally:
        stop_all([child], STOP_S)
