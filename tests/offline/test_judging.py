"""Judging many trajectories by a real endpoint that refuses some of the questions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import factories
import pytest
from chat.server import Reply, body, serving, verdict
from distrl.chat.endpoint import Endpoint, QuestionRefusedError
from distrl.config import JudgeSettings, StoreSettings
from distrl.errors import ChatError
from distrl.judge.question import Question, Verdict
from distrl.judge.vlm import VlmJudge
from distrl.offline.judging import REFUSED, Judged, judged
from distrl.store.objects import open_store
from distrl.types import LoggedTrajectory, LogPosition, Outcome

PNG = b"\x89PNG"


def logged(count: int) -> list[LoggedTrajectory]:
    def one(number: int) -> LoggedTrajectory:
        task = factories.task(f"task-{number}", instruction=f"set alarm {number}.")
        played = factories.trajectory(task, final_screenshot=factories.SHOT)
        return LoggedTrajectory(LogPosition("trajectories", 0, number), played)

    return [one(number) for number in range(count)]


def refusing(*numbers: int) -> Reply:
    """Answers but for the questions about these."""

    def reply(to: BaseHTTPRequestHandler) -> None:
        asked = json.dumps(to.asked)  # type: ignore[attr-defined]
        refused = any(f"set alarm {number}." in asked for number in numbers)
        (body(b"too long", 400) if refused else verdict("success"))(to)

    return reply


def judgements(
    url: str, folder: Path, count: int, timeout_s: float = 30
) -> tuple[Sequence[Judged], list[Judged | None]]:
    settings = JudgeSettings(endpoint=url, model="m", timeout_s=timeout_s, requests_per_minute=60_000)
    store, done = open_store(StoreSettings(url=f"file://{folder}")), list[Judged | None]()
    judge = VlmJudge(Endpoint(settings, "judge"), "m", store, "verdicts/a-run")
    return judged(logged(count), judge.ask, lambda ref: PNG, done.append), done


@pytest.mark.parametrize("count", [5, 40])
def test_a_question_that_is_refused_by_itself_costs_its_own_verdict(tmp_path: Path, count: int) -> None:
    with serving(refusing(0, 3)) as server:
        found, done = judgements(server.url, tmp_path, count)
    assert [each.logged.position.offset for each in found] == list(range(count))
    unknown = [each.logged.position.offset for each in found if each.verdict.outcome is Outcome.UNKNOWN]
    assert unknown == [0, 3]
    assert len(done) == count
    assert "the endpoint refuses this question" in {each.verdict.reason for each in found}


def test_what_was_answered_before_is_not_asked_again_and_what_was_refused_is(tmp_path: Path) -> None:
    with serving(refusing(0)) as server:
        judgements(server.url, tmp_path, 5)
        asked = len(server.requests)
    with serving(refusing(0)) as server:
        found, _ = judgements(server.url, tmp_path, 5)
        assert (asked, len(server.requests)) == (5, 1)
    assert [each.verdict.outcome for each in found] == [Outcome.UNKNOWN, *[Outcome.SUCCESS] * 4]


def test_one_without_a_last_screenshot_is_unknown_and_nothing_is_asked_about_it() -> None:
    first, second = logged(2)
    blind = replace(first, trajectory=replace(first.trajectory, final_screenshot=None))
    asked, done = list[str](), list[Judged | None]()

    def ask(question: Question) -> Verdict:
        asked.append(question.instruction)
        return Verdict(Outcome.SUCCESS, "it rings")

    found = judged([blind, second], ask, lambda ref: PNG, done.append)
    assert [each.verdict for each in found] == [
        Verdict(Outcome.UNKNOWN, "it has no last screenshot"),
        Verdict(Outcome.SUCCESS, "it rings"),
    ]
    assert (asked, len(done)) == (["set alarm 1."], 2)


@pytest.mark.parametrize("count", [3, 10 * REFUSED])
def test_an_endpoint_that_refuses_every_question_is_an_error_and_is_soon_left_alone(tmp_path: Path, count: int) -> None:
    with serving(body(b"unknown model", 400)) as server:
        with pytest.raises(QuestionRefusedError, match="400"):
            judgements(server.url, tmp_path, count)
        assert len(server.requests) < 2 * REFUSED


@pytest.mark.parametrize("count", [3, 10 * REFUSED])
def test_an_endpoint_that_answers_nothing_in_time_is_an_error_and_is_soon_left_alone(
    tmp_path: Path, count: int
) -> None:
    with serving(body(b"busy", 503)) as server:
        # On a busy machine a question may not be sent in time: "its turn does not come within its deadline".
        with pytest.raises(ChatError, match=r"judge\.endpoint: no answer: .* within "):
            judgements(server.url, tmp_path, count, timeout_s=0.05)
        asked = set(map(str, server.requests))
    assert len(asked) < 2 * REFUSED


def test_a_question_without_an_answer_does_not_count_as_one_that_was_answered(tmp_path: Path) -> None:
    def reply(to: BaseHTTPRequestHandler) -> None:
        is_first = "set alarm 0." in json.dumps(to.asked)  # type: ignore[attr-defined]
        body(b"busy" if is_first else b"too long", 503 if is_first else 400)(to)

    with serving(reply) as server:
        with pytest.raises(ChatError):
            judgements(server.url, tmp_path, 10 * REFUSED, timeout_s=0.05)
        assert len(server.requests) < 10 * REFUSED


def test_wrong_credentials_end_it_at_once(tmp_path: Path) -> None:
    with serving(body(b"who are you", 401)) as server:
        with pytest.raises(ChatError, match="401"):
            judgements(server.url, tmp_path, 100)
        assert len(server.requests) < 20


def test_an_endpoint_that_answers_without_a_verdict_and_refuses_one_question_costs_that_one(tmp_path: Path) -> None:
    def reply(to: BaseHTTPRequestHandler) -> None:
        refused = "set alarm 0." in json.dumps(to.asked)  # type: ignore[attr-defined]
        (body(b"too long", 400) if refused else verdict("perhaps"))(to)

    with serving(reply) as server:
        found, _ = judgements(server.url, tmp_path, 5)
    assert [each.verdict.outcome for each in found] == [Outcome.UNKNOWN] * 5
