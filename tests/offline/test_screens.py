"""Screenshots for an export, from a store on disk: what a record claims of one is untrusted."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from distrl.config import StoreSettings
from distrl.offline.screens import Screens
from distrl.store.objects import ObjectStore, open_store
from distrl.types import ObjectRef
from PIL import Image


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(StoreSettings(url=f"file://{tmp_path}"))


@pytest.fixture
def good(store: ObjectStore) -> ObjectRef:
    out = io.BytesIO()
    Image.new("RGB", (3, 5)).save(out, "PNG")
    return store.put("screenshots", out.getvalue(), "png")


@pytest.mark.parametrize(
    "wrong", [{"key": "../../etc/passwd"}, {"key": ""}, {"sha256": "../evil"}, {"size": -1}], ids=str
)
def test_a_reference_that_names_no_object_is_absent_and_the_export_goes_on(
    store: ObjectStore, good: ObjectRef, wrong: dict[str, str | int]
) -> None:
    screens, bad = Screens(store.get), replace(good, **wrong)
    assert screens.png(bad) is None
    assert screens.absent == {bad.key}
    assert screens.png(good) == store.get(good)


@pytest.mark.parametrize("wrong", [{"key": "screenshots/other.png"}, {"size": 1}], ids=str)
def test_a_wrong_reference_takes_no_screenshot_from_a_right_one(
    store: ObjectStore, good: ObjectRef, wrong: dict[str, str | int]
) -> None:
    screens = Screens(store.get)
    assert screens.png(replace(good, **wrong)) is None
    assert screens.png(good) == store.get(good)
