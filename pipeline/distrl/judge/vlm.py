"""The judge: a question in, a verdict out; the same question is asked once, by whoever asks it."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from distrl.chat.answer import Message
from distrl.chat.endpoint import Counted, Endpoint, NoAnswerError
from distrl.errors import StoreError
from distrl.judge import validity
from distrl.judge.question import Question, Verdict, name_of, request, verdict_of
from distrl.judge.validity import ActionQuestion, Validity, validity_of
from distrl.types import Outcome

log = logging.getLogger(__name__)
V = TypeVar("V", Verdict, Validity)

FOLDER: Final = "verdicts"


class Kept(Protocol):
    """Where verdicts are kept by name; an object store is one."""

    def put_named(self, key: str, data: bytes) -> None: ...
    def get_named(self, key: str) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class Form(Generic[V]):
    """One kind of verdict: how a message is read, and its way into JSON and back."""

    read: Callable[[Message], V]
    to_json: Callable[[V], Mapping[str, Any]]
    from_json: Callable[[Any], V]


def _known_validity(told: Any) -> Validity:
    if told["valid"] is not None and not isinstance(told["valid"], bool):
        raise ValueError("neither true, false nor null")
    return Validity(told["valid"], str(told["reason"]))


OUTCOME: Final = Form(
    verdict_of,
    lambda verdict: {"outcome": verdict.outcome.value, "reason": verdict.reason},
    lambda told: Verdict(Outcome(told["outcome"]), str(told["reason"])),
)
VALIDITY: Final = Form(validity_of, lambda said: {"valid": said.valid, "reason": said.reason}, _known_validity)


class VlmJudge:
    """Thread-safe. A verdict is kept under the hash of everything that it depends on, the model's name included.

    What nobody could answer is not kept: it may be answered next time.
    """

    def __init__(self, endpoint: Endpoint, model: str, kept: Kept) -> None:
        self._endpoint, self._model, self._kept = endpoint, model, kept

    @property
    def source(self) -> str:
        """What records name as the source of its verdicts."""
        return f"vlm:{self._model}"

    @property
    def counted(self) -> Counted:
        """What it has cost so far."""
        return self._endpoint.counted

    def judge(self, question: Question) -> Verdict:
        """Whether a task was done; UNKNOWN where nobody answers in time.

        Raises ChatError where the endpoint refuses every question, as with wrong credentials.
        """
        try:
            return self._answered(OUTCOME, request(question, self._model))
        except NoAnswerError as error:
            log.warning("no verdict: %s", error)
            return Verdict(Outcome.UNKNOWN, f"no answer: {error}")

    def valid(self, question: ActionQuestion, within_s: float = math.inf) -> Validity:
        """Whether an action can be done on its screen. within_s: for an answer, where it is less than judge.timeout_s.

        Raises NoAnswerError where nobody answers in time, QuestionRefusedError where the endpoint does not take this
        question, ChatError where it refuses every one, and ValueError where a screen is no picture.
        """
        return self._answered(VALIDITY, validity.request(question, self._model), within_s)

    def _answered(self, form: Form[V], body: Mapping[str, Any], within_s: float = math.inf) -> V:
        key = f"{FOLDER}/{name_of(body)}.json"
        known = self._known(form, key)
        if known is not None:
            return known
        verdict = form.read(self._endpoint.ask(body, within_s))
        self._keep(key, form.to_json(verdict))
        return verdict

    def _known(self, form: Form[V], key: str) -> V | None:
        try:
            data = self._kept.get_named(key)
            told = json.loads(data) if data is not None else None
            return None if told is None else form.from_json(told)
        except (StoreError, ValueError, KeyError, TypeError) as error:
            log.warning("a kept verdict cannot be read, so the question is asked again: %s", error)
            return None

    def _keep(self, key: str, told: Mapping[str, Any]) -> None:
        try:
            self._kept.put_named(key, json.dumps(told).encode())
        except StoreError as error:
            log.warning("a verdict is not kept: %s", error)
