"""Documents of ATIF, validated by the package `atif`: of any record, and with the screens that they name."""

from __future__ import annotations

import hashlib
import io
import json
from pathlib import Path

import atif
import factories
import pytest
from distrl.broker.reader import RawRecord
from distrl.errors import ConfigError
from distrl.offline.atif_folder import AtifFolder, document
from distrl.offline.replay import item_of
from distrl.offline.topic_range import Range, TopicRange
from distrl.store.objects import MissingObjectError
from distrl.types import (
    PROMPTED,
    SCRIPTED,
    Action,
    ActionKind,
    Evaluation,
    LogPosition,
    ObjectRef,
    Point,
    Record,
    Trajectory,
)
from distrl.wire.codec import encode
from hypothesis import given
from PIL import Image
from wire.records import EXAMPLES, drawn


class Store:
    def __init__(self) -> None:
        self._data: dict[str, bytes] = {}

    def screen(self, number: int) -> ObjectRef:
        out = io.BytesIO()
        Image.new("RGB", (3, 5), (number, 0, 7)).save(out, "PNG")
        sha256 = hashlib.sha256(out.getvalue()).hexdigest()
        self._data[sha256] = out.getvalue()
        return ObjectRef(f"screenshots/{sha256}.png", sha256, len(out.getvalue()))

    def get(self, ref: ObjectRef) -> bytes:
        if ref.sha256 not in self._data:
            raise MissingObjectError(ref.key, "is not there", "-")
        return self._data[ref.sha256]


def written(folder: Path, store: Store, *given_: Record, topic: str = "trajectories") -> str:
    with AtifFolder(TopicRange("r", topic, (Range(0, 0, len(given_)),)), folder, store.get) as out:
        for offset, record in enumerate(given_):
            raw = RawRecord(LogPosition(f"distrl.r.{topic}", 0, offset), b"k", encode(record), 0)
            out.put(item_of(raw, type(record)))
        return out.finish()


def read(folder: Path, offset: int) -> atif.Trajectory:
    return atif.Trajectory.model_validate_json((folder / "trajectories" / f"0-{offset}.json").read_text())


@pytest.mark.parametrize("kind", [Trajectory, Evaluation])
def test_any_record_is_a_valid_document(kind: type[Trajectory | Evaluation]) -> None:
    @given(drawn(kind))
    def valid(record: Trajectory | Evaluation) -> None:
        made = document(record, "demo-0", "t/0/1", lambda ref: "../images/a.png")
        assert atif.Trajectory.model_validate_json(json.dumps(made, allow_nan=False)).to_json_dict()

    valid()


def test_a_document_says_what_was_seen_done_and_written(tmp_path: Path) -> None:
    store = Store()
    one, two, last = (store.screen(number) for number in range(3))
    tap = Action(ActionKind.TAP, touch=Point(0.25, 0.5))
    steps = [
        factories.step(
            tap, screenshot=one, prompt_ids=(5, 6), action_ids=(7,), logprob=-0.5, entropy=0.25, version=3, at=1_500
        ),
        factories.step(Action(ActionKind.TYPE, text="käse"), screenshot=two),
    ]
    played = factories.trajectory(factories.task("t-0", instruction="buy cheese"), steps, final_screenshot=last)
    assert written(tmp_path / "a", store, played) == f"{tmp_path / 'a'}: 1 documents of ATIF-v1.7"
    found = read(tmp_path / "a", 0)
    user, first, second = found.steps
    assert [part.text or part.source.path for part in user.message] == ["buy cheese", f"../images/{one.sha256}.png"]
    assert first.timestamp == "1970-01-01T00:00:01.500+00:00"
    assert (first.tool_calls[0].function_name, first.tool_calls[0].arguments) == ("tap", {"touch": [0.25, 0.5]})
    assert first.observation.results[0].content[0].source.path == f"../images/{two.sha256}.png"
    assert second.observation.results[0].content[0].source.path == f"../images/{last.sha256}.png"
    assert second.tool_calls[0].arguments == {"text": "käse"}
    assert (first.metrics.prompt_token_ids, first.metrics.completion_token_ids) == ([5, 6], [7])
    assert (first.metrics.extra, first.extra["version"]) == ({"logprob_sum": -0.5, "entropy_mean": 0.25}, 3)
    assert second.metrics.extra == {"logprob_sum": -1.0}, "its entropy is unknown"
    assert (found.trajectory_id, found.extra["outcome"]) == ("distrl.r.trajectories/0/0", "success")
    for ref in (one, two, last):
        assert (tmp_path / "a" / "images" / f"{ref.sha256}.png").read_bytes() == store.get(ref)


def test_of_a_prompted_agents_action_no_probability_is_known(tmp_path: Path) -> None:
    store = Store()
    step = factories.step(screenshot=store.screen(0), version=PROMPTED, logprob=0.0, action_ids=())
    written(tmp_path / "a", store, factories.trajectory("t-0", [step]))
    (_, made) = read(tmp_path / "a", 0).steps
    assert "logprob_sum" not in (made.metrics.extra or {})


def test_steps_of_a_script_have_no_metrics_of_a_model(tmp_path: Path) -> None:
    store = Store()
    scripted = factories.trajectory("t-0", [factories.step(screenshot=store.screen(0), version=SCRIPTED)])
    written(tmp_path / "a", store, scripted, topic="demonstrations")
    assert (read(tmp_path / "a", 0).steps[1].llm_call_count, read(tmp_path / "a", 0).steps[1].metrics) == (0, None)


def test_a_screen_that_is_gone_is_left_out_and_named(tmp_path: Path) -> None:
    gone = ObjectRef("../../etc/passwd", "../../evil", 1)
    told = written(tmp_path / "a", Store(), factories.trajectory("t-0", [factories.step(screenshot=gone)]))
    assert told.endswith("2 screenshots are not in the store, or no images")
    assert read(tmp_path / "a", 0).steps[1].observation is None
    manifest = json.loads((tmp_path / "a" / "manifest.json").read_text())
    assert (manifest["format"], manifest["documents"]) == ("distrl-atif/1", 1)
    assert gone.key in manifest["absent_screenshots"]
    assert sorted(each.name for each in (tmp_path / "a").iterdir()) == ["manifest.json", "trajectories"]


def test_a_topic_without_steps_and_a_strangers_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="tasks: has no screenshots"):
        written(tmp_path / "a", Store(), EXAMPLES[0], topic="tasks")
    (tmp_path / "a").mkdir()
    with pytest.raises(ConfigError, match="is no distrl-atif/1"):
        written(tmp_path / "a", Store())
