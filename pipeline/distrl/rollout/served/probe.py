"""Tests how a server answers under an adapter's name, before the first decision is requested."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Final

from PIL import Image

from distrl.errors import ConfigError, PolicyError
from distrl.policy.vlm.chat import ChatForm
from distrl.policy.vlm.processor import PROBE
from distrl.rollout.served.server import SETTING, ModelServer, OtherInterfaceError, RefusedError
from distrl.types import Action, ActionKind

CERTAIN: Final = 1e-3
"""How far from 0 the log-probability may be of a token that is the only one left to draw."""
MODE: Final = "start it with --logprobs-mode processed_logprobs (docs/serving.md)"


def try_out(server: ModelServer, form: ChatForm, name: str, before_each: Callable[[], None]) -> None:
    """Ask `name` twice about a blank screen, with as many earlier blank screens as a prompt holds. Each time only one
    token may be drawn, and another one the second time.

    This checks that the server answers under that name, that it reads the prompt that would be recorded, and that it
    reports log-probabilities of the distribution that it draws from: those of the model's raw output could not be 0 for
    both tokens. before_each: called before each request; what it raises ends the test. Raises ConfigError where a check
    fails, ServerError where the server does not answer.
    """
    before = form.tokenizer.earlier_screens
    question = form.question(_blank(), "open the settings", [Action(ActionKind.BACK)] * before, [_blank()] * before)
    for token in form.probe_tokens():
        before_each()
        try:
            written = server.write(form.probe(name, question, token))
        except (RefusedError, OtherInterfaceError) as error:
            raise ConfigError(error.where, error.what, error.hint) from None
        try:
            form.refuse_other_reading(name, question, written)
        except PolicyError as error:
            raise ConfigError(error.where, error.what, error.hint) from None
        if written.ids != (token,):
            raise ConfigError(
                SETTING, f"wrote {written.ids} where {token} alone was allowed", "serve by a vLLM of docs/serving.md"
            )
        if abs(written.logprobs[0]) > CERTAIN:
            raise ConfigError(
                SETTING,
                f"reports {written.logprobs[0]:.3f} for a token that was certain: not the log-probability of the "
                "distribution that it draws from",
                MODE,
            )


def _blank() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", PROBE).save(file, "PNG")
    return file.getvalue()
