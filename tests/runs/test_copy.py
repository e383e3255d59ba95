"""Which objects come into a copy."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from distrl.runs import copy
from distrl.store.checkpoints import latest_checkpoint, save_checkpoint
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


def test_what_lies_there_already_is_not_sent_again(tmp_path: Path) -> None:
    source, to = DirectoryStore(tmp_path / "source"), DirectoryStore(tmp_path / "to")
    refs = [source.put("screenshots", name, "png", "2026-01-31") for name in (b"home", b"mail", b"clock")]
    with copy._Objects(source, to) as first:
        first._copy(refs[:2])
    before = {ref.key: (tmp_path / "to" / ref.key).stat() for ref in refs[:2]}
    with copy._Objects(source, to) as again:
        again._copy(refs[:1])
        again._copy(refs)
    assert (again.copied, again.missing) == (1, 0)
    assert {key: (tmp_path / "to" / key).stat() for key in before} == before
    assert [to.get(ref) for ref in refs] == [b"home", b"mail", b"clock"]


def test_a_record_with_a_wrong_size_keeps_no_object_out_of_the_copy(tmp_path: Path) -> None:
    source, to = DirectoryStore(tmp_path / "source"), DirectoryStore(tmp_path / "to")
    ref = source.put("screenshots", b"home", "png")
    with copy._Objects(source, to) as objects:
        objects._copy([replace(ref, size=3), ref])
    assert (objects.copied, objects.missing) == (1, 0)
    assert to.get(ref) == b"home"


def test_what_is_kept_under_the_runs_name_comes_along_but_for_names_that_are_no_keys(tmp_path: Path) -> None:
    source, to = DirectoryStore(tmp_path / "source"), DirectoryStore(tmp_path / "to")
    save_checkpoint(source, "demo", 3, {"w": np.arange(4)}, {"u": 3})
    source.put_named("runs/demo/reserved.json", b"{}")
    source.put_named("runs/demo-2/reserved.json", b"of another run")
    (tmp_path / "source/runs/demo/reserved (copy).json").write_bytes(b"{}")
    with copy._Objects(source, to) as objects:
        objects.copy_own("demo")
    assert latest_checkpoint(to, "demo") is not None
    assert to.get_named("runs/demo/reserved.json") == b"{}"
    assert objects.copied == len(list(to.list(""))) == 3
