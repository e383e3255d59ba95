"""The folder for `datasets`, opened by `datasets`: rows, types and pictures, and that it is whole or not there."""

from __future__ import annotations

import hashlib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import factories
import pytest
from datasets import Features, Image, load_dataset
from distrl.broker.reader import RawRecord
from distrl.errors import ConfigError, StoreError
from distrl.offline.columns import schema_of
from distrl.offline.dataset_folder import IMAGE, READER, ROWS_TOGETHER, DatasetFolder, dataset_schema
from distrl.offline.replay import Item, item_of
from distrl.offline.screens import CACHED
from distrl.offline.topic_range import Range, TopicRange
from distrl.store.objects import MissingObjectError
from distrl.types import Evaluation, LogPosition, ObjectRef, Record, Split, Trajectory
from distrl.wire.codec import encode
from PIL import Image as Pillow
from wire.records import TRAJECTORY


class Store:
    """Screens by number, each of its own colour; it counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self._data: dict[str, bytes] = {}

    def put(self, data: bytes) -> ObjectRef:
        sha256 = hashlib.sha256(data).hexdigest()
        self._data[sha256] = data
        return ObjectRef(f"screenshots/{sha256}.png", sha256, len(data))

    def screen(self, number: int) -> ObjectRef:
        out = io.BytesIO()
        Pillow.new("RGB", (3, 5), (number % 256, number // 256, 7)).save(out, "PNG")
        return self.put(out.getvalue())

    def get(self, ref: ObjectRef) -> bytes:
        self.asked += 1
        if ref.sha256 not in self._data:
            raise MissingObjectError(ref.key, "is not there", "-")
        return self._data[ref.sha256]


def item(record: Record, offset: int) -> Item:
    raw = RawRecord(LogPosition("distrl.r.trajectories", 0, offset), b"k", encode(record), 1_700_000_000_000)
    return item_of(raw, type(record))


def attempt(name: str, *screens: ObjectRef, split: Split = Split.TRAIN) -> Trajectory:
    task = factories.task(name, split=split, params={"item": "shoes"})
    return factories.trajectory(task, [factories.step(screenshot=each, at=1_000) for each in screens])


def written(folder: Path, store: Store, *given: Record, topic: str = "trajectories", force: bool = False) -> str:
    bounds = TopicRange("r", topic, (Range(0, 0, len(given)),))
    with DatasetFolder(bounds, folder, store.get, force) as out:
        for offset, record in enumerate(given):
            out.put(item(record, offset))
        return out.finish()


def opened(folder: Path, cache: Path | None = None) -> Any:
    return load_dataset(str(folder), cache_dir=str(cache or folder.with_name("cache")))


def test_a_folder_of_the_same_name_is_read_and_not_what_an_earlier_one_held(tmp_path: Path) -> None:
    """`datasets` keeps what it has read under the folder's name, and people have one cache."""
    store, cache = Store(), tmp_path / "cache"
    for number, (place, force) in enumerate((("a", False), ("a", True), ("b", False)), 1):
        folder = tmp_path / place / "steps"
        written(folder, store, attempt("t", *map(store.screen, range(number))), force=force)
        assert len(opened(folder, cache)["train"]) == number


@pytest.mark.parametrize("name", ["steps[0]", "a*b", "a?b", "a::b"])
def test_a_name_that_datasets_would_take_for_a_pattern_is_refused(tmp_path: Path, name: str) -> None:
    for folder in (tmp_path / name, tmp_path / name / "steps"):
        with pytest.raises(ConfigError, match="which `datasets` takes"):
            written(folder, Store())
    assert list(tmp_path.iterdir()) == []


def test_a_time_that_no_calendar_has_is_none_and_the_row_is_read(tmp_path: Path) -> None:
    store = Store()
    task = factories.task("t")
    steps = [factories.step(screenshot=store.screen(1), at=at) for at in (1_000, 253_402_300_800_000, -(2**62))]
    written(tmp_path / "steps", store, factories.trajectory(task, steps))
    assert [row["at"] is None for row in opened(tmp_path / "steps")["train"]] == [False, True, True]


def test_datasets_opens_it_with_a_row_for_each_step_and_its_picture(tmp_path: Path) -> None:
    store = Store()
    screens = [store.screen(number) for number in range(3)]
    told = written(
        tmp_path / "d",
        store,
        attempt("t-0", screens[0], screens[1], screens[1]),
        attempt("v-0", screens[2], split=Split.VALIDATION),
        attempt("t-1"),  # without a step, so without a row
    )
    assert told == f"{tmp_path / 'd'}: 3 records, 3 rows of train, 1 rows of validation"
    found = opened(tmp_path / "d")
    assert {split: len(rows) for split, rows in found.items()} == {"train": 3, "validation": 1}
    rows = list(found["train"])
    assert [(row["task_id"], row["step"], row["action"]) for row in rows] == [("t-0", n, "home") for n in range(3)]
    assert [row[IMAGE].size for row in rows] == [(3, 5)] * 3
    assert [row[IMAGE].getpixel((0, 0)) for row in rows] == [(0, 0, 7), (1, 0, 7), (1, 0, 7)]
    assert json.loads(rows[0]["params"]) == {"item": "shoes"}
    assert rows[0]["at"].timestamp() == 1.0
    assert store.asked == 3, "a screen that is seen twice is fetched once"


@pytest.mark.parametrize("kind", [Trajectory, Evaluation])
def test_its_types_are_those_that_datasets_would_write(kind: type[Record]) -> None:
    made = dataset_schema(schema_of(kind))
    plain = Features.from_arrow_schema(made.remove_metadata())
    expected = Features({**plain, IMAGE: Image()})
    assert json.loads(made.metadata[b"huggingface"]) == json.loads(expected.arrow_schema.metadata[b"huggingface"])
    assert made.remove_metadata().equals(expected.arrow_schema.remove_metadata())


def test_the_card_and_the_manual_name_the_least_version_that_opens_it(tmp_path: Path) -> None:
    store = Store()
    written(tmp_path / "d", store, attempt("t-0", store.screen(0)))
    manual = Path(__file__).parents[2] / "docs" / "offline.md"
    for text in (manual, tmp_path / "d" / "README.md"):
        assert READER in text.read_text(encoding="utf-8")


def test_a_record_with_something_in_every_field_comes_back(tmp_path: Path) -> None:
    store = Store()
    steps = tuple(replace(each, screenshot=store.screen(1)) for each in TRAJECTORY.steps)
    whole = replace(TRAJECTORY, steps=steps)
    evaluation = Evaluation(7, "cd" * 32, "e-1", whole)
    written(tmp_path / "d", store, evaluation, topic="evaluations")
    (row, _) = opened(tmp_path / "d")["validation"]
    assert (row["evaluated_version"], row["version"], row["outcome"]) == (7, 7, "unknown")
    assert row["prompt_ids"] == list(steps[0].prompt_ids)
    assert [each["found"] for each in row["unmet"]] == ["[]", '["käse"]']
    assert (row["touch_x"], row["lift_y"], row["logprob"]) == (0.5, 0.75, -1.5)


def test_a_screenshot_that_is_gone_or_no_image_is_named_and_its_step_stays(tmp_path: Path) -> None:
    store = Store()
    gone, text = ObjectRef("screenshots/gone.png", "0" * 64, 1), store.put(b"no picture")
    told = written(tmp_path / "d", store, attempt("t-0", gone, text, store.screen(1)))
    assert told.endswith("2 screenshots are not in the store, or no images")
    assert [row[IMAGE] is None for row in opened(tmp_path / "d")["train"]] == [True, True, False]
    manifest = json.loads((tmp_path / "d" / "manifest.json").read_text())
    assert manifest["absent_screenshots"] == sorted([gone.key, text.key])


def test_many_rows_are_written_in_parts_and_screens_are_forgotten(tmp_path: Path) -> None:
    store = Store()
    screens = [store.screen(number) for number in range(CACHED + 1)]
    count = ROWS_TOGETHER // len(screens) + 2
    written(tmp_path / "d", store, *[attempt(f"t-{number}", *screens) for number in range(count)])
    found = opened(tmp_path / "d")["train"]
    assert len(found) == count * len(screens)
    assert [row[IMAGE].getpixel((0, 0))[0] for row in found.select(range(len(screens)))] == list(range(len(screens)))


def test_the_same_records_give_the_same_bytes_and_the_manifest_names_each_file(tmp_path: Path) -> None:
    store = Store()
    records = [attempt("t-0", store.screen(0)), attempt("v-0", store.screen(1), split=Split.VALIDATION)]
    for name in ("one", "two"):
        written(tmp_path / name, store, *records)
    files = ["README.md", "data/train.parquet", "data/validation.parquet", "manifest.json"]
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()
    manifest = json.loads((tmp_path / "one" / "manifest.json").read_text())
    assert {name: hashlib.sha256((tmp_path / "one" / name).read_bytes()).hexdigest() for name in manifest["files"]} == {
        name: about["sha256"] for name, about in manifest["files"].items()
    }
    assert sorted(each.name for each in tmp_path.iterdir()) == ["one", "two"]


def test_what_exists_is_refused_and_only_a_dataset_is_written_over(tmp_path: Path) -> None:
    store = Store()
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    for force in (False, True):
        with pytest.raises(ConfigError, match="is no distrl-dataset/1"):
            written(tmp_path / "mine", store, attempt("t-0", store.screen(0)), force=force)
    assert (tmp_path / "mine" / "thesis.txt").exists()
    written(tmp_path / "d", store, attempt("t-0", store.screen(0)))
    with pytest.raises(ConfigError, match="give --force"):
        written(tmp_path / "d", store, attempt("t-0", store.screen(0)))
    written(tmp_path / "d", store, attempt("t-1", store.screen(0), store.screen(1)), force=True)
    assert [row["task_id"] for row in opened(tmp_path / "d")["train"]] == ["t-1", "t-1"]


def test_a_topic_without_steps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tasks: has no screenshots"):
        written(tmp_path / "d", Store(), topic="tasks")


def test_a_store_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    class Away(Store):
        def get(self, ref: ObjectRef) -> bytes:
            raise StoreError("the store", "does not answer", "start it")

    store = Away()
    with pytest.raises(StoreError, match="does not answer"):
        written(tmp_path / "d", store, attempt("t-0", store.screen(0)))
    assert list(tmp_path.iterdir()) == []


def test_a_range_of_nothing_is_a_folder_that_says_so(tmp_path: Path) -> None:
    assert written(tmp_path / "d", Store()).endswith("0 records, no row")
    assert "configs" not in (tmp_path / "d" / "README.md").read_text()
