"""What an export may remove: nothing that another made."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from distrl.errors import ConfigError
from distrl.offline import atif_folder, dataset_folder
from distrl.offline.new_folder import FolderFormat, NewFolder

FORM = FolderFormat("test/1", re.compile(r"data/[a-z]+\.txt"))


def export(place: Path, text: str, force: bool = False, meanwhile: Path | None = None) -> None:
    """meanwhile: a file that someone else makes during the export."""
    with NewFolder(place, FORM, force) as folder:
        (folder.partial / "data").mkdir()
        (folder.partial / "data" / "a.txt").write_text(text)
        if meanwhile is not None:
            meanwhile.parent.mkdir(parents=True, exist_ok=True)
            meanwhile.write_text("mine")
        folder.commit({})


def contents(folder: Path) -> dict[str, str]:
    return {each.relative_to(folder).as_posix(): each.read_text() for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize("force", [False, True])
def test_what_came_to_be_at_its_place_during_the_export_stays(tmp_path: Path, force: bool) -> None:
    with pytest.raises(ConfigError, match="exists already, and is no test/1"):
        export(tmp_path / "d", "new", force, meanwhile=tmp_path / "d" / "thesis.txt")
    assert contents(tmp_path) == {"d/thesis.txt": "mine"}


def test_another_export_that_was_faster_stays(tmp_path: Path) -> None:
    with NewFolder(tmp_path / "d", FORM, force=False) as slow:
        slow.partial = slow.partial.rename(tmp_path / "slow")  # a name of its own, as another process has
        export(tmp_path / "d", "fast")
        with pytest.raises(ConfigError, match="exists already"):
            slow.commit({})
    assert contents(tmp_path / "d")["data/a.txt"] == "fast"


@pytest.mark.parametrize("added", [".git/HEAD", "notes.txt", "data/B.txt", "data/more/a.txt"])
def test_force_replaces_no_folder_to_which_something_was_added(tmp_path: Path, added: str) -> None:
    export(tmp_path / "d", "old")
    (tmp_path / "d" / added).parent.mkdir(exist_ok=True)
    (tmp_path / "d" / added).write_text("mine")
    before = contents(tmp_path)
    with pytest.raises(ConfigError, match=f"holds '{re.escape(added)}', which no test/1 has"):
        export(tmp_path / "d", "new", force=True)
    assert contents(tmp_path) == before


def test_force_refuses_what_was_added_during_the_export(tmp_path: Path) -> None:
    export(tmp_path / "d", "old")
    with pytest.raises(ConfigError, match=r"holds '\.git/HEAD'"):
        export(tmp_path / "d", "new", force=True, meanwhile=tmp_path / "d" / ".git" / "HEAD")
    assert contents(tmp_path / "d").keys() == {"manifest.json", "data/a.txt", ".git/HEAD"}


def test_force_replaces_an_export_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    export(tmp_path / "d", "old")
    export(tmp_path / "d", "new", force=True)
    assert contents(tmp_path).keys() == {"d/manifest.json", "d/data/a.txt"}
    assert (tmp_path / "d" / "data" / "a.txt").read_text() == "new"


@pytest.mark.parametrize("place", [".", "../d", "data/.."])
def test_force_replaces_the_working_directory_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    export(tmp_path / "d", "old")
    monkeypatch.chdir(tmp_path / "d")
    export(Path(place), "new", force=True)
    assert contents(tmp_path).keys() == {"d/manifest.json", "d/data/a.txt"}
    assert (tmp_path / "d" / "data" / "a.txt").read_text() == "new"


def test_the_old_one_is_back_where_the_new_one_cannot_take_its_place(tmp_path: Path) -> None:
    export(tmp_path / "d", "old")
    with NewFolder(tmp_path / "d", FolderFormat(FORM.name, re.compile(".*")), force=True) as folder:
        inside = tmp_path / "d" / "data" / "partial"  # moved away with the old one, so that it cannot be renamed
        folder.partial = folder.partial.rename(inside)
        with pytest.raises(FileNotFoundError):
            folder.commit({})
    assert os.listdir(tmp_path) == ["d"]
    assert (tmp_path / "d" / "data" / "a.txt").read_text() == "old"


@pytest.mark.parametrize("target", ["d", "nowhere"])
def test_a_link_is_refused_before_the_export(tmp_path: Path, target: str) -> None:
    export(tmp_path / "d", "old")
    (tmp_path / "link").symlink_to(target)
    with pytest.raises(ConfigError, match="is a link"):
        NewFolder(tmp_path / "link", FORM, force=True)
    assert sorted(os.listdir(tmp_path)) == ["d", "link"]


def test_a_folder_that_holds_a_link_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    export(tmp_path / "d", "old")
    (tmp_path / "d" / "data" / "far").symlink_to(tmp_path / "far")
    with pytest.raises(ConfigError, match="holds 'data/far'"):
        NewFolder(tmp_path / "d", FORM, force=True)


@pytest.mark.parametrize(
    ("form", "inside"),
    [
        (dataset_folder.FORMAT, ["README.md", "data/train.parquet", "data/test.parquet"]),
        (atif_folder.FORMAT, ["trajectories/0-12.json", f"images/{'0a' * 32}.png"]),
    ],
    ids=["dataset", "atif"],
)
def test_each_format_knows_its_files_and_no_others(form: FolderFormat, inside: list[str]) -> None:
    assert all(form.files.fullmatch(path) for path in inside)
    assert not any(form.files.fullmatch(f"{path}{more}") for path in inside for more in ("x", "/x", "\n"))
    assert not form.files.fullmatch("data/mine.parquet")


def test_what_a_killed_export_has_left_is_in_no_ones_way(tmp_path: Path) -> None:
    """In a container, the next one has the same process id."""
    NewFolder(tmp_path / "d", FORM, force=False)
    export(tmp_path / "d", "new")
    assert contents(tmp_path / "d")["data/a.txt"] == "new"


def test_all_of_it_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut a file that was not would be empty."""
    synced = list[tuple[str, bool]]()
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append((Path(os.readlink(f"/proc/self/fd/{descriptor}")).name, (tmp_path / "d").exists()))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    export(tmp_path / "d", "new")
    assert {name for name, named in synced if not named} >= {"a.txt", "manifest.json", "data"}
    assert synced[-1] == (tmp_path.name, True)
