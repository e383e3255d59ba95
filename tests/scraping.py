"""A scrape of a process of ours, as Prometheus' own parser reads it."""

from __future__ import annotations

import re
import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families

NAME = re.compile(r"(?<![\w:])(?:\w+:)?distrl_\w+(?::\w+)?")


def named(expression: str) -> set[str]:
    """The series of ours that an expression of PromQL names, recorded ones too."""
    return set(NAME.findall(expression))


Sample = tuple[str, frozenset[tuple[str, str]], float]
"""Name, labels and value."""


def fetched(port: int, path: str, accept: str = "") -> tuple[int, str]:
    """Status and text of a page on loopback."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def samples(port: int) -> list[Sample]:
    status, text = fetched(port, "/metrics")
    assert status == 200, text
    return [
        (sample.name, frozenset(sample.labels.items()), sample.value)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]
