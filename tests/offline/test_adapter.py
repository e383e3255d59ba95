"""Exporting an adapter: what is there is left alone, before any server is asked."""

from __future__ import annotations

from pathlib import Path

import pytest
from distrl.config import load
from distrl.errors import ConfigError
from distrl.offline.adapter import export_adapter


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_model.bin"])
def test_an_adapter_that_is_there_stays_as_it_is(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ConfigError, match="holds an adapter already"):
        export_adapter(load(environ={}), None, tmp_path)
    assert {each.name: each.read_text() for each in tmp_path.iterdir()} == {name: "mine", "adapter_config.json": "{}"}
