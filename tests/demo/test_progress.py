from pathlib import Path

import pytest
from distrl.demo.progress import DemoProgress
from distrl.errors import ConfigError


def test_a_run_without_a_progress_file_starts_from_zero_and_goes_on_from_what_was_saved(tmp_path: Path) -> None:
    file = tmp_path / "runs" / "demo-0.json"
    assert DemoProgress.load(file) == DemoProgress()
    DemoProgress(12.5, 60.0).save(file)
    assert DemoProgress.load(file) == DemoProgress(12.5, 60.0)
    assert [path.name for path in file.parent.iterdir()] == ["demo-0.json"]


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"minutes": 3}'])
def test_a_progress_file_that_is_none_is_refused_with_a_hint(tmp_path: Path, text: str) -> None:
    file = tmp_path / "demo-0.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match="rm "):
        DemoProgress.load(file)
