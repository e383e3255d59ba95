"""A range of trajectories as a folder that Hugging Face `datasets` opens: a row per step, with its screenshot.

    README.md              the dataset card: which files are which split
    data/SPLIT.parquet     the columns of `offline/columns.py`, and `image`; a file for each split of the tasks
    manifest.json          what it was made from, and the sha256 of each file

The package itself is not needed to write it: an image is a struct of bytes and path, and the schema's metadata says so
(https://huggingface.co/docs/datasets/about_dataset_features). A folder is written under a temporary name and renamed,
so one that is there is whole. The same range gives the same bytes, with the same version of pyarrow.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow import parquet

from distrl.broker.topics import TOPICS
from distrl.errors import ConfigError
from distrl.offline.columns import Row, rows_of, schema_of
from distrl.offline.episode_folder import EpisodeFolder
from distrl.offline.new_folder import FolderFormat
from distrl.offline.replay import Item
from distrl.offline.screens import Fetch
from distrl.offline.topic_range import TopicRange
from distrl.types import Evaluation, ObjectRef, Split, Trajectory

FORMAT: Final = FolderFormat(
    "distrl-dataset/1", re.compile(rf"README\.md|data/({'|'.join(split.value for split in Split)})\.parquet")
)
GLOB: Final = re.compile(r"[*?\[\]]|::")
IMAGE: Final = "image"
READER: Final = "datasets>=4.0"
"""What opens it: earlier versions do not know the feature type `List`."""
ROWS_TOGETHER: Final = 128
"""Rows of a row group, or some more, since a record's rows stay together: a screenshot has tens of kilobytes."""


class DatasetFolder(EpisodeFolder):
    """See the module."""

    form = FORMAT

    def __init__(self, topic_range: TopicRange, folder: Path, fetch: Fetch, force: bool = False) -> None:
        if found := GLOB.search(str(folder.resolve())):
            raise ConfigError(
                str(folder),
                f"has {found[0]!r} in its whole path, which `datasets` takes for a pattern or a protocol",
                "name a folder without it",
            )
        super().__init__(topic_range, folder, fetch, force)
        self._schema = dataset_schema(schema_of(TOPICS[topic_range.topic].record))
        self._files: dict[Split, _Rows] = {}

    def _put(self, item: Item) -> None:
        record = item.record.trajectory if isinstance(item.record, Evaluation) else item.record
        if not isinstance(record, Trajectory):
            return
        rows = self._of(record.task.split)
        for step, row in zip(record.steps, rows_of(item), strict=True):
            rows.put({**row, "params": _params(record), IMAGE: self._image(step.screenshot)})
        rows.end_record()

    def _finish(self) -> dict[str, Any]:
        for each in self._files.values():
            each.close()
        files = {
            f"data/{each.path.name}": {"rows": each.rows, "sha256": _sha256(each.path)} for each in self._files.values()
        }
        (self._folder.partial / "README.md").write_text(self._card(files), encoding="utf-8")
        return {
            "files": files,
            "written_by": {name: installed(name) for name in ("distrl", "pyarrow")},
        }

    def _summary(self) -> str:
        rows = ", ".join(f"{each.rows} rows of {split.value}" for split, each in self._files.items()) or "no row"
        return f"{self._digest.records} records, {rows}"

    def _of(self, split: Split) -> _Rows:
        if split not in self._files:
            data = self._folder.partial / "data"
            data.mkdir(exist_ok=True)
            self._files[split] = _Rows(data / f"{split.value}.parquet", self._schema)
        return self._files[split]

    def _image(self, ref: ObjectRef) -> Mapping[str, Any] | None:
        """None for a screenshot that the store has no more, or that is no image: the step is one all the same."""
        png = self._screens.png(ref)
        return None if png is None else {"bytes": png, "path": f"{ref.sha256}.png"}

    def _card(self, files: Mapping[str, Any]) -> str:
        splits = "".join(
            f"  - split: {split.value}\n    path: data/{split.value}.parquet\n"
            for split in Split
            if split in self._files
        )
        rows = sum(each.rows for each in self._files.values())
        # `datasets` knows what it has read before by the folder's name and this: without a word of the content, another
        # folder of that name would be read as the first one.
        content = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
        named = f"configs:\n- config_name: default\n  description: sha256 {content}\n  data_files:\n{splits}"
        return (
            f"---\n{named if splits else ''}tags:\n- gui-agent\n- reinforcement-learning\n---\n\n"
            f"# Steps of {self._range.name}\n\n"
            f"{rows} steps of a phone agent, recorded by DistRL on Kafka: a row each, with the screen that was seen "
            "(`image`), the action, its log-probability under the policy that chose it, and what of the attempt it "
            "is of (`task_id`, `instruction`, `outcome`, …). `params` is JSON; points are in [0, 1], times in UTC. "
            f'To open it: `pip install "{READER}"`.\n'
        )


class _Rows:
    """One Parquet file of a split."""

    def __init__(self, path: Path, schema: pa.Schema) -> None:
        self.path, self.rows = path, 0
        self._schema, self._pending = schema, list[Row]()
        self._writer = parquet.ParquetWriter(path, schema, compression="zstd")

    def put(self, row: Row) -> None:
        self._pending.append(row)
        self.rows += 1

    def end_record(self) -> None:
        if len(self._pending) >= ROWS_TOGETHER:
            self._write()

    def close(self) -> None:
        self._write()
        self._writer.close()

    def _write(self) -> None:
        if self._pending:
            self._writer.write_table(pa.Table.from_pylist(self._pending, schema=self._schema))
            self._pending = []


def dataset_schema(columns: pa.Schema) -> pa.Schema:
    """`columns` with the image of a step, and what `datasets` reads of their types; it has no maps, so `params` is
    JSON."""
    fields = [pa.field(each.name, pa.string()) if pa.types.is_map(each.type) else each for each in columns]
    schema = pa.schema([*fields, pa.field(IMAGE, pa.struct({"bytes": pa.binary(), "path": pa.string()}))])
    features = {each.name: _feature(each.type) for each in fields} | {IMAGE: {"_type": "Image"}}
    return schema.with_metadata({"huggingface": json.dumps({"info": {"features": features}})})


def _feature(kind: pa.DataType) -> dict[str, Any]:
    """How `datasets` writes a type."""
    if pa.types.is_struct(kind):
        return {each.name: _feature(each.type) for each in kind}
    if pa.types.is_list(kind):
        return {"feature": _feature(kind.value_type), "_type": "List"}
    return {"dtype": "float64" if pa.types.is_float64(kind) else str(kind), "_type": "Value"}


def _params(record: Trajectory) -> str:
    return json.dumps(dict(record.task.params), sort_keys=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as whole:
        return hashlib.file_digest(whole, "sha256").hexdigest()
