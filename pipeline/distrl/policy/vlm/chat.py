"""A vision-language model behind an OpenAI-compatible chat endpoint: what it is asked, and which answers are accepted.
Pure.

The server renders the conversation by its own copy of the model's chat template, tokenizer and processor, and says
which ids it has read. They must be the very ids that a learner will read in the recorded prompt; else the answer is
refused.
"""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from PIL import Image

from distrl.errors import PolicyError
from distrl.policy.actions import to_text
from distrl.policy.protocol import SampledAction
from distrl.policy.sampling import FULL, Sampling
from distrl.policy.screenshot import decoded
from distrl.policy.vlm.tokenizer import VlmTokenizer
from distrl.types import Action, ScreenSize

NEVER: Final = -100.0
"""The least bias of a logit that OpenAI's interface has; e^-100 of the probability is left. It is part of the
distribution whose log-probability the server reports."""
MOST_BIASES: Final = 1024
"""How many biases vLLM 0.33 takes (vllm.v1.worker.gpu.sample.logit_bias)."""
LEAST_LOGPROB: Final = -9999.0
"""What vLLM writes in place of a log-probability that it does not know, or that is no number."""
ROUNDING: Final = 1e-5
"""By how much a log-probability in float32 may be above 0."""
STOPPED, CUT_OFF = "stop", "length"
"""Why an answer ended, in OpenAI's words."""
OTHER_MODEL: Final = "serve the files of policy.base_model, with their chat template and processor"


@dataclass(frozen=True, slots=True)
class Question:
    """messages: JSON-able. prompt_ids: as recorded. read_ids: what the model reads, the screenshots filled in."""

    messages: list[dict[str, Any]]
    prompt_ids: tuple[int, ...]
    read_ids: tuple[int, ...]
    screen: ScreenSize


@dataclass(frozen=True, slots=True)
class Written:
    """What a server says. model: the name that answered. tokens: `token_id:N` for each log-probability."""

    model: str
    read_ids: tuple[int, ...]
    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    logprobs: tuple[float, ...]
    finish: str


class ChatForm:
    """Immutable. Raises PolicyError for a model with too many ids that must not be drawn."""

    def __init__(self, tokenizer: VlmTokenizer) -> None:
        self.tokenizer = tokenizer
        self._undrawn = frozenset(tokenizer.processor.undrawn(tokenizer.processor.vocabulary))
        if len(self._undrawn) > MOST_BIASES:
            raise PolicyError(
                "policy.server",
                f"cannot be forbidden the {len(self._undrawn)} ids that stand for no text, more than {MOST_BIASES}",
                "unset policy.server.endpoint, or pad the model's embeddings less",
            )

    def question(
        self, png: bytes, instruction: str, earlier: Sequence[Action], earlier_pngs: Sequence[bytes] = ()
    ) -> Question:
        """earlier_pngs: the screenshots before it that the prompt has, oldest first. Raises PolicyError for what is no
        PNG, another number of them, and an instruction that no prompt takes."""
        pictures, processor = [decoded(each) for each in (*earlier_pngs, png)], self.tokenizer.processor
        sizes = [ScreenSize(*picture.size) for picture in pictures]
        prompt = self.tokenizer.encode_prompt(instruction, earlier, sizes[-1])
        read = processor.filled(prompt, [processor.layout(size) for size in sizes])
        messages = processor.messages(*self.tokenizer.conversation(instruction, earlier, sizes[-1]))
        shown = iter(pictures)
        for message in messages:
            if isinstance(message["content"], str):
                continue
            message["content"] = [
                _image(processor.resized(next(shown))) if part["type"] == "image" else part
                for part in message["content"]
            ]
        return Question(messages, prompt, read, sizes[-1])

    def body(self, model: str, question: Question, sampling: Sampling | None, seed: int) -> dict[str, Any]:
        """The request that draws an action. sampling: None is greedy.

        Every setting of the sampling is sent: a server takes those that are left out from the model's files.
        """
        return {
            **self._asking(model, question, sampling),
            "max_completion_tokens": self.tokenizer.action_length - 1,
            "seed": seed,
        }

    def probe(self, model: str, question: Question, token: int) -> dict[str, Any]:
        """A request that leaves one token to draw. Its log-probability is 0, in the distribution that is drawn from."""
        return {
            **self._asking(model, question, FULL),
            "max_completion_tokens": 1,
            "allowed_token_ids": [token],
        }

    def probe_tokens(self) -> tuple[int, int]:
        """Two tokens of text. No model gives both of them a probability of 1 in the same place."""
        first, second = (self.tokenizer.processor.ids(each)[0] for each in "ab")
        return first, second

    def sampled(self, model: str, question: Question, written: Written) -> SampledAction:
        """The action that `model` wrote. Raises PolicyError for an answer that must not be recorded."""
        self.refuse_other_reading(model, question, written)
        ids, ends, most = written.ids, self.tokenizer.ends, self.tokenizer.action_length - 1
        if not self._undrawn.isdisjoint(ids) or not all(0 <= each < self.tokenizer.processor.size for each in ids):
            raise _refused("holds a token that no action may hold", "let no plug-in of the server change logits")
        stopped = written.finish == STOPPED and 0 < len(ids) <= most
        ended = stopped and ids[-1] in ends and _end_of(ids, ends) == len(ids) - 1
        cut_off = written.finish == CUT_OFF and len(ids) == most and _end_of(ids, ends) == most
        if not ended and not cut_off:
            raise _refused(
                f"ends by {written.finish!r:.40} after {len(ids)} of {most} tokens, where no answer may end",
                "serve with a --max-model-len that leaves room for prompt and action, and without stop strings",
            )
        whole = ids if ended else (*ids, ends[0])  # the end of an action that is cut off is not drawn
        action = self.tokenizer.decode_action(whole, question.screen)
        return SampledAction(whole, action, to_text(action), math.fsum(written.logprobs))

    def refuse_other_reading(self, model: str, question: Question, written: Written) -> None:
        """Raises PolicyError for an answer under another name, to another prompt, or without its probabilities."""
        if written.model != model:
            raise _refused(
                f"came from {written.model!r:.100}, not from {model!r}", "let no proxy send requests to other servers"
            )
        if written.read_ids != question.read_ids:
            raise _refused(
                f"is to {len(written.read_ids)} tokens, not to the {len(question.read_ids)} of the recorded prompt",
                OTHER_MODEL,
            )
        if written.tokens != tuple(f"token_id:{token}" for token in written.ids):
            raise _refused("has log-probabilities of other tokens than it wrote", "use a newer vLLM (docs/serving.md)")
        if not all(LEAST_LOGPROB < each <= ROUNDING for each in written.logprobs):
            raise _refused("has no log-probability for one of its tokens", "look at the server's log for NaN")

    def _asking(self, model: str, question: Question, sampling: Sampling | None) -> dict[str, Any]:
        return {
            "model": model,
            "messages": question.messages,
            "add_special_tokens": self.tokenizer.processor.begins,
            "n": 1,
            "temperature": sampling.temperature if sampling else 0.0,
            "top_p": sampling.top_p if sampling else 1.0,
            "top_k": (sampling.top_k if sampling else None) or 0,  # of all
            "min_p": 0.0,
            "repetition_penalty": 1.0,
            "presence_penalty": 0.0,
            "frequency_penalty": 0.0,
            "skip_special_tokens": False,
            "logprobs": True,
            "top_logprobs": 0,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
            "logit_bias": {str(token): NEVER for token in sorted(self._undrawn)},
            "stop_token_ids": list(self.tokenizer.ends),
            "ignore_eos": True,  # what ends an answer are stop_token_ids, and no other
        }


def _end_of(ids: Sequence[int], ends: Sequence[int]) -> int:
    """Where the first of `ends` stands in `ids`; their number where none does."""
    return next((place for place, each in enumerate(ids) if each in ends), len(ids))


def _image(picture: Image.Image) -> dict[str, Any]:
    file = io.BytesIO()
    picture.save(file, "PNG", compress_level=1)
    data = base64.b64encode(file.getvalue()).decode("ascii")
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def _refused(what: str, hint: str) -> PolicyError:
    return PolicyError("policy.server", f"its answer {what}", hint)
