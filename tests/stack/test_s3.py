"""The object store of a stack: its credentials, and that it stays where its objects are."""

from __future__ import annotations

import errno
import os
import stat
import threading
from pathlib import Path

import pytest
from distrl.config import Config
from distrl.errors import StackError
from distrl.stack import minio, private_file, s3, s3proxy
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


def test_spoilt_credentials_are_reported(tmp_path: Path) -> None:
    (tmp_path / "credentials.json").write_text("{")
    with pytest.raises(StackError, match="holds no credentials"):
        s3.credentials(tmp_path)


def test_credentials_that_could_not_be_written_are_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk, or a kill, left an empty file, which refused every later start."""

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(private_file, "sync", full)
        with pytest.raises(OSError, match="No space left"):
            s3.credentials(tmp_path)
    made = s3.credentials(tmp_path)
    assert s3.credentials(tmp_path) == made
    assert [each.name for each in tmp_path.iterdir()] == ["credentials.json"]


@pytest.fixture
def no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without MinIO, Docker and Java."""

    def unavailable() -> tuple[Path, str]:
        raise StackError("java", "there is none here", "install one")

    monkeypatch.setattr(minio, "way", lambda _: NOTHING)
    monkeypatch.setattr(s3proxy, "find_java", unavailable)


@pytest.mark.usefixtures("no_endpoint")
def test_without_an_endpoint_objects_go_to_a_directory_and_it_is_reported(site: Site) -> None:
    said.clear()
    part = s3.start_s3(site, {"object_store": "auto"}, 29999)
    assert part.where == f"file://{site.directory}/s3/objects"
    assert part.child is None
    assert "there is none here" in said[0]
    assert s3.fill(Config(), part, site.directory).store.url == part.where


@pytest.mark.usefixtures("no_endpoint")
@pytest.mark.parametrize(("wanted", "why"), [("minio", "no way to MinIO"), ("s3proxy", "there is none here")])
def test_an_endpoint_that_is_demanded_and_not_to_be_had_is_an_error(site: Site, wanted: str, why: str) -> None:
    with pytest.raises(StackError, match=why):
        s3.start_s3(site, {"object_store": wanted}, 29999)
    assert not (site.directory / "s3" / "kind").exists()


def test_minio_is_built_only_where_it_is_asked_for(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    built = StackError("MinIO", "is being built", "wait")
    asked: list[str] = []

    def build(*_: object) -> Path:
        raise built

    def start(*_: object) -> object:
        asked.append("s3proxy")
        raise StackError("S3Proxy", "is being started", "wait")

    monkeypatch.setattr(minio, "way", lambda _: Way(Kind.BUILD, None, "Go can build it"))
    monkeypatch.setattr(minio, "build", build)
    monkeypatch.setattr(s3proxy, "start", start)
    with pytest.raises(StackError, match="is being started"):
        s3.start_s3(site, {"object_store": "auto"}, 29999)
    assert asked == ["s3proxy"]
    with pytest.raises(StackError, match="is being built"):
        s3.start_s3(site, {"object_store": "minio"}, 29999)


def test_a_stack_that_began_with_a_directory_stays_there(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    s3.start_s3(site, {"object_store": "directory"}, 29999)

    def never(_: Path) -> Way:
        raise AssertionError("MinIO was looked for")

    monkeypatch.setattr(minio, "way", never)
    assert s3.start_s3(site, {"object_store": "auto"}, 29999).where.startswith("file://")
    for other in ("minio", "s3proxy"):
        with pytest.raises(StackError, match="the objects of this stack are in its directory store"):
            s3.start_s3(site, {"object_store": other}, 29999)


@pytest.mark.usefixtures("no_endpoint")
@pytest.mark.parametrize(("kind", "why"), [("minio", "no way to MinIO"), ("s3proxy", "there is none here")])
def test_a_stack_that_began_with_an_endpoint_never_falls_back(site: Site, kind: str, why: str) -> None:
    home = site.directory / "s3"
    home.mkdir(parents=True)
    (home / "kind").write_text(f"{kind}\n")
    with pytest.raises(StackError, match=why):
        s3.start_s3(site, {"object_store": "auto"}, 29999)


def test_what_s3proxy_is_started_with_is_read_by_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / s3proxy.SETTINGS
    s3proxy.write_settings(file, 29999, tmp_path, "me", "s3cret")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    settings = dict(line.split("=", 1) for line in file.read_text().splitlines() if not line.startswith("#"))
    assert settings["s3proxy.endpoint"] == "http://127.0.0.1:29999"
    assert (settings["s3proxy.identity"], settings["s3proxy.credential"]) == ("me", "s3cret")
    assert settings["s3proxy.authorization"] == "aws-v2-or-v4", "nobody is let in without the key"


def test_an_endpoint_is_filled_in_with_its_credentials(tmp_path: Path) -> None:
    (tmp_path / "s3").mkdir()
    store = s3.fill(Config(), Part("s3", "s3://127.0.0.1:29000/distrl"), tmp_path).store
    user, password = s3.credentials(tmp_path / "s3")
    assert store.access_key == user
    assert store.secret_key is not None
    assert store.secret_key.get_secret_value() == password
    assert password not in repr(store)
