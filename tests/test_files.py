"""Files of a command that may run twice at once, in one folder."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from distrl.errors import ConfigError
from distrl.files import write

WRITERS, TIMES, SIZE = 8, 40, 200_000


def test_of_many_who_write_a_file_at_once_none_fails_and_one_wins_whole(tmp_path: Path) -> None:
    file = tmp_path / "arm.json"

    def write_again_and_again(number: int) -> None:
        for _ in range(TIMES):
            write(file, bytes([number]) * SIZE)
            assert len(set(file.read_bytes())) == 1, "half of it is another's"

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write_again_and_again, range(WRITERS)))
    assert len(file.read_bytes()) == SIZE
    assert list(tmp_path.iterdir()) == [file]


def test_what_cannot_be_written_leaves_nothing_beside_it(tmp_path: Path) -> None:
    taken = tmp_path / "report.json"
    taken.mkdir()
    with pytest.raises(ConfigError, match=r"report\.json: cannot be written \(Is a directory\)"):
        write(taken, b"{}")
    assert list(tmp_path.iterdir()) == [taken]
