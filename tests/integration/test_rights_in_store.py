"""Each role may do what the table says at the object store, and is refused everything else: one test for each cell."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from cells import EACH_ROLE, RefusedError, holds
from distrl.errors import StoreError
from distrl.rights.roles import ROLES, ObjectRight, Role
from distrl.stack.s3 import bucket_name
from distrl.store.folders import FOLDERS, Folder
from distrl.store.objects import open_store
from distrl.store.s3 import ASK_FIRST_BYTES
from minio import Minio
from minio.error import S3Error
from policed import ROOT, Policed

pytestmark = pytest.mark.integration

EACH_FOLDER = pytest.mark.parametrize("folder", FOLDERS.values(), ids=lambda folder: folder.name)
OWN = [folder for folder in FOLDERS.values() if not folder.is_shared]


@pytest.fixture(scope="module")
def run() -> str:
    return f"rights-{uuid.uuid4().hex[:8]}"


@dataclass(frozen=True)
class Objects:
    """A role at the object store; each method does one thing, and raises RefusedError where it may not."""

    client: Minio
    bucket: str = field(default_factory=bucket_name)

    def get(self, key: str) -> None:
        found = self._answered(lambda: self.client.get_object(self.bucket, key))
        assert isinstance(found.read(), bytes)
        found.close()

    def look(self, key: str) -> None:
        self._answered(lambda: self.client.stat_object(self.bucket, key))

    def put(self, key: str) -> None:
        self._answered(lambda: self.client.put_object(self.bucket, key, io.BytesIO(b"x"), 1))

    def delete(self, key: str) -> None:
        self._answered(lambda: self.client.remove_object(self.bucket, key))

    def versions(self, key: str) -> list[Any]:
        """Of the object, and markers of its deletion."""
        return list(self.client.list_objects(self.bucket, prefix=key, include_version=True))

    def destroy(self, key: str, version: str) -> None:
        self._answered(lambda: self.client.remove_object(self.bucket, key, version_id=version))

    @staticmethod
    def _answered(ask: Callable[[], object]) -> object:
        try:
            return ask()
        except S3Error as error:
            if error.code == "AccessDenied":
                raise RefusedError(str(error)) from None
            raise


@pytest.fixture(scope="module")
def granted(policed: Policed, run: str) -> Policed:
    policed.grant(run)
    return policed


@pytest.fixture(scope="module")
def objects(granted: Policed) -> dict[str, Objects]:
    return {name: Objects(granted.client(name)) for name in (*ROLES, ROOT)}


def seeded(objects: dict[str, Objects], folder: Folder, run: str) -> str:
    """The key of an object in the folder of `run`, which is there."""
    key = f"{folder.of(run)}/deep/{uuid.uuid4().hex}.json"
    objects[ROOT].put(key)
    return key


@EACH_ROLE
@EACH_FOLDER
def test_an_object_is_read_by_those_who_may(objects: dict[str, Objects], run: str, role: Role, folder: Folder) -> None:
    key = seeded(objects, folder, run)
    holds(role.may_object(ObjectRight.GET, folder), objects[role.name].get, key)


@EACH_ROLE
@EACH_FOLDER
def test_an_object_is_written_by_those_who_may(
    objects: dict[str, Objects], run: str, role: Role, folder: Folder
) -> None:
    key = seeded(objects, folder, run)
    for each in (key, f"{folder.of(run)}/new-{role.name}"):
        holds(role.may_object(ObjectRight.PUT, folder), objects[role.name].put, each)


@EACH_ROLE
@EACH_FOLDER
def test_an_object_is_deleted_by_those_who_may(
    objects: dict[str, Objects], run: str, role: Role, folder: Folder
) -> None:
    key = seeded(objects, folder, run)
    holds(role.may_object(ObjectRight.DELETE, folder), objects[role.name].delete, key)


@EACH_ROLE
@pytest.mark.parametrize("folder", OWN, ids=lambda folder: folder.name)
def test_no_role_reads_or_changes_an_object_of_another_run(
    objects: dict[str, Objects], run: str, role: Role, folder: Folder
) -> None:
    key, mine = seeded(objects, folder, f"{run}-other"), objects[role.name]
    for do in (mine.get, mine.look, mine.put, mine.delete):
        holds(False, do, key)


@EACH_ROLE
@EACH_FOLDER
def test_a_large_object_is_stored_by_those_who_may(granted: Policed, run: str, role: Role, folder: Folder) -> None:
    """As the program does it: it asks first whether it is there."""
    store = open_store(granted.settings(role.name))
    large = uuid.uuid4().bytes * (ASK_FIRST_BYTES // 16 + 1)
    if role.may_object(ObjectRight.PUT, folder):
        assert store.get(store.put(folder.of(run), large, "bin")) == large
    else:
        with pytest.raises(StoreError, match="AccessDenied"):
            store.put(folder.of(run), large, "bin")


@EACH_ROLE
@EACH_FOLDER
def test_no_role_takes_away_what_versioning_keeps(
    objects: dict[str, Objects], run: str, role: Role, folder: Folder
) -> None:
    """What was deleted is brought back by who may do everything."""
    key, root = seeded(objects, folder, run), objects[ROOT]
    (version,) = (each.version_id for each in root.versions(key))
    holds(False, objects[role.name].destroy, key, version)
    (objects[role.name] if role.may_object(ObjectRight.DELETE, folder) else root).delete(key)
    (marker,) = (each.version_id for each in root.versions(key) if each.is_delete_marker)
    root.destroy(key, marker)
    root.get(key)
