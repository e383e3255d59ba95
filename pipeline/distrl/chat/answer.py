"""What a chat endpoint answers, as far as anybody here reads it."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

MOST_TOKENS: Final = 10**9
"""Of one answer; what claims more counts nothing."""
FILTERED: Final = "content_filter"


def _else(default: object) -> WrapValidator:
    """For what is counted: nonsense is `default`, and the answer that it came with is taken all the same."""

    def validated(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except ValidationError:
            return default

    return WrapValidator(validated)


class _Read(BaseModel):
    model_config = ConfigDict(frozen=True)


Count = Annotated[int, Field(strict=True, ge=0, lt=MOST_TOKENS), _else(0)]


class Usage(_Read):
    prompt_tokens: Count = 0
    completion_tokens: Count = 0


class Message(_Read):
    """What the model says. Untrusted, and of any type: who reads it takes what is of the form that was asked for."""

    content: Any = None
    refusal: Any = None


class Choice(_Read):
    message: Message
    finish_reason: Any = None


class Completion(_Read):
    choices: tuple[Choice, ...] = Field(min_length=1)
    usage: Annotated[Usage, _else(Usage())] = Usage()

    @property
    def message(self) -> Message:
        """The first choice's; one that the endpoint's filter has ended is a refusal."""
        first = self.choices[0]
        if first.finish_reason != FILTERED or first.message.refusal:
            return first.message
        return first.message.model_copy(update={"refusal": "the endpoint's content filter"})


def completion_of(body: bytes) -> Completion:
    """Raises ValueError for bytes that are no completion."""
    try:
        return Completion.model_validate(json.loads(body))  # pydantic's own parser refuses half a surrogate pair
    except RecursionError:
        raise ValueError("nested too deeply") from None
