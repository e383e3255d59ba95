from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from chat.server import body, says, serving, validity, verdict
from distrl.chat.endpoint import Endpoint, NoAnswerError
from distrl.config import JudgeSettings, StoreSettings
from distrl.errors import ChatError, StoreError
from distrl.judge.question import Question, Verdict, name_of, request
from distrl.judge.validity import ActionQuestion, Validity
from distrl.judge.vlm import VlmJudge
from distrl.store.objects import ObjectStore, open_store
from distrl.types import Outcome

from judge.test_validity import AFTER, BEFORE, SWIPE, TAP

QUESTION = Question("set an alarm", b"\x89PNG", ("tap",))
OF_ACTION = ActionQuestion(TAP, BEFORE, AFTER)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return open_store(StoreSettings(url=f"file://{tmp_path}"))


def judge(url: str, store: ObjectStore, model: str = "m") -> VlmJudge:
    settings = JudgeSettings(endpoint=url, model=model, timeout_s=30, requests_per_minute=60_000)
    return VlmJudge(Endpoint(settings, "judge"), model, store, "verdicts/a-run")


def test_a_question_is_asked_once_by_whoever_asks_it(store: ObjectStore) -> None:
    with serving(verdict("success")) as server:
        asked = [judge(server.url, store).judge(QUESTION) for _ in range(3)]
        assert asked == [Verdict(Outcome.SUCCESS, "because")] * 3
        assert len(server.requests) == 1
        judge(server.url, store, "another").judge(QUESTION)
        assert len(server.requests) == 2


def test_another_temperature_is_another_question_and_the_default_is_the_one_it_was(store: ObjectStore) -> None:
    with serving(verdict("success")) as server:
        for chosen in (0.0, 1.0, None, 0):
            settings = JudgeSettings(endpoint=server.url, model="m", requests_per_minute=60_000, temperature=chosen)
            VlmJudge(Endpoint(settings, "judge"), "m", store, "verdicts/a-run").judge(QUESTION)
        assert len(server.requests) == 3
    names = {key.rpartition("/")[2] for key in store.list("verdicts/a-run/")}
    assert f"{name_of({**request(QUESTION, 'm'), 'temperature': 0})}.json" in names


def test_an_answer_that_is_no_verdict_is_kept_as_none(store: ObjectStore) -> None:
    with serving(says("I think that it worked!"), verdict("success")) as server:
        assert judge(server.url, store).judge(QUESTION).outcome is Outcome.UNKNOWN
        assert judge(server.url, store).judge(QUESTION).outcome is Outcome.UNKNOWN
        assert len(server.requests) == 1, "the model has said what it says"


@pytest.mark.parametrize(
    "choice",
    [
        {"message": {"content": None, "reasoning_content": "First I look at"}, "finish_reason": "length"},
        {"message": {"content": '{"outcome": "success", "rea'}, "finish_reason": "length"},
        {"message": {"content": None, "reasoning_content": "It is done."}, "finish_reason": "stop"},
        {"message": {"content": ""}, "finish_reason": "stop"},
    ],
)
def test_an_answer_that_a_limit_has_cut_off_or_that_says_nothing_is_not_kept(
    store: ObjectStore, choice: dict[str, object]
) -> None:
    with serving(body(json.dumps({"choices": [choice]}).encode()), verdict("success")) as server:
        assert judge(server.url, store).judge(QUESTION).outcome is Outcome.UNKNOWN
        assert judge(server.url, store).judge(QUESTION).outcome is Outcome.SUCCESS


def test_no_answer_is_unknown_and_is_asked_for_again_next_time(store: ObjectStore) -> None:
    with serving(body(b"", 429, {"Retry-After": "60"}), verdict("failure")) as server:
        assert judge(server.url, store).judge(QUESTION).outcome is Outcome.UNKNOWN
        assert judge(server.url, store).judge(QUESTION).outcome is Outcome.FAILURE


def test_a_kept_verdict_that_cannot_be_read_is_asked_for_again(store: ObjectStore) -> None:
    with serving(verdict("success")) as server:
        judge(server.url, store).judge(QUESTION)
        (key,) = store.list("verdicts/a-run/")
        for garbage in (b"", b"{}", b"[]", json.dumps({"outcome": "odd", "reason": ""}).encode()):
            store.put_named(key, garbage)
            assert judge(server.url, store).judge(QUESTION).outcome is Outcome.SUCCESS


def test_a_store_that_is_away_costs_a_question_and_no_verdict(store: ObjectStore) -> None:
    class Away:
        def put_named(self, key: str, data: bytes) -> None:
            raise StoreError(key, "is away", "wait")

        def get_named(self, key: str) -> bytes | None:
            raise StoreError(key, "is away", "wait")

    with serving(verdict("success")) as server:
        settings = JudgeSettings(endpoint=server.url, model="m")
        assert (
            VlmJudge(Endpoint(settings, "judge"), "m", Away(), "verdicts/a-run").judge(QUESTION).outcome
            is Outcome.SUCCESS
        )


def test_wrong_credentials_are_reported_and_not_taken_for_a_verdict(store: ObjectStore) -> None:
    with serving(body(b"who are you", 401)) as server, pytest.raises(ChatError, match="401"):
        judge(server.url, store).judge(QUESTION)
    assert list(store.list("verdicts/a-run/")) == []


def test_an_action_is_asked_about_once_by_whoever_asks(store: ObjectStore) -> None:
    with serving(validity(False), validity(True)) as server:
        said = [judge(server.url, store).valid(OF_ACTION) for _ in range(3)]
        assert said == [Validity(False, "because")] * 3
        assert len(server.requests) == 1
        assert judge(server.url, store).valid(ActionQuestion(SWIPE, BEFORE, AFTER)).valid is True
        assert len(server.requests) == 2


def test_of_an_action_nothing_is_kept_where_nobody_answers_and_null_where_the_answer_is_none(
    store: ObjectStore,
) -> None:
    with serving(body(b"", 429, {"Retry-After": "60"}), says("It looks valid."), validity(False)) as server:
        with pytest.raises(NoAnswerError):
            judge(server.url, store).valid(OF_ACTION)
        assert list(store.list("verdicts/a-run/")) == []
        assert [judge(server.url, store).valid(OF_ACTION).valid for _ in range(2)] == [None, None]
        assert len(server.requests) == 2, "the model has said what it says"


def test_a_kept_validity_that_cannot_be_read_is_asked_for_again(store: ObjectStore) -> None:
    with serving(validity(False)) as server:
        judge(server.url, store).valid(OF_ACTION)
        (key,) = store.list("verdicts/a-run/")
        for garbage in (b"", b"{}", b"[]", b'{"valid": 0, "reason": ""}', b'{"valid": "no", "reason": ""}'):
            store.put_named(key, garbage)
            assert judge(server.url, store).valid(OF_ACTION).valid is False
        assert len(server.requests) == 6


def test_what_both_kinds_of_questions_cost_is_counted_together(store: ObjectStore) -> None:
    usage = {"prompt_tokens": 10, "completion_tokens": 1}
    with serving(verdict("success", usage), validity(True, usage)) as server:
        one = judge(server.url, store)
        one.judge(QUESTION)
        one.valid(OF_ACTION)
        one.valid(OF_ACTION)
        assert (one.counted.requests, one.counted.tokens_in, one.counted.tokens_out) == (2, 20, 2)


def test_an_equal_question_of_another_thread_is_not_asked_while_the_first_one_is(store: ObjectStore) -> None:
    """As of a group of episodes that all ended on one screen."""
    begun, may_answer = threading.Event(), threading.Event()

    def slowly(to: BaseHTTPRequestHandler) -> None:
        begun.set()
        may_answer.wait(30)
        validity(False)(to)

    with serving(slowly) as server, ThreadPoolExecutor(4) as threads:
        asked = judge(server.url, store)
        first = threads.submit(asked.valid, OF_ACTION, 20.0)
        assert begun.wait(30)
        others = [threads.submit(asked.valid, OF_ACTION, 20.0) for _ in range(2)]
        with pytest.raises(NoAnswerError, match="another thread"):
            asked.valid(OF_ACTION, 0.05)
        may_answer.set()
        assert [each.result(30) for each in (first, *others)] == [Validity(False, "because")] * 3
        assert len(server.requests) == 1


def test_a_question_that_was_refused_is_asked_again(store: ObjectStore) -> None:
    with serving(body(b"no such key", 401), verdict("success")) as server:
        asked = judge(server.url, store)
        with pytest.raises(ChatError):
            asked.judge(QUESTION)
        assert asked.judge(QUESTION).outcome is Outcome.SUCCESS
