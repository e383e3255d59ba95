from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from distrl.chat import http
from distrl.chat.endpoint import Endpoint, NoAnswerError, NoTurnError, retry_after
from distrl.chat.http import HttpClient, UnansweredError
from distrl.config import JudgeSettings
from distrl.errors import ChatError

from chat.server import Reply, Server, body, chat, hangs_up, says, serving, verdict

BODY = {"model": "m", "messages": []}
SLACK_S = 30.0
"""How late after its deadline a question may end on a machine with much other work; without one it would not end."""


class Clock:
    """Seconds that pass only where somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def endpoint(url: str, clock: Clock | None = None, **settings: Any) -> Endpoint:
    made = JudgeSettings(**({"endpoint": url, "model": "m", "requests_per_minute": 60_000} | settings))
    clock = clock or Clock()
    return Endpoint(made, "judge", clock, clock.sleep, random.Random(0))


def test_an_answer_is_given_and_counted() -> None:
    usage = {"prompt_tokens": 1000, "completion_tokens": 50}
    with serving(verdict("success", usage)) as server:
        asked = endpoint(server.url, api_key="s3cret", price_in=2.0, price_out=10.0)
        assert asked.ask(BODY).content.startswith("{")
        counted = asked.counted
    assert server.requests == [BODY | {"temperature": 0}]
    assert server.headers[0]["authorization"] == "Bearer s3cret"
    assert (counted.requests, counted.answers, counted.retries) == (1, 1, 0)
    assert (counted.tokens_in, counted.tokens_out) == (1000, 50)
    assert counted.cost == pytest.approx(0.0025)


@pytest.mark.parametrize(
    "first",
    [
        body(b"slow down", 429),
        body(b"broken", 500),
        body(b"broken", 503),
        body(b"<html>a proxy's page</html>"),
        body(b"{}"),
        body(b'{"choices": []}'),
        body(b'{"choices": [{"message": "text"}]}'),
        body(b"[" * 200_000),
        hangs_up,
    ],
)
def test_what_may_come_right_is_asked_for_again(first: Reply) -> None:
    clock = Clock()
    with serving(first, first, verdict("failure")) as server:
        asked = endpoint(server.url, clock)
        assert "failure" in asked.ask(BODY).content
    assert (len(server.requests), asked.counted.retries) == (3, 2)
    pauses = [pause for pause in clock.slept if pause > 0.01]
    assert len(pauses) <= 2
    assert all(pause <= 1.0 for pause in pauses), "a share of 0.5 s, then of 1 s"


def test_the_endpoints_own_pause_is_kept() -> None:
    clock = Clock()
    with serving(body(b"", 429, {"Retry-After": "7"}), verdict("success")) as server:
        endpoint(server.url, clock).ask(BODY)
    assert 7.0 in clock.slept


def test_a_pause_beyond_the_deadline_is_not_waited_for() -> None:
    clock = Clock()
    with serving(body(b"", 429, {"Retry-After": "3600"})) as server, pytest.raises(NoAnswerError, match="429"):
        endpoint(server.url, clock, timeout_s=30).ask(BODY)
    assert sum(clock.slept) < 1.0
    assert len(server.requests) == 1


def test_who_asks_may_wait_out_the_endpoints_pauses_and_they_are_not_counted() -> None:
    clock, slow = Clock(), body(b"", 429, {"Retry-After": "60"})
    with serving(slow, slow, verdict("success")) as server:
        endpoint(server.url, clock, timeout_s=60).ask(BODY, pauses_s=120.0)
    assert clock.slept.count(60.0) == 2
    with serving(slow, slow, verdict("success")) as server, pytest.raises(NoAnswerError, match="429"):
        endpoint(server.url, clock, timeout_s=60).ask(BODY, pauses_s=119.0)
    assert len(server.requests) == 2


def test_who_asks_may_have_less_time_than_the_endpoint_is_given() -> None:
    clock = Clock()
    with serving(body(b"", 429, {"Retry-After": "25"})) as server, pytest.raises(NoAnswerError, match="within 20 s"):
        endpoint(server.url, clock, timeout_s=30).ask(BODY, within_s=20.0)
    assert sum(clock.slept) < 20.0
    assert len(server.requests) == 1


def test_an_endpoint_that_stays_broken_is_given_up_at_the_deadline() -> None:
    clock = Clock()
    with serving(body(b"", 500)) as server, pytest.raises(NoAnswerError, match="500"):
        endpoint(server.url, clock, timeout_s=30).ask(BODY)
    assert len(server.requests) > 3
    assert sum(clock.slept) < 30.0


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
def test_what_stays_wrong_ends_it_and_says_what_to_set(status: int) -> None:
    with serving(body(b"no such model", status)) as server, pytest.raises(ChatError) as told:
        endpoint(server.url).ask(BODY)
    assert len(server.requests) == 1
    assert str(status) in told.value.what
    assert "judge.api_key" in told.value.hint


@pytest.mark.parametrize(
    ("chosen", "sent"), [(0, "0"), (0.0, "0"), (1.0, "1"), (0.5, "0.5"), (None, None)]
)  # fmt: skip
def test_a_temperature_is_sent_unless_it_is_null(chosen: float | None, sent: str | None) -> None:
    """As whole numbers where they are: the hash of a question that was asked before is the same."""
    with serving(verdict("success")) as server:
        asked = endpoint(server.url, temperature=chosen)
        asked.ask(BODY)
    expected = {} if sent is None else {"temperature": json.loads(sent)}
    assert server.requests == [BODY | expected]
    assert json.dumps(asked.request({})) == json.dumps(expected)


@pytest.mark.parametrize("status", [400, 422])
def test_a_model_that_refuses_the_temperature_is_reported_by_its_setting(status: int) -> None:
    refused = b"Unsupported value: 'temperature' does not support 0 with this model."
    with serving(body(refused, status)) as server, pytest.raises(ChatError) as error:
        endpoint(server.url).ask(BODY)
    assert "judge.temperature to null" in error.value.hint


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_reported_and_the_key_is_not_sent_along(status: int) -> None:
    with serving(verdict("success")) as other, serving(body(b"", status, {"Location": other.url})) as server:
        with pytest.raises(ChatError) as error:
            endpoint(server.url, api_key="s3cret").ask(BODY)
        assert (len(server.requests), other.requests) == (1, [])
    assert error.value.where == "judge.endpoint"
    assert f"answers {status}, a redirect to '{other.url}'" in error.value.what
    assert "judge.endpoint" in error.value.hint


def test_a_redirect_to_nowhere_is_reported() -> None:
    with serving(body(b"", 308)) as server, pytest.raises(ChatError, match="308, a redirect without a Location"):
        endpoint(server.url).ask(BODY)


@pytest.mark.parametrize("how", [lambda server: server.drips, lambda server: server.drips_its_body])
def test_a_byte_at_a_time_does_not_stretch_the_deadline(how: Callable[[Server], Reply]) -> None:
    with serving(hangs_up) as server:
        server.replies[:] = [how(server)]
        settings = JudgeSettings(endpoint=server.url, model="m", timeout_s=0.6, requests_per_minute=60_000)
        began = time.monotonic()
        with pytest.raises(NoAnswerError):
            Endpoint(settings, "judge").ask(BODY)
        assert time.monotonic() - began < 0.6 + SLACK_S


def test_nobody_at_the_address_is_no_answer() -> None:
    with serving(hangs_up) as server:
        gone = server.url
    with pytest.raises(NoAnswerError, match="refused"):
        endpoint(gone, timeout_s=5).ask(BODY)


def test_a_key_that_no_header_can_hold_is_no_answer_and_is_not_shown() -> None:
    with serving(verdict("success")) as server, pytest.raises(NoAnswerError, match="address and key") as refused:
        endpoint(server.url, Clock(), api_key="s3cret”", timeout_s=5).ask(BODY)
    assert "s3cret" not in str(refused.value)
    assert server.requests == []


@pytest.mark.parametrize("message", [{"message": {"content": ""}}, {"message": None}, {}])
def test_a_content_filter_is_a_refusal(message: dict[str, Any]) -> None:
    with serving(body(json.dumps({"choices": [{**message, "finish_reason": "content_filter"}]}).encode())) as server:
        assert endpoint(server.url).ask(BODY).refusal
        assert len(server.requests) == 1


@pytest.mark.parametrize("usage", [{"prompt_tokens": -5, "completion_tokens": True}, "much", {"prompt_tokens": "9"}])
def test_a_usage_that_is_none_counts_nothing(usage: Any) -> None:
    with serving(says("x", usage)) as server:
        asked = endpoint(server.url, price_in=1.0)
        asked.ask(BODY)
    assert (asked.counted.tokens_in, asked.counted.tokens_out, asked.counted.cost) == (0, 0, 0.0)


def test_requests_keep_their_pace() -> None:
    clock = Clock()
    with serving(verdict("success")) as server:
        asked = endpoint(server.url, clock, requests_per_minute=30)
        for _ in range(4):
            asked.ask(BODY)
    assert clock.now - 100.0 == pytest.approx(6.0), "the first at once, the others two seconds apart"


def test_who_finds_no_turn_in_time_takes_none_from_those_who_come_later() -> None:
    clock, waited = Clock(), list[float]()
    with serving(verdict("success")) as server:
        settings = JudgeSettings(endpoint=server.url, model="m", requests_per_minute=6, timeout_s=50)
        asked = Endpoint(settings, "judge", clock, waited.append)  # askers beside each other: no time passes
        for _ in range(5):
            asked.ask(BODY)
        for _ in range(20):
            with pytest.raises(NoTurnError, match="6 requests a minute"):
                asked.ask(BODY)
        assert len(server.requests) == 5
        clock.now += 50.0
        asked.ask(BODY)
    assert waited == [10.0, 20.0, 30.0, 40.0], "the last one at once"


@pytest.mark.parametrize(
    ("said", "seconds"),
    [("3", 3.0), ("Thu, 01 Jan 1970 00:01:40 GMT", 40.0), ("Thu, 01 Jan 1970 00:00:10 GMT", 0.0),
     ("", None), ("soon", None), ("-5", None), ("٣", None)],
)  # fmt: skip
def test_retry_after_is_a_number_or_a_date(said: str, seconds: float | None) -> None:
    assert retry_after(said, now=60.0) == seconds


def test_a_question_that_is_given_up_counts_no_further_retry() -> None:
    """One request, and no time for another."""
    with serving(body(b"slow down", 429, {"Retry-After": "30"})) as server:
        asked = endpoint(server.url, timeout_s=1.0)
        with pytest.raises(NoAnswerError):
            asked.ask(BODY)
    assert (asked.counted.requests, asked.counted.retries) == (1, 0)


def test_no_endpoint_is_reported() -> None:
    with pytest.raises(ChatError, match=r"judge\.endpoint"):
        Endpoint(JudgeSettings(), "judge")


def test_a_connection_is_kept_for_the_next_question_and_made_anew_where_the_server_has_ended_it() -> None:
    def answers_and_ends(to: BaseHTTPRequestHandler) -> None:
        verdict("success")(to)
        to.close_connection = True

    with serving(verdict("success"), answers_and_ends, verdict("success"), keeps=True) as server:
        asked = endpoint(server.url)
        asked.ask(BODY)
        asked.ask(BODY)
        while any(not kept.has_expired() for kept in asked._http._pool.connections):
            time.sleep(0.01)  # the end of a connection comes after the answer
        asked.ask(BODY)
        assert asked.counted.retries == 0
    assert server.ports[0] == server.ports[1] != server.ports[2]


def test_an_answer_without_end_is_not_read_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "LARGEST_ANSWER", 1_000)
    with serving(body(b" " * 1_001)) as server, pytest.raises(NoAnswerError, match="more than 1000 bytes"):
        endpoint(server.url, timeout_s=30).ask(BODY)
    with serving(body(chat({"content": "x"}).ljust(1_000))) as server:
        assert endpoint(server.url).ask(BODY).content == "x"


def test_a_handshake_that_does_not_go_on_ends_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began = time.monotonic()
        with pytest.raises(UnansweredError, match=r"within 0\.3 s"):
            HttpClient().post(f"https://127.0.0.1:{silent.getsockname()[1]}/", {}, {}, 0.3)
    assert time.monotonic() - began < 0.3 + SLACK_S


def test_a_key_that_is_no_header_is_not_repeated() -> None:
    with serving(hangs_up) as server, pytest.raises(UnansweredError, match="address and key") as told:
        HttpClient().post(server.url, {"Authorization": "Bearer s3cret\nmore"}, {}, 5.0)
    assert "s3cret" not in str(told.value)


def test_a_content_filter_that_says_why_is_repeated_and_half_a_character_is_no_error() -> None:
    filtered = body(chat({"content": "", "refusal": "violence"}, finish="content_filter"))
    with serving(filtered, body(b'{"choices": [{"message": {"content": "\\ud800"}}]}')) as server:
        asked = endpoint(server.url)
        assert asked.ask(BODY).refusal == "violence"
        assert asked.ask(BODY).content == "\ud800"
