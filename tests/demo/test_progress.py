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


def test_the_progress_of_a_run_that_was_removed_does_not_count_for_the_next_one() -> None:
    old = DemoProgress(12.5, 60.0, began=1_000)
    assert old.of(1_000) == old
    assert old.of(2_000) == DemoProgress(began=2_000)
    assert old.of(None) == DemoProgress()
    assert DemoProgress(12.5, 60.0).of(1_000) == old, "it was saved before the run's settings were recorded"


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[1]", '{"minutes": 3}', '{"train_seconds": "60"}', '{"train_seconds": null}',
        '{"train_seconds": NaN}', '{"began": 1.5}',
    ],
)  # fmt: skip
def test_a_progress_file_that_is_none_is_refused_with_a_hint(tmp_path: Path, text: str) -> None:
    file = tmp_path / "demo-0.json"
    file.write_text(text)
    with pytest.raises(ConfigError, match="rm "):
        DemoProgress.load(file)


def test_a_folder_in_place_of_a_progress_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="progress"):
        DemoProgress.load(tmp_path)
