"""Writes the files of the chart that follow from the program: `make chart`.

Each module beside this one makes files; tests/charts/test_generated.py holds what is committed against what they make.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from pathlib import Path

import readme
import servers
import settings
import values_schema
import watching
from distrl.rights.documents import rights_yaml, topics_yaml

CHART = Path(__file__).parents[1] / "distrl"

FILES: Mapping[str, Callable[[], str]] = {
    "files/defaults.yaml": settings.defaults,
    "files/dashboard.json": watching.dashboard,
    "files/rules.yaml": watching.rules,
    "files/rights.yaml": rights_yaml,
    "files/server.properties": servers.kafka_properties,
    "files/topics.yaml": topics_yaml,
    "values.schema.json": lambda: values_schema.schema(settings.schema()),
    "README.md": lambda: readme.readme((CHART / "values.yaml").read_text()),
}
"""Path in the chart -> what makes the file's text."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=CHART, help="folder to write to; the chart if not given")
    to: Path = parser.parse_args().to
    for path, text in FILES.items():
        file = to / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text())


if __name__ == "__main__":
    main()
