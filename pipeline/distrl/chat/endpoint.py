"""An OpenAI-compatible chat endpoint (OpenAI, Gemini and vLLM offer one), with a rate limit and counted costs.

Transient failures (429, 5xx, a broken connection, a body that is not JSON) are retried after a pause: that of
`Retry-After`, else a random share of 0.5 s, 1 s, 2 s, … Refused credentials, an unknown model, an invalid request or a
redirect raise at once: every further question would fail alike.
"""

from __future__ import annotations

import email.utils
import math
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from tenacity import RetryCallState, Retrying, retry_if_exception_type, wait_exponential

from distrl.chat.answer import Completion, Message, completion_of
from distrl.chat.http import HttpAnswer, HttpClient, UnansweredError
from distrl.config import ChatSettings
from distrl.errors import ChatError

FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
LONGEST_PAUSES_S: Final = 600.0
"""For commands that run unattended: by how many seconds the pauses that an endpoint requests may extend a
question's deadline, in all. If a question were given up in such a pause, so would be the next ones."""
SHOWN: Final = 200
RETRIED: Final = frozenset({408, 409, 425, 429})
OF_THE_QUESTION: Final = frozenset({400, 413, 422})
"""Statuses that may be caused by a single question: too long, too large, or filtered."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Usage so far. seconds: waiting for answers, without pauses. cost: in the currency of the section's price_*."""

    requests: int = 0
    answers: int = 0
    retries: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0
    cost: float = 0.0


class NoAnswerError(Exception):
    """There is no answer: the deadline of the question has passed, or would pass before it could be sent."""


class NoTurnError(NoAnswerError):
    """The rate limit does not allow the question before its deadline: there are more than requests_per_minute."""


class QuestionRefusedError(ChatError):
    """The endpoint refuses the question. If it has answered others, the fault is this question's."""


class _TryAgainError(Exception):
    """A transient failure. pause_s: requested by the endpoint."""

    def __init__(self, why: str, pause_s: float | None = None) -> None:
        super().__init__(why)
        self.pause_s = pause_s


class Endpoint:
    """Thread-safe. section: of `settings`, for messages. clock, sleep: seconds; sleep serves the rate limit and the
    pauses.

    Raises ChatError if no endpoint is configured.
    """

    def __init__(
        self,
        settings: ChatSettings,
        section: str,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        rule: random.Random | None = None,
    ) -> None:
        if settings.endpoint is None:
            raise ChatError(f"{section}.endpoint", "is not set", "set it to the base URL of a chat endpoint")
        self._settings, self._section = settings, section
        self._url = settings.endpoint.rstrip("/") + "/chat/completions"
        self._clock, self._sleep, self._rule = clock, sleep, rule or random.Random()
        self._http = HttpClient()
        self._longest = wait_exponential(multiplier=FIRST_PAUSE_S, max=LONGEST_PAUSE_S)
        self._lock = threading.Lock()
        self._next_start = clock()
        self._counted = Counted()

    @property
    def counted(self) -> Counted:
        with self._lock:
            return self._counted

    @property
    def timeout_s(self) -> float:
        """Deadline of a question that is given none, and the longest of any, without pauses."""
        return self._settings.timeout_s

    def request(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """`body` as it is sent, with the temperature of the settings."""
        return {**body, **temperature(self._settings.temperature)}

    def ask(self, body: Mapping[str, Any], within_s: float = math.inf, pauses_s: float = 0.0) -> Message:
        """The message of the answer to `request(body)`. within_s: the deadline of this question, if less than
        timeout_s. pauses_s: by how much pauses that the endpoint requests (Retry-After) may extend that deadline, in
        all.

        Raises NoAnswerError after that, ChatError for permanent failures.
        """
        body = self.request(body)
        within_s = min(within_s, self._settings.timeout_s)
        deadline = self._clock() + within_s

        def attempt() -> Message:
            nonlocal deadline, pauses_s
            self._sleep_for(self._turn(deadline))
            try:
                return self._message(self._post(body, deadline))
            except _TryAgainError as error:
                if error.pause_s is not None and error.pause_s <= pauses_s:
                    deadline, pauses_s = deadline + error.pause_s, pauses_s - error.pause_s
                raise

        def give_up(state: RetryCallState) -> Message:
            why = _failure(state)
            asked = "" if why.pause_s is None else f", which asks for a pause of {why.pause_s:.0f} s"
            raise NoAnswerError(f"not within {within_s:.3g} s; the last reason was {why}{asked}")

        return Retrying(
            retry=retry_if_exception_type(_TryAgainError),
            wait=self._pause,
            stop=lambda state: self._clock() + state.upcoming_sleep >= deadline,
            sleep=self._sleep_for,
            before_sleep=lambda state: self._count(retries=1),
            retry_error_callback=give_up,
        )(attempt)

    def _post(self, body: Mapping[str, Any], deadline: float) -> HttpAnswer:
        key = self._settings.api_key
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key is not None:
            headers["Authorization"] = f"Bearer {key.get_secret_value()}"
        began = self._clock()
        try:
            return self._http.post(self._url, headers, body, max(0.001, deadline - began))
        except UnansweredError as error:
            raise _TryAgainError(str(error)) from None
        finally:
            spent = self._clock() - began
            self._count(requests=1, seconds=spent, slowest_s=spent)

    def _message(self, answer: HttpAnswer) -> Message:
        """The answer's message; counts its cost. Raises _TryAgainError, ChatError."""
        try:
            completion = completion_of(answer.body) if answer.status == 200 else None
        except ValueError:
            completion = None
        if completion is None:
            self._refuse_for_good(answer)
            pause_s = retry_after(answer.headers.get("retry-after", ""), time.time())
            raise _TryAgainError(f"{answer.status}: {answer.body[:SHOWN]!r}", pause_s)
        self._count_cost(completion)
        return completion.message

    def _count_cost(self, completion: Completion) -> None:
        into, out = completion.usage.prompt_tokens, completion.usage.completion_tokens
        cost = (into * self._settings.price_in + out * self._settings.price_out) / 1e6
        self._count(answers=1, tokens_in=into, tokens_out=out, cost=cost)

    def _refuse_for_good(self, answer: HttpAnswer) -> None:
        if 300 <= answer.status < 400:
            raise ChatError(f"{self._section}.endpoint", *redirected(self._url, answer, f"{self._section}.endpoint"))
        if 400 <= answer.status < 500 and answer.status not in RETRIED:
            reason = answer.body[:SHOWN].decode("utf-8", "replace")
            section = self._section
            kind = QuestionRefusedError if answer.status in OF_THE_QUESTION else ChatError
            hint = f"set {section}.api_key, {section}.model and {section}.endpoint to what the endpoint knows"
            if answer.status in OF_THE_QUESTION and b"temperature" in answer.body.lower():
                hint = f"set {section}.temperature to null, or to one that {section}.model takes"
            raise kind(f"{section}.endpoint", f"{self._url} refuses with {answer.status}: {reason!r}", hint)

    def _turn(self, deadline: float) -> float:
        """Seconds until a request may begin, evenly spaced, at most requests_per_minute.

        Raises NoTurnError if that is too late; nothing is reserved then, as abandoned turns would delay the others
        more and more.
        """
        with self._lock:
            now = self._clock()
            start = max(now, self._next_start)
            if start >= deadline:
                pace = f"{self._settings.requests_per_minute:g} requests a minute"
                raise NoTurnError(f"its turn does not come within its deadline, at {pace}")
            self._next_start = start + 60.0 / self._settings.requests_per_minute
            return start - now

    def _pause(self, state: RetryCallState) -> float:
        asked = _failure(state).pause_s
        return self._rule.uniform(0.0, self._longest(state)) if asked is None else asked

    def _sleep_for(self, seconds: float) -> None:
        if seconds > 0:
            self._sleep(seconds)

    def _count(self, slowest_s: float = 0.0, **more: float) -> None:
        with self._lock:
            now = self._counted
            sums = {name: getattr(now, name) + value for name, value in more.items()}
            self._counted = replace(now, slowest_s=max(now.slowest_s, slowest_s), **sums)


def temperature(chosen: float | None) -> dict[str, float]:
    """The temperature field of a request; no field for None. A whole number is written as one: verdicts are cached
    under the hash of their question, in which the temperature has always been `0`."""
    if chosen is None:
        return {}
    return {"temperature": int(chosen) if float(chosen).is_integer() else chosen}


def redirected(url: str, answer: HttpAnswer, setting: str) -> tuple[str, str]:
    """The error message and the hint for a redirect. It is not followed: the API key would be sent to another
    address."""
    to = answer.headers.get("location")
    return (
        f"{url} answers {answer.status}, a redirect " + ("without a Location" if to is None else f"to {to[:SHOWN]!r}"),
        f"set {setting} to the address of the interface itself (https:// in place of http://, say); redirects are not "
        "followed, since the API key would be sent to another address",
    )


def retry_after(value: str, now: float) -> float | None:
    """Seconds of a `Retry-After` header, a number or a date; None if it is neither. now: epoch seconds."""
    if value.isascii() and value.strip().isdecimal():
        return float(value)
    try:
        at = email.utils.parsedate_to_datetime(value).timestamp()
    except (TypeError, ValueError, IndexError, OverflowError):
        return None
    return max(0.0, at - now)


def _failure(state: RetryCallState) -> _TryAgainError:
    error = state.outcome.exception() if state.outcome is not None else None
    assert isinstance(error, _TryAgainError)
    return error
