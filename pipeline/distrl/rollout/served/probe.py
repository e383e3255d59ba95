"""Tries out what a server answers under a name, before the first decision is asked for."""

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
"""How far from 0 the log-probability of a token may be that is the only one left to draw."""
MODE: Final = "start it with --logprobs-mode processed_logprobs (docs/serving.md)"


def try_out(server: ModelServer, form: ChatForm, name: str, before_each: Callable[[], None]) -> None:
    """Ask `name` twice about a blank screen, after as many as a prompt can hold, each time with one token left to draw.

    That shows that it answers under its own name, that it reads the prompt that would be recorded, and that the
    log-probabilities that it reports are of the distribution that it draws from: those of the model's raw output would
    not be 0 for both tokens. before_each: called before each request; what it raises ends it. Raises ConfigError where
    one of it is not so, ServerError where it does not answer.
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
