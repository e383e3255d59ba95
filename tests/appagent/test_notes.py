from __future__ import annotations

import json
from pathlib import Path

import pytest
from distrl.appagent.notes import (
    FORMAT,
    LONGEST_NOTE,
    MOST_APPS,
    MOST_ELEMENTS,
    Notes,
    count,
    load,
    save,
    to_bytes,
    with_note,
)
from distrl.errors import ConfigError


def test_notes_survive_the_file(tmp_path: Path) -> None:
    notes = with_note({}, "com.a", "icon", "tap", "opens the\n  list – of mails")
    notes = with_note(notes, "com.a", "icon", "swipe vertically", "scrolls")
    save(tmp_path / "deep" / "notes.json", notes)
    assert load(tmp_path / "deep" / "notes.json") == notes
    assert notes["com.a"]["icon"]["tap"] == "opens the list – of mails"
    assert count(notes) == 2
    assert [each.name for each in (tmp_path / "deep").iterdir()] == ["notes.json"]


def test_a_later_note_takes_the_place_of_the_earlier_and_the_earlier_notes_stay_as_they_were() -> None:
    first = with_note({}, "com.a", "icon", "tap", "one")
    second = with_note(first, "com.a", "icon", "tap", "two")
    assert (first["com.a"]["icon"]["tap"], second["com.a"]["icon"]["tap"]) == ("one", "two")


def test_notes_are_bounded_in_every_direction(tmp_path: Path) -> None:
    notes: Notes = with_note({}, "com.a", "icon", "tap", "x" * 9_999)
    assert len(notes["com.a"]["icon"]["tap"]) == LONGEST_NOTE
    for number in range(MOST_ELEMENTS + 5):
        notes = with_note(notes, "com.a", f"e{number}", "tap", "n")
    for number in range(MOST_APPS + 5):
        notes = with_note(notes, f"com.b{number}", "e", "tap", "n")
    assert (len(notes["com.a"]), len(notes)) == (MOST_ELEMENTS, MOST_APPS)
    assert with_note(notes, "com.a", "icon", "tap", "again")["com.a"]["icon"]["tap"] == "again"
    for package, element, text in (("", "e", "n"), ("p", "", "n"), ("p", "e", " \n"), ("p" * 999, "e", "n")):
        assert with_note({}, package, element, "tap", text) == {}
    save(tmp_path / "n", notes)
    assert load(tmp_path / "n") == notes


@pytest.mark.parametrize(
    "held",
    [
        b"", b"[]", b"{}", b"[" * 100_000, b"\xff", json.dumps({"format": "other", "apps": {}}).encode(),
        *(json.dumps({"format": FORMAT, "apps": apps}).encode() for apps in (
            [], {"a": []}, {"a": {"e": "text"}}, {"a": {"e": {"tap": 5}}}, {"a": {"e": {"exec": "x"}}},
            {"a": {"e": {"tap": "x" * (LONGEST_NOTE + 1)}}}, {"": {}}, {str(n): {} for n in range(MOST_APPS + 1)},
        )),
    ],
    ids=lambda data: str(data[:60]),
)  # fmt: skip
def test_a_file_that_holds_anything_else_is_refused(tmp_path: Path, held: bytes) -> None:
    path = tmp_path / "notes.json"
    path.write_bytes(held)
    with pytest.raises(ConfigError, match="holds no notes"):
        load(path)


def test_a_file_that_cannot_be_had_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path / "none.json")
    (tmp_path / "file").write_bytes(to_bytes({}))
    with pytest.raises(ConfigError, match="cannot be written"):
        save(tmp_path / "file" / "notes.json", {})
