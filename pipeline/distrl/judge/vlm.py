"""The judge: a question in, a verdict out; the same question is asked once, by whoever asks it."""

from __future__ import annotations

import json
import logging
from typing import Final, Protocol

from distrl.errors import StoreError
from distrl.judge.endpoint import Endpoint, NoAnswerError
from distrl.judge.question import Question, Verdict, name_of, request, verdict_of
from distrl.types import Outcome

log = logging.getLogger(__name__)

FOLDER: Final = "verdicts"


class Kept(Protocol):
    """Where verdicts are kept by name; an object store is one."""

    def put_named(self, key: str, data: bytes) -> None: ...
    def get_named(self, key: str) -> bytes | None: ...


class VlmJudge:
    """Thread-safe. A verdict is kept under the hash of everything that it depends on, the model's name included.

    What nobody could answer is UNKNOWN and is not kept: it may be answered next time.
    """

    def __init__(self, endpoint: Endpoint, model: str, kept: Kept) -> None:
        self._endpoint, self._model, self._kept = endpoint, model, kept

    @property
    def source(self) -> str:
        """What records name as the source of its verdicts."""
        return f"vlm:{self._model}"

    def judge(self, question: Question) -> Verdict:
        """Raises JudgeError where the endpoint refuses every question, as with wrong credentials."""
        body = request(question, self._model)
        key = f"{FOLDER}/{name_of(body)}.json"
        known = self._known(key)
        if known is not None:
            return known
        try:
            message = self._endpoint.ask(body)
        except NoAnswerError as error:
            log.warning("no verdict: %s", error)
            return Verdict(Outcome.UNKNOWN, f"no answer: {error}")
        verdict = verdict_of(message)
        self._keep(key, verdict)
        return verdict

    def _known(self, key: str) -> Verdict | None:
        try:
            data = self._kept.get_named(key)
            told = json.loads(data) if data is not None else None
            return None if told is None else Verdict(Outcome(told["outcome"]), str(told["reason"]))
        except (StoreError, ValueError, KeyError, TypeError) as error:
            log.warning("a kept verdict cannot be read, so the question is asked again: %s", error)
            return None

    def _keep(self, key: str, verdict: Verdict) -> None:
        try:
            told = {"outcome": verdict.outcome.value, "reason": verdict.reason}
            self._kept.put_named(key, json.dumps(told).encode())
        except StoreError as error:
            log.warning("a verdict is not kept: %s", error)
