"""Which objects come into a copy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from distrl.runs import copy
from distrl.store.directory import DirectoryStore


def test_an_object_that_is_damaged_or_gone_does_not_end_the_copy(tmp_path: Path) -> None:
    source, to = DirectoryStore(tmp_path / "source"), DirectoryStore(tmp_path / "to")
    whole, damaged, gone = (source.put("screenshots", name.encode(), "png") for name in ("whole", "damaged", "gone"))
    (tmp_path / "source" / damaged.key).write_bytes(b"rotten!")
    (tmp_path / "source" / gone.key).unlink()
    with copy._Objects(source, to) as objects:
        objects._copy([whole, damaged, gone])
    assert (objects.copied, objects.missing) == (1, 2)
    assert to.get(whole) == b"whole"


def test_a_record_with_a_wrong_size_keeps_no_object_out_of_the_copy(tmp_path: Path) -> None:
    source, to = DirectoryStore(tmp_path / "source"), DirectoryStore(tmp_path / "to")
    ref = source.put("screenshots", b"home", "png")
    with copy._Objects(source, to) as objects:
        objects._copy([replace(ref, size=3), ref])
    assert (objects.copied, objects.missing) == (1, 0)
    assert to.get(ref) == b"home"
