"""The judge: a question in, a verdict out; equal questions of a run are asked once, over all processes."""

from __future__ import annotations

import json
import logging
import math
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from distrl.chat.answer import Message
from distrl.chat.endpoint import Counted, Endpoint, NoAnswerError
from distrl.errors import StoreError
from distrl.judge import validity
from distrl.judge.question import Question, Verdict, name_of, request, short, verdict_of
from distrl.judge.validity import ActionQuestion, Validity, validity_of
from distrl.types import Outcome

log = logging.getLogger(__name__)
V = TypeVar("V", Verdict, Validity)


class VerdictCache(Protocol):
    """Cache of verdicts by name; an object store implements it."""

    def put_named(self, key: str, data: bytes) -> None: ...
    def get_named(self, key: str) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class Form(Generic[V]):
    """One kind of verdict: how to parse a message, and conversion to and from JSON."""

    read: Callable[[Message], V]
    to_json: Callable[[V], Mapping[str, Any]]
    from_json: Callable[[Any], V]


def _known_validity(value: Any) -> Validity:
    if value["valid"] is not None and not isinstance(value["valid"], bool):
        raise ValueError("neither true, false nor null")
    return Validity(value["valid"], short(value["reason"]))


OUTCOME: Final = Form(
    verdict_of,
    lambda verdict: {"outcome": verdict.outcome.value, "reason": verdict.reason},
    lambda value: Verdict(Outcome(value["outcome"]), short(value["reason"])),
)
VALIDITY: Final = Form(validity_of, lambda said: {"valid": said.valid, "reason": said.reason}, _known_validity)


class VlmJudge:
    """Thread-safe. A verdict is cached under the hash of everything that it depends on, including the model's name and
    temperature.

    Missing answers are not cached: the question is asked again next time.
    """

    def __init__(self, endpoint: Endpoint, model: str, cache: VerdictCache, folder: str, pauses_s: float = 0.0) -> None:
        """folder: where `cache` has the verdicts. pauses_s: as in Endpoint.ask; 0 if the caller needs the answer by a
        deadline."""
        self._endpoint, self._model, self._cache, self._folder = endpoint, model, cache, folder
        self._pauses_s = pauses_s
        self._asking: dict[str, tuple[Future[Any], float]] = {}
        """Key -> the verdict that is being asked for, not in the cache yet, and within how many seconds."""
        self._lock = threading.Lock()

    @property
    def source(self) -> str:
        """The source of its verdicts in records."""
        return f"vlm:{self._model}"

    @property
    def counted(self) -> Counted:
        """Its usage so far."""
        return self._endpoint.counted

    def judge(self, question: Question) -> Verdict:
        """Whether a task was done; UNKNOWN if there is no answer in time.

        Raises QuestionRefusedError if the endpoint refuses this question, ChatError if it refuses every one, as with
        wrong credentials.
        """
        try:
            return self.ask(question)
        except NoAnswerError as error:
            log.warning("no verdict: %s", error)
            return Verdict(Outcome.UNKNOWN, f"no answer: {error}")

    def ask(self, question: Question) -> Verdict:
        """As `judge`; raises NoAnswerError if there is no answer in time."""
        return self._answered(OUTCOME, request(question, self._model))

    def valid(self, question: ActionQuestion, within_s: float = math.inf) -> Validity:
        """Whether an action can be done on its screen. within_s: the deadline, if less than judge.timeout_s.

        Raises NoAnswerError if there is no answer in time, QuestionRefusedError if the endpoint refuses this question,
        ChatError if it refuses every one, and ValueError if a screen is not a picture.
        """
        return self._answered(VALIDITY, validity.request(question, self._model), within_s)

    def _answered(self, form: Form[V], body: Mapping[str, Any], within_s: float = math.inf) -> V:
        """The verdict of a question; where another thread is asking it, for as long or longer, what comes of that."""
        within_s = min(within_s, self._endpoint.timeout_s)
        key, mine = f"{self._folder}/{name_of(self._endpoint.request(body))}.json", Future[V]()
        with self._lock:
            theirs, their_s = self._asking.setdefault(key, (mine, within_s))
        if theirs is not mine and their_s < within_s:
            return self._asked(form, key, body, within_s)
        if theirs is not mine:
            try:
                return cast(V, theirs.result(within_s + self._pauses_s))
            except TimeoutError:
                raise NoAnswerError(f"not within {within_s:.3g} s, as another thread's same question") from None
        try:
            verdict = self._asked(form, key, body, within_s)
        except BaseException as error:
            mine.set_exception(error)
            raise
        else:
            mine.set_result(verdict)
            return verdict
        finally:
            with self._lock:
                del self._asking[key]

    def _asked(self, form: Form[V], key: str, body: Mapping[str, Any], within_s: float) -> V:
        known = self._known(form, key)
        if known is not None:
            return known
        message = self._endpoint.ask(body, within_s, self._pauses_s)
        verdict = form.read(message)
        if message.is_whole:
            self._put_cached(key, form.to_json(verdict))
        return verdict

    def _known(self, form: Form[V], key: str) -> V | None:
        try:
            data = self._cache.get_named(key)
            value = json.loads(data) if data is not None else None
            return None if value is None else form.from_json(value)
        except (StoreError, ValueError, KeyError, TypeError, RecursionError) as error:
            log.warning("a cached verdict cannot be read, asking again: %s", error)
            return None

    def _put_cached(self, key: str, value: Mapping[str, Any]) -> None:
        try:
            self._cache.put_named(key, json.dumps(value).encode())
        except StoreError as error:
            log.warning("a verdict could not be cached: %s", error)
