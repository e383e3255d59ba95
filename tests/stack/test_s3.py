"""The object store of a stack: its credentials, and that it stays where its objects are."""

from __future__ import annotations

import stat
import threading
from pathlib import Path

import pytest
from distrl.config import Config
from distrl.errors import StackError
from distrl.stack import minio, s3
from distrl.stack.minio import Kind, Way
from distrl.stack.part import Part, Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path / "stack", tmp_path / "cache", threading.Event(), said.append)


said: list[str] = []
NOTHING = Way(Kind.NONE, None, "there is no way to MinIO here")


def test_credentials_are_random_kept_and_read_by_their_owner_alone(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    mine = s3.credentials(tmp_path)
    assert s3.credentials(tmp_path) == mine
    assert s3.credentials(tmp_path / "other") != mine
    assert stat.S_IMODE((tmp_path / "credentials.json").stat().st_mode) == 0o600
    assert len(mine[1]) >= 32


def test_spoilt_credentials_are_told(tmp_path: Path) -> None:
    (tmp_path / "credentials.json").write_text("{")
    with pytest.raises(StackError, match="holds no credentials"):
        s3.credentials(tmp_path)


def test_without_minio_objects_go_to_a_directory_and_it_is_said(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    said.clear()
    monkeypatch.setattr(minio, "way", lambda _: NOTHING)
    part = s3.start_s3(site, {"object_store": "auto"}, 29999)
    assert part.where == f"file://{site.directory}/s3/objects"
    assert part.child is None
    assert "there is no way to MinIO here" in said[0]
    assert s3.fill(Config(), part, site.directory).store.url == part.where


def test_minio_that_is_demanded_and_not_to_be_had_is_an_error(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minio, "way", lambda _: NOTHING)
    with pytest.raises(StackError, match="no way to MinIO"):
        s3.start_s3(site, {"object_store": "minio"}, 29999)


def test_a_stack_that_began_with_a_directory_stays_there(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.start_s3(site, {"object_store": "directory"}, 29999)

    def never(_: Path) -> Way:
        raise AssertionError("MinIO was looked for")

    monkeypatch.setattr(minio, "way", never)
    assert s3.start_s3(site, {"object_store": "auto"}, 29999).where.startswith("file://")
    with pytest.raises(StackError, match="the objects of this stack are in its directory store"):
        s3.start_s3(site, {"object_store": "minio"}, 29999)


def test_a_stack_that_began_with_minio_never_falls_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    home = site.directory / "s3"
    home.mkdir(parents=True)
    (home / "kind").write_text("minio\n")
    monkeypatch.setattr(minio, "way", lambda _: NOTHING)
    with pytest.raises(StackError, match="no way to MinIO"):
        s3.start_s3(site, {"object_store": "auto"}, 29999)


def test_an_endpoint_is_filled_in_with_its_credentials(tmp_path: Path) -> None:
    (tmp_path / "s3").mkdir()
    store = s3.fill(Config(), Part("s3", "s3://127.0.0.1:29000/distrl"), tmp_path).store
    user, password = s3.credentials(tmp_path / "s3")
    assert store.access_key == user
    assert store.secret_key is not None
    assert store.secret_key.get_secret_value() == password
    assert password not in repr(store)
