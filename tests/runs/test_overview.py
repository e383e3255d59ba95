"""Where the objects of a run are, and how old it is, for people."""

from __future__ import annotations

import json

import pytest
from distrl.cli.runs import age
from distrl.config import StoreSettings, load
from distrl.runs import overview
from distrl.runs.overview import _objects, store_named
from distrl.runs.recorded import RecordedSettings
from distrl.types import Settings

HERE = StoreSettings(url="file://here", region="eu")


def recorded(*values: dict[str, object]) -> RecordedSettings:
    return RecordedSettings(
        tuple(
            Settings(
                0, "learner", "p", (), "1", "f", bool(at), {path: json.dumps(value) for path, value in each.items()}
            )
            for at, each in enumerate(values)
        )
    )


THERE: dict[str, object] = {"store.url": "s3s://there/bucket", "store.region": "us"}


def test_the_store_is_the_one_that_the_log_names_else_that_of_here() -> None:
    named = store_named(recorded(THERE), HERE)
    assert (named.url, named.region) == ("s3s://there/bucket", "us")
    assert store_named(None, HERE) == HERE
    assert store_named(recorded({"run": "a"}), HERE) == HERE
    assert store_named(recorded({"store.url": 5}), HERE) == HERE, "anybody may have written it"


def test_a_store_that_is_no_longer_named_is_forgotten_whole() -> None:
    found = recorded(THERE, {"store.url": None})
    assert not {"store.url", "store.region"} & found.values.keys()
    assert store_named(found, HERE) == HERE


@pytest.mark.parametrize(
    ("url", "region"),
    [("s3://minio:99999/distrl", "us-east-1"), ("s3://[x/bucket", "us-east-1"), ("s3://minio:9000/distrl", "a b!")],
)
def test_a_run_whose_log_names_a_store_that_cannot_be_hides_no_other_run(url: str, region: str) -> None:
    named = store_named(recorded({"store.url": url, "store.region": region}), HERE)
    assert _objects("demo", named, [], 0) is None


def test_no_reader_is_made_for_a_topic_without_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes half the time of a look at a run: most of its topics are empty."""
    monkeypatch.setattr(overview, "retained", lambda config, topic: {0: (0, 0), 1: (7, 7)})
    monkeypatch.delattr(overview, "LogReader")
    assert overview._last(load(environ={}), "trajectories") == (0, [])


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(0, "0s"), (59.7, "59s"), (60, "1m"), (90, "1m"), (5_400, "1h"), (129_600, "1d"), (172_800, "2d"), (-5, "0s")],
)
def test_an_age_is_in_whole_units_that_have_passed(seconds: float, shown: str) -> None:
    assert age(seconds) == shown
