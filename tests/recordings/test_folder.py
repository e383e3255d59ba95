from __future__ import annotations

import contextlib
import gzip
import io
import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from distrl.errors import ConfigError
from distrl.recordings.episode import RESTS, Dataset, RecordedEpisode, Unreadable
from distrl.recordings.example import Features
from distrl.recordings.folder import Found, dataset_of, episodes, files_of, ids_in
from distrl.recordings.tfrecord import masked_crc, records
from distrl.types import Action, ActionKind, Point
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from recording_files import HEIGHT, WIDTH, aitw, android_control, dual_point, example, other, write

CLICK = {"action_type": "click", "x": WIDTH // 2, "y": HEIGHT // 4}
TAP = dual_point((0.25, 0.5))
DONE = other(10)


def read(folder: Path) -> list[Found]:
    files = files_of(folder)
    return list(episodes(files, dataset_of(files)))


def one(folder: Path) -> RecordedEpisode:
    [found] = read(folder)
    assert isinstance(found, RecordedEpisode), found
    return found


def why(folder: Path) -> str:
    [found] = read(folder)
    assert isinstance(found, Unreadable)
    return str(found)


def test_an_episode_of_android_control(tmp_path: Path) -> None:
    actions: Sequence[Mapping[str, Any]] = [
        {"action_type": "open_app", "app_name": "Settings"},
        CLICK,
        {"action_type": "scroll", "direction": "down"},
        {"action_type": "input_text", "text": "Grüße"},
        {"action_type": "navigate_back"},
        {"action_type": "navigate_home"},
        {"action_type": "wait"},
        {"action_type": "long_press", "x": 1, "y": 2},
    ]
    features = android_control(17, actions, "turn  on\nwifi")
    write(tmp_path / "android_control-00000-of-00020", [example(features)])
    (tmp_path / "splits.json").write_text("{}")
    found = one(tmp_path)
    assert (found.dataset, found.episode_id, found.goal) == (Dataset.ANDROID_CONTROL, "17", "turn on wifi")
    assert [step.type for step in found.steps] == [each["action_type"] for each in actions]
    assert [step.action for step in found.steps] == [
        None,
        Action(ActionKind.TAP, Point((WIDTH // 2) / WIDTH, (HEIGHT // 4) / HEIGHT)),
        Action(ActionKind.SWIPE, Point(0.5, 0.8), Point(0.5, 0.2)),
        Action(ActionKind.TYPE, text="Grüße"),
        Action(ActionKind.BACK),
        Action(ActionKind.HOME),
        None,
        None,
    ]
    assert [*(step.png for step in found.steps), found.final] == features["screenshots"]


def test_an_episode_of_aitw_whose_steps_are_in_two_files_and_out_of_order(tmp_path: Path) -> None:
    steps = aitw(
        "8461",
        [TAP, dual_point((0.8, 0.5), (0.2, 0.5)), other(3, "cats"), other(5), other(6), other(7), DONE],
    )
    pictures = [each["image/encoded"][0] for each in steps]
    encoded = [example(each) for each in steps]
    write(tmp_path / "general-00000", [encoded[1], encoded[0], *encoded[2:4]])
    write(tmp_path / "general-00001", encoded[4:])
    found = one(tmp_path)
    assert (found.dataset, found.episode_id, found.final) == (Dataset.AITW, "8461", None)
    assert [step.action for step in found.steps] == [
        Action(ActionKind.TAP, Point(0.5, 0.25)),
        Action(ActionKind.SWIPE, Point(0.5, pytest.approx(0.8)), Point(0.5, pytest.approx(0.2))),
        Action(ActionKind.TYPE, text="cats"),
        Action(ActionKind.BACK),
        Action(ActionKind.HOME),
        Action(ActionKind.ENTER),
        Action(ActionKind.COMPLETE),
    ]
    assert [Image.open(io.BytesIO(step.png)).tobytes() for step in found.steps] == pictures
    assert found.steps[0].boxes == (pytest.approx((0.1, 0.2, 0.05, 0.1)),)


def test_an_impossible_task_has_no_counterpart(tmp_path: Path) -> None:
    write(tmp_path / "single", map(example, aitw("1", [TAP, other(11)])))
    last = one(tmp_path).steps[-1]
    assert (last.type, last.action) == ("STATUS_TASK_IMPOSSIBLE", None)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"actions": ["{"]}, "action 0:"),
        ({"actions": ["[" * 100_000]}, "action 0:"),
        ({"actions": ['{"action_type": "click", "action_type": "wait"}']}, "names a field twice"),
        ({"actions": ['{"action_type": "fly"}']}, "no action is called 'fly'"),
        ({"actions": ['{"action_type": "click", "x": 1e9, "y": 0}']}, "outside a screen"),
        ({"actions": ['{"action_type": "click", "x": NaN, "y": 0}']}, "no number"),
        ({"actions": ['{"action_type": "click", "y": 0}']}, "`x` is None"),
        ({"actions": ['{"action_type": "click", "x": 1' + "0" * 400 + ', "y": 0}']}, "outside a screen"),
        ({"actions": ['{"action_type": "input_text", "text": "a\\ud800b"}']}, "surrogates not allowed"),
        ({"actions": ['{"action_type": "scroll", "direction": ["down"]}']}, "it scrolls"),
        ({"actions": [json.dumps({"action_type": "input_text", "text": "x" * 2001})]}, "no text of at most 2000"),
        ({"actions": [json.dumps(CLICK)] * 2}, "2 actions (1 to 200) and 2 screenshots"),
        ({"actions": []}, "0 actions"),
        ({"screenshots": [b"\x89PNG", b""]}, "screenshot 0 is no PNG"),
        ({"screenshot_widths": [WIDTH, 2**62]}, f"not {2**62} x {HEIGHT}"),
        ({"screenshot_widths": [WIDTH]}, "1 widths"),
        ({"goal": ["a\x1bb"]}, "control or invisible"),
        ({"goal": [" "]}, "its goal has 0 characters"),
        ({"goal": [b"\xff"]}, "`goal` is not UTF-8"),
        ({"goal": ["a", "b"]}, "`goal` has 2 values, not 1"),
        ({"episode_id": ["17"]}, "`episode_id` is a bytes_list, not a int64_list"),
        ({"episode_id": [-1]}, "its episode_id is -1"),
    ],
)
def test_a_spoilt_episode_of_android_control_is_skipped_and_the_next_is_read(
    tmp_path: Path, changed: Mapping[str, Sequence[Any]], said: str
) -> None:
    spoilt = android_control(1, [CLICK]) | changed
    write(tmp_path / "file", [example(spoilt), example(android_control(2, [CLICK]))])
    passed, kept = read(tmp_path)
    assert isinstance(passed, Unreadable)
    assert passed.where == "file, record 0"
    assert said in passed.why
    assert isinstance(kept, RecordedEpisode)
    assert kept.episode_id == "2"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"image/width": [WIDTH + 1]}, "are no RGB picture"),
        ({"image/width": [2**40], "image/height": [2**40]}, "are no RGB picture"),
        ({"image/channels": [4]}, "are no RGB picture"),
        ({"image/encoded": []}, "has 0 values"),
        ({"results/action_type": [9]}, "no action has the type 9"),
        ({"results/yx_touch": [0.5]}, "`results/yx_touch` is no (y, x)"),
        ({"results/yx_lift": [float("nan"), 0.5]}, "`results/yx_lift` is no (y, x)"),
        ({"image/ui_annotations_positions": [0.5] * 5}, "has 5 numbers"),
        ({"image/ui_annotations_positions": [0.5] * 4004}, "has 4004 numbers"),
        ({"episode_length": [10**12]}, "1 to 200"),
        ({"episode_length": [3]}, "it has 2 of its 3 steps"),
        ({"step_id": [0]}, "one of them twice"),
        ({"step_id": [-1]}, "it is step -1 of 2"),
    ],
)
def test_a_spoilt_episode_of_aitw_is_skipped_and_the_next_is_read(
    tmp_path: Path, changed: Mapping[str, Sequence[Any]], said: str
) -> None:
    steps = [*(step | changed for step in aitw("1", [TAP, TAP])), *aitw("2", [TAP, DONE])]
    write(tmp_path / "file", map(example, steps))
    passed, kept = read(tmp_path)
    assert isinstance(passed, Unreadable)
    assert passed.where == "file, record 0"
    assert said in passed.why
    assert isinstance(kept, RecordedEpisode)
    assert kept.episode_id == "2"


@pytest.mark.parametrize("name", [name for name in aitw("1", [TAP])[0] if not name.startswith(("android", "image/ui"))])
def test_a_missing_feature_is_named(tmp_path: Path, name: str) -> None:
    features = aitw("1", [TAP | other(3, "x") if name == "results/type_action" else TAP])[0]
    del features[name]
    write(tmp_path / "file", [example(features)])
    [found] = episodes(files_of(tmp_path), Dataset.AITW)
    assert isinstance(found, Unreadable)
    assert f"no feature `{name}`" in found.why


def test_a_file_that_is_cut_off_loses_its_end_alone(tmp_path: Path) -> None:
    """What was decompressed ahead of the cut is lost with it, so the second record is longer than that."""
    noise = {"accessibility_trees": [random.Random(0).randbytes(400_000)]}
    whole = write(tmp_path / "a", [example(android_control(number, [CLICK]) | noise) for number in (1, 2)])
    whole.write_bytes(whole.read_bytes()[:-400])
    write(tmp_path / "b", [example(android_control(3, [CLICK]))])
    first, passed, last = read(tmp_path)
    assert isinstance(first, RecordedEpisode)
    assert str(passed).startswith("a, record 1: ")
    assert "fetch it again" in str(passed)
    assert isinstance(last, RecordedEpisode)
    assert (first.episode_id, last.episode_id) == ("1", "3")
    assert isinstance(passed, Unreadable)
    assert passed.what == RESTS, "which may hold any number of episodes"


@given(st.binary(max_size=200), st.integers(0, 10**6), st.integers(1, 255))
@settings(max_examples=60, deadline=None)
def test_no_flipped_byte_goes_unnoticed(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, at: int, by: int
) -> None:
    path = tmp_path_factory.mktemp("flip") / "file"
    raw = bytearray(gzip.decompress(write(path, [data]).read_bytes()))
    assert list(records(path)) == [data]
    raw[at % len(raw)] ^= by
    path.write_bytes(gzip.compress(raw))
    with pytest.raises(ValueError, match=r"CRC|cut off|bytes, more than"):
        list(records(path))


def test_a_length_that_would_take_all_memory_is_refused_although_its_crc_is_right(tmp_path: Path) -> None:
    length = (2**40).to_bytes(8, "little")
    (tmp_path / "file").write_bytes(gzip.compress(length + masked_crc(length).to_bytes(4, "little")))
    with pytest.raises(ValueError, match="more than"):
        list(records(tmp_path / "file"))


def test_an_example_is_read_as_the_wire_format_says() -> None:
    """By hand: features { feature { key: "n" value { int64_list { value: [5, 300] } } } }."""
    feature = bytes([0x1A, 5, 0x0A, 3, 5, 0xAC, 2])
    entry = bytes([0x0A, 1]) + b"n" + bytes([0x12, len(feature)]) + feature
    features = bytes([0x0A, len(entry)]) + entry
    assert list(Features(bytes([0x0A, len(features)]) + features).integers("n")) == [5, 300]


@given(st.binary(max_size=60))
def test_any_bytes_are_an_example_or_refused(data: bytes) -> None:
    with contextlib.suppress(ValueError):
        Features(data).integers("n")


def test_ids_of_episodes_are_read_one_a_line_and_what_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "test.txt"
    path.write_text("7\n\n 12 \r\nab_c.d-3\n7\n")
    assert ids_in(path) == {"7", "12", "ab_c.d-3"}
    for text, why in (
        ("7\n[1, 2]\n", r"line 2: '\[1, 2\]' is no id of an episode"),
        ("7, 8", "line 1"),
        ("\n", "names no episode"),
        (b"\xff", "is no text"),
    ):
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(ConfigError, match=rf"^--without: .*{why}"):
            ids_in(path)
    with pytest.raises(ConfigError, match="No such file"):
        ids_in(tmp_path / "absent")


def test_a_folder_without_files_or_of_another_format_is_refused(tmp_path: Path) -> None:
    for folder in (tmp_path / "absent", tmp_path):
        with pytest.raises(ConfigError, match="--episodes"):
            files_of(folder)
    write(tmp_path / "file", [example({"label": [1]})])
    with pytest.raises(ConfigError, match="of no data set known here"):
        read(tmp_path)
    (tmp_path / "file").write_bytes(gzip.compress(b"x" * 30))
    with pytest.raises(ConfigError, match="the CRC of its length is wrong"):
        read(tmp_path)
