"""The answer of a chat endpoint, as far as it is used here."""

from __future__ import annotations

import json
from typing import Annotated, Any, Final

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

MOST_TOKENS: Final = 10**9
"""Most tokens of one answer; a larger number is not counted."""
FILTERED: Final = "content_filter"
CUT: Final = "length"


def _else(default: object) -> WrapValidator:
    """For counts: an invalid one becomes `default`, and the answer is still accepted."""

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
    """The model's message. Untrusted, and of any type: readers must check its form."""

    content: Any = None
    refusal: Any = None
    is_cut: Annotated[bool, _else(False)] = False
    """Whether a limit of tokens has ended it."""

    @property
    def is_whole(self) -> bool:
        """Whether the answer is complete, also as a refusal: only such an answer is worth caching."""
        return not self.is_cut and bool(self.content or self.refusal)


class ChatChoice(_Read):
    message: Message
    finish_reason: Any = None

    @model_validator(mode="before")
    @classmethod
    def _filtered_without_message(cls, data: Any) -> Any:
        """Gives such a choice an empty message: some endpoints send none if their content filter has ended the
        answer."""
        if isinstance(data, dict) and data.get("finish_reason") == FILTERED and data.get("message") is None:
            return {**data, "message": {}}
        return data


class Completion(_Read):
    choices: tuple[ChatChoice, ...] = Field(min_length=1)
    usage: Annotated[Usage, _else(Usage())] = Usage()

    @property
    def message(self) -> Message:
        """The first choice's message; one ended by the endpoint's content filter is a refusal."""
        first = self.choices[0]
        if first.finish_reason == CUT:
            return first.message.model_copy(update={"is_cut": True})
        if first.finish_reason != FILTERED or first.message.refusal:
            return first.message
        return first.message.model_copy(update={"refusal": "the endpoint's content filter"})


def completion_of(body: bytes) -> Completion:
    """Raises ValueError for bytes that are not a completion."""
    try:
        return Completion.model_validate(json.loads(body))  # pydantic's own parser refuses lone surrogates
    except RecursionError:
        raise ValueError("nested too deeply") from None
