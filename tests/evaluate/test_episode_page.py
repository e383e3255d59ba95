"""The page of one episode: what it says, and that nothing in a record can break out of it."""

from __future__ import annotations

import io
import json
import random
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import factories
import pytest
from distrl.errors import StoreError
from distrl.evaluate.curves import FirstFold
from distrl.evaluate.episode_page import (
    HIGH_PX,
    LARGE_BYTES,
    SMALL_PX,
    Episode,
    embedded,
    episode_page,
    page_name,
    staleness,
)
from distrl.evaluate.policies import PolicyId
from distrl.images import ImageError
from distrl.types import (
    PROMPTED,
    SCRIPTED,
    Action,
    ActionKind,
    HeldBack,
    LogPosition,
    ObjectRef,
    Outcome,
    Point,
    Step,
    Trajectory,
    Unmet,
)
from distrl.wire.codec import decode
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from wire.records import drawn
from wire.write_fixtures import FOLDER

from .world import TAP, TYPE, read, screen, task, trajectory, version

VOID = {"meta", "img", "br", "circle", "line", "polygon"}
HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)>\u202e\x1b[2J</pre></style>'
AT = LogPosition("distrl.demo.trajectories", 0, 42)


class Page(HTMLParser):
    """Notes tags, attributes and texts; fails on a tag that is closed wrongly."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def failed(**changes: Any) -> Trajectory:
    actions = [TAP, TYPE, Action(ActionKind.SWIPE, Point(0.5, 0.8), Point(0.5, 0.2)), Action(ActionKind.COMPLETE)]
    made = trajectory(task("t-7"), Outcome.FAILURE, [1, 1, 2, 2], actions, steps_at=[1500, 2500, 3500, 4500])
    why = (Unmet("clock.alarms", "equals", '["8 am"]', "[]"), Unmet("notes.notes", "unchanged", "[]", '["x"]'))
    return replace(made, unmet=why, final_state='{"screen": "clock/face", "data": {}}', **changes)


def episode(played: Trajectory | None = None, **changes: Any) -> Episode:
    made = Episode("demo", "trajectories", AT, played or failed(), [version(n, n) for n in range(4)], FirstFold(9, 6))
    return replace(made, **changes)


def page_of(shown: Episode, get: Any = read) -> Page:
    return Page(episode_page(shown, get))


def test_it_says_what_was_asked_what_failed_and_where_the_record_is() -> None:
    text = page_of(episode()).text
    for said in (
        "turn it on", "home · toggle · test", "failure · judged by ground-truth · wrong goal · 4 of 9 steps",
        'clock.alarms equals ["8 am"] []', 'notes.notes unchanged [] ["x"]', '"screen": "clock/face"',
        "distrl.demo.trajectories , partition 0, offset 42", "t-7", "first by update 9, 5 versions behind",
        "distrl replay --run demo --topic trajectories --partition 0 --from 42 --to 43 --print",
    ):  # fmt: skip
        assert said in text, said


def test_each_step_says_who_chose_it_how_likely_it_was_and_how_stale() -> None:
    """Version n of the world is published at n s."""
    played = failed()
    steps = tuple(replace(step, logprob=-1.0, entropy=0.25) for step in played.steps[:-1])
    steps += (replace(played.steps[-1], logprob=-1.0),)  # of an older record, which does not tell its entropy
    text = page_of(episode(replace(played, steps=steps))).text
    assert text.count("probability 0.368 (log -1.00)") == 4
    assert text.count("entropy 0.25 a token") == 3
    assert [each in text for each in ("version 1, 0 behind", "version 1, 1 behind", "version 2, 1 behind")] == [
        True
    ] * 3
    assert "after 1.5 s" in text


@pytest.mark.parametrize(("at", "behind"), [(900, None), (1000, 0), (2999, 1), (3000, 2), (9000, 2)])
def test_staleness_counts_the_versions_published_until_the_step(at: int, behind: int | None) -> None:
    published = [(1000, 1), (2000, 2), (3000, 3)]
    assert staleness(factories.step(version=1, at=at), published) == behind
    assert staleness(factories.step(version=SCRIPTED, at=at), published) is None


def test_steps_of_scripts_and_agents_have_no_version() -> None:
    played = failed()
    steps = [
        replace(played.steps[0], version=SCRIPTED),
        replace(played.steps[1], version=PROMPTED, version_sha256="ab" * 32),
    ]
    text = page_of(episode(replace(played, steps=tuple(steps)))).text
    assert "chosen by a script or a person" in text
    assert "agent abababababab" in text
    assert "probability unknown" in text


def test_marks_say_what_was_held_back_judged_invalid_or_restless() -> None:
    played = failed()
    changes: list[dict[str, Any]] = [
        {"held_back": HeldBack.UNSENT}, {"held_back": HeldBack.REFUSED, "valid": False}, {"restless": True}, {},
    ]  # fmt: skip
    steps = tuple(replace(step, **change) for step, change in zip(played.steps, changes, strict=True))
    page = page_of(episode(replace(played, steps=steps, final_restless=True)))
    assert page.tags.count("mark") == 5
    for said in ("not sent", "refused by the phone", "judged invalid", "the screen never rested"):
        assert said in page.text


def test_a_screen_that_is_gone_says_so_in_its_frame_and_its_touch_is_drawn_all_the_same() -> None:
    def get(ref: ObjectRef) -> bytes:
        if ref == screen(0):
            raise StoreError(ref.key, "is not in the store", "put it there")
        return b"no picture" if ref == screen(40) else read(ref)

    page = page_of(episode(), get)
    assert page.tags.count("img") == 3
    assert page.tags.count("svg") == 2
    assert "no screenshot: is not in the store" in page.text
    assert "is no PNG image" in page.text


def test_a_failure_without_a_reason_says_that_its_record_has_none() -> None:
    assert "older version" in page_of(episode(replace(failed(), unmet=()))).text
    judged = replace(failed(), unmet=(), reason="the list is empty", outcome_source="vlm:m")
    text = page_of(episode(judged)).text
    assert "the judge the list is empty" in text
    assert "older version" not in text


def test_an_evaluation_says_for_whom_it_counts() -> None:
    shown = episode(topic="evaluations", evaluated=PolicyId(PROMPTED, "ab" * 32), agents={"ab" * 32: "gpt & co"})
    assert "gpt & co" in page_of(shown).text
    assert "version 3" in page_of(episode(evaluated=PolicyId(3, "s"))).text


@pytest.mark.parametrize(
    "record", ["trajectory-v1", "trajectory-v2", "trajectory-v3", "trajectory-v4", "trajectory-v5"]
)
def test_records_of_every_schema_version_have_a_page(record: str) -> None:
    played = decode((FOLDER / f"{record}.bin").read_bytes(), Trajectory)
    text = page_of(episode(played)).text
    assert played.task.instruction in text
    assert ("clock.alarms" in text) is (record in ("trajectory-v4", "trajectory-v5"))


def test_nothing_that_a_record_holds_becomes_markup() -> None:
    quoted = json.dumps({"a": HOSTILE})
    hostile = Action(ActionKind.TYPE, text=HOSTILE)
    step = factories.step(
        hostile, screenshot=ObjectRef(HOSTILE, HOSTILE, 1), action_text=HOSTILE, version_sha256=HOSTILE
    )
    of = replace(
        task(HOSTILE), suite=HOSTILE, family=HOSTILE, instruction=HOSTILE, setup=HOSTILE, params={HOSTILE: HOSTILE}
    )
    played = factories.trajectory(
        of, [step, replace(step, action=Action(ActionKind.INVALID, text=HOSTILE), version=PROMPTED)],
        attempt_id=HOSTILE, worker=HOSTILE, device=HOSTILE, outcome=Outcome.FAILURE, outcome_source=HOSTILE,
        note=HOSTILE, reason=HOSTILE, validity_source=HOSTILE, final_state=quoted,
        unmet=(Unmet(HOSTILE, HOSTILE, HOSTILE, HOSTILE),),
    )  # fmt: skip

    def get(ref: ObjectRef) -> bytes:
        raise StoreError(HOSTILE, HOSTILE, HOSTILE)

    page = page_of(episode(played, agents={HOSTILE: HOSTILE}, evaluated=PolicyId(PROMPTED, HOSTILE)), get)
    plain = page_of(episode())
    assert set(page.tags) <= {*plain.tags, "br"}
    assert not [name for name, _ in page.attributes if name.startswith("on") or name in ("src", "href")]
    assert "<script>alert(1)</script>" in page.text
    assert not set("\u202e\x1b") & set(page.text)


@settings(max_examples=60, deadline=None)
@given(drawn(Trajectory))
def test_any_record_has_a_page_that_is_whole(played: Trajectory) -> None:
    def get(ref: ObjectRef) -> bytes:
        raise StoreError(ref.key, "gone", "")

    page = page_of(episode(played), get)
    assert "script" not in page.tags
    assert page.tags.count("figure") == len(played.steps) + (played.final_screenshot is not None)


@given(st.text(max_size=200), st.integers(0, 9), st.integers(0, 10**12))
def test_the_name_of_a_page_is_one_plain_file_and_differs_between_records(name: str, partition: int, at: int) -> None:
    shown = episode(factories.trajectory(name), position=LogPosition("t", partition, at))
    made = page_name(shown)
    assert made.startswith(f"demo-trajectories-{partition}-{at}-")
    assert "/" not in made
    assert made.isascii()
    assert len(made) < 150
    assert page_name(replace(shown, position=LogPosition("t", partition, at + 1))) != made


@pytest.mark.parametrize(
    ("given", "drawn"),
    [((700, 900), (SMALL_PX, round(900 * SMALL_PX / 700))), ((200, 2 * HIGH_PX), (100, HIGH_PX))],
)
def test_a_large_screenshot_is_drawn_smaller_and_a_small_one_as_it_is(
    given: tuple[int, int], drawn: tuple[int, int]
) -> None:
    noise = Image.frombytes("RGB", given, random.Random(0).randbytes(given[0] * given[1] * 3))
    out = io.BytesIO()
    noise.save(out, "PNG")
    assert len(out.getvalue()) > LARGE_BYTES
    png, size = embedded(out.getvalue())
    assert size == drawn
    assert Image.open(io.BytesIO(png)).size == size
    small = read(screen(3))
    assert embedded(small) == (small, (54, 120))
    tall = io.BytesIO()
    Image.new("1", (1, 900)).save(tall, "PNG")
    for no_screen in (tall.getvalue(), b"\x89PNG\r\n\x1a\n"):
        with pytest.raises(ImageError):
            embedded(no_screen)


def test_a_step_of_a_broken_clock_or_probability_breaks_no_page() -> None:
    odd: Step = replace(failed().steps[0], logprob=float("nan"), at=-(2**62))
    text = page_of(episode(replace(failed(), steps=(odd, replace(odd, logprob=3.0)), started_at=2**62))).text
    assert "log-probability nan" in text
    assert "log-probability 3" in text
