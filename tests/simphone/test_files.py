from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simphone import files
from simphone.files import FileError, Files, plain

PATH = st.text("ab./\\ \n\u00e9\udc80~", max_size=30)


def new() -> Files:
    return Files(lambda: 7)


@settings(deadline=None)
@given(PATH, PATH)
def test_a_path_has_one_plain_name_and_none_leads_out(path: str, base: str) -> None:
    try:
        named = plain(path, base)
    except FileError:
        assert not path
        return
    assert named.startswith("/")
    assert named == "/" or not named.endswith("/")
    assert not {"", ".", ".."} & set(named[1:].split("/")) or named == "/"
    assert plain(named) == named


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/sdcard/../../etc/passwd", "/etc/passwd"),
        ("//sdcard//a/./b/", "/sdcard/a/b"),
        ("a/../..", "/"),
        ("/storage/emulated/0/a", "/sdcard/a"),
        ("/storage/self/primary", "/sdcard"),
        ("/storage/emulated/01", "/storage/emulated/01"),
        ("/mnt/sdcard/../x", "/mnt/x"),
    ],
)
def test_names_of_one_place(path: str, named: str) -> None:
    assert plain(path) == named


@pytest.mark.parametrize("path", ["", "a\0b", "/" + "x" * 256, "/x" * 600])
def test_what_no_path_can_be(path: str) -> None:
    with pytest.raises(FileError):
        plain(path)


@pytest.mark.parametrize("path", ["/etc/passwd", "/data/app/a", "/data/local/tmpx", "/x", "/sdcardx/a"])
def test_nothing_is_written_elsewhere(path: str) -> None:
    held = new()
    with pytest.raises(FileError, match="Permission denied"):
        held.receive(path, 0o600)
    with pytest.raises(FileError, match="Permission denied"):
        held.make_directory(path, parents=True)
    assert held.find(path) is None


@pytest.mark.parametrize("path", files.FIXED)
def test_what_is_always_there_stays(path: str) -> None:
    held = new()
    with pytest.raises(FileError, match="Permission denied"):
        held.remove(path, recursive=True)
    assert held.at(path).is_directory


def test_an_upload_makes_its_directories_and_an_unfinished_one_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 10)
    held = new()
    with held.receive("/sdcard/a/b/c", 0o4644) as upload:
        upload.add(b"12345")
        upload.keep(99)
    entry = held.at("/sdcard/a/b/c")
    assert (entry.mode, entry.mtime, entry.data) == (0o100644, 99, b"12345")
    with held.receive("/sdcard/d", 0o600) as upload:
        upload.add(b"12345")
        with pytest.raises(FileError, match="No space"):
            upload.add(b"6")
    assert held.find("/sdcard/d") is None
    held.write("/sdcard/d", b"12345")
    with pytest.raises(FileError, match="No space"):
        held.write("/sdcard/e", b"1")


def test_uploads_that_run_side_by_side_share_the_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 10)
    held = new()
    with held.receive("/sdcard/a", 0o600) as one, held.receive("/sdcard/b", 0o600) as other:
        one.add(b"123456")
        with pytest.raises(FileError, match="No space"):
            other.add(b"12345")
        other.add(b"1234")
        other.keep(1)
        one.keep(1)
    assert [name for name, entry in held.held("/sdcard") if not entry.is_directory] == ["a", "b"]


def test_a_file_of_half_the_space_can_be_replaced_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 10)
    held = new()
    for byte in b"abc":
        held.write("/sdcard/a", bytes([byte]) * 9)
    assert held.read("/sdcard/a") == b"ccccccccc"


def test_entries_are_bounded_and_counted_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_ENTRIES", len(files.FIXED) + 3)
    held = new()
    held.make_directory("/sdcard/a/b", parents=True)
    held.write("/sdcard/a/b/c", b"x")
    for full in (lambda: held.write("/sdcard/d", b""), lambda: held.make_directory("/sdcard/d")):
        with pytest.raises(FileError, match="No space"):
            full()
    held.remove("/sdcard/a", recursive=True)
    assert held.find("/sdcard/a/b/c") is None
    held.write("/sdcard/d", b"")


def test_directories_and_files_are_not_taken_for_each_other() -> None:
    held = new()
    held.write("/sdcard/f", b"x")
    for wrong in (
        lambda: held.read("/sdcard"),
        lambda: held.held("/sdcard/f"),
        lambda: held.receive("/sdcard/DCIM", 0o600),
        lambda: held.remove("/sdcard/DCIM"),
        lambda: held.write("/sdcard/f/g", b""),
        lambda: held.make_directory("/sdcard/f/g", parents=True),
        lambda: held.make_directory("/sdcard/f"),
        lambda: held.write("/sdcard/none/g", b""),
        lambda: held.move("/sdcard/f", "/sdcard/none/g"),
        lambda: held.move("/sdcard/f", "/sdcard/DCIM"),
        lambda: held.move("/sdcard/f", "/sdcard/f"),
    ):
        with pytest.raises(FileError):
            wrong()
    assert held.read("/sdcard/f") == b"x"


def test_what_does_not_fit_leaves_the_file_that_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 10)
    held = new()
    held.write("/sdcard/a", b"123456")
    with pytest.raises(FileError, match="No space"):
        held.write("/sdcard/a", b"12345678901")
    assert held.read("/sdcard/a") == b"123456"
    held.write("/sdcard/a", b"1234567890")
    assert held.read("/sdcard/a") == b"1234567890"


OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["write", "remove", "move", "mkdir"]),
              st.sampled_from(["/sdcard/a", "/sdcard/b", "/sdcard/d/a", "/sdcard/d"]),
              st.sampled_from(["/sdcard/a", "/sdcard/b", "/sdcard/d/b"]), st.binary(max_size=6)),
    max_size=30,
)  # fmt: skip


@settings(deadline=None)
@given(OPERATIONS)
def test_bytes_are_counted_right_whatever_happens(operations: list[tuple[str, str, str, bytes]]) -> None:
    held = new()
    for kind, path, to, data in operations:
        try:
            match kind:
                case "write":
                    held.write(path, data)
                case "remove":
                    held.remove(path, recursive=True)
                case "move":
                    held.move(path, to)
                case _:
                    held.make_directory(path)
        except FileError:
            continue
    there = [
        entry.data
        for where in ("/sdcard", "/sdcard/d")
        if held.find(where) and held.at(where).is_directory
        for _, entry in held.held(where)
    ]
    with (
        pytest.MonkeyPatch.context() as patch,
        held.receive("/data/local/tmp/rest", 0o600) as upload,
    ):
        patch.setattr(files, "MOST_BYTES", 1000)
        upload.add(bytes(1000 - sum(map(len, there))))
        with pytest.raises(FileError, match="No space"):
            upload.add(b"x")
